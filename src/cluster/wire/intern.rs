//! An interner for strings that many objects repeat: namespaces, owners' names.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use crate::job::job_id::JobId;

/// Number of strings that are remembered. When it is reached the interner is cleared: strings in use stay
/// valid, but are no longer shared with later ones.
const CAPACITY: usize = 16_384;
/// Longest string that is remembered, in bytes: that of a name. So an interner remembers at most 4 MB.
const LONGEST: usize = 253;

/// Gives equal strings one allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interner(Arc<Mutex<HashSet<Arc<str>, RandomState>>>);

impl Interner {
    /// The shared copy of a string.
    pub(crate) fn get(&self, text: &str) -> Arc<str> {
        if text.len() > LONGEST {
            return text.into();
        }
        // Poisoning is ignored: a panic between two set operations leaves a valid set.
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = seen.get(text) {
            return shared.clone();
        }
        if seen.len() >= CAPACITY {
            seen.clear();
        }
        let shared: Arc<str> = text.into();
        seen.insert(shared.clone());
        shared
    }
}

/// Gives the claims of pods that come one after the other one allocation: they are of one Job mostly.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastClaim(Arc<Mutex<Option<JobId>>>);

impl LastClaim {
    /// As [`JobId::claimed`].
    pub(crate) fn get(&self, namespace: &Arc<str>, name: &str, uid: &str) -> Option<JobId> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |job: &&JobId| {
            job.uid().with_text(|known| known == uid) && **job.name() == *name && job.namespace() == namespace
        };
        if let Some(job) = last.as_ref().filter(is_it) {
            return Some(job.clone());
        }
        *last = JobId::claimed(namespace, name, uid);
        last.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation_and_memory_is_bounded() {
        let interner = Interner::default();
        assert!(Arc::ptr_eq(&interner.get("a"), &interner.get("a")));
        for n in 0..3 * CAPACITY {
            interner.get(&n.to_string());
        }
        assert!(interner.0.lock().unwrap_or_else(PoisonError::into_inner).len() <= CAPACITY);
        assert_eq!(&*interner.get("a"), "a");
    }

    #[test]
    fn claims_in_a_row_share_one_allocation_and_are_what_they_would_be_alone() {
        let (last, namespace) = (LastClaim::default(), Arc::from("n"));
        for (name, uid) in [("a", "1"), ("a", "1"), ("b", "1"), ("b", "2"), ("_", "2"), ("b", "2")] {
            assert_eq!(last.get(&namespace, name, uid), JobId::claimed(&namespace, name, uid));
        }
        assert_eq!(last.get(&"other".into(), "b", "2"), JobId::claimed(&"other".into(), "b", "2"));
    }

    #[test]
    fn a_string_that_no_name_can_be_is_not_remembered() {
        let interner = Interner::default();
        for length in [LONGEST, LONGEST + 1, 1_300_000] {
            let text = "a".repeat(length);
            assert_eq!(&*interner.get(&text), text);
        }
        let seen = interner.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(seen.iter().map(|text| text.len()).collect::<Vec<_>>(), [LONGEST]);
    }
}
