//! The `status` of a pod for the API server, from the record of its progress.

use jiff::Timestamp;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::pod::{PodSpec, RestartPolicy, Slot};
use super::{ContainerRecord, LOCAL_IP, Phase, PodRecord, State, Termination};

impl PodRecord {
    /// The `status` to write. Conditions with an unchanged status keep their transition time from `previous`.
    pub(in crate::kubelet) fn to_status(
        &self,
        spec: &PodSpec,
        previous: &[core::PodCondition],
        now: Timestamp,
    ) -> core::PodStatus {
        let phase = self.phase(spec);
        core::PodStatus {
            phase: Some(format!("{phase:?}")),
            reason: self.failure.as_ref().map(|failure| failure.reason.clone()),
            message: self.failure.as_ref().map(|failure| failure.message.clone()),
            start_time: Some(Time(self.started_at)),
            host_ip: Some(LOCAL_IP.into()),
            host_ips: Some(vec![core::HostIP { ip: LOCAL_IP.into() }]),
            pod_ip: Some(LOCAL_IP.into()),
            pod_ips: Some(vec![core::PodIP { ip: LOCAL_IP.into() }]),
            conditions: Some(self.conditions(spec, phase, previous, now)),
            init_container_statuses: (!self.init.is_empty() && !self.refused)
                .then(|| statuses(spec, &self.init, Slot::Init)),
            container_statuses: (!self.refused).then(|| statuses(spec, &self.main, Slot::Main)),
            ..Default::default()
        }
    }

    fn conditions(
        &self,
        spec: &PodSpec,
        phase: Phase,
        previous: &[core::PodCondition],
        now: Timestamp,
    ) -> Vec<core::PodCondition> {
        let initialized = match phase {
            Phase::Succeeded => Verdict::yes_because("PodCompleted"),
            _ if self.initialized(spec) => Verdict::yes(),
            _ => Verdict::no(
                "ContainersNotInitialized",
                format!(
                    "containers with incomplete status: [{}]",
                    names(spec, &self.init, Slot::Init, |r| !r.succeeded())
                ),
            ),
        };
        let unready = self.unready(spec);
        let ready = match phase {
            Phase::Succeeded => Verdict::no("PodCompleted", String::new()),
            Phase::Failed => Verdict::no("PodFailed", String::new()),
            _ if unready.is_empty() => Verdict::yes(),
            _ => Verdict::no(
                "ContainersNotReady",
                format!("containers with unready status: [{}]", unready.join(" ")),
            ),
        };
        let sandbox = if self.finished { Verdict::no("", String::new()) } else { Verdict::yes() };
        [
            ("PodReadyToStartContainers", sandbox),
            ("Initialized", initialized),
            ("Ready", ready.clone()),
            ("ContainersReady", ready),
            ("PodScheduled", Verdict::yes()),
        ]
        .into_iter()
        .map(|(type_, verdict)| verdict.condition(type_, previous, now))
        .collect()
    }

    /// The containers that a pod which is ready would have ready: sidecars and main containers.
    fn unready<'a>(&self, spec: &'a PodSpec) -> Vec<&'a str> {
        let counts = |slot: &Slot| matches!(slot, Slot::Main(_)) || spec.is_sidecar(*slot);
        let unready = spec.slots().filter(counts).filter(|slot| !self.slot(*slot).is_ready());
        unready.map(|slot| spec.container(slot).name.as_str()).collect()
    }
}

/// Status, reason and message of a condition.
#[derive(Clone)]
struct Verdict {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self::yes_because("")
    }

    fn yes_because(reason: &'static str) -> Self {
        Self { status: "True", reason, message: String::new() }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { status: "False", reason, message }
    }

    fn condition(self, type_: &str, previous: &[core::PodCondition], now: Timestamp) -> core::PodCondition {
        let since = previous
            .iter()
            .find(|earlier| earlier.type_ == type_ && earlier.status == self.status)
            .and_then(|earlier| earlier.last_transition_time.clone());
        core::PodCondition {
            type_: type_.into(),
            status: self.status.into(),
            reason: (!self.reason.is_empty()).then(|| self.reason.into()),
            message: (!self.message.is_empty()).then_some(self.message),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            ..Default::default()
        }
    }
}

/// Names of the matching containers, separated by spaces as in Kubernetes.
fn names(
    spec: &PodSpec,
    records: &[ContainerRecord],
    slot: fn(usize) -> Slot,
    matches: fn(&ContainerRecord) -> bool,
) -> String {
    let names = records.iter().enumerate().filter(|(_, record)| matches(record));
    names.map(|(index, _)| spec.container(slot(index)).name.as_str()).collect::<Vec<_>>().join(" ")
}

fn statuses(
    spec: &PodSpec,
    records: &[ContainerRecord],
    slot: fn(usize) -> Slot,
) -> Vec<core::ContainerStatus> {
    let status = |(index, record): (usize, &ContainerRecord)| {
        let container = spec.container(slot(index));
        // In Kubernetes, an init container is ready once it has succeeded, unless it is a sidecar.
        let done = matches!(slot(index), Slot::Init(_)) && record.succeeded();
        core::ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone(),
            image_id: record.image_id.clone(),
            container_id: record.container_id.clone(),
            ready: record.is_ready()
                && (matches!(slot(index), Slot::Main(_))
                    || spec.restart_policy(slot(index)) == RestartPolicy::Always)
                || done,
            started: Some(record.is_up()),
            restart_count: record.restarts,
            state: Some(state(&record.state, record)),
            last_state: record.last.as_ref().map(|last| terminated(last, record)),
            ..Default::default()
        }
    };
    records.iter().enumerate().map(status).collect()
}

fn state(state: &State, record: &ContainerRecord) -> core::ContainerState {
    match state {
        State::Waiting { reason, message } => core::ContainerState {
            waiting: Some(core::ContainerStateWaiting {
                reason: Some(reason.clone()),
                message: message.clone(),
            }),
            ..Default::default()
        },
        State::Running { since, .. } => core::ContainerState {
            running: Some(core::ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..Default::default()
        },
        State::Terminated(termination) => terminated(termination, record),
    }
}

fn terminated(termination: &Termination, record: &ContainerRecord) -> core::ContainerState {
    core::ContainerState {
        terminated: Some(core::ContainerStateTerminated {
            exit_code: termination.exit_code,
            signal: termination.signal,
            reason: Some(termination.reason.clone()),
            message: termination.message.clone(),
            started_at: termination.started_at.map(Time),
            finished_at: Some(Time(termination.finished_at)),
            container_id: record.container_id.clone(),
        }),
        ..Default::default()
    }
}
