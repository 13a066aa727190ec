//! The table of kinds: a new kind is a new entry of [`RESOURCES`].

use super::event_fields::{CORE_EVENT_FIELDS, EVENT_V1_FIELDS};
use super::{Columns, Deletion, Field, Resource, Subresource, UnknownField};
use crate::rules::{
    ClaimStrategy, CoreEventStrategy, CronJobStrategy, DataStrategy, EventStrategy, JobStrategy,
    LeaseStrategy, LimitRangeStrategy, MetadataStrategy, NamespaceStrategy, PodGroupStrategy, PodStrategy,
    RoleBindingStrategy, RoleStrategy, ServiceStrategy, Strategy, WorkloadStrategy,
};

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_ONLY: &[&str] = &["get", "list", "watch"];
const CREATE_ONLY: &[&str] = &["create"];
const GET_AND_CHANGE: &[&str] = &["get", "patch", "update"];
const STATUS: Subresource =
    Subresource { name: "status", kind: "", group_version: None, verbs: GET_AND_CHANGE, refused: &[] };

/// A connection into a running pod or to a node, which this server cannot make.
const fn connection(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group_version: None, verbs, refused: verbs }
}

/// A part of a running pod that this server can read but not change.
const fn running_part(name: &'static str) -> Subresource {
    Subresource { name, kind: "", group_version: None, verbs: GET_AND_CHANGE, refused: &["patch", "update"] }
}

const CONNECT: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

/// A field whose label is its path.
macro_rules! field {
    ($label:literal: $($part:literal).+ $(= $default:literal)?) => {
        Field { label: $label, path: &[$($part),+], default: concat!($($default)?) }
    };
}

/// A strategy that adds nothing to the generic verbs.
pub(crate) struct Generic;
impl Strategy for Generic {}

/// The values that most kinds share; each entry names only what differs.
const COMMON: Resource = Resource {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    subresources: &[],
    fields: &[],
    unknown_field: UnknownField::Known,
    empty: "",
    columns: Columns::NameAge,
    create_on_update: false,
    unconditional_update: true,
    deletion: Deletion::Plain,
    gate: None,
    strategy: &Generic,
};

/// The values that Roles and ClusterRoles share.
const ROLE: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    empty: r#","rules":null"#,
    create_on_update: true,
    ..COMMON
};

/// The values that RoleBindings and ClusterRoleBindings share.
const ROLE_BINDING: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    empty: r#","roleRef":{"apiGroup":"","kind":"","name":""}"#,
    create_on_update: true,
    ..COMMON
};

/// A kind that is read-only and always empty, so that `kubectl get all` works.
const fn listed(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
) -> Resource {
    Resource {
        group,
        version,
        kind,
        plural,
        singular,
        short_names,
        categories: &["all"],
        verbs: READ_ONLY,
        ..COMMON
    }
}

/// A kind that is only a query, such as a SubjectAccessReview. It is not stored.
const fn review(
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
) -> Resource {
    Resource { group, kind, plural, singular, namespaced: false, verbs: CREATE_ONLY, ..COMMON }
}

/// Every kind, in the order of discovery within its group.
pub(crate) static RESOURCES: &[Resource] = &[
    Resource { kind: "Binding", plural: "bindings", singular: "binding", verbs: CREATE_ONLY, ..COMMON },
    Resource {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        columns: Columns::ConfigMap,
        strategy: &DataStrategy { secret: false },
        ..COMMON
    },
    Resource {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        fields: &CORE_EVENT_FIELDS,
        unknown_field: UnknownField::Label,
        empty: r#","involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,"reportingComponent":"","reportingInstance":"""#,
        columns: Columns::Event,
        create_on_update: true,
        strategy: &CoreEventStrategy,
        ..COMMON
    },
    Resource {
        kind: "LimitRange",
        plural: "limitranges",
        singular: "limitrange",
        short_names: &["limits"],
        empty: r#","spec":{"limits":null}"#,
        columns: Columns::NameCreated,
        create_on_update: true,
        strategy: &LimitRangeStrategy,
        ..COMMON
    },
    Resource {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NAMESPACE_VERBS,
        subresources: &[
            Subresource { name: "finalize", kind: "", group_version: None, verbs: &["update"], refused: &[] },
            STATUS,
        ],
        fields: &[field!("status.phase": "status"."phase")],
        unknown_field: UnknownField::Label,
        empty: r#","spec":{},"status":{}"#,
        columns: Columns::Namespace,
        deletion: Deletion::Namespace,
        strategy: &NamespaceStrategy,
        ..COMMON
    },
    Resource {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        subresources: &[connection("proxy", "NodeProxyOptions", PROXY), STATUS],
        fields: &[field!("spec.unschedulable": "spec"."unschedulable" = "false")],
        unknown_field: UnknownField::Label,
        empty: r#","spec":{},"status":{}"#,
        columns: Columns::Node,
        strategy: &MetadataStrategy { namespaced: false, status_on_create: true },
        ..COMMON
    },
    Resource {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &[STATUS],
        empty: r#","spec":{"resources":{}},"status":{}"#,
        strategy: &ClaimStrategy,
        ..COMMON
    },
    Resource {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: &[
            connection("attach", "PodAttachOptions", CONNECT),
            Subresource {
                name: "binding",
                kind: "Binding",
                group_version: None,
                verbs: CREATE_ONLY,
                refused: &[],
            },
            running_part("ephemeralcontainers"),
            Subresource {
                name: "eviction",
                kind: "Eviction",
                group_version: Some(("policy", "v1")),
                verbs: CREATE_ONLY,
                refused: &[],
            },
            connection("exec", "PodExecOptions", CONNECT),
            Subresource { name: "log", kind: "", group_version: None, verbs: &["get"], refused: &[] },
            connection("portforward", "PodPortForwardOptions", CONNECT),
            connection("proxy", "PodProxyOptions", PROXY),
            running_part("resize"),
            STATUS,
        ],
        fields: &[
            field!("spec.nodeName": "spec"."nodeName"),
            field!("spec.restartPolicy": "spec"."restartPolicy"),
            field!("spec.schedulerName": "spec"."schedulerName"),
            field!("spec.serviceAccountName": "spec"."serviceAccountName"),
            field!("spec.hostNetwork": "spec"."hostNetwork" = "false"),
            field!("status.phase": "status"."phase"),
            field!("status.podIP": "status"."podIP"),
            field!("status.nominatedNodeName": "status"."nominatedNodeName"),
        ],
        unknown_field: UnknownField::Label,
        empty: r#","spec":{"containers":null},"status":{}"#,
        columns: Columns::Pod,
        deletion: Deletion::Graceful,
        strategy: &PodStrategy,
        ..COMMON
    },
    listed("", "v1", "ReplicationController", "replicationcontrollers", "replicationcontroller", &["rc"]),
    Resource {
        kind: "ResourceQuota",
        plural: "resourcequotas",
        singular: "resourcequota",
        short_names: &["quota"],
        subresources: &[STATUS],
        empty: r#","spec":{},"status":{}"#,
        strategy: &MetadataStrategy { namespaced: true, status_on_create: false },
        ..COMMON
    },
    Resource {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        fields: &[field!("type": "type")],
        unknown_field: UnknownField::Label,
        columns: Columns::Secret,
        strategy: &DataStrategy { secret: true },
        ..COMMON
    },
    Resource {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            kind: "TokenRequest",
            group_version: Some(("authentication.k8s.io", "v1")),
            verbs: CREATE_ONLY,
            refused: &[],
        }],
        strategy: &MetadataStrategy { namespaced: true, status_on_create: false },
        ..COMMON
    },
    Resource {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[STATUS],
        empty: r#","spec":{},"status":{"loadBalancer":{}}"#,
        strategy: &ServiceStrategy,
        ..COMMON
    },
    Resource {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        fields: &EVENT_V1_FIELDS,
        unknown_field: UnknownField::Label,
        empty: r#","eventTime":null,"regarding":{},"deprecatedSource":{},"deprecatedFirstTimestamp":null,"deprecatedLastTimestamp":null"#,
        columns: Columns::Event,
        create_on_update: true,
        strategy: &EventStrategy,
        ..COMMON
    },
    listed("apps", "v1", "DaemonSet", "daemonsets", "daemonset", &["ds"]),
    listed("apps", "v1", "Deployment", "deployments", "deployment", &["deploy"]),
    listed("apps", "v1", "ReplicaSet", "replicasets", "replicaset", &["rs"]),
    listed("apps", "v1", "StatefulSet", "statefulsets", "statefulset", &["sts"]),
    review("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", "selfsubjectreview"),
    review("authentication.k8s.io", "TokenReview", "tokenreviews", "tokenreview"),
    Resource {
        namespaced: true,
        ..review(
            "authorization.k8s.io",
            "LocalSubjectAccessReview",
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
        )
    },
    review(
        "authorization.k8s.io",
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
    ),
    review("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", "subjectaccessreview"),
    listed(
        "autoscaling",
        "v2",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        "horizontalpodautoscaler",
        &["hpa"],
    ),
    Resource {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        categories: &["all"],
        subresources: &[STATUS],
        empty: r#","spec":{"schedule":"","jobTemplate":{"metadata":{},"spec":{"template":{"metadata":{},"spec":{"containers":null}}}}},"status":{}"#,
        columns: Columns::CronJob,
        strategy: &CronJobStrategy,
        ..COMMON
    },
    Resource {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        singular: "job",
        categories: &["all"],
        subresources: &[STATUS],
        fields: &[field!("status.successful": "status"."succeeded" = "0")],
        unknown_field: UnknownField::LabelForKind,
        empty: r#","spec":{"template":{"metadata":{},"spec":{"containers":null}}},"status":{}"#,
        columns: Columns::Job,
        deletion: Deletion::OrphanByDefault,
        strategy: &JobStrategy,
        ..COMMON
    },
    Resource {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        empty: r#","spec":{}"#,
        columns: Columns::Lease,
        create_on_update: true,
        unconditional_update: false,
        strategy: &LeaseStrategy,
        ..COMMON
    },
    Resource {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        namespaced: false,
        strategy: &RoleBindingStrategy { namespaced: false },
        ..ROLE_BINDING
    },
    Resource {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        namespaced: false,
        strategy: &RoleStrategy { namespaced: false },
        ..ROLE
    },
    Resource {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        strategy: &RoleBindingStrategy { namespaced: true },
        ..ROLE_BINDING
    },
    Resource {
        kind: "Role",
        plural: "roles",
        singular: "role",
        strategy: &RoleStrategy { namespaced: true },
        ..ROLE
    },
    Resource {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        short_names: &["pc"],
        namespaced: false,
        strategy: &MetadataStrategy { namespaced: false, status_on_create: false },
        ..COMMON
    },
    Resource {
        group: "scheduling.k8s.io",
        version: "v1alpha2",
        kind: "PodGroup",
        plural: "podgroups",
        singular: "podgroup",
        subresources: &[STATUS],
        empty: r#","spec":{},"status":{}"#,
        columns: Columns::PodGroup,
        gate: Some("GenericWorkload"),
        strategy: &PodGroupStrategy,
        ..COMMON
    },
    Resource {
        group: "scheduling.k8s.io",
        version: "v1alpha2",
        kind: "Workload",
        plural: "workloads",
        singular: "workload",
        empty: r#","spec":{"podGroupTemplates":null}"#,
        gate: Some("GenericWorkload"),
        strategy: &WorkloadStrategy,
        ..COMMON
    },
];
