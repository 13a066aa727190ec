//! Names of labels, annotations and finalizers, of Kubernetes and of Yardmaster.
//!
//! Two versions of Yardmaster work side by side during an update (invariant 13: additive formats). So a name keeps its
//! meaning and form. A new form gets a new name, and both are written for one version.

/// Label on the pods of a Job: the Job's name.
pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// Label on the pods of a Job: the Job's UID.
pub const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// Label and annotation on the pods of an Indexed Job: their completion index.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation on pods of a Job with `backoffLimitPerIndex`: counted failures of the index before this pod.
pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation on pods of a Job with `backoffLimitPerIndex`: ignored failures of the index before this pod, if
/// any.
pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Environment variable with the completion index in the containers of an Indexed Job.
pub const COMPLETION_INDEX_ENV: &str = "JOB_COMPLETION_INDEX";
/// Where its value comes from: the field of the pod.
pub fn completion_index_path() -> String {
    format!("metadata.labels['{COMPLETION_INDEX}']")
}
/// Environment variable with the trace of the Job, in containers that are to know it.
pub const TRACEPARENT_ENV: &str = "TRACEPARENT";

/// Label of nodes: their host name, in practice the name of the node.
pub const HOSTNAME_LABEL: &str = "kubernetes.io/hostname";

/// `spec.managedBy` of Jobs of the controller built into Kubernetes. In replacement mode it is our own name.
pub const BUILT_IN_CONTROLLER: &str = "kubernetes.io/job-controller";
/// `spec.managedBy` of Yardmaster's Jobs in external mode.
pub const EXTERNAL_CONTROLLER: &str = "yardmaster.dev/job-controller";
/// The tracking finalizer in replacement mode. Reserved for the Job controller built into Kubernetes.
pub const BUILT_IN_FINALIZER: &str = "batch.kubernetes.io/job-tracking";
/// The tracking finalizer in external mode.
pub const EXTERNAL_FINALIZER: &str = "yardmaster.dev/job-tracking";

/// Label on pods: the shard of their Job, as a decimal number. Without it, every replica is shown the pod.
pub const SHARD_LABEL: &str = "yardmaster.dev/shard";
/// Annotation on pods: the place and attempt that the pod's name is derived from, as `PLACE/ATTEMPT`. Without it, the pod
/// has the place of its index, or none.
pub const PLACE_ANNOTATION: &str = "yardmaster.dev/place";
/// Annotation on Jobs, written together with the status: how many ordinals have been used, or attempts at each index
/// ([`JobStatus::names_used`](super::status::JobStatus::names_used)), as a decimal number. Without it, names of pods that
/// are gone may come back.
pub const NAMES_USED_ANNOTATION: &str = "yardmaster.dev/ordinals-used";
/// Annotation on pods of Jobs whose options ask for it: what the pods before have taught
/// ([`Lineage`](super::lineage::Lineage)). Without it, nothing.
pub const LINEAGE_ANNOTATION: &str = "yardmaster.dev/lineage";
/// Label on pods of a Job that restarts together: how often it was restarted before.
pub const ATTEMPT_LABEL: &str = "yardmaster.dev/attempt";
/// Environment variable with the same number.
pub const ATTEMPT_ENV: &str = "YARDMASTER_ATTEMPT";
/// Annotation on Jobs that restart together, written together with the status: how often the Job was restarted, as a
/// decimal number. Without it, the number follows from the pods.
pub const RESTARTS_ANNOTATION: &str = "yardmaster.dev/restarts";
/// Annotation on Jobs with a run deadline, written together with the status: when the first pod began to run. Without it,
/// that follows from the pods.
pub const RUNNING_SINCE_ANNOTATION: &str = "yardmaster.dev/running-since";
/// Annotation on Jobs that keep the results of their indexes, written together with the status
/// ([`IndexResults`](super::index_results::IndexResults)). Without it, only indexes that are recorded from then on have one.
pub const RESULTS_ANNOTATION: &str = "yardmaster.dev/results";
/// Annotation on Jobs that are after others, written together with the status: the names of those that have ended as wanted,
/// separated by commas. Without it, only Jobs that still exist count.
pub const AFTER_MET_ANNOTATION: &str = "yardmaster.dev/after-met";
/// The annotations on Jobs that are written together with the status. Another Job must not begin with them.
pub const STATUS_ANNOTATIONS: [&str; 5] = [
    NAMES_USED_ANNOTATION,
    RESTARTS_ANNOTATION,
    RUNNING_SINCE_ANNOTATION,
    RESULTS_ANNOTATION,
    AFTER_MET_ANNOTATION,
];
/// Annotation on Jobs that the page creates to run a failed index again: UID of the failed Job and index, as `UID/INDEX`.
pub const RETRY_OF_ANNOTATION: &str = "yardmaster.dev/retry-of";
/// Annotation on pods: the back-off when the pod was created, as `FAILURES@TIME`. Without it, the back-off follows from
/// the ended pods alone.
pub const BACKOFF_ANNOTATION: &str = "yardmaster.dev/backoff";
