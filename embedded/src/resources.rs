//! The kinds that the server serves, as data: a new kind is a new entry of [`RESOURCES`].

use serde_json::{Value, json};

use super::rules::{
    CoreEventStrategy, CronJobStrategy, DataStrategy, EventStrategy, JobStrategy, LeaseStrategy,
    MetadataStrategy, NamespaceStrategy, PodGroupStrategy, PodStrategy, RoleBindingStrategy, RoleStrategy,
    ServiceStrategy, Strategy, WorkloadStrategy,
};

/// The columns of a kind; their definitions are in `columns.json` under this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Columns {
    ConfigMap,
    Event,
    Job,
    Lease,
    NameAge,
    Namespace,
    Node,
    Pod,
    PodGroup,
    Secret,
}

/// A kind of object and how the generic verbs handle it.
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: &'static str,
    /// API version.
    pub(crate) version: &'static str,
    /// Kind, such as `Job`.
    pub(crate) kind: &'static str,
    /// Name in paths, such as `jobs`. Kinds with the same plural share their storage, as events of both
    /// groups do.
    pub(crate) plural: &'static str,
    /// Singular, such as `job`.
    pub(crate) singular: &'static str,
    /// Short names of kubectl.
    pub(crate) short_names: &'static [&'static str],
    /// Categories, such as `all`.
    pub(crate) categories: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub(crate) namespaced: bool,
    /// Verbs of the object itself, in the order of discovery.
    pub(crate) verbs: &'static [&'static str],
    /// Subresources, in the order of discovery.
    pub(crate) subresources: &'static [Subresource],
    /// Selectable fields besides `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [Field],
    /// How an unknown field selector is refused.
    pub(crate) unknown_field: UnknownField,
    /// JSON of an empty object of this kind, without metadata, as bookmarks carry it. Either empty or begins
    /// with a comma.
    pub(crate) empty: &'static str,
    /// Columns of the `Table` form.
    pub(crate) columns: Columns,
    /// Whether PUT of a missing object creates it.
    pub(crate) create_on_update: bool,
    /// Whether PUT without resourceVersion overwrites.
    pub(crate) unconditional_update: bool,
    /// How a DELETE proceeds.
    pub(crate) deletion: Deletion,
    /// The feature gate that must be on for the kind to be served.
    pub(crate) gate: Option<&'static str>,
    /// The behaviour that the kind adds to the verbs.
    pub(crate) strategy: &'static dyn Strategy,
}

/// A subresource such as `status`.
pub(crate) struct Subresource {
    /// Last part of the path.
    pub(crate) name: &'static str,
    /// The kind of its requests and responses; empty means the kind of its resource.
    pub(crate) kind: &'static str,
    /// Group and version of that kind where they differ from the resource's.
    pub(crate) group_version: Option<(&'static str, &'static str)>,
    /// Verbs, in the order of discovery.
    pub(crate) verbs: &'static [&'static str],
    /// The verbs answered with 501. Discovery lists them, as in Kubernetes, but this server cannot carry them
    /// out.
    pub(crate) refused: &'static [&'static str],
}

/// A field that selectors may name.
pub(crate) struct Field {
    /// The name in selectors.
    pub(crate) label: &'static str,
    /// Path of its value in a stored object.
    pub(crate) path: &'static [&'static str],
    /// Its value when absent.
    pub(crate) default: &'static str,
}

/// The text with which unknown field selectors are refused.
#[derive(Clone, Copy)]
pub(crate) enum UnknownField {
    /// `field label not supported: F`
    Label,
    /// `field label "F" not supported for KIND`
    LabelForKind,
    /// `"F" is not a known field selector: only ...`
    Known,
}

/// How objects of a kind are deleted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deletion {
    /// At once; the answer is a `Status`.
    Plain,
    /// At once by default, but dependents are orphaned by default (batch/v1 Jobs); the answer is a `Status`.
    OrphanByDefault,
    /// After the grace period in `spec.terminationGracePeriodSeconds`; the answer is the object (pods).
    Graceful,
    /// In two phases, through the finalizer in `spec.finalizers` (namespaces).
    Namespace,
}

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_ONLY: &[&str] = &["get", "list", "watch"];
const CREATE_ONLY: &[&str] = &["create"];
const GET_AND_CHANGE: &[&str] = &["get", "patch", "update"];
const STATUS: Subresource =
    Subresource { name: "status", kind: "", group_version: None, verbs: GET_AND_CHANGE, refused: &[] };
const EVENT_FIELDS: usize = 12;

/// A connection to something that runs on a node.
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

/// Fields of a stored event, under the names of one of the two groups.
macro_rules! event_fields {
    ($object:literal, $controller:literal) => {
        [
            Field { label: concat!($object, ".kind"), path: &["involvedObject", "kind"], default: "" },
            Field { label: concat!($object, ".namespace"), path: &["involvedObject", "namespace"], default: "" },
            Field { label: concat!($object, ".name"), path: &["involvedObject", "name"], default: "" },
            Field { label: concat!($object, ".uid"), path: &["involvedObject", "uid"], default: "" },
            Field { label: concat!($object, ".apiVersion"), path: &["involvedObject", "apiVersion"], default: "" },
            Field {
                label: concat!($object, ".resourceVersion"),
                path: &["involvedObject", "resourceVersion"],
                default: "",
            },
            Field { label: concat!($object, ".fieldPath"), path: &["involvedObject", "fieldPath"], default: "" },
            field!("reason": "reason"),
            field!("type": "type"),
            field!("source": "source"."component"),
            Field { label: $controller, path: &["reportingComponent"], default: "" },
            field!("action": "action"),
        ]
    };
}

static CORE_EVENT_FIELDS: [Field; EVENT_FIELDS] = event_fields!("involvedObject", "reportingComponent");
static EVENT_V1_FIELDS: [Field; EVENT_FIELDS] = event_fields!("regarding", "reportingController");

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

/// What Roles and ClusterRoles share.
const ROLE: Resource = Resource {
    group: "rbac.authorization.k8s.io",
    empty: r#","rules":null"#,
    create_on_update: true,
    ..COMMON
};

/// What RoleBindings and ClusterRoleBindings share.
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

impl Resource {
    /// `plural.group`, as messages name a resource.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Kind.group`, as some messages name a kind.
    pub(crate) fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// `group/version`, or `version` in the core group.
    pub(crate) fn api_version(&self) -> String {
        api_version(self.group, self.version)
    }

    /// `"kind":"K","apiVersion":"V",`
    pub(crate) fn type_meta(&self) -> String {
        format!(r#""kind":"{}","apiVersion":"{}","#, self.kind, self.api_version())
    }

    /// `Status.details` about an object of this resource.
    pub(crate) fn details(&self, name: &str) -> Value {
        let mut details = json!({"kind": self.plural});
        if !name.is_empty() {
            details["name"] = name.into();
        }
        if !self.group.is_empty() {
            details["group"] = self.group.into();
        }
        details
    }

    /// Whether the resource has this verb.
    pub(crate) fn has_verb(&self, verb: &str) -> bool {
        self.verbs.contains(&verb)
    }

    /// A subresource by name.
    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }
}

impl Field {
    /// The field's value in an object, as selectors compare it.
    pub(crate) fn value(&self, object: &Value) -> String {
        let found = self.path.iter().try_fold(object, |value, part| value.get(part));
        match found {
            None | Some(Value::Null) => self.default.to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// `group/version`, or `version` in the core group.
pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// A resource by group, version and plural.
pub(crate) fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES
        .iter()
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// The plurals of all kinds; some kinds share one.
pub(crate) fn plurals() -> Vec<&'static str> {
    RESOURCES.iter().map(|resource| resource.plural).collect()
}

/// The resource whose table stores a plural: the first with that name.
pub(crate) fn stored(plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.plural == plural)
}
