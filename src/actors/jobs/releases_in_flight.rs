//! Releases of pods in flight: each must end before its Job sends the same again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::job::uid::Uid;

/// The pods, and the Jobs that release them. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct ReleasesInFlight(Arc<Mutex<HashSet<(Uid, Uid)>>>);

/// The release of a pod by a Job. Dropped, it has ended.
pub struct ReleaseInFlight {
    all: ReleasesInFlight,
    of: (Uid, Uid),
}

impl ReleasesInFlight {
    /// Begins a release; `None` if the Job releases this pod already.
    pub fn begin(&self, job: &Uid, pod: &Uid) -> Option<ReleaseInFlight> {
        let of = (job.clone(), pod.clone());
        self.all().insert(of.clone()).then(|| ReleaseInFlight { all: self.clone(), of })
    }

    fn all(&self) -> MutexGuard<'_, HashSet<(Uid, Uid)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ReleaseInFlight {
    fn drop(&mut self) {
        self.all.all().remove(&self.of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_begins_again_once_it_has_ended() {
        let all = ReleasesInFlight::default();
        let begin = |job: &str, pod: &str| all.begin(&job.into(), &pod.into());
        let first = begin("j", "a");
        assert!(first.is_some() && begin("j", "a").is_none());
        assert!(begin("j", "b").is_some() && begin("k", "a").is_some());
        drop(first);
        assert!(begin("j", "a").is_some());
    }
}
