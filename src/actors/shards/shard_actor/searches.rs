//! The live lists of pods: shared by the Jobs of a namespace, or of one Job with a
//! selector of its own.
//!
//! A list is of one namespace, so its cost depends on that namespace, and its author
//! cannot make it fail for others. The lists of a namespace, or of a Job with a selector
//! of its own, rest in proportion to the time that they take. A tenant that makes Jobs
//! ask again and again gets a tenth of one list's time for each shard.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::actors::pacing::rest::rest_after;
use crate::job::job_id::JobId;
use crate::job::tidying::Tidying;

/// Most Jobs whose pods are looked for in one list: their UIDs are part of a URL.
pub(super) const MAX_SOUGHT: usize = 50;

/// The lists of each namespace, or of each Job.
#[derive(Debug)]
pub(super) struct Searches<K = Arc<str>> {
    all: HashMap<K, Search>,
    /// When rests that are over are dropped.
    tidying: Tidying,
}

/// ```text
///  absent ──begin──> InProgress ──end──> Resting ──its time is over──> absent
/// ```
#[derive(Debug)]
enum Search {
    InProgress { begun: Instant, _task: AbortOnDropHandle<()> },
    Resting { until: Instant },
}

impl Search {
    fn begun(&self) -> Option<Instant> {
        match self {
            Self::InProgress { begun, .. } => Some(*begun),
            Self::Resting { .. } => None,
        }
    }
}

impl<K> Default for Searches<K> {
    fn default() -> Self {
        Self { all: HashMap::new(), tidying: Tidying::default() }
    }
}

impl<K: Clone + Eq + Hash> Searches<K> {
    /// Whether a list is in progress.
    pub(super) fn is_listing(&self) -> bool {
        self.all.values().any(|search| search.begun().is_some())
    }

    /// When the first of the lists in progress began.
    pub(super) fn first_begun(&self) -> Option<Instant> {
        self.all.values().filter_map(Search::begun).min()
    }

    /// When the list of this began, if it is in progress.
    pub(super) fn begun(&self, of: &K) -> Option<Instant> {
        self.all.get(of).and_then(Search::begun)
    }

    /// Whether a list of this may begin.
    pub(super) fn is_free(&self, of: &K, now: Instant) -> bool {
        match self.all.get(of) {
            None => true,
            Some(Search::InProgress { .. }) => false,
            Some(Search::Resting { until }) => *until <= now,
        }
    }

    /// A list of this begins.
    pub(super) fn begin(&mut self, of: K, now: Instant, task: AbortOnDropHandle<()>) {
        if self.tidying.is_due(self.all.len()) {
            self.all.retain(|_, search| !matches!(search, Search::Resting { until } if *until <= now));
            self.tidying.done(self.all.len());
        }
        self.all.insert(of, Search::InProgress { begun: now, _task: task });
    }

    /// The list of this has ended. The next begins after `pause` at the earliest.
    pub(super) fn end(&mut self, of: &K, now: Instant, pause: Duration) {
        let Some(begun) = self.begun(of) else { return };
        let rest = rest_after(now.saturating_duration_since(begun)).max(pause);
        self.all.insert(of.clone(), Search::Resting { until: now + rest });
    }

    /// Ends the list, and the rest.
    pub(super) fn forget(&mut self, of: &K) {
        self.all.remove(of);
    }

    /// The end of the first rest that is in progress and that a Job waits for. A rest
    /// that is over delays no list.
    pub(super) fn next(&self, now: Instant, waits: impl Fn(&K) -> bool) -> Option<Instant> {
        let rests = self.all.iter().filter_map(|(of, search)| match search {
            Search::Resting { until } if *until > now && waits(of) => Some(*until),
            _ => None,
        });
        rests.min()
    }
}

impl Searches {
    /// The lists that may begin, each with its Jobs: the first waiting Jobs, in order, of
    /// each namespace that neither lists nor rests.
    pub(super) fn may_begin(
        &self,
        waiting: impl IntoIterator<Item = JobId>,
        now: Instant,
    ) -> Vec<Vec<JobId>> {
        let mut lists: BTreeMap<Arc<str>, Vec<JobId>> = BTreeMap::new();
        for job in waiting {
            if self.is_free(job.namespace(), now) {
                let jobs = lists.entry(job.namespace().clone()).or_default();
                jobs.extend((jobs.len() < MAX_SOUGHT).then_some(job));
            }
        }
        lists.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(namespace: &str, number: usize) -> JobId {
        let name = format!("j{number:04}");
        JobId::new(namespace.into(), (&*name).into(), (&*name).into())
    }

    fn task() -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(tokio::spawn(std::future::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_with_thousands_of_jobs_in_doubt_holds_up_no_other() {
        let mut searches: Searches = Searches::default();
        let (evil, now): (Arc<str>, _) = ("evil".into(), Instant::now());
        let waiting = || (0..5_000).map(|number| of("evil", number)).chain([of("victim", 0)]);
        let lists = searches.may_begin(waiting(), now);
        assert_eq!(lists.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_SOUGHT, 1]);
        assert_eq!(lists[0][0], of("evil", 0));
        searches.begin(evil.clone(), now, task());
        assert_eq!(searches.may_begin(waiting(), now), [vec![of("victim", 0)]]);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_a_namespace_rest_in_proportion_to_their_time() {
        let mut searches: Searches = Searches::default();
        let (namespace, pause): (Arc<str>, _) = ("n".into(), Duration::from_millis(10));
        for (took, rest) in [(0, 10), (5, 50), (100, 1_000), (1_000, 2_000)] {
            let begun = Instant::now();
            searches.begin(namespace.clone(), begun, task());
            assert!(searches.is_listing() && searches.next(begun, |_| true).is_none());
            let ended = begun + Duration::from_millis(took);
            searches.end(&namespace, ended, pause);
            let next = ended + Duration::from_millis(rest);
            assert_eq!(searches.next(ended, |_| true), Some(next), "{took} ms");
            assert_eq!(
                searches.next(next, |_| true),
                None,
                "one that is over would be asked for again at once, and for ever"
            );
            assert_eq!(searches.next(ended, |_| false), None);
            assert!(searches.may_begin([of("n", 1)], next - Duration::from_millis(1)).is_empty());
            assert_eq!(searches.may_begin([of("n", 1)], next).len(), 1);
            assert!(!searches.is_free(&namespace, next - Duration::from_millis(1)));
            assert!(searches.is_free(&namespace, next) && searches.is_free(&"other".into(), begun));
        }
    }
}
