//! Labels of the metrics and their values.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::sync::Arc;

use http::StatusCode;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

use super::numbered_family::Numbered;

/// Defines enums whose variants are written as the given texts.
macro_rules! label_values {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The value of the label.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
                encoder.write_str(self.as_str())
            }
        }
    )+};
}

label_values! {
    /// `completion_mode`.
    CompletionMode {
        /// Any pod may complete the Job.
        NonIndexed = "NonIndexed",
        /// Each index must succeed.
        Indexed = "Indexed",
    }

    /// `result` of a sync.
    SyncResult {
        /// The sync succeeded.
        Success = "success",
        /// Some step must be retried.
        Error = "error",
    }

    /// `action` of a sync.
    SyncAction {
        /// Everything that no other action covers.
        Reconciling = "reconciling",
        /// Ended pods were counted.
        Tracking = "tracking",
        /// Pods were created.
        PodsCreated = "pods_created",
        /// Pods were deleted.
        PodsDeleted = "pods_deleted",
    }

    /// `result` of a Job, a pod, a creation or an index.
    Outcome {
        /// It succeeded.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
    }

    /// `reason` why a pod was created.
    CreationReason {
        /// The pod is the first at its place.
        New = "new",
        /// The pod replaces a terminating or failed pod.
        RecreateTerminatingOrFailed = "recreate_terminating_or_failed",
        /// The pod replaces a failed pod.
        RecreateFailed = "recreate_failed",
    }

    /// `action` of the pod failure policy's rule that matched.
    PolicyAction {
        /// The Job fails.
        FailJob = "FailJob",
        /// The index fails.
        FailIndex = "FailIndex",
        /// The failure does not count.
        Ignore = "Ignore",
        /// The failure counts.
        Count = "Count",
    }

    /// `reason` of a Job's terminal condition.
    FinishReason {
        /// All wanted pods have succeeded.
        CompletionsReached = "CompletionsReached",
        /// The success policy is met.
        SuccessPolicy = "SuccessPolicy",
        /// Too many pods have failed.
        BackoffLimitExceeded = "BackoffLimitExceeded",
        /// The Job was active for too long.
        DeadlineExceeded = "DeadlineExceeded",
        /// A `FailJob` rule matched.
        PodFailurePolicy = "PodFailurePolicy",
        /// All indexes have ended, and some have failed.
        FailedIndexes = "FailedIndexes",
        /// Too many indexes have failed.
        MaxFailedIndexesExceeded = "MaxFailedIndexesExceeded",
        /// A reason of another writer.
        Other = "Other",
    }

    /// `event` of a tracking finalizer.
    FinalizerEvent {
        /// An ended pod with the finalizer was observed.
        Add = "add",
        /// The finalizer was removed from an ended pod.
        Delete = "delete",
    }

    /// `backoffLimit`: the limit that applied to a finished index.
    BackoffScope {
        /// `backoffLimitPerIndex`.
        PerIndex = "perIndex",
        /// `backoffLimit`.
        Global = "global",
    }

    /// `direction` of a shard's hand-over.
    Handover {
        /// Taken over.
        Acquired = "acquired",
        /// Released to another owner.
        Released = "released",
        /// Taken over by another owner, or not renewed in time.
        Lost = "lost",
    }

    /// `reason` why a Kubernetes Event was not sent.
    LostEvent {
        /// Too many about one object.
        Spam = "spam",
        /// The queue was full.
        QueueFull = "queue_full",
        /// The API server refused it.
        Refused = "refused",
    }
}

/// Labels of syncs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SyncLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// Result of the sync.
    pub result: SyncResult,
    /// Action of the sync.
    pub action: SyncAction,
}

impl SyncLabels {
    pub(super) const COUNT: usize = CompletionMode::ALL.len() * SyncResult::ALL.len() * SyncAction::ALL.len();
}

impl Numbered for SyncLabels {
    fn number(&self) -> usize {
        (self.completion_mode as usize * SyncResult::ALL.len() + self.result as usize) * SyncAction::ALL.len()
            + self.action as usize
    }
}

/// Labels of finished Jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FinishedJobLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// Whether the Job succeeded.
    pub result: Outcome,
    /// Reason of its terminal condition.
    pub reason: FinishReason,
}

/// Labels of finished pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FinishedPodLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// Whether the pod succeeded.
    pub result: Outcome,
}

impl FinishedPodLabels {
    pub(super) const COUNT: usize = CompletionMode::ALL.len() * Outcome::ALL.len();
}

impl Numbered for FinishedPodLabels {
    fn number(&self) -> usize {
        self.completion_mode as usize * Outcome::ALL.len() + self.result as usize
    }
}

/// Labels of Jobs of other controllers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExternalJobLabels {
    /// `spec.managedBy`.
    pub controller_name: Cow<'static, str>,
}

/// Labels of pod failures handled by a policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PodFailurePolicyLabels {
    /// Action of the matched rule.
    pub action: PolicyAction,
}

/// Labels of tracking finalizers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TrackingFinalizerLabels {
    /// Event of the finalizer.
    pub event: FinalizerEvent,
}

impl TrackingFinalizerLabels {
    pub(super) const COUNT: usize = FinalizerEvent::ALL.len();
}

impl Numbered for TrackingFinalizerLabels {
    fn number(&self) -> usize {
        self.event as usize
    }
}

/// Labels of finished indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishedIndexLabels {
    /// Whether the index succeeded.
    pub status: Outcome,
    /// `backoffLimit`: the limit that applied to it.
    pub backoff_limit: BackoffScope,
}

impl EncodeLabelSet for FinishedIndexLabels {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        // The built-in's label name is not an identifier in Rust style, so the derive cannot be used.
        [("status", self.status.as_str()), ("backoffLimit", self.backoff_limit.as_str())].encode(encoder)
    }
}

/// Labels of pod creations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PodCreationLabels {
    /// Why the pod was created.
    pub reason: CreationReason,
    /// Whether the API server accepted it.
    pub status: Outcome,
}

impl PodCreationLabels {
    pub(super) const COUNT: usize = CreationReason::ALL.len() * Outcome::ALL.len();
}

impl Numbered for PodCreationLabels {
    fn number(&self) -> usize {
        self.reason as usize * Outcome::ALL.len() + self.status as usize
    }
}

/// Labels of hand-overs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HandoverLabels {
    /// Direction of the hand-over.
    pub direction: Handover,
}

/// A status code as a label. Webhooks choose codes, so one that HTTP does not define counts as the first of its class, and one
/// without class as 500.
pub(super) fn defined_code(code: u16) -> u16 {
    let is_defined = StatusCode::from_u16(code).is_ok_and(|code| code.canonical_reason().is_some());
    if is_defined { code } else { (code / 100).min(5) * 100 }
}

/// Labels of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiRequestLabels {
    /// Verb as Kubernetes names it.
    pub verb: &'static str,
    /// Resource, with its subresource after a slash.
    pub resource: &'static str,
    /// HTTP status; 0 without an answer.
    pub code: u16,
}

/// Labels of request durations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiCallLabels {
    /// Verb as Kubernetes names it.
    pub verb: &'static str,
    /// Resource, with its subresource after a slash.
    pub resource: &'static str,
}

/// Labels of the write queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabels {
    /// Priority of the waiting writes.
    pub priority: &'static str,
}

/// Labels of watches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WatchLabels {
    /// Resource watched.
    pub resource: &'static str,
}

/// Labels of watch events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WatchEventLabels {
    /// Resource watched.
    pub resource: &'static str,
    /// `type` of the event.
    pub r#type: &'static str,
}

/// Labels of lost Events.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LostEventLabels {
    /// Why it was not sent.
    pub reason: LostEvent,
}

/// Labels of waiting Jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct WaitLabels {
    /// Why they wait, in one word.
    pub reason: &'static str,
}

/// Labels of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildLabels {
    /// Its version.
    pub version: &'static str,
}

/// Labels of an exemplar.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TraceLabels {
    /// The trace, in hexadecimal digits.
    pub trace_id: String,
}

/// Labels of requests of all clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RestRequestLabels {
    /// The status.
    pub code: ResponseCode,
    /// The HTTP method.
    pub method: &'static str,
    /// The API server.
    pub host: Arc<str>,
}

/// Labels of the durations of requests of all clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RestCallLabels {
    /// The HTTP method.
    pub verb: &'static str,
    /// The API server.
    pub host: Arc<str>,
}

/// `code` of a request: the HTTP status, or `<error>` without a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResponseCode(pub Option<u16>);

impl EncodeLabelValue for ResponseCode {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            Some(code) => write!(encoder, "{code}"),
            None => encoder.write_str("<error>"),
        }
    }
}
