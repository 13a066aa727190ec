//! Pods: what the rules look at, and whose they are.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;

use super::intern::Interner;
use super::labels::Labels;
use super::meta::{ControllerRef, Meta};
use super::text::Text;
use super::{DecodeError, Decoder};
use crate::job::names::{
    BACKOFF_ANNOTATION, COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT, PLACE_ANNOTATION,
};
use crate::job::pod::{
    ContainerExit, FinishClues, IndexFailures, Outcome, Phase, Place, Pod, Streak, finish_time,
};

/// Conditions that say how far the start of a pod has come: every pod has them, and no failure policy waits for them.
const START_CONDITIONS: [&str; 5] =
    ["PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers"];

/// A pod as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// What the rules look at.
    pub pod: Pod,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The controller in `metadata.ownerReferences`.
    pub controller: Option<ControllerRef>,
}

/// Reads pods.
#[derive(Clone, Debug)]
pub struct PodDecoder {
    finalizer: Arc<str>,
    interner: Interner,
}

impl PodDecoder {
    /// A decoder to which pods with this finalizer are tracked.
    pub fn new(finalizer: &str) -> Self {
        Self { finalizer: finalizer.into(), interner: Interner::default() }
    }
}

impl Decoder for PodDecoder {
    type Wire<'a> = WirePod<'a>;
    type Object = Box<ObservedPod>;

    fn version(seen: &Box<ObservedPod>) -> u64 {
        seen.pod.version
    }

    fn observe(&self, wire: WirePod<'_>) -> Result<Box<ObservedPod>, DecodeError> {
        let pod = self.pod(&wire)?;
        Ok(Box::new(ObservedPod {
            namespace: self.interner.get(wire.metadata.namespace.as_deref().unwrap_or_default()),
            pod,
            controller: wire.metadata.controller(&self.interner),
            labels: wire.metadata.labels.map(Labels::from).unwrap_or_default(),
        }))
    }
}

impl PodDecoder {
    fn pod(&self, WirePod { metadata: meta, spec, status }: &WirePod<'_>) -> Result<Pod, DecodeError> {
        let created = meta.created()?;
        let annotation = |key| meta.annotation(key);
        let ready = status.conditions().find(|c| *c.kind == *"Ready");
        let clues = FinishClues {
            containers_finished: status.containers_finished(),
            unready_since: ready.filter(|c| *c.status == *"False").and_then(|c| c.last_transition_time),
            deletion: meta.deletion_timestamp,
            deletion_grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(0),
        };
        let phase = Phase::from(status.phase.as_deref().unwrap_or_default());
        let deleting = meta.deletion_timestamp.is_some();
        Ok(Pod {
            uid: meta.uid()?.into(),
            name: meta.name()?.into(),
            version: meta.version().order(),
            created,
            deleting,
            tracked: meta.has_finalizer(&self.finalizer),
            index: annotation(COMPLETION_INDEX).and_then(parse_index),
            place: annotation(PLACE_ANNOTATION).and_then(parse_place),
            index_failures: IndexFailures {
                counted: annotation(INDEX_FAILURE_COUNT).map_or(0, parse_failure_count),
                ignored: annotation(INDEX_IGNORED_FAILURE_COUNT).map_or(0, parse_failure_count),
            },
            backoff: annotation(BACKOFF_ANNOTATION).and_then(parse_backoff),
            scheduled: spec.node_name.as_deref().is_some_and(|node| !node.is_empty()),
            phase,
            ready_since: ready
                .filter(|c| *c.status == *"True")
                .map(|c| c.last_transition_time.unwrap_or(created)),
            restarts: status.restarts(),
            max_restarts: status.containers().map(|c| c.restart_count).max().unwrap_or(0),
            finished: finish_time(clues, created),
            outcome: (phase == Phase::Failed || deleting || status.has_unusual_condition())
                .then(|| Box::new(status.outcome())),
        })
    }
}

/// A completion index as the Job controller reads it: decimal and not negative.
fn parse_index(text: &str) -> Option<u32> {
    text.parse::<i64>().ok().and_then(|index| u32::try_from(index).ok())
}

/// A failure count as the Job controller reads it: malformed, negative and over-large ones count as 0.
fn parse_failure_count(text: &str) -> u32 {
    text.parse::<i32>().ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

fn parse_place(text: &str) -> Option<Place> {
    let (number, attempt) = text.split_once('/')?;
    Some(Place { number: number.parse().ok()?, attempt: attempt.parse().ok()? })
}

fn parse_backoff(text: &str) -> Option<Streak> {
    let (failures, last) = text.split_once('@')?;
    Some(Streak { failures: failures.parse().ok().filter(|n| *n > 0)?, last: last.parse().ok()? })
}

/// JSON of a pod.
#[derive(Debug, Deserialize)]
pub struct WirePod<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: WireStatus<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireSpec<'a> {
    #[serde(borrow)]
    node_name: Option<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus<'a> {
    #[serde(borrow)]
    phase: Option<Text<'a>>,
    #[serde(borrow)]
    conditions: Option<Vec<WireCondition<'a>>>,
    #[serde(borrow)]
    container_statuses: Option<Vec<WireContainer<'a>>>,
    #[serde(borrow)]
    init_container_statuses: Option<Vec<WireContainer<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireCondition<'a> {
    #[serde(borrow, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow)]
    status: Text<'a>,
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireContainer<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    restart_count: u32,
    state: Option<WireState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireState {
    terminated: Option<WireTerminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated {
    exit_code: i32,
    finished_at: Option<Timestamp>,
}

impl WireContainer<'_> {
    fn terminated(&self) -> Option<&WireTerminated> {
        self.state.as_ref()?.terminated.as_ref()
    }

    fn exit(&self) -> Option<ContainerExit> {
        self.terminated().map(|end| ContainerExit { name: (*self.name).into(), exit_code: end.exit_code })
    }
}

impl<'a> WireStatus<'a> {
    fn conditions(&self) -> impl Iterator<Item = &WireCondition<'a>> {
        self.conditions.iter().flatten()
    }

    fn containers(&self) -> impl Iterator<Item = &WireContainer<'a>> {
        self.container_statuses.iter().flatten()
    }

    fn init_containers(&self) -> impl Iterator<Item = &WireContainer<'a>> {
        self.init_container_statuses.iter().flatten()
    }

    fn has_unusual_condition(&self) -> bool {
        self.conditions().any(|c| !START_CONDITIONS.contains(&&*c.kind))
    }

    fn restarts(&self) -> u32 {
        self.init_containers().chain(self.containers()).fold(0, |sum, c| sum.saturating_add(c.restart_count))
    }

    /// The newest finish time, if every container has one.
    fn containers_finished(&self) -> Option<Timestamp> {
        let times = self.containers().map(|c| c.terminated().and_then(|end| end.finished_at));
        times.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            containers: self.containers().filter_map(WireContainer::exit).collect(),
            init_containers: self.init_containers().filter_map(WireContainer::exit).collect(),
            conditions: self.conditions().map(|c| ((*c.kind).into(), (*c.status).into())).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
