//! The search for a cycle among the Jobs that wait for each other.

use std::collections::{HashSet, VecDeque};

use super::NamespaceJobs;

/// How many names a search follows, however the Jobs of a namespace refer to each other. Users choose the names, and other
/// Jobs wait for the lock meanwhile. The members of a longer cycle wait as well, without the reason.
pub(super) const MOST_FOLLOWED: usize = 200;

/// A search, for all predecessors of the Job that looks.
#[derive(Debug)]
pub(super) struct CycleSearch<'a> {
    jobs: Option<&'a NamespaceJobs>,
    /// The Job that looks.
    target: &'a str,
    /// The names that were looked up. They do not lead to the target, unless a cycle has been found.
    seen: HashSet<&'a str>,
    /// How many names were followed.
    pub(super) followed: usize,
}

impl<'a> CycleSearch<'a> {
    /// A search for the Job `target` among these Jobs.
    pub(super) fn new(jobs: Option<&'a NamespaceJobs>, target: &'a str) -> Self {
        Self { jobs, target, seen: HashSet::new(), followed: 0 }
    }

    /// Whether a Job of the name `from` waits for the target, be it by way of others. The nearest are looked up first.
    pub(super) fn leads_back_from(&mut self, from: &'a str) -> bool {
        let mut next = VecDeque::from([from]);
        while let Some(name) = next.pop_front() {
            if name == self.target {
                return true;
            }
            if self.seen.insert(name) {
                let awaited = self.jobs.into_iter().flat_map(|jobs| jobs.awaited_by(name));
                let before = next.len();
                next.extend(awaited.take(MOST_FOLLOWED - self.followed));
                self.followed += next.len() - before;
            }
        }
        false
    }
}
