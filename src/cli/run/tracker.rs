//! Tracks the last state of every created Job, until all have ended.

use std::collections::{HashMap, HashSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::hold::Hold;
use super::view::{JobView, Outcome};
use crate::cli::pod_view::{PodView, controller_uid};
use crate::job::options::Predecessors;
use crate::job::predecessors::{JobOutcome, Obstacle, OrderLook};

/// The largest difference of two clocks that agree: two times of the API are rounded.
const AGREEMENT: Duration = Duration::from_secs(2);

/// A Job that was created.
#[derive(Clone, Debug)]
pub(super) struct Tracked {
    /// Uid of the Job.
    pub(super) uid: String,
    /// The Job as last returned by the server.
    pub(super) job: Value,
    /// Its end, once there is one.
    pub(super) end: Option<End>,
    since: Instant,
    ended_at: Option<Instant>,
    /// The Jobs that it waits for.
    after: Option<Arc<Predecessors>>,
    /// UIDs of pods that have not ended. The status of the Job comes later than its pods.
    pods: HashSet<String>,
}

/// The end of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has a terminal condition.
    Outcome(Outcome),
    /// It was deleted before it had one.
    Deleted,
    /// No pod of it runs until it is changed, and no other client can change it.
    Held(Hold),
}

impl Tracked {
    fn new(job: Value, is_shared: bool) -> Self {
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let mut tracked = Self {
            uid,
            job: Value::Null,
            end: None,
            since: Instant::now(),
            ended_at: None,
            after: None,
            pods: HashSet::new(),
        };
        tracked.set(job, is_shared);
        tracked
    }

    fn set(&mut self, mut job: Value, is_shared: bool) {
        // The items of a list lack both.
        job["apiVersion"] = "batch/v1".into();
        job["kind"] = "Job".into();
        let view = JobView::of(&job);
        let held = || view.hold().filter(|_| !is_shared).map(End::Held);
        self.end = view.outcome().map(End::Outcome).or_else(held);
        self.after = view.after();
        self.note_time();
        self.job = job;
    }

    fn set_deleted(&mut self) {
        self.end.get_or_insert(End::Deleted);
        self.note_time();
    }

    fn note_time(&mut self) {
        match self.end {
            Some(_) => _ = self.ended_at.get_or_insert_with(Instant::now),
            None => self.ended_at = None,
        }
    }

    /// Pods that have not ended.
    pub(super) fn active(&self) -> u64 {
        JobView::of(&self.job).active().max(self.pods.len() as u64)
    }

    /// How long it has run. The API has whole seconds: a clock of this process is more exact if both agree, which they do
    /// unless the Job began late.
    pub(super) fn duration(&self) -> Duration {
        let measured = self.ended_at.unwrap_or_else(Instant::now).duration_since(self.since);
        let recorded = JobView::of(&self.job).duration().and_then(|time| time.try_into().ok());
        recorded.filter(|recorded| measured.abs_diff(*recorded) > AGREEMENT).unwrap_or(measured)
    }

    /// Namespace of the Job.
    pub(super) fn namespace(&self) -> &str {
        self.job["metadata"]["namespace"].as_str().unwrap_or_default()
    }

    /// Name of the Job.
    pub(super) fn name(&self) -> &str {
        self.job["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// `namespace/name`.
    pub(super) fn key(&self) -> String {
        format!("{}/{}", self.namespace(), self.name())
    }
}

/// All Jobs of a run, in the order of their manifests.
#[derive(Clone, Debug)]
pub(super) struct Tracker {
    /// The Jobs.
    pub(super) jobs: Vec<Tracked>,
    /// Whether others may change the Jobs, such as a queue that resumes them.
    is_shared: bool,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// All Jobs are Complete.
    Complete,
    /// Some Job failed, or was deleted.
    Failed,
    /// No Job failed, but some could not run.
    Held,
}

impl From<Verdict> for ExitCode {
    fn from(verdict: Verdict) -> Self {
        Self::from(match verdict {
            Verdict::Complete => 0,
            Verdict::Failed => 1,
            Verdict::Held => 3,
        })
    }
}

impl Tracker {
    /// A tracker without Jobs. Unless `is_shared`, it does not wait for Jobs that must be changed first.
    pub(super) fn new(is_shared: bool) -> Self {
        Self { jobs: Vec::new(), is_shared }
    }

    /// Whether others may change the Jobs.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Adds a Job as returned by its creation.
    pub(super) fn add(&mut self, job: Value) {
        self.jobs.push(Tracked::new(job, self.is_shared));
    }

    /// Records a new state. Returns the Job if it is one of ours.
    pub(super) fn update(&mut self, job: Value) -> Option<&Tracked> {
        let is_shared = self.is_shared;
        let tracked = self.find(&job)?;
        tracked.set(job, is_shared);
        Some(tracked)
    }

    /// Records a deletion.
    pub(super) fn remove(&mut self, job: Value) -> Option<&Tracked> {
        let tracked = self.find(&job)?;
        // A deleted Job cannot be changed: it has ended as deleted, not as held.
        tracked.set(job, true);
        tracked.set_deleted();
        Some(tracked)
    }

    /// Records a complete list of a namespace: Jobs that are not in it have been deleted.
    pub(super) fn retain(&mut self, namespace: &str, listed: &HashSet<String>) {
        for tracked in self.jobs.iter_mut().filter(|tracked| tracked.namespace() == namespace) {
            if !listed.contains(&tracked.uid) {
                tracked.set_deleted();
            }
        }
    }

    /// Records the newest state of a pod, or that it is gone.
    pub(super) fn observe_pod(&mut self, pod: &PodView, is_gone: bool) {
        let Some(job) = controller_uid(pod) else { return };
        let Some(tracked) = self.jobs.iter_mut().find(|tracked| tracked.uid == job) else { return };
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let phase = pod.status.as_ref().map(|status| status.phase.raw());
        if is_gone || matches!(phase, Some("Succeeded" | "Failed")) {
            tracked.pods.remove(&uid);
        } else {
            tracked.pods.insert(uid);
        }
    }

    fn find(&mut self, job: &Value) -> Option<&mut Tracked> {
        let uid = job["metadata"]["uid"].as_str()?;
        self.jobs.iter_mut().find(|tracked| tracked.uid == uid)
    }

    /// Ends the Jobs that wait for others, if no Job of the run goes on and none of these may begin. No other client
    /// changes them.
    pub(super) fn end_stuck(&mut self) {
        let is_open = |tracked: &&Tracked| tracked.end.is_none();
        let waits = |tracked: &Tracked| tracked.after.is_some() && tracked.pods.is_empty();
        if self.is_shared || !self.jobs.iter().filter(is_open).all(waits) {
            return;
        }
        let outcome = |tracked: &Tracked| match &tracked.end {
            Some(End::Outcome(Outcome::Complete)) => Some(JobOutcome::Succeeded),
            Some(End::Outcome(Outcome::Failed { .. })) => Some(JobOutcome::Failed),
            Some(End::Deleted) => None,
            Some(End::Held(_)) | None => Some(JobOutcome::Unfinished),
        };
        let known: HashMap<(&str, &str), JobOutcome> = self
            .jobs
            .iter()
            .filter_map(|tracked| Some(((tracked.namespace(), tracked.name()), outcome(tracked)?)))
            .collect();
        let found = |tracked: &Tracked| {
            let outcome = |name: &str| known.get(&(tracked.namespace(), name)).copied();
            OrderLook::new(tracked.after.as_ref()?, |_| false, outcome, |_| false).obstacle
        };
        let obstacles: Vec<_> =
            self.jobs.iter().map(|tracked| found(tracked).filter(|_| is_open(&tracked))).collect();
        let may_begin =
            |(tracked, obstacle): (&Tracked, &Option<Obstacle>)| is_open(&tracked) && obstacle.is_none();
        if self.jobs.iter().zip(&obstacles).any(may_begin) {
            return;
        }
        for (tracked, obstacle) in self.jobs.iter_mut().zip(obstacles) {
            if let Some(obstacle) = obstacle {
                tracked.end = Some(End::Held(Hold::After(obstacle.to_string().into())));
                tracked.note_time();
            }
        }
    }

    /// Whether all Jobs have ended.
    pub(super) fn is_done(&self) -> bool {
        self.jobs.iter().all(|tracked| tracked.end.is_some())
    }

    /// The Jobs that have failed.
    pub(super) fn failed(&self) -> impl Iterator<Item = &Tracked> {
        let has_failed =
            |tracked: &&Tracked| matches!(tracked.end, Some(End::Outcome(Outcome::Failed { .. })));
        self.jobs.iter().filter(has_failed)
    }

    /// The result of the run, once it is done.
    pub(super) fn verdict(&self) -> Verdict {
        let is_complete = |end: &Option<End>| *end == Some(End::Outcome(Outcome::Complete));
        let is_held = |end: &Option<End>| matches!(end, Some(End::Held(_)));
        if self.jobs.iter().all(|tracked| is_complete(&tracked.end)) {
            Verdict::Complete
        } else if self.jobs.iter().all(|tracked| is_complete(&tracked.end) || is_held(&tracked.end)) {
            Verdict::Held
        } else {
            Verdict::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn job(uid: &str, conditions: Value) -> Value {
        json!({"metadata": {"namespace": "n", "name": uid, "uid": uid}, "status": {"conditions": conditions}})
    }

    #[test]
    fn the_end_of_a_job_is_kept_when_it_is_deleted_later() {
        let mut tracker = Tracker::new(true);
        tracker.add(job("a", json!([])));
        tracker.add(job("b", json!([])));
        assert!(!tracker.is_done());
        let complete = job("a", json!([{"type": "Complete", "status": "True"}]));
        tracker.update(complete.clone());
        // Deleted after its end, as by ttlSecondsAfterFinished: still complete.
        tracker.remove(complete);
        assert!(!tracker.is_done());
        tracker.remove(job("b", json!([])));
        assert!(tracker.is_done() && tracker.verdict() == Verdict::Failed);
        assert_eq!(tracker.jobs[1].end, Some(End::Deleted));
        assert!(tracker.update(job("stranger", json!([]))).is_none());
    }

    #[test]
    fn pods_count_before_the_status_does() {
        let mut tracker = Tracker::new(false);
        tracker.add(job("a", json!([])));
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "a", "uid": "a", "controller": true});
        let mut observe = |uid: &str, phase: &str, is_gone| {
            let metadata = json!({"name": uid, "uid": uid, "ownerReferences": [owner]});
            let pod = json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}});
            if let Ok(pod) = serde_json::from_value(pod) {
                tracker.observe_pod(&pod, is_gone);
            }
            tracker.jobs[0].active()
        };
        assert_eq!(observe("p", "Pending", false), 1);
        assert_eq!(observe("q", "Running", false), 2);
        assert_eq!(observe("q", "Succeeded", false), 1);
        assert_eq!(observe("p", "Running", true), 0);
    }

    #[test]
    fn suspended_jobs_are_waited_for_only_where_others_is_shared_them() {
        for is_shared in [true, false] {
            let mut suspended = job("a", json!([{"type": "Suspended", "status": "True"}]));
            suspended["spec"]["suspend"] = true.into();
            let mut tracker = Tracker::new(is_shared);
            tracker.add(suspended.clone());
            assert_eq!(tracker.is_done(), !is_shared);
            // Once resumed, it has to be waited for.
            suspended["spec"]["suspend"] = false.into();
            tracker.update(suspended);
            assert!(!tracker.is_done());
        }
    }

    #[test]
    fn jobs_that_can_never_begin_are_not_waited_for() {
        let after = |uid: &str, names: &str| {
            let mut job = job(uid, json!([]));
            job["metadata"]["annotations"] = json!({"yardmaster.dev/after": names});
            job
        };
        let end = |uid: &str, kind: &str| job(uid, json!([{"type": kind, "status": "True"}]));
        for (what, jobs, is_done) in [
            ("the other has not ended", vec![job("a", json!([])), after("b", "a")], false),
            ("it may begin", vec![end("a", "Complete"), after("b", "a")], false),
            ("the other has failed", vec![end("a", "Failed"), after("b", "a"), after("c", "b")], true),
            ("there is no such Job", vec![after("b", "a")], true),
            ("a circle", vec![after("b", "c"), after("c", "b")], true),
            ("another one goes on", vec![after("b", "a"), job("c", json!([]))], false),
        ] {
            for is_shared in [true, false] {
                let mut tracker = Tracker::new(is_shared);
                jobs.iter().for_each(|job| tracker.add(job.clone()));
                assert!(!tracker.is_done(), "{what}: others are being created");
                tracker.end_stuck();
                assert_eq!(tracker.is_done(), is_done && !is_shared, "{what}");
            }
        }
    }

    #[test]
    fn a_failed_job_outweighs_a_suspended_one() {
        let mut tracker = Tracker::new(false);
        let mut suspended = job("a", json!([{"type": "Suspended", "status": "True"}]));
        suspended["spec"]["suspend"] = true.into();
        tracker.add(suspended);
        tracker.add(job("b", json!([{"type": "Complete", "status": "True"}])));
        assert_eq!(tracker.verdict(), Verdict::Held);
        tracker.add(job("c", json!([{"type": "Failed", "status": "True"}])));
        assert_eq!(tracker.verdict(), Verdict::Failed);
    }
}
