//! Properties of Kubernetes' Go types that OpenAPI does not contain: when a field is written to JSON.
//!
//! Go omits a field marked `omitempty` if it is zero, unless it is a pointer that is set. OpenAPI does not
//! distinguish pointers from values; these tables list the exceptions to the usual form of each type.

use super::{Kind, Presence};

/// Optional numbers and booleans that are values, so that a zero is omitted. Others are pointers.
const VALUES: &[(&str, &[&str])] = &[
    ("JobStatus", &["active", "failed", "succeeded"]),
    ("Container", &["stdin", "stdinOnce", "tty"]),
    ("EphemeralContainer", &["stdin", "stdinOnce", "tty"]),
    ("ContainerImage", &["sizeBytes"]),
    ("ContainerPort", &["hostPort"]),
    ("ContainerStateTerminated", &["signal"]),
    ("Event", &["count", "deprecatedCount"]),
    ("EventSeries", &["count"]),
    ("NodeSpec", &["unschedulable"]),
    ("ObjectMeta", &["generation"]),
    ("PersistentVolumeClaimVolumeSource", &["readOnly"]),
    ("PodCondition", &["observedGeneration"]),
    ("PodSpec", &["hostIPC", "hostNetwork", "hostPID"]),
    ("PodStatus", &["observedGeneration"]),
    ("Condition", &["observedGeneration"]),
    (
        "Probe",
        &["failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold", "timeoutSeconds"],
    ),
    ("PriorityClass", &["globalDefault"]),
    ("SubjectAccessReviewStatus", &["denied"]),
    ("TokenReviewStatus", &["authenticated"]),
    ("ServicePort", &["nodePort"]),
    ("ServiceSpec", &["healthCheckNodePort", "publishNotReadyAddresses"]),
    ("VolumeMount", &["readOnly"]),
    ("VolumeMountStatus", &["readOnly"]),
    ("AWSElasticBlockStoreVolumeSource", &["partition", "readOnly"]),
    ("AzureFileVolumeSource", &["readOnly"]),
    ("CephFSVolumeSource", &["readOnly"]),
    ("CinderVolumeSource", &["readOnly"]),
    ("FCVolumeSource", &["readOnly"]),
    ("FlexVolumeSource", &["readOnly"]),
    ("GCEPersistentDiskVolumeSource", &["partition", "readOnly"]),
    ("GlusterfsVolumeSource", &["readOnly"]),
    ("ISCSIVolumeSource", &["chapAuthDiscovery", "chapAuthSession", "readOnly"]),
    ("NFSVolumeSource", &["readOnly"]),
    ("PortworxVolumeSource", &["readOnly"]),
    ("QuobyteVolumeSource", &["readOnly"]),
    ("RBDVolumeSource", &["readOnly"]),
    ("ScaleIOVolumeSource", &["readOnly", "sslEnabled"]),
    ("StorageOSVolumeSource", &["readOnly"]),
];

/// Optional strings that are pointers, so that an empty one is written. Others are values.
const POINTERS: &[(&str, &[&str])] = &[
    ("JobSpec", &["completionMode", "managedBy", "podReplacementPolicy"]),
    ("JobStatus", &["failedIndexes"]),
    ("SuccessPolicyRule", &["succeededIndexes"]),
    ("PodFailurePolicyOnExitCodesRequirement", &["containerName"]),
    ("CronJobSpec", &["timeZone"]),
    ("LeaseSpec", &["holderIdentity", "preferredHolder", "strategy"]),
    ("HostPathVolumeSource", &["type"]),
    ("GRPCAction", &["service"]),
    ("PodSpec", &["hostnameOverride", "preemptionPolicy", "runtimeClassName"]),
    ("Container", &["restartPolicy"]),
    ("EphemeralContainer", &["restartPolicy"]),
    ("ServiceSpec", &["internalTrafficPolicy", "ipFamilyPolicy", "loadBalancerClass", "trafficDistribution"]),
    ("ServicePort", &["appProtocol"]),
    ("PersistentVolumeClaimSpec", &["storageClassName", "volumeAttributesClassName", "volumeMode"]),
    ("PriorityClass", &["preemptionPolicy"]),
    ("SecurityContext", &["procMount"]),
    ("PodSecurityContext", &["fsGroupChangePolicy", "seLinuxChangePolicy", "supplementalGroupsPolicy"]),
    ("SeccompProfile", &["localhostProfile"]),
    ("AppArmorProfile", &["localhostProfile"]),
    ("TopologySpreadConstraint", &["nodeAffinityPolicy", "nodeTaintsPolicy"]),
    ("VolumeMount", &["mountPropagation", "recursiveReadOnly"]),
    ("PodDNSConfigOption", &["value"]),
    ("PodSchedulingGroup", &["podGroupName"]),
];

/// Optional structs that are values, so that they are always written. Others are pointers.
const EMBEDDED: &[(&str, &[&str])] = &[
    ("Job", &["metadata", "spec", "status"]),
    ("CronJob", &["metadata", "spec", "status"]),
    ("JobTemplateSpec", &["metadata", "spec"]),
    ("PodTemplateSpec", &["metadata", "spec"]),
    ("Pod", &["metadata", "spec", "status"]),
    ("Namespace", &["metadata", "spec", "status"]),
    ("Node", &["metadata", "spec", "status"]),
    ("Service", &["metadata", "spec", "status"]),
    ("ResourceQuota", &["metadata", "spec", "status"]),
    ("LimitRange", &["metadata", "spec"]),
    ("PersistentVolumeClaim", &["metadata", "spec", "status"]),
    ("Lease", &["metadata", "spec"]),
    ("PodGroup", &["status"]),
    ("SelfSubjectReview", &["metadata", "status"]),
    ("TokenReview", &["metadata", "status"]),
    ("TokenReviewStatus", &["user"]),
    ("LocalSubjectAccessReview", &["metadata", "status"]),
    ("SelfSubjectAccessReview", &["metadata", "status"]),
    ("SubjectAccessReview", &["metadata", "status"]),
    ("PersistentVolumeClaimTemplate", &["metadata"]),
    ("PersistentVolumeClaimSpec", &["resources"]),
    ("Container", &["resources"]),
    ("EphemeralContainer", &["resources"]),
    ("ContainerStatus", &["lastState", "state"]),
    ("Event", &["source", "regarding", "deprecatedSource"]),
    ("NodeStatus", &["daemonEndpoints", "nodeInfo"]),
    ("NodeDaemonEndpoints", &["kubeletEndpoint"]),
    ("ServiceStatus", &["loadBalancer"]),
    ("ServicePort", &["targetPort"]),
    ("ResourceFieldSelector", &["divisor"]),
];

/// Optional times that are pointers, so that absent ones are omitted. Others are values, written as null.
const OPTIONAL_TIMES: &[(&str, &[&str])] = &[
    ("JobStatus", &["completionTime", "startTime"]),
    ("CronJobStatus", &["lastScheduleTime", "lastSuccessfulTime"]),
    ("LeaseSpec", &["acquireTime", "renewTime"]),
    ("ManagedFieldsEntry", &["time"]),
    ("ObjectMeta", &["creationTimestamp", "deletionTimestamp"]),
    ("PodStatus", &["startTime"]),
    ("Taint", &["timeAdded"]),
];

/// Optional strings that are written even if empty.
const WRITTEN: &[(&str, &[&str])] = &[("core.v1.Event", &["reportingComponent", "reportingInstance"])];

/// Pointers and lists that are written as null if not given.
const NULLS: &[(&str, &[&str])] = &[
    ("ClusterRole", &["rules"]),
    ("PodFailurePolicyOnExitCodesRequirement", &["values"]),
    ("PodGroupTemplate", &["schedulingConstraints"]),
    ("PodGroupSpec", &["podGroupTemplateRef"]),
    ("ProjectedVolumeSource", &["sources"]),
    ("Role", &["rules"]),
    ("SuccessPolicy", &["rules"]),
];

/// Required strings that are left out if empty: the names in references to other objects.
const UNWRITTEN: &[(&str, &[&str])] = &[
    ("LocalObjectReference", &["name"]),
    ("ConfigMapEnvSource", &["name"]),
    ("ConfigMapKeySelector", &["name"]),
    ("ConfigMapProjection", &["name"]),
    ("ConfigMapVolumeSource", &["name"]),
    ("SecretEnvSource", &["name"]),
    ("SecretKeySelector", &["name"]),
    ("SecretProjection", &["name"]),
];

/// Fields of named string types, and of maps and lists of them, with the type's name in decoder messages.
const NAMED: &[(&str, &str, &str)] = &[
    ("JobSpec", "completionMode", "v1.CompletionMode"),
    ("JobSpec", "podReplacementPolicy", "v1.PodReplacementPolicy"),
    ("JobCondition", "type", "v1.JobConditionType"),
    ("JobCondition", "status", "v1.ConditionStatus"),
    ("UncountedTerminatedPods", "succeeded", "types.UID"),
    ("UncountedTerminatedPods", "failed", "types.UID"),
    ("PodFailurePolicyRule", "action", "v1.PodFailurePolicyAction"),
    ("PodFailurePolicyOnExitCodesRequirement", "operator", "v1.PodFailurePolicyOnExitCodesOperator"),
    ("PodFailurePolicyOnPodConditionsPattern", "type", "v1.PodConditionType"),
    ("PodFailurePolicyOnPodConditionsPattern", "status", "v1.ConditionStatus"),
    ("CronJobSpec", "concurrencyPolicy", "v1.ConcurrencyPolicy"),
    ("PodSpec", "restartPolicy", "v1.RestartPolicy"),
    ("PodSpec", "dnsPolicy", "v1.DNSPolicy"),
    ("PodSpec", "preemptionPolicy", "v1.PreemptionPolicy"),
    ("PodStatus", "phase", "v1.PodPhase"),
    ("PodStatus", "qosClass", "v1.PodQOSClass"),
    ("PodCondition", "type", "v1.PodConditionType"),
    ("PodCondition", "status", "v1.ConditionStatus"),
    ("Container", "imagePullPolicy", "v1.PullPolicy"),
    ("Container", "terminationMessagePolicy", "v1.TerminationMessagePolicy"),
    ("Container", "restartPolicy", "v1.ContainerRestartPolicy"),
    ("ContainerPort", "protocol", "v1.Protocol"),
    ("HTTPGetAction", "scheme", "v1.URIScheme"),
    ("ResourceRequirements", "limits", "v1.ResourceList"),
    ("ResourceRequirements", "requests", "v1.ResourceList"),
    ("LimitRangeItem", "type", "v1.LimitType"),
    ("LimitRangeItem", "max", "v1.ResourceList"),
    ("LimitRangeItem", "min", "v1.ResourceList"),
    ("LimitRangeItem", "default", "v1.ResourceList"),
    ("LimitRangeItem", "defaultRequest", "v1.ResourceList"),
    ("LimitRangeItem", "maxLimitRequestRatio", "v1.ResourceList"),
    ("EmptyDirVolumeSource", "medium", "v1.StorageMedium"),
    ("HostPathVolumeSource", "type", "v1.HostPathType"),
    ("Toleration", "operator", "v1.TolerationOperator"),
    ("Toleration", "effect", "v1.TaintEffect"),
    ("TopologySpreadConstraint", "whenUnsatisfiable", "v1.UnsatisfiableConstraintAction"),
    ("LabelSelectorRequirement", "operator", "v1.LabelSelectorOperator"),
    ("NodeSelectorRequirement", "operator", "v1.NodeSelectorOperator"),
    ("NamespaceStatus", "phase", "v1.NamespacePhase"),
    ("ObjectMeta", "uid", "types.UID"),
    ("OwnerReference", "uid", "types.UID"),
    ("ObjectReference", "uid", "types.UID"),
    ("LeaseSpec", "strategy", "v1.CoordinatedLeaseStrategy"),
    ("ManagedFieldsEntry", "operation", "v1.ManagedFieldsOperationType"),
    ("Secret", "type", "v1.SecretType"),
    ("ServiceSpec", "type", "v1.ServiceType"),
];

/// The Go type of a field, or of the elements of a list, if its name differs from that of its [`Kind`].
pub(super) fn type_name(ty: &str, field: &str) -> Option<&'static str> {
    NAMED.iter().find(|(owner, name, _)| *name == field && ends_with(ty, owner)).map(|(.., go)| *go)
}

/// Whether an OpenAPI name is that of the type `name`, which includes as much of the package as necessary.
fn ends_with(full: &str, name: &str) -> bool {
    full.strip_suffix(name).is_some_and(|package| package.is_empty() || package.ends_with('.'))
}

fn listed(table: &[(&str, &[&str])], ty: &str, field: &str) -> bool {
    table.iter().any(|(name, fields)| fields.contains(&field) && ends_with(ty, name))
}

/// The presence of `field` of the struct `ty`, which is an OpenAPI name.
pub(super) fn presence(ty: &str, field: &str, kind: &Kind, required: bool) -> Presence {
    let optional = match kind {
        Kind::Bool | Kind::Int32 | Kind::Int64 if listed(VALUES, ty, field) => Presence::NonZero,
        Kind::Bool | Kind::Int32 | Kind::Int64 => Presence::Given,
        Kind::Text if listed(WRITTEN, ty, field) => Presence::Always,
        Kind::Text if listed(POINTERS, ty, field) => Presence::Given,
        Kind::List(_) if listed(NULLS, ty, field) => Presence::OrNull,
        Kind::Text | Kind::List(_) | Kind::Map(_) => Presence::NonZero,
        Kind::Time | Kind::MicroTime if listed(OPTIONAL_TIMES, ty, field) => Presence::Given,
        Kind::Time | Kind::MicroTime => Presence::Always,
        Kind::Struct(_) | Kind::Quantity | Kind::IntOrString if listed(EMBEDDED, ty, field) => {
            Presence::Always
        }
        Kind::Struct(_) if listed(NULLS, ty, field) => Presence::OrNull,
        Kind::Struct(_) if field == "metadata" => Presence::Always,
        Kind::Struct(_) | Kind::Quantity | Kind::IntOrString | Kind::Raw => Presence::Given,
    };
    let written = required && optional != Presence::OrNull && !listed(UNWRITTEN, ty, field);
    if written { Presence::Always } else { optional }
}

/// All fields in the tables.
#[cfg(test)]
pub(super) fn named_fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    [VALUES, POINTERS, EMBEDDED, OPTIONAL_TIMES, WRITTEN, NULLS, UNWRITTEN]
        .into_iter()
        .flatten()
        .flat_map(|(ty, fields)| fields.iter().map(|field| (*ty, *field)))
        .chain(NAMED.iter().map(|(ty, field, _)| (*ty, *field)))
}
