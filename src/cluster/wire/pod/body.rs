//! The fields of a pod that are read from JSON or protobuf.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::super::condition::WireCondition;
use super::super::meta::Meta;
use super::super::protobuf::{Malformed, Message, Value};
use super::super::text::Text;
use super::PodRun;
use crate::job::pod::{ContainerExit, MaxRestarts, Outcome};

/// Conditions that show the progress of a pod's start. Every pod has them, and no failure policy waits for
/// them.
const START_CONDITIONS: [&str; 5] =
    ["PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers"];

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
    conditions: Option<Vec<WireCondition<'a>>>,
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
    restart_count: u32,
    #[serde(borrow)]
    state: Option<WireState<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireState<'a> {
    #[serde(borrow)]
    terminated: Option<WireTerminated<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated<'a> {
    exit_code: i32,
    #[serde(borrow)]
    reason: Option<Text<'a>>,
    started_at: Option<Timestamp>,
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
            4 => self.reason = value.set_text()?,
            2 => self.conditions.get_or_insert_default().push(value.message()?),
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
            5 => self.restart_count = value.integer()?,
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireState<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        if number == 3 {
            self.terminated.get_or_insert_default().merge(value.bytes()?)?;
        }
        Ok(())
    }
}

impl<'a> Message<'a> for WireTerminated<'a> {
    fn take(&mut self, number: u32, value: Value<'a>) -> Result<(), Malformed> {
        match number {
            1 => self.exit_code = value.integer()?,
            3 => self.reason = value.set_text()?,
            // Only traces look at it: a time that cannot be read must not make the pod unreadable.
            5 => self.started_at = value.time().unwrap_or_default(),
            6 => self.finished_at = value.time()?,
            _ => {}
        }
        Ok(())
    }
}

impl WireSpec<'_> {
    /// Names of the init containers that are native sidecars, which run beside the containers and end after them. Authors
    /// decide how many there are.
    fn sidecars(&self) -> BTreeSet<&str> {
        let is_sidecar = |c: &&WireInitContainer<'_>| c.restart_policy.as_deref() == Some("Always");
        self.init_containers.iter().flatten().filter(is_sidecar).map(|c| &*c.name).collect()
    }
}

impl<'a> WireContainer<'a> {
    fn terminated(&self) -> Option<&WireTerminated<'a>> {
        self.state.as_ref()?.terminated.as_ref()
    }

    fn exit(&self) -> Option<ContainerExit> {
        self.terminated().map(|end| ContainerExit { name: (*self.name).into(), exit_code: end.exit_code })
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

    fn sidecars<'s>(&'s self, spec: &'s WireSpec<'_>) -> impl Iterator<Item = &'s WireContainer<'a>> {
        let sidecars = spec.sidecars();
        self.init_containers().filter(move |container| sidecars.contains(&*container.name))
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
    pub(super) fn max_restarts(&self, spec: &WireSpec<'_>) -> MaxRestarts {
        let [containers, sidecars] = [
            self.containers().map(|c| c.restart_count).max(),
            self.sidecars(spec).map(|c| c.restart_count).max(),
        ]
        .map(Option::unwrap_or_default);
        MaxRestarts { containers, sidecars }
    }

    /// The newest finish time, if every container and every native sidecar has one. As in Kubernetes, sidecars
    /// that have all finished are enough.
    pub(super) fn containers_finished(&self, spec: &WireSpec<'_>) -> Option<Timestamp> {
        newest_finish(self.sidecars(spec), newest_finish(self.containers(), None))
    }

    /// How the pod ran, as its containers show: when the first started, and how the first that failed ended.
    pub(super) fn run(&self, node: Option<Arc<str>>) -> PodRun {
        let ends = || self.containers().filter_map(|c| Some((&c.name, c.terminated()?)));
        let shown = ends().find(|(_, end)| end.exit_code != 0).or_else(|| ends().next());
        let reason = self.reason.as_deref().or_else(|| shown.as_ref()?.1.reason.as_deref());
        PodRun {
            node,
            started: ends().filter_map(|(_, end)| end.started_at).min(),
            reason: reason.filter(|reason| !reason.is_empty()).map(Arc::from),
            container: shown.as_ref().map(|(name, _)| Arc::from(&***name)),
            exit_code: shown.map(|(_, end)| end.exit_code),
        }
    }

    pub(super) fn outcome(&self) -> Outcome {
        Outcome {
            containers: self.containers().filter_map(WireContainer::exit).collect(),
            init_containers: self.init_containers().filter_map(WireContainer::exit).collect(),
            conditions: self.conditions().map(|c| ((*c.kind).into(), (*c.status).into())).collect(),
        }
    }
}
