//! Decodes pods: the fields that the rules look at, and the owner.

mod body;

use std::sync::Arc;

use jiff::Timestamp;

use self::body::WirePod;
use super::decode::{DecodeError, Decoder, FromProtobuf, guarded};
use super::intern::{Interner, LastClaim};
use super::labels::Labels;
use super::meta::ControllerRef;
use super::protobuf::{self, Message as _};
use crate::job::job_id::JobId;
use crate::job::lineage::Lineage;
use crate::job::names::{
    ATTEMPT_LABEL, BACKOFF_ANNOTATION, COMPLETION_INDEX, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT,
    LINEAGE_ANNOTATION, PLACE_ANNOTATION, SHARD_LABEL,
};
use crate::job::pod::{BackoffRecord, Carried, FinishClues, IndexFailures, Phase, Place, Pod, finish_time};
use crate::job::second::Second;
use crate::job::selector::Selector;

/// A pod as the API server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// The part that the rules look at.
    pub pod: Pod,
    /// `metadata.labels`.
    pub labels: Labels,
    /// The controller in `metadata.ownerReferences`.
    pub controller: Option<ControllerRef>,
    /// How a pod ran that has ended and is not counted: of a failed one, and of others if the decoder is asked for that.
    pub run: Option<Box<PodRun>>,
}

impl ObservedPod {
    /// The Job whose pod this is, if that Job exists. See [`JobId`].
    pub fn job(&self) -> Option<&JobId> {
        self.controller.as_ref()?.job()
    }

    /// Whether it has our finalizer, or the label of a shard.
    pub fn has_marks(&self) -> bool {
        self.pod.tracked || self.labels.get(SHARD_LABEL).is_some()
    }

    /// The pod as the rules look at it, for a Job with this selector.
    pub fn of_job(self, selector: &Selector) -> Pod {
        Pod { selected: self.labels.match_selector(selector, true), ..self.pod }
    }
}

/// How a pod ran that has ended, for traces and for those who look for the cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRun {
    /// `spec.nodeName`.
    pub node: Option<Arc<str>>,
    /// When the first of its containers started.
    pub started: Option<Timestamp>,
    /// When the last of its containers ended.
    pub ended: Option<Timestamp>,
    /// Why it ended: `status.reason`, or without that the reason of the container.
    pub reason: Option<Arc<str>>,
    /// The beginning of `status.message`, or without that of the container's termination message.
    pub message: Option<Arc<str>>,
    /// The first container that failed; without one, the first.
    pub container: Option<Arc<str>>,
    /// Exit code of that container.
    pub exit_code: Option<i32>,
}

/// Reads pods.
#[derive(Clone, Debug)]
pub struct PodDecoder {
    finalizer: Arc<str>,
    interner: Interner,
    last_claim: LastClaim,
    /// Whether [`ObservedPod::run`] is read also of pods that have not failed.
    reads_runs: bool,
}

impl PodDecoder {
    /// A decoder for which pods with this finalizer are tracked.
    pub fn new(finalizer: &str) -> Self {
        let (interner, last_claim) = (Interner::default(), LastClaim::default());
        Self { finalizer: finalizer.into(), interner, last_claim, reads_runs: false }
    }

    /// The same decoder, which also reads how pods ran that have not failed (`reads`), or does not.
    #[must_use]
    pub fn reading_runs(self, reads: bool) -> Self {
        Self { reads_runs: reads, ..self }
    }
}

impl Decoder for PodDecoder {
    type Wire<'a> = WirePod<'a>;
    type Object = Box<ObservedPod>;

    const FROM_PROTOBUF: Option<FromProtobuf<Self>> =
        Some(|decoder, bytes| decoder.observe(WirePod::read(bytes)?));

    fn version(seen: &Box<ObservedPod>) -> u64 {
        seen.pod.version
    }

    fn bytes(seen: &Box<ObservedPod>) -> usize {
        let outcome = seen.pod.outcome.as_ref().map_or(0, |outcome| outcome.bytes());
        let lessons = seen.pod.carried.as_ref().map_or(0, |carried| carried.lessons.len());
        size_of::<ObservedPod>() + seen.pod.name.len() + seen.labels.bytes() + outcome + lessons
    }

    fn observe(&self, wire: WirePod<'_>) -> Result<Box<ObservedPod>, DecodeError> {
        let pod = self.pod(&wire)?;
        let is_read = if self.reads_runs { pod.phase.is_final() } else { pod.phase == Phase::Failed };
        let run = (is_read && pod.tracked).then(|| {
            let node = wire.spec.node_name.as_deref().filter(|node| !node.is_empty());
            Box::new(wire.status.run(node.map(|node| self.interner.get(node))))
        });
        let namespace = self.interner.get(wire.metadata.namespace.as_deref().unwrap_or_default());
        Ok(Box::new(ObservedPod {
            pod,
            run,
            controller: wire
                .metadata
                .controller(&namespace, |namespace, name, uid| self.last_claim.get(namespace, name, uid)),
            namespace,
            labels: wire.metadata.labels.map(Labels::from).unwrap_or_default(),
        }))
    }
}

impl PodDecoder {
    /// Decodes a pod, or only its metadata, from the envelope of an answer.
    ///
    /// # Errors
    /// When the bytes are not such an object.
    pub(crate) fn decode_protobuf(&self, body: &[u8]) -> Result<Box<ObservedPod>, DecodeError> {
        guarded(|| self.observe(WirePod::read(protobuf::object(body)?)?))
    }

    fn pod(&self, WirePod { metadata: meta, spec, status }: &WirePod<'_>) -> Result<Pod, DecodeError> {
        let created = meta.created()?;
        let annotation = |key| meta.annotation(key);
        let attempt = meta.labels.as_ref().and_then(|labels| labels.get(ATTEMPT_LABEL));
        let ready = status.conditions().find(|c| *c.kind == *"Ready");
        let sidecars = spec.sidecars();
        let clues = FinishClues {
            containers_finished: status.containers_finished(&sidecars),
            unready_since: ready.filter(|c| *c.status == *"False").and_then(|c| c.last_transition_time),
            deletion: meta.deletion_timestamp,
            deletion_grace_seconds: meta.deletion_grace_period_seconds.unwrap_or(0),
        };
        let phase = Phase::from(status.phase.as_deref().unwrap_or_default());
        let deleting = meta.deletion_timestamp.is_some();
        let start = status.start(phase, &sidecars);
        let silent_since = match phase {
            Phase::Succeeded | Phase::Failed => None,
            // This is when the grace period ends.
            _ if deleting => meta.deletion_timestamp,
            Phase::Running => status.node_unready_since(),
            Phase::Pending | Phase::Unknown => None,
        };
        Ok(Pod {
            uid: meta.uid()?.into(),
            name: meta.name()?.into(),
            version: meta.version_order(),
            created: created.into(),
            deleting,
            forced: deleting && meta.deletion_grace_period_seconds == Some(0) && !phase.is_final(),
            tracked: meta.has_finalizer(&self.finalizer),
            applied: meta.is_applied(),
            // The decoder does not know the selector.
            selected: true,
            index: annotation(COMPLETION_INDEX).and_then(parse_index),
            place: annotation(PLACE_ANNOTATION).and_then(parse_place),
            index_failures: IndexFailures {
                counted: annotation(INDEX_FAILURE_COUNT).map_or(0, parse_failure_count),
                ignored: annotation(INDEX_IGNORED_FAILURE_COUNT).map_or(0, parse_failure_count),
            },
            carried: carried(
                annotation(BACKOFF_ANNOTATION),
                annotation(LINEAGE_ANNOTATION),
                attempt,
                silent_since.map(Second::from),
            ),
            scheduled: spec.node_name.as_deref().is_some_and(|node| !node.is_empty()),
            phase,
            ready_since: ready
                .filter(|c| *c.status == *"True")
                .map(|c| c.last_transition_time.unwrap_or(created).into()),
            restarts: status.restarts(),
            max_restarts: status.max_restarts(&sidecars),
            finished: if phase.is_final() || deleting {
                finish_time(clues, created).into()
            } else {
                start.since.map_or(created, |since| since.max(created)).into()
            },
            stalled: start.stalled && !deleting && !spec.is_gated(),
            outcome: (phase == Phase::Failed || deleting || status.has_unusual_condition()).then(|| {
                let node = spec.node_name.as_deref().filter(|node| !node.is_empty());
                Box::new(status.outcome(node.map(|node| self.interner.get(node))))
            }),
        })
    }
}

/// A completion index as the Job controller reads it: decimal and not negative.
fn parse_index(text: &str) -> Option<u32> {
    text.parse::<i64>().ok().and_then(|index| u32::try_from(index).ok())
}

/// A failure count as the Job controller reads it: malformed, negative and too large values count as 0.
fn parse_failure_count(text: &str) -> u32 {
    text.parse::<i32>().ok().and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
}

fn parse_place(text: &str) -> Option<Place> {
    let (number, attempt) = text.split_once('/')?;
    Some(Place { number: number.parse().ok()?, attempt: attempt.parse().ok()? })
}

/// The facts in these annotations, and in the label of the attempt: a webhook may drop one and keep the other.
fn carried(
    backoff: Option<&str>,
    lineage: Option<&str>,
    attempt: Option<&str>,
    silent_since: Option<Second>,
) -> Option<Box<Carried>> {
    let lessons = lineage.map_or("", Lineage::kept);
    let attempt = Lineage::attempt_of(lessons).max(attempt.map_or(0, Lineage::read_attempt));
    let carried =
        Carried { backoff: backoff.and_then(parse_backoff), attempt, lessons: lessons.into(), silent_since };
    (carried != Carried::default()).then(|| carried.into())
}

fn parse_backoff(text: &str) -> Option<BackoffRecord> {
    let (failures, last) = text.split_once('@')?;
    Some(BackoffRecord { failures: failures.parse().ok().filter(|n| *n > 0)?, last: last.parse().ok()? })
}

#[cfg(test)]
mod tests;
