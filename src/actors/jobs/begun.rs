//! Requests of Jobs in flight for pods: each must end before the same is sent again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::uid::Uid;

/// The Jobs and the pods for which they have begun something. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct BegunFor(Arc<Mutex<HashSet<(Uid, Uid)>>>);

/// Something that a Job has begun for a pod. Dropped, it has ended.
pub struct Begun {
    all: BegunFor,
    of: (Uid, Uid),
}

impl BegunFor {
    /// Begins it; `None` if the Job has begun it for this pod before.
    pub fn begin(&self, job: &Uid, pod: &Uid) -> Option<Begun> {
        let of = (job.clone(), pod.clone());
        self.all().insert(of.clone()).then(|| Begun { all: self.clone(), of })
    }

    fn all(&self) -> MutexGuard<'_, HashSet<(Uid, Uid)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.all.all().remove(&self.of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_begins_again_once_it_has_ended() {
        let all = BegunFor::default();
        let begin = |job: &str, pod: &str| all.begin(&job.into(), &pod.into());
        let first = begin("j", "a");
        assert!(first.is_some() && begin("j", "a").is_none());
        assert!(begin("j", "b").is_some() && begin("k", "a").is_some());
        drop(first);
        assert!(begin("j", "a").is_some());
    }
}
