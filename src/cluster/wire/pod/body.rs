//! The fields of a pod that are read from JSON or protobuf.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::fast::RandomState;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::condition::WireCondition;
use super::super::lenient;
use super::super::meta::Meta;
use super::super::protobuf::{Malformed, Message, Value};
use super::super::text::Text;
use super::PodRun;
use crate::job::pod::{ContainerExit, MaxRestarts, Outcome, Phase};

/// Conditions that show the progress of a pod's start. Every pod has them, and no failure policy waits for
/// them.
const START_CONDITIONS: [&str; 5] =
    ["PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers"];

/// How far the start of a pod has come.
pub(super) struct StartProgress {
    /// It has never run, and nothing of it works: no init container runs.
    pub(super) stalled: bool,
    /// Since when it waits, or runs, if that is known and not since its creation.
    pub(super) since: Option<Timestamp>,
}

/// Most memory, in bytes, for a pod's conditions and failures of containers. It suffices for 70 containers
/// with the longest names, and the conditions that Kubernetes sets.
pub(super) const KEPT_BYTES: usize = 8 << 10;
/// The length to which names of containers are cut, in bytes. A rule names a container of the template, of which no API server
/// accepts a name of more than 63 bytes. So no rule names one that was cut.
const LONGEST_CONTAINER: usize = 64;
/// The longest type of a condition that a rule may have: a qualified name, with a prefix of 253 bytes, a slash and 63 bytes.
const LONGEST_CONDITION: usize = 317;
/// The longest status of a condition: a rule may have none but `True`, `False` and `Unknown`.
const LONGEST_CONDITION_STATUS: usize = 16;
/// The length to which the reason of an end is cut, in bytes.
const LONGEST_REASON: usize = 256;
/// The length to which the message of an end is cut, in bytes.
const LONGEST_MESSAGE: usize = 200;

/// Names of native sidecars, for statuses to be looked up: a pod may have thousands of init containers.
pub(super) type Sidecars<'a> = HashSet<&'a str, RandomState>;

/// A pod.
#[derive(Debug, Default, Deserialize)]
pub struct WirePod<'a> {
    #[serde(borrow)]
    pub(super) metadata: Meta<'a>,
    #[serde(borrow, default)]
    pub(super) spec: WireSpec<'a>,
    #[serde(borrow, default)]
    pub(super) status: WireStatus<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireSpec<'a> {
    #[serde(borrow)]
    pub(super) node_name: Option<Text<'a>>,
    #[serde(borrow)]
    init_containers: Option<Vec<WireInitContainer<'a>>>,
    scheduling_gates: Option<Vec<IgnoredAny>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireInitContainer<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    restart_policy: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireStatus<'a> {
    #[serde(borrow)]
    pub(super) phase: Option<Text<'a>>,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
    #[serde(deserialize_with = "lenient::time")]
    start_time: Option<Timestamp>,
    #[serde(borrow)]
    container_statuses: Option<Vec<WireContainer<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<WireContainer<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireContainer<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(deserialize_with = "lenient::count")]
    restart_count: u32,
    #[serde(borrow)]
    state: Option<WireState<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireState<'a> {
    /// Boxed, so that thousands of statuses without it, which take a few bytes each, take little memory.
    #[serde(borrow)]
    terminated: Option<Box<WireTerminated<'a>>>,
    running: Option<WireRunning>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireRunning {
    #[serde(deserialize_with = "lenient::time")]
    started_at: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated<'a> {
    exit_code: i32,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    #[serde(borrow)]
    message: Option<Text<'a>>,
    #[serde(deserialize_with = "lenient::time")]
    started_at: Option<Timestamp>,
    #[serde(deserialize_with = "lenient::time")]
    finished_at: Option<Timestamp>,
}

impl<'a> Message<'a> for WirePod<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.metadata.merge(value.bytes()?),
            2 => self.spec.merge(value.bytes()?),
            3 => self.status.merge(value.bytes()?),
            _ => Ok(()),
        }
    }
}

impl<'a> Message<'a> for WireSpec<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            10 => self.node_name = value.set_text()?,
            20 => self.init_containers.get_or_insert_default().push(value.message()?),
            38 => self.scheduling_gates.get_or_insert_default().push(IgnoredAny),
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireInitContainer<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.name = value.text()?,
            24 => self.restart_policy = value.set_text()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireStatus<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.phase = value.set_text()?,
            3 => self.message = value.set_text()?,
            4 => self.reason = value.set_text()?,
            2 => self.conditions.get_or_insert_default().push(value.message()?),
            7 => self.start_time = value.time()?,
            8 => self.container_statuses.get_or_insert_default().push(value.message()?),
            10 => self.init_container_statuses.get_or_insert_default().push(value.message()?),
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireContainer<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.name = value.text()?,
            2 => self.state.get_or_insert_default().merge(value.bytes()?)?,
            5 => self.restart_count = value.count()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireState<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            2 => self.running.get_or_insert_default().merge(value.bytes()?),
            3 => self.terminated.get_or_insert_default().merge(value.bytes()?),
            _ => Ok(()),
        }
    }
}

impl Message<'_> for WireRunning {
    fn take(&mut self, number: u32, value: Value<'_>) -> Result<(), Malformed> {
        if number == 1 {
            self.started_at = value.time()?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireTerminated<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.exit_code = value.integer()?,
            3 => self.reason = value.set_text()?,
            4 => self.message = value.set_text()?,
            5 => self.started_at = value.time()?,
            6 => self.finished_at = value.time()?,
            _ => {}
        }
        Ok(())
    }
}

impl WireSpec<'_> {
    /// Whether a scheduling gate holds the pod.
    pub(super) fn is_gated(&self) -> bool {
        self.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty())
    }

    /// The names of native sidecars: init containers that run beside the containers and end after them. Most pods have none.
    pub(super) fn sidecars(&self) -> Sidecars<'_> {
        let declared = self.init_containers.iter().flatten();
        declared.filter(|c| c.restart_policy.as_deref() == Some("Always")).map(|c| &*c.name).collect()
    }
}

impl<'a> WireContainer<'a> {
    fn terminated(&self) -> Option<&WireTerminated<'a>> {
        self.state.as_ref()?.terminated.as_deref()
    }

    fn running(&self) -> Option<&WireRunning> {
        self.state.as_ref()?.running.as_ref()
    }

    /// When it has started, if it runs or has ended.
    fn started_at(&self) -> Option<Timestamp> {
        let of_run = self.running().and_then(|running| running.started_at);
        of_run.or_else(|| self.terminated()?.started_at)
    }

    /// When it has last ended or started.
    fn last_step(&self) -> Option<Timestamp> {
        self.terminated().and_then(|end| end.finished_at).or_else(|| self.started_at())
    }
}

fn cut(text: &str, longest: usize) -> &str {
    &text[..text.floor_char_boundary(longest)]
}

/// The room for the kept part of a status. Every client with the right to write one may give a pod any
/// number of containers and conditions, with names of any length.
struct Room(usize);

impl Room {
    /// The first of these that have room, as far as they are distinct.
    fn fill<T: Copy + Eq + Hash, K>(
        &mut self,
        found: impl Iterator<Item = T>,
        bytes: impl Fn(T) -> usize,
        keep: impl Fn(T) -> K,
    ) -> Vec<K> {
        let mut seen = HashSet::<_, RandomState>::default();
        let fits = |of: &T| {
            let left = self.0.checked_sub(bytes(*of));
            self.0 = left.unwrap_or(0);
            left.is_some()
        };
        // The exact capacity: without it, the vector would have room for as many again.
        let kept: Box<[K]> = found.filter(|of| seen.insert(*of)).take_while(fits).map(keep).collect();
        kept.into_vec()
    }

    fn exits<'c, 'a: 'c>(
        &mut self,
        containers: impl Iterator<Item = &'c WireContainer<'a>>,
    ) -> Vec<ContainerExit> {
        let exit = |container: &'c WireContainer<'a>| {
            let WireTerminated { exit_code, reason, .. } = container.terminated()?;
            let out_of_memory = reason.as_deref() == Some("OOMKilled");
            (*exit_code != 0).then(|| (cut(&container.name, LONGEST_CONTAINER), *exit_code, out_of_memory))
        };
        self.fill(
            containers.filter_map(exit),
            |(name, ..)| ContainerExit::bytes(name),
            |(name, exit_code, out_of_memory)| ContainerExit { name: name.into(), exit_code, out_of_memory },
        )
    }
}

/// The newest finish time of these containers and of those before, unless one of these has none.
fn newest_finish<'c, 'a: 'c>(
    mut containers: impl Iterator<Item = &'c WireContainer<'a>>,
    before: Option<Timestamp>,
) -> Option<Timestamp> {
    containers
        .try_fold(before, |newest, container| Some(newest.max(Some(container.terminated()?.finished_at?))))?
}

impl<'a> WireStatus<'a> {
    pub(super) fn conditions(&self) -> impl Iterator<Item = &WireCondition<'a>> {
        self.conditions.iter().flatten()
    }

    fn containers(&self) -> impl Iterator<Item = &WireContainer<'a>> {
        self.container_statuses.iter().flatten()
    }

    fn sidecars(&self, names: &Sidecars<'_>) -> impl Iterator<Item = &WireContainer<'a>> {
        self.init_containers().filter(|container| names.contains(&*container.name))
    }

    fn init_containers(&self) -> impl Iterator<Item = &WireContainer<'a>> {
        self.init_container_statuses.iter().flatten()
    }

    pub(super) fn has_unusual_condition(&self) -> bool {
        self.conditions().any(|c| !START_CONDITIONS.contains(&&*c.kind))
    }

    pub(super) fn restarts(&self) -> u32 {
        self.init_containers().chain(self.containers()).fold(0, |sum, c| sum.saturating_add(c.restart_count))
    }

    /// The largest restart count of a container, and of a native sidecar.
    pub(super) fn max_restarts(&self, sidecars: &Sidecars<'_>) -> MaxRestarts {
        let [containers, sidecars] = [
            self.containers().map(|c| c.restart_count).max(),
            self.sidecars(sidecars).map(|c| c.restart_count).max(),
        ]
        .map(Option::unwrap_or_default);
        MaxRestarts { containers, sidecars }
    }

    /// How far a pod that has not ended has come. Containers may start again and again, so a run counts since the node has taken
    /// the pod.
    pub(super) fn start(&self, phase: Phase, sidecars: &Sidecars<'_>) -> StartProgress {
        if phase == Phase::Pending {
            let is_sidecar = |container: &WireContainer<'_>| sidecars.contains(&*container.name);
            let works = self.init_containers().any(|c| c.running().is_some() && !is_sidecar(c));
            let steps = self.init_containers().filter_map(WireContainer::last_step);
            return StartProgress { stalled: !works, since: steps.max() };
        }
        let first_start = || self.containers().filter_map(WireContainer::started_at).min();
        StartProgress { stalled: false, since: self.start_time.or_else(first_start) }
    }

    /// Since when the node of a running pod is not ready. The node controller takes the pod's condition Ready away, and leaves
    /// all else as the kubelet has written it. A kubelet gives a reason, and takes ContainersReady away as well.
    pub(super) fn node_unready_since(&self) -> Option<Timestamp> {
        let condition = |kind: &str| self.conditions().find(|c| *c.kind == *kind);
        let ready = condition("Ready").filter(|ready| *ready.status == *"False")?;
        let has_reason = ready.reason.as_deref().is_some_and(|reason| !reason.is_empty());
        let runs = condition("ContainersReady").is_some_and(|containers| *containers.status == *"True");
        ready.last_transition_time.filter(|_| runs && !has_reason)
    }

    /// The newest finish time, if every container and every native sidecar has one. As in Kubernetes, sidecars
    /// that have all finished are enough.
    pub(super) fn containers_finished(&self, sidecars: &Sidecars<'_>) -> Option<Timestamp> {
        newest_finish(self.sidecars(sidecars), newest_finish(self.containers(), None))
    }

    /// How the pod ran, as its containers show: when the first started, and how the first that failed ended.
    pub(super) fn run(&self, node: Option<Arc<str>>) -> PodRun {
        let ends = || self.containers().filter_map(|c| Some((&c.name, c.terminated()?)));
        let shown = ends().find(|(_, end)| end.exit_code != 0).or_else(|| ends().next());
        let reason = self.reason.as_deref().or_else(|| shown.as_ref()?.1.reason.as_deref());
        let message = self.message.as_deref().or_else(|| shown.as_ref()?.1.message.as_deref());
        let kept = |text: &str, longest| Some(cut(text, longest).into()).filter(|_| !text.is_empty());
        PodRun {
            node,
            started: ends().filter_map(|(_, end)| end.started_at).min(),
            ended: ends().filter_map(|(_, end)| end.finished_at).max(),
            reason: reason.and_then(|reason| kept(reason, LONGEST_REASON)),
            message: message.and_then(|message| kept(message, LONGEST_MESSAGE)),
            container: shown.as_ref().map(|(name, _)| cut(name, LONGEST_CONTAINER).into()),
            exit_code: shown.map(|(_, end)| end.exit_code),
        }
    }

    /// The parts of the pod that a pod failure policy could name. Successes and duplicates are left out, and
    /// so are parts that no rule could match or that have no room. Conditions come first: they are few,
    /// unless an author has written them to fill the room.
    pub(super) fn outcome(&self, node: Option<Arc<str>>) -> Outcome {
        let mut room = Room(KEPT_BYTES);
        let conditions = self
            .conditions()
            .filter(|c| c.kind.len() <= LONGEST_CONDITION && c.status.len() <= LONGEST_CONDITION_STATUS)
            .map(|c| (&*c.kind, &*c.status));
        Outcome {
            conditions: room.fill(
                conditions,
                |(kind, status)| Outcome::condition_bytes(kind, status),
                |(kind, status)| (kind.into(), status.into()),
            ),
            containers: room.exits(self.containers()),
            init_containers: room.exits(self.init_containers()),
            node,
        }
    }
}
