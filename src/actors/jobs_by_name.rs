//! The Jobs of the cluster by name, for Jobs that wait for the ends of others ([`order`](crate::job::order)).
//!
//! A replica watches all Jobs, so it knows those of other shards, and of other controllers, without a request. A Job's actor asks
//! here before each plan while the Job waits. It is woken when one of its predecessors appears, ends or is gone.
//!
//! During a list, Jobs may be shown in any order. So nothing is known until the list is complete.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::inbox::Inbox;
use super::job_input::JobInput;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;
use crate::job::options::Predecessors;
use crate::job::predecessors::{JobOutcome, OrderLook, is_met};
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::job::uid::Uid;

/// How many names a look at the predecessors of a Job searches for cycles. A longer cycle waits as well, and is not called one.
const SEARCHED: usize = 100;

/// The Jobs of the cluster by name. Clones are the same index.
#[derive(Clone, Debug, Default)]
pub struct JobsByName(Arc<Mutex<NamespaceIndex>>);

#[derive(Debug, Default)]
struct NamespaceIndex {
    /// No list is in progress.
    listed: bool,
    namespaces: BTreeMap<Arc<str>, NamespaceJobs>,
}

/// The Jobs of a namespace.
#[derive(Debug, Default)]
struct NamespaceJobs {
    jobs: BTreeMap<Arc<str>, KnownJob>,
    /// Name and the UID of a Job that waits for it.
    waiting: BTreeMap<(Box<str>, Uid), Inbox<JobInput>>,
}

/// A Job as the watch has last shown it.
#[derive(Debug, PartialEq)]
struct KnownJob {
    uid: Uid,
    outcome: JobOutcome,
    /// The Jobs that it waits for, unless it has begun.
    after: Option<Arc<Predecessors>>,
    /// The predecessors that have ended as wanted.
    met: Option<Arc<str>>,
}

impl KnownJob {
    /// `manages`: it is this controller's. Others know no order.
    fn of(seen: &ObservedJob, manages: bool) -> Self {
        let job = seen.may_have_pods();
        let outcome = match job.and_then(|job| job.status.finished()).map(|end| end.kind) {
            Some(ConditionKind::Complete) => JobOutcome::Succeeded,
            Some(_) => JobOutcome::Failed,
            None => JobOutcome::Unfinished,
        };
        let waits =
            |job: &&Job| manages && outcome == JobOutcome::Unfinished && job.status.start_time.is_none();
        let waiting = job.filter(waits);
        let after = waiting.and_then(|job| job.options.after.clone());
        let met = waiting.filter(|_| after.is_some()).and_then(|job| job.status.after_met.clone());
        Self { uid: seen.uid.clone(), outcome, after, met }
    }

    /// The names of the Jobs that it still waits for.
    fn awaits(&self) -> impl Iterator<Item = &str> {
        let names = self.after.iter().flat_map(|after| after.iter()).map(|(name, _)| name);
        names.filter(|name| !is_met(self.met.as_deref(), name))
    }
}

/// A search for cycles among the Jobs that wait for each other.
#[derive(Debug)]
struct CycleSearch<'a> {
    jobs: Option<&'a NamespaceJobs>,
    /// The Job that looks.
    target: &'a str,
    /// The names that were looked at. They do not lead to the target, unless a cycle has been found.
    seen: HashSet<&'a str>,
}

impl<'a> CycleSearch<'a> {
    /// Whether a Job of the name `from` waits for the target, be it by way of others.
    fn leads_back_from(&mut self, from: &'a str) -> bool {
        let Some(NamespaceJobs { jobs, .. }) = self.jobs else { return false };
        let mut next = vec![from];
        while let Some(name) = next.pop() {
            if name == self.target {
                return true;
            }
            if self.seen.len() >= SEARCHED || !self.seen.insert(name) {
                continue;
            }
            let awaited = jobs.get(name).into_iter().flat_map(KnownJob::awaits);
            next.extend(awaited.filter(|name| !self.seen.contains(name)));
        }
        false
    }
}

impl NamespaceJobs {
    fn inboxes(&self, name: &str) -> Vec<Inbox<JobInput>> {
        let first = (Box::from(name), Uid::LOWEST);
        let waiting = self.waiting.range(first..).take_while(|((waited_for, _), _)| **waited_for == *name);
        waiting.map(|(_, inbox)| inbox.clone()).collect()
    }
}

impl JobsByName {
    fn contents(&self) -> MutexGuard<'_, NamespaceIndex> {
        // A panic while changing leaves the maps whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a Job that the watch shows. `manages`: it is this controller's.
    pub fn seen(&self, seen: &ObservedJob, manages: bool) {
        let known = KnownJob::of(seen, manages);
        let waiting = {
            let mut contents = self.contents();
            let names = contents.namespaces.entry(seen.namespace.clone()).or_default();
            if names.jobs.get(&seen.name) == Some(&known) {
                return;
            }
            names.jobs.insert(seen.name.clone(), known);
            names.inboxes(&seen.name)
        };
        wake(waiting);
    }

    /// Records that a Job is gone.
    pub fn gone(&self, job: &JobId) {
        let waiting = {
            let mut contents = self.contents();
            let Some(names) = contents.namespaces.get_mut(job.namespace()) else { return };
            // Another Job may have its name by now.
            if names.jobs.get(job.name()).is_none_or(|known| known.uid != *job.uid()) {
                return;
            }
            names.jobs.remove(job.name());
            let waiting = names.inboxes(job.name());
            contents.tidy(job.namespace());
            waiting
        };
        wake(waiting);
    }

    /// A list of all Jobs begins.
    pub fn listing(&self) {
        self.contents().listed = false;
    }

    /// A list of all Jobs is complete.
    pub fn listed(&self) {
        let waiting = {
            let mut contents = self.contents();
            contents.listed = true;
            let waiting = contents.namespaces.values().flat_map(|names| &names.waiting);
            let waiting: BTreeMap<&Uid, Inbox<JobInput>> =
                waiting.map(|((_, uid), inbox)| (uid, inbox.clone())).collect();
            waiting.into_values().collect()
        };
        wake(waiting);
    }

    /// Forgets all Jobs.
    pub fn clear(&self) {
        let mut contents = self.contents();
        contents.listed = false;
        contents.namespaces.values_mut().for_each(|names| names.jobs.clear());
        contents.namespaces.retain(|_, names| !names.waiting.is_empty());
    }

    /// Looks at the predecessors of a Job. Before the list of all Jobs is complete, none has ended.
    pub fn look(&self, state: &JobState) -> OrderLook {
        let job = &state.job;
        let Some(after) = job.options.after.as_deref() else { return OrderLook::default() };
        let contents = self.contents();
        let names = contents.namespaces.get(&job.namespace);
        let outcome = |name: &str| match names.filter(|_| contents.listed) {
            Some(names) => names.jobs.get(name).map(|known| known.outcome),
            None => Some(JobOutcome::Unfinished),
        };
        let mut search = CycleSearch { jobs: names, target: &job.name, seen: HashSet::new() };
        OrderLook::new(after, |name| state.was_met(name), outcome, |name| search.leads_back_from(name))
    }

    /// Wakes an actor whenever one of the predecessors of its Job changes, until the answer is dropped.
    pub fn follow(&self, job: &Job, inbox: &Inbox<JobInput>) -> Option<Followed> {
        let after = job.options.after.clone()?;
        let mut contents = self.contents();
        let names = contents.namespaces.entry(job.namespace.clone()).or_default();
        for (name, _) in after.iter() {
            names.waiting.insert((name.into(), job.uid.clone()), inbox.clone());
        }
        drop(contents);
        Some(Followed { index: self.clone(), job: job.id(), after })
    }
}

impl NamespaceIndex {
    fn tidy(&mut self, namespace: &str) {
        if self
            .namespaces
            .get(namespace)
            .is_some_and(|names| names.jobs.is_empty() && names.waiting.is_empty())
        {
            self.namespaces.remove(namespace);
        }
    }
}

/// The inboxes are woken without the lock: an actor asks as soon as it is awake.
fn wake(waiting: Vec<Inbox<JobInput>>) {
    waiting.into_iter().for_each(|inbox| inbox.push(JobInput::PredecessorChanged));
}

/// The predecessors that an actor follows.
#[derive(Debug)]
pub struct Followed {
    index: JobsByName,
    job: JobId,
    after: Arc<Predecessors>,
}

impl Followed {
    /// Whether it is these.
    pub fn is(&self, after: &Predecessors) -> bool {
        *self.after == *after
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut contents = self.index.contents();
        let Some(names) = contents.namespaces.get_mut(self.job.namespace()) else { return };
        for (name, _) in self.after.iter() {
            names.waiting.remove(&(name.into(), self.job.uid().clone()));
        }
        contents.tidy(self.job.namespace());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::actors::test_api::{job, observed_job};
    use crate::job::limits::Limits;
    use crate::job::predecessors::Hindrance;

    /// A Job after others, with a terminal condition.
    fn seen(name: &str, uid: &str, after: &str, end: Option<&str>) -> Arc<ObservedJob> {
        let mut job = job(name, json!({}));
        job["metadata"]["uid"] = uid.into();
        if !after.is_empty() {
            job["metadata"]["annotations"] = json!({"yardmaster.dev/after": after});
        }
        if let Some(end) = end {
            job["status"]["conditions"] = json!([{"type": end, "status": "True"}]);
        }
        observed_job(&job)
    }

    fn found(index: &JobsByName, job: &ObservedJob) -> Option<(Hindrance, String)> {
        let obstacle = index.look(&JobState::new(job.job.clone().unwrap(), Limits::default())).obstacle?;
        Some((obstacle.cause, obstacle.job.to_string()))
    }

    fn index(jobs: &[&Arc<ObservedJob>]) -> JobsByName {
        let index = JobsByName::default();
        jobs.iter().for_each(|job| index.seen(job, true));
        index.listed();
        index
    }

    #[test]
    fn a_job_waits_for_what_the_watch_shows_under_a_name() {
        let waits = seen("waits", "w", "first, second", None);
        let index = index(&[&waits]);
        let missing = |name: &str| Some((Hindrance::Missing, name.to_owned()));
        assert_eq!(found(&index, &waits), missing("first"));
        index.seen(&seen("first", "1", "", Some("Complete")), false);
        assert_eq!(found(&index, &waits), missing("second"));
        index.seen(&seen("second", "2", "", None), true);
        assert_eq!(found(&index, &waits), Some((Hindrance::Unfinished, "second".into())));
        index.seen(&seen("second", "2", "", Some("Failed")), true);
        assert_eq!(found(&index, &waits), Some((Hindrance::Failed, "second".into())));
        index.seen(&seen("second", "3", "", Some("Complete")), true);
        assert_eq!(found(&index, &waits), None, "it was run again, and has succeeded");
        let id = |uid: &str| JobId::new("n".into(), "second".into(), uid.into());
        index.gone(&id("2"));
        assert_eq!(found(&index, &waits), None, "another Job of the name is gone");
        index.gone(&id("3"));
        assert_eq!(found(&index, &waits), missing("second"));
    }

    #[test]
    fn nothing_is_known_while_a_list_is_in_progress() {
        let (first, waits) = (seen("first", "1", "", Some("Complete")), seen("waits", "w", "first", None));
        let index = index(&[&first, &waits]);
        assert_eq!(found(&index, &waits), None);
        let unfinished = Some((Hindrance::Unfinished, "first".to_owned()));
        index.listing();
        assert_eq!(found(&index, &waits), unfinished);
        index.listed();
        assert_eq!(found(&index, &waits), None);
        index.clear();
        assert_eq!(found(&index, &waits), unfinished);
    }

    #[test]
    fn cycles_are_found_and_their_length_has_a_bound() {
        for length in [1, 2, 3, 40, 1_000] {
            let name = |number: usize| format!("job-{}", number % length);
            let jobs: Vec<_> = (0..length).map(|n| seen(&name(n), &name(n), &name(n + 1), None)).collect();
            let index = index(&jobs.iter().collect::<Vec<_>>());
            let cause = if length > SEARCHED { Hindrance::Unfinished } else { Hindrance::Cycle };
            assert_eq!(found(&index, &jobs[0]), Some((cause, name(1))), "{length}");
            let outside = seen("outside", "o", "job-0", None);
            let unfinished = Some((Hindrance::Unfinished, "job-0".to_owned()));
            assert_eq!(found(&index, &outside), unfinished, "a Job behind a cycle is not in it");
        }
    }

    /// Users who create Jobs choose their names: a look costs no more, however many lead on to others.
    #[test]
    fn all_predecessors_of_a_job_share_one_search() {
        let names = |from: usize| (from..from + 20).map(|n| format!("job-{n}")).collect::<Vec<_>>().join(",");
        let jobs: Vec<_> =
            (0..2_000).map(|n| seen(&format!("job-{n}"), &format!("{n}"), &names(n + 1), None)).collect();
        let index = index(&jobs.iter().collect::<Vec<_>>());
        let contents = index.contents();
        let jobs = contents.namespaces.get("n");
        let mut search = CycleSearch { jobs, target: "outside", seen: HashSet::new() };
        assert!(!["job-0", "job-500", "job-1000"].into_iter().any(|name| search.leads_back_from(name)));
        assert_eq!(search.seen.len(), SEARCHED);
    }

    /// Its second predecessor is created again, and after the first Job this time.
    #[test]
    fn a_job_does_not_wait_for_what_it_has_met() {
        let mut first = job("a", json!({}));
        first["metadata"]["annotations"] =
            json!({"yardmaster.dev/after": "b, c", "yardmaster.dev/after-met": "b"});
        let (first, again) = (observed_job(&first), seen("b", "b2", "a", None));
        let index = index(&[&first, &again]);
        assert_eq!(found(&index, &again), Some((Hindrance::Unfinished, "a".into())));
        assert_eq!(found(&index, &first), Some((Hindrance::Missing, "c".into())));
    }

    #[test]
    fn a_job_that_has_begun_waits_for_none() {
        let (a, mut b) = (seen("a", "a", "b", None), job("b", json!({})));
        b["metadata"]["annotations"] = json!({"yardmaster.dev/after": "a"});
        b["status"]["startTime"] = "2026-01-01T00:00:00Z".into();
        let index = index(&[&a, &observed_job(&b)]);
        assert_eq!(found(&index, &a), Some((Hindrance::Unfinished, "b".into())));
    }

    #[test]
    fn an_actor_is_woken_when_a_predecessor_changes() {
        let waits = seen("waits", "w", "first", None);
        let (index, inbox) = (index(&[&waits]), Inbox::default());
        let woken = || inbox.take().len();
        let followed = index.follow(waits.job.as_ref().unwrap(), &inbox);
        let steps: [(&str, Value, usize); 5] = [
            ("appears", json!({}), 1),
            ("is the same", json!({}), 0),
            ("has more pods", json!({"active": 3}), 0),
            ("ends", json!({"conditions": [{"type": "Complete", "status": "True"}]}), 1),
            ("still has ended", json!({"conditions": [{"type": "Complete", "status": "True"}]}), 0),
        ];
        for (what, status, expected) in steps {
            let mut first = job("first", json!({}));
            first["status"] = status;
            index.seen(&observed_job(&first), true);
            assert_eq!(woken(), expected, "it {what}");
        }
        index.seen(&seen("other", "o", "", None), true);
        assert_eq!(woken(), 0, "another Job");
        index.listed();
        assert_eq!(woken(), 1);
        drop(followed);
        index.gone(&JobId::new("n".into(), "first".into(), "first".into()));
        assert_eq!(woken(), 0, "it follows none any more");
        assert!(index.contents().namespaces.values().all(|names| names.waiting.is_empty()));
    }
}
