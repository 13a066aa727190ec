//! What has begun for a pod and must not begin again before it has ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::uid::{Uid, UidSet};

/// The pods for which something has begun. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BegunFor(Arc<Mutex<UidSet>>);

/// Something that has begun for a pod. Dropped, it has ended.
pub struct Begun {
    all: BegunFor,
    pod: Uid,
}

impl BegunFor {
    /// Begins it for a pod; `None` if it has begun before.
    pub fn begin(&self, pod: &Uid) -> Option<Begun> {
        self.pods().insert(pod.clone()).then(|| Begun { all: self.clone(), pod: pod.clone() })
    }

    fn pods(&self) -> MutexGuard<'_, UidSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.all.pods().remove(&self.pod);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_begins_again_once_it_has_ended() {
        let all = BegunFor::default();
        let first = all.begin(&"a".into());
        assert!(first.is_some() && all.begin(&"a".into()).is_none() && all.begin(&"b".into()).is_some());
        drop(first);
        assert!(all.begin(&"a".into()).is_some());
    }
}
