//! Labels of the metrics and their values.

use std::borrow::Cow;
use std::fmt::{self, Write};

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// Enums whose variants are written as the given texts.
macro_rules! label_values {
    ($($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
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
        /// Each index has to succeed.
        Indexed = "Indexed",
    }

    /// `result` of a sync.
    SyncResult {
        /// Nothing went wrong.
        Success = "success",
        /// Some step has to be tried again.
        Error = "error",
    }

    /// `action` of a sync.
    SyncAction {
        /// Neither of the others.
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
        /// It went well.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
    }

    /// `reason` why a pod was created.
    CreationReason {
        /// It is the first at its place.
        New = "new",
        /// It replaces a terminating or failed one.
        RecreateTerminatingOrFailed = "recreate_terminating_or_failed",
        /// It replaces a failed one.
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

    /// `event` in the life of a tracking finalizer.
    FinalizerEvent {
        /// An ended pod was seen with it.
        Add = "add",
        /// It was removed from an ended pod.
        Delete = "delete",
    }

    /// `backoffLimit` that a finished index stood under.
    BackoffScope {
        /// `backoffLimitPerIndex`.
        PerIndex = "perIndex",
        /// `backoffLimit`.
        Global = "global",
    }

    /// `direction` of a hand-over of a shard.
    Handover {
        /// Taken over.
        Acquired = "acquired",
        /// Given away in order.
        Released = "released",
        /// Taken away, or not renewed in time.
        Lost = "lost",
    }

    /// `reason` why a Kubernetes Event was not sent.
    LostEvent {
        /// Too many about one object.
        Spam = "spam",
        /// The queue was full.
        QueueFull = "queue_full",
        /// The API server did not take it.
        Refused = "refused",
    }
}

/// Labels of syncs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SyncLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// How the sync went.
    pub result: SyncResult,
    /// What it did.
    pub action: SyncAction,
}

/// Labels of finished Jobs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FinishedJobLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// How it ended.
    pub result: Outcome,
    /// Reason of its final condition.
    pub reason: Cow<'static, str>,
}

/// Labels of finished pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FinishedPodLabels {
    /// The Job's completion mode.
    pub completion_mode: CompletionMode,
    /// How the pod ended.
    pub result: Outcome,
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
    /// What the matched rule says.
    pub action: PolicyAction,
}

/// Labels of tracking finalizers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct TrackingFinalizerLabels {
    /// What happened.
    pub event: FinalizerEvent,
}

/// Labels of finished indexes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FinishedIndexLabels {
    /// How the index ended.
    pub status: Outcome,
    /// `backoffLimit`: the limit it stood under.
    pub backoff_limit: BackoffScope,
}

impl EncodeLabelSet for FinishedIndexLabels {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelSetEncoder<'_>,
    ) -> Result<(), fmt::Error> {
        // The built-in's label name, which is no Rust identifier in the project's style.
        [("status", self.status.as_str()), ("backoffLimit", self.backoff_limit.as_str())].encode(encoder)
    }
}

/// Labels of pod creations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PodCreationLabels {
    /// Why the pod was created.
    pub reason: CreationReason,
    /// Whether the API server took it.
    pub status: Outcome,
}

/// Labels of hand-overs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HandoverLabels {
    /// Which way the shard went.
    pub direction: Handover,
}

/// Labels of requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiRequestLabels {
    /// Verb as Kubernetes names it.
    pub verb: &'static str,
    /// Resource, with its subresource after a slash.
    pub resource: &'static str,
    /// HTTP status; 0 where no answer came.
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
