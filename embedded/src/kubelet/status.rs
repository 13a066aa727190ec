//! The record of a pod's progress, from which its `status` follows.
//!
//! The code is pure: times are parameters. The rules for phase and conditions are those of Kubernetes'
//! kubelet.

mod resume;
mod termination;
mod written;

use jiff::Timestamp;

pub(super) use self::termination::Termination;
use super::pod::{PodSpec, Slot};

/// Address of the node and of all pods, which are processes of this host.
pub(super) const LOCAL_IP: &str = "127.0.0.1";

/// The kubelet's knowledge of the progress of one pod.
#[derive(Clone, Debug)]
pub(super) struct PodRecord {
    started_at: Timestamp,
    init: Vec<ContainerRecord>,
    main: Vec<ContainerRecord>,
    failure: Option<Failure>,
    /// The pod was refused as a whole: its containers have no status.
    refused: bool,
    finished: bool,
}

/// Why a pod failed as a whole (`status.reason` and `status.message`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// Machine-readable reason, such as `DeadlineExceeded`.
    pub(super) reason: String,
    /// Human-readable message.
    pub(super) message: String,
}

/// The progress of one container.
#[derive(Clone, Debug)]
struct ContainerRecord {
    state: State,
    /// The termination of the run before the current state.
    last: Option<Termination>,
    restarts: i32,
    container_id: Option<String>,
    image_id: String,
}

#[derive(Clone, Debug)]
enum State {
    Waiting {
        reason: String,
        message: Option<String>,
    },
    Running {
        since: Timestamp,
        /// Whether its startup probe has passed.
        is_up: bool,
        /// Whether its readiness probe passes.
        is_ready: bool,
    },
    Terminated(Termination),
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl ContainerRecord {
    fn new(reason: &str) -> Self {
        Self {
            state: State::Waiting { reason: reason.into(), message: None },
            last: None,
            restarts: 0,
            container_id: None,
            image_id: String::new(),
        }
    }

    fn termination(&self) -> Option<&Termination> {
        match &self.state {
            State::Terminated(termination) => Some(termination),
            _ => None,
        }
    }

    fn is_up(&self) -> bool {
        matches!(self.state, State::Running { is_up: true, .. })
    }

    fn is_ready(&self) -> bool {
        matches!(self.state, State::Running { is_ready: true, .. })
    }

    fn never_started(&self) -> bool {
        matches!(self.state, State::Waiting { .. }) && self.last.is_none()
    }

    fn succeeded(&self) -> bool {
        self.termination().is_some_and(Termination::succeeded)
    }
}

impl PodRecord {
    /// The record of a pod that has just been assigned to the kubelet.
    pub(super) fn new(spec: &PodSpec, now: Timestamp) -> Self {
        let main_reason =
            if spec.init_containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        Self {
            started_at: now,
            init: spec.init_containers.iter().map(|_| ContainerRecord::new("PodInitializing")).collect(),
            main: spec.containers.iter().map(|_| ContainerRecord::new(main_reason)).collect(),
            failure: None,
            refused: false,
            finished: false,
        }
    }

    fn slot_mut(&mut self, slot: Slot) -> &mut ContainerRecord {
        match slot {
            Slot::Init(index) => &mut self.init[index],
            Slot::Main(index) => &mut self.main[index],
        }
    }

    fn slot(&self, slot: Slot) -> &ContainerRecord {
        match slot {
            Slot::Init(index) => &self.init[index],
            Slot::Main(index) => &self.main[index],
        }
    }

    /// When a kubelet first accepted the pod.
    pub(super) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Number of starts of this container.
    pub(super) fn starts(&self, slot: Slot) -> u32 {
        let restarts = u32::try_from(self.slot(slot).restarts).unwrap_or_default();
        if self.has_started(slot) { restarts + 1 } else { 0 }
    }

    /// Whether this container has succeeded.
    pub(super) fn has_succeeded(&self, slot: Slot) -> bool {
        self.slot(slot).succeeded()
    }

    /// Whether no container runs or will run again, so that the phase is final.
    pub(super) fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether this container is running or has terminated.
    pub(super) fn has_started(&self, slot: Slot) -> bool {
        !self.slot(slot).never_started()
    }

    /// Records that a container waits, for something other than its turn.
    pub(super) fn waiting(&mut self, slot: Slot, reason: &str, message: String) {
        let record = self.slot_mut(slot);
        if let State::Terminated(termination) = &record.state {
            record.last = Some(termination.clone());
        }
        record.state = State::Waiting { reason: reason.into(), message: Some(message) };
    }

    /// Records that a process runs.
    pub(super) fn running(&mut self, slot: Slot, container_id: String, image_id: String, now: Timestamp) {
        let record = self.slot_mut(slot);
        if let State::Terminated(termination) = &record.state {
            record.last = Some(termination.clone());
        }
        if record.last.is_some() {
            record.restarts += 1;
        }
        record.container_id = Some(container_id);
        record.image_id = image_id;
        record.state = State::Running { since: now, is_up: true, is_ready: true };
    }

    /// Records that probes decide whether a container that runs has started and is ready.
    pub(super) fn probed(&mut self, slot: Slot) {
        if let State::Running { is_up, is_ready, .. } = &mut self.slot_mut(slot).state {
            (*is_up, *is_ready) = (false, false);
        }
    }

    /// Records that a container has started.
    pub(super) fn started(&mut self, slot: Slot) {
        if let State::Running { is_up, .. } = &mut self.slot_mut(slot).state {
            *is_up = true;
        }
    }

    /// Records whether a container is ready.
    pub(super) fn ready(&mut self, slot: Slot, ready: bool) {
        if let State::Running { is_ready, .. } = &mut self.slot_mut(slot).state {
            *is_ready = ready;
        }
    }

    /// Whether this container runs and has started.
    pub(super) fn is_up(&self, slot: Slot) -> bool {
        self.slot(slot).is_up()
    }

    /// Records that a process ended or could not be started.
    pub(super) fn terminated(&mut self, slot: Slot, termination: Termination) {
        let record = self.slot_mut(slot);
        if let State::Terminated(earlier) = &record.state {
            record.last = Some(earlier.clone());
        }
        if termination.started_at.is_none() && record.last.is_some() {
            record.restarts += 1;
        }
        record.state = State::Terminated(termination);
    }

    /// Fails the pod regardless of its containers. The first reason stays.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }

    /// Fails the pod before anything of it has started.
    pub(super) fn refuse(&mut self, failure: Failure) {
        self.fail(failure);
        self.refused = true;
    }

    /// Records that no container runs any more.
    pub(super) fn finish(&mut self, now: Timestamp) {
        self.finished = true;
        for record in self.init.iter_mut().chain(&mut self.main) {
            if record.termination().is_none() {
                record.state =
                    State::Terminated(record.last.take().unwrap_or_else(|| Termination::unknown(now)));
            }
        }
    }

    /// `status.phase`.
    pub(super) fn phase(&self, spec: &PodSpec) -> Phase {
        if self.finished {
            let succeeded = self.failure.is_none()
                && self.initialized(spec)
                && self.main.iter().all(ContainerRecord::succeeded);
            return if succeeded { Phase::Succeeded } else { Phase::Failed };
        }
        if !self.initialized(spec) || self.main.iter().any(ContainerRecord::never_started) {
            Phase::Pending
        } else {
            Phase::Running
        }
    }

    fn initialized(&self, spec: &PodSpec) -> bool {
        self.init.iter().enumerate().all(|(index, record)| {
            if spec.is_sidecar(Slot::Init(index)) { !record.never_started() } else { record.succeeded() }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use k8s_openapi::api::core::v1 as core;

    use super::*;

    fn spec(json: serde_json::Value) -> PodSpec {
        serde_json::from_value(json).unwrap()
    }

    fn ended(exit_code: i32) -> Termination {
        Termination {
            exit_code,
            signal: None,
            reason: if exit_code == 0 { "Completed" } else { "Error" }.into(),
            message: None,
            started_at: Some(Timestamp::UNIX_EPOCH),
            finished_at: Timestamp::UNIX_EPOCH,
        }
    }

    fn condition<'a>(status: &'a core::PodStatus, type_: &str) -> &'a core::PodCondition {
        status.conditions.as_ref().unwrap().iter().find(|condition| condition.type_ == type_).unwrap()
    }

    #[test]
    fn phases_of_a_pod_with_an_init_container() {
        let spec = spec(serde_json::json!({
            "restartPolicy": "Never",
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "a"}, {"name": "b"}],
        }));
        let now = Timestamp::UNIX_EPOCH;
        let mut record = PodRecord::new(&spec, now);
        assert_eq!(record.phase(&spec), Phase::Pending);
        record.running(Slot::Init(0), "id".into(), String::new(), now);
        assert_eq!(record.phase(&spec), Phase::Pending);
        record.terminated(Slot::Init(0), ended(0));
        record.running(Slot::Main(0), "id".into(), String::new(), now);
        assert_eq!(record.phase(&spec), Phase::Pending, "b has not started");
        record.running(Slot::Main(1), "id".into(), String::new(), now);
        assert_eq!(record.phase(&spec), Phase::Running);
        assert_eq!(condition(&record.to_status(&spec, &[], now), "Ready").status, "True");
        record.terminated(Slot::Main(0), ended(0));
        record.terminated(Slot::Main(1), ended(3));
        assert_eq!(record.phase(&spec), Phase::Running, "not final before the kubelet says so");
        record.finish(now);
        assert_eq!(record.phase(&spec), Phase::Failed);
        let status = record.to_status(&spec, &[], now);
        let ready = condition(&status, "Ready");
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodFailed")));
    }

    #[test]
    fn restarts_are_counted_and_the_last_termination_is_kept() {
        let spec = spec(serde_json::json!({"restartPolicy": "OnFailure", "containers": [{"name": "c"}]}));
        let now = Timestamp::UNIX_EPOCH;
        let mut record = PodRecord::new(&spec, now);
        for attempt in 0..3 {
            record.running(Slot::Main(0), "id".into(), String::new(), now);
            record.terminated(Slot::Main(0), ended(7));
            if attempt > 0 {
                record.waiting(Slot::Main(0), "CrashLoopBackOff", "back-off".into());
            }
        }
        assert_eq!(record.phase(&spec), Phase::Running);
        let status = record.to_status(&spec, &[], now);
        let container = &status.container_statuses.as_ref().unwrap()[0];
        assert_eq!(container.restart_count, 2);
        let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
        assert_eq!(last.exit_code, 7);
        assert!(container.state.as_ref().unwrap().waiting.is_some());
    }

    #[test]
    fn conditions_keep_their_transition_time_until_they_change() {
        let spec = spec(serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
        let later = Timestamp::from_second(60).unwrap();
        let mut record = PodRecord::new(&spec, Timestamp::UNIX_EPOCH);
        record.running(Slot::Main(0), "id".into(), String::new(), Timestamp::UNIX_EPOCH);
        let running = record.to_status(&spec, &[], Timestamp::UNIX_EPOCH);
        record.terminated(Slot::Main(0), ended(0));
        record.finish(later);
        let done = record.to_status(&spec, &running.conditions.unwrap(), later);
        let time = |type_| condition(&done, type_).last_transition_time.clone().unwrap().0;
        assert_eq!(time("PodScheduled"), Timestamp::UNIX_EPOCH);
        assert_eq!(time("Ready"), later);
        assert_eq!(condition(&done, "Ready").reason.as_deref(), Some("PodCompleted"));
        assert_eq!(done.phase.as_deref(), Some("Succeeded"));
    }

    #[test]
    fn a_pod_that_ends_without_running_has_failed() {
        let spec = spec(serde_json::json!({"restartPolicy": "Never", "containers": [{"name": "c"}]}));
        let mut record = PodRecord::new(&spec, Timestamp::UNIX_EPOCH);
        record.finish(Timestamp::UNIX_EPOCH);
        assert_eq!(record.phase(&spec), Phase::Failed);
        let status = record.to_status(&spec, &[], Timestamp::UNIX_EPOCH);
        let state = status.container_statuses.unwrap().remove(0).state.unwrap().terminated.unwrap();
        assert_eq!((state.exit_code, state.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    }
}
