//! The Jobs of the cluster by name, for Jobs that wait for the ends of others ([`order`](crate::job::order)).
//!
//! A replica watches all Jobs, so it knows those of other shards, and of other controllers, without a request. A Job's actor asks
//! here before each plan while the Job waits. It is woken when one of its predecessors appears, ends or is gone ([`wake_round`]).
//! If a predecessor waits for other Jobs than before, no actor is woken. This matters for cycles only, and a search for a cycle has a
//! time of its own ([`JobState::begins_cycle_search`]).
//!
//! During a list, Jobs may be shown in any order. So nothing is known until the list is complete.

mod cycle_search;
mod wake_round;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use self::cycle_search::CycleSearch;
use self::wake_round::{Waiting, WakeRound};
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::JobInput;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;
use crate::job::options::Predecessors;
use crate::job::predecessors::{JobOutcome, OrderLook, names_met};
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::ConditionKind;
use crate::job::uid::Uid;

/// The Jobs of the cluster by name. Clones are the same index.
#[derive(Clone, Debug, Default)]
pub struct JobsByName {
    contents: Arc<Mutex<NamespaceIndex>>,
    /// There are actors to wake.
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct NamespaceIndex {
    /// No list is in progress.
    listed: bool,
    namespaces: BTreeMap<Arc<str>, NamespaceJobs>,
    /// The actors to wake, by namespace.
    rounds: BTreeMap<Arc<str>, WakeRound>,
}

/// The Jobs of a namespace.
#[derive(Debug, Default)]
struct NamespaceJobs {
    jobs: BTreeMap<Arc<str>, KnownJob>,
    waiting: BTreeMap<Waiting, Inbox<JobInput>>,
}

/// A Job as the watch has last shown it.
#[derive(Debug)]
struct KnownJob {
    uid: Uid,
    outcome: JobOutcome,
    /// The Jobs that it still waits for, unless it has begun.
    awaited: Option<Arc<Predecessors>>,
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
        let awaited = job.filter(waits).and_then(|job| {
            let met: BTreeSet<&str> = names_met(job.status.after_met.as_deref()).collect();
            Some(job.options.after.as_ref()?.without(&met))
        });
        Self { uid: seen.uid.clone(), outcome, awaited }
    }
}

impl NamespaceJobs {
    /// Whether a Job waits for one of this name.
    fn has_waiting(&self, name: &str) -> bool {
        let next = self.waiting.range((Box::from(name), Uid::LOWEST)..).next();
        next.is_some_and(|((waited_for, _), _)| **waited_for == *name)
    }

    /// The names of the Jobs that the Job of this name still waits for.
    fn awaited_by(&self, name: &str) -> impl Iterator<Item = &str> {
        let awaited = self.jobs.get(name).and_then(|known| known.awaited.as_deref());
        awaited.into_iter().flat_map(Predecessors::iter).map(|(name, _)| name)
    }
}

impl JobsByName {
    fn contents(&self) -> MutexGuard<'_, NamespaceIndex> {
        // A panic while changing leaves the maps whole.
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a Job that the watch shows. `manages`: it is this controller's.
    pub fn seen(&self, seen: &ObservedJob, manages: bool) {
        let known = KnownJob::of(seen, manages);
        let (uid, outcome) = (known.uid.clone(), known.outcome);
        let mut contents = self.contents();
        let names = contents.namespaces.entry(seen.namespace.clone()).or_default();
        let before = names.jobs.insert(seen.name.clone(), known);
        if before.is_none_or(|before| (before.uid, before.outcome) != (uid, outcome)) {
            self.changed(&mut contents, &seen.namespace, &seen.name);
        }
    }

    /// Records that a Job is gone.
    pub fn gone(&self, job: &JobId) {
        let mut contents = self.contents();
        let Some(names) = contents.namespaces.get_mut(job.namespace()) else { return };
        // Another Job may have its name by now.
        if names.jobs.get(job.name()).is_none_or(|known| known.uid != *job.uid()) {
            return;
        }
        names.jobs.remove(job.name());
        self.changed(&mut contents, job.namespace(), job.name());
        contents.tidy(job.namespace());
    }

    /// Wakes the actors that wait for this name, soon.
    fn changed(&self, contents: &mut NamespaceIndex, namespace: &Arc<str>, name: &str) {
        if contents.namespaces.get(namespace).is_some_and(|names| names.has_waiting(name)) {
            contents.rounds.entry(namespace.clone()).or_default().add(name);
            self.changed.notify_one();
        }
    }

    /// Wakes the actors whose predecessors have changed, until dropped.
    pub async fn wake_waiting(self) {
        loop {
            let changed = self.changed.notified();
            match self.wake_some(Instant::now()) {
                Some(at) => _ = timeout_at(at, changed).await,
                None => changed.await,
            }
        }
    }

    /// Wakes a portion of the actors of each namespace that has some to wake and does not pause. Returns when the next pause
    /// ends, if there is one.
    fn wake_some(&self, now: Instant) -> Option<Instant> {
        let (mut woken, mut next) = (Vec::new(), None::<Instant>);
        {
            let mut contents = self.contents();
            let NamespaceIndex { namespaces, rounds, .. } = &mut *contents;
            rounds.retain(|namespace, round| {
                let names = namespaces.get(namespace);
                let pause = names.and_then(|names| round.wake_some(&names.waiting, now, &mut woken));
                next = next.into_iter().chain(pause).min();
                pause.is_some()
            });
        }
        wake(woken);
        next
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

    /// Looks at the predecessors of a Job. Before the list of all Jobs is complete, none has ended. `searches`: the look is to
    /// search for a cycle. Otherwise, the cycle of the last look is still one while its predecessor waits for some Job.
    pub fn look(&self, state: &JobState, searches: bool) -> OrderLook {
        let job = &state.job;
        let Some(after) = job.options.after.as_deref() else { return OrderLook::default() };
        let (met, known_cycle) = (state.names_met(), state.known_cycle());
        let contents = self.contents();
        let names = contents.namespaces.get(&job.namespace);
        let outcome = |name: &str| match names.filter(|_| contents.listed) {
            Some(names) => names.jobs.get(name).map(|known| known.outcome),
            None => Some(JobOutcome::Unfinished),
        };
        let mut search = CycleSearch::new(names, &job.name);
        let waits_for_it = |name| match searches {
            true => search.leads_back_from(name),
            false => {
                known_cycle == Some(name)
                    && names.is_some_and(|names| names.awaited_by(name).next().is_some())
            }
        };
        OrderLook::new(after, |name| met.contains(name), outcome, waits_for_it)
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

    use super::cycle_search::MOST_FOLLOWED;
    use super::wake_round::{PAUSE, PORTION};
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
        let state = JobState::new(job.job.clone().unwrap(), Limits::default());
        named(&index.look(&state, true))
    }

    fn named(look: &OrderLook) -> Option<(Hindrance, String)> {
        let obstacle = look.obstacle.as_ref()?;
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
        for length in [1, 2, 3, 40, MOST_FOLLOWED, 1_000] {
            let name = |number: usize| format!("job-{}", number % length);
            let jobs: Vec<_> = (0..length).map(|n| seen(&name(n), &name(n), &name(n + 1), None)).collect();
            let index = index(&jobs.iter().collect::<Vec<_>>());
            let cause = if length > MOST_FOLLOWED { Hindrance::Unfinished } else { Hindrance::Cycle };
            assert_eq!(found(&index, &jobs[0]), Some((cause, name(1))), "{length}");
            let outside = seen("outside", "o", "job-0", None);
            let unfinished = Some((Hindrance::Unfinished, "job-0".to_owned()));
            assert_eq!(found(&index, &outside), unfinished, "a Job behind a cycle is not in it");
        }
    }

    /// Users who create Jobs choose their names: a search follows no more, however many lead on to others.
    #[test]
    fn all_predecessors_of_a_job_share_one_search() {
        let names = |from: usize| (from..from + 20).map(|n| format!("job-{n}")).collect::<Vec<_>>().join(",");
        let jobs: Vec<_> =
            (0..2_000).map(|n| seen(&format!("job-{n}"), &format!("{n}"), &names(n + 1), None)).collect();
        let index = index(&jobs.iter().collect::<Vec<_>>());
        let contents = index.contents();
        let jobs = contents.namespaces.get("n");
        let mut search = CycleSearch::new(jobs, "outside");
        assert!(!["job-0", "job-500", "job-1000"].into_iter().any(|name| search.leads_back_from(name)));
        assert_eq!(search.followed, MOST_FOLLOWED);
    }

    /// All Jobs refer to the same few, so that few names are new.
    #[test]
    fn names_that_a_search_has_seen_before_count_as_well() {
        let all = (0..20).map(|n| format!("job-{n}")).collect::<Vec<_>>().join(",");
        let jobs: Vec<_> = (0..20).map(|n| seen(&format!("job-{n}"), &format!("{n}"), &all, None)).collect();
        let index = index(&jobs.iter().collect::<Vec<_>>());
        let contents = index.contents();
        let mut search = CycleSearch::new(contents.namespaces.get("n"), "outside");
        assert!(!search.leads_back_from("job-0"));
        assert_eq!(search.followed, MOST_FOLLOWED);
    }

    /// Users may write the annotation about what a Job has met. Only names are kept that it still waits for.
    #[test]
    fn a_job_is_known_by_the_names_that_it_still_waits_for() {
        let commas = ",".repeat(2_500);
        for (met, expected) in
            [("", "a,b,c"), ("b", "a,c"), ("x,c,a,y,b", ""), (&*format!("b{commas}"), "a,c")]
        {
            let mut waits = job("waits", json!({}));
            waits["metadata"]["annotations"] = json!({
                "yardmaster.dev/after": "a, b", "yardmaster.dev/after-any": "c", "yardmaster.dev/after-met": met,
            });
            let index = index(&[&observed_job(&waits)]);
            let contents = index.contents();
            let awaited: Vec<_> = contents.namespaces["n"].awaited_by("waits").collect();
            assert_eq!(awaited.join(","), expected, "{met:.20}");
        }
    }

    /// Many Jobs may wait for one that changes often.
    #[test]
    fn only_a_look_that_is_to_search_finds_a_cycle_and_others_keep_it() {
        let (hen, egg) = (seen("hen", "h", "egg", None), seen("egg", "e", "hen", None));
        let index = index(&[&hen, &egg]);
        let mut state = JobState::new(hen.job.clone().unwrap(), Limits::default());
        let mut look = |searches| {
            let look = index.look(&state, searches);
            let found = named(&look);
            state.order_seen(look);
            found
        };
        let because = |cause| Some((cause, "egg".to_owned()));
        assert_eq!(look(false), because(Hindrance::Unfinished));
        assert_eq!(look(true), because(Hindrance::Cycle));
        assert_eq!(look(false), because(Hindrance::Cycle));
        index.seen(&seen("egg", "e", "chick", None), true);
        assert_eq!(look(false), because(Hindrance::Cycle), "the next search finds the difference");
        index.seen(&seen("egg", "e", "", None), true);
        assert_eq!(look(false), because(Hindrance::Unfinished), "it waits for none");
        index.seen(&egg, true);
        assert_eq!(look(false), because(Hindrance::Unfinished));
        assert_eq!(look(true), because(Hindrance::Cycle));
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
        let mut now = Instant::now();
        let mut woken = || {
            now += PAUSE;
            index.wake_some(now);
            inbox.take().len()
        };
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
        index.seen(&seen("first", "2", "", None), true);
        assert_eq!(woken(), 1, "it was created again");
        for after in ["waits", "waits, other", ""] {
            index.seen(&seen("first", "2", after, None), true);
            assert_eq!(woken(), 0, "it waits for others than before: {after}");
        }
        index.listed();
        assert_eq!(woken(), 1);
        drop(followed);
        index.gone(&JobId::new("n".into(), "first".into(), "2".into()));
        assert_eq!(woken(), 0, "it follows none any more");
        assert!(index.contents().namespaces.values().all(|names| names.waiting.is_empty()));
        assert!(index.contents().rounds.is_empty());
    }

    /// A tenant may have all Jobs of a namespace wait for one, and create and delete that one as often as it likes.
    #[tokio::test(start_paused = true)]
    async fn however_often_a_job_changes_few_actors_are_woken_at_once() {
        const MANY: usize = 1_000;
        let index = index(&[]);
        let inboxes: Vec<Inbox<JobInput>> = (0..MANY).map(|_| Inbox::default()).collect();
        let waiting: Vec<_> =
            (0..MANY).map(|n| seen(&format!("waits-{n}"), &format!("w{n}"), "first", None)).collect();
        let follows = waiting.iter().zip(&inboxes);
        let followed: Vec<_> =
            follows.map(|(seen, inbox)| index.follow(seen.job.as_ref().unwrap(), inbox)).collect();
        let waking = tokio::spawn(index.clone().wake_waiting());
        let woken = || inboxes.iter().map(|inbox| inbox.take().len()).sum::<usize>();
        let (begun, mut all) = (Instant::now(), 0);
        for number in 0..200 {
            index.seen(&seen("first", &number.to_string(), "", None), true);
            tokio::time::advance(PAUSE / 10).await;
            let now = woken();
            assert!(now <= PORTION, "{now} at once");
            all += now;
        }
        let portions = begun.elapsed().div_duration_f64(PAUSE) + 1.0;
        assert!(all as f64 <= portions * PORTION as f64, "{all} in {portions} pauses");
        index.seen(&seen("first", "last", "", None), true);
        tokio::time::sleep(PAUSE * 30).await;
        assert!(inboxes.iter().all(|inbox| !inbox.take().is_empty()), "all are woken after the last change");
        assert!(index.contents().rounds.is_empty());
        drop(followed);
        waking.abort();
    }
}
