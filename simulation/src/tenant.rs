//! The objects that the tenant of a world creates: its pods, and its Jobs.

use serde_json::{Value, json};
use yardmaster::job::names::{
    BUILT_IN_FINALIZER, CONTROLLER_UID_LABEL, EXTERNAL_CONTROLLER, EXTERNAL_FINALIZER, JOB_NAME_LABEL,
    SHARD_LABEL,
};

use crate::kubelet::Request;
use crate::ledger::{Ledger, name};
use crate::plan::tenant::{Claim, Dress, ShardMark, StatusEdge, TENANT};
use crate::plan::{JobPlan, Settings};

/// The beginning of the names of pods that the tenant, or a careless user, creates.
pub(crate) const POD: &str = "claims-";
/// The beginning of the names of the tenant's Jobs.
pub(crate) const JOB: &str = "mine-";
/// Jobs of the tenant whose containers end as its node wants.
pub(crate) const JOBS: u32 = 10;
/// A finalizer that never goes.
const HOLD: &str = "example.com/never";

/// The controller that a pod names.
pub(crate) struct Named<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Whether the pod has a reference to it, and not its labels alone.
    pub(crate) owns: bool,
}

/// The controller that a pod names to claim a Job outside the tenant's namespace.
pub(crate) fn claimed<'a>(job: &'a JobPlan, uid: &str, how: Claim) -> Named<'a> {
    let (namespace, name, owns) = match how {
        Claim::OtherNamespace => (TENANT, job.name.clone(), true),
        Claim::OtherName => (&*job.namespace, format!("{}-copy", job.name), true),
        Claim::LabelsOnly => (TENANT, job.name.clone(), false),
    };
    Named { namespace, name, uid: uid.to_owned(), owns }
}

/// A controller that has never existed. `impossible`: no Job can have its name.
pub(crate) fn nobody(number: u64, impossible: bool) -> Named<'static> {
    let name = match (impossible, number % 6) {
        (false, _) => format!("nobody-{number}"),
        (true, 0) => format!("?watch=1&n={number}"),
        (true, 1) => "?limit=500".to_owned(),
        (true, 2) => "../../../../../api/v1/pods".to_owned(),
        (true, 3) => "n".repeat(1_000),
        (true, 4) => format!("A b#{number}"),
        (true, _) => "%2e%2e/x".to_owned(),
    };
    let uid = format!("00000000-0000-4000-8000-{number:012x}");
    Named { namespace: TENANT, name, uid, owns: true }
}

/// The creation of a pod that names this controller.
pub(crate) fn pod(named: &Named<'_>, dress: Dress, settings: &Settings, number: u64) -> Request {
    let finalizer = if settings.replaces_built_in { BUILT_IN_FINALIZER } else { EXTERNAL_FINALIZER };
    // Labels have a syntax that names of owners lack.
    let mut labels = json!({CONTROLLER_UID_LABEL: named.uid, "controller-uid": named.uid});
    if named.name.len() < 60 && named.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        labels[JOB_NAME_LABEL] = named.name.clone().into();
        labels["app"] = named.name.clone().into();
    }
    if let Some(shard) = shard_label(dress.shard) {
        labels[SHARD_LABEL] = shard.into();
    }
    let mut metadata = json!({
        "name": format!("{POD}{number}"), "namespace": named.namespace, "labels": labels,
        "annotations": {
            "batch.kubernetes.io/job-completion-index": (number % 3).to_string(),
            "yardmaster.dev/place": format!("{}/0", number % 3),
        },
    });
    if named.owns {
        metadata["ownerReferences"] = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": named.name, "uid": named.uid,
            "controller": true, "blockOwnerDeletion": number.is_multiple_of(2),
        }]);
    }
    if dress.tracked {
        metadata["finalizers"] = json!([finalizer]);
    }
    let body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "i"}],
        },
    });
    Request { method: "POST", path: format!("/api/v1/namespaces/{}/pods", named.namespace), body }
}

/// The value of a shard label.
pub(crate) fn shard_label(mark: ShardMark) -> Option<String> {
    match mark {
        ShardMark::Absent => None,
        ShardMark::Number(shard) => Some(shard.to_string()),
        ShardMark::Garbage => Some("4294967296".into()),
    }
}

/// The creation of one of the tenant's Jobs.
pub(crate) fn job(number: u32, extreme: bool, settings: &Settings) -> Request {
    let mut spec = json!({
        "completions": 2 + number % 3, "parallelism": 2, "backoffLimit": 3,
        "template": {"spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "i"}],
        }},
    });
    if !settings.replaces_built_in {
        spec["managedBy"] = EXTERNAL_CONTROLLER.into();
    }
    if number % 2 == 1 {
        spec["completionMode"] = "Indexed".into();
    }
    let mut annotations = json!({});
    if extreme {
        let edges = ["0", "4294967295", "18446744073709551616", "-1", "x"];
        let times = ["0s", "1ns", "100000000h", "-1s", "9223372036854775807ns", "1e9s"];
        let of = |values: &[&str], shift: u32| values[((number + shift) as usize) % values.len()].to_owned();
        annotations = json!({
            "yardmaster.dev/backoff-initial": of(&times, 0), "yardmaster.dev/backoff-max": of(&times, 3),
            "yardmaster.dev/failed-pods-limit": of(&edges, 1), "yardmaster.dev/prune-succeeded": "true",
            "yardmaster.dev/propagate-trace": "true",
            "tracing.k8s.io/traceparent": "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff",
        });
        spec["backoffLimit"] = 2_147_483_647_u32.into();
        if number % 2 == 1 {
            spec["backoffLimitPerIndex"] = 2_147_483_647_u32.into();
        }
        if number.is_multiple_of(3) {
            spec["activeDeadlineSeconds"] = 9_223_372_036_854_775_807_i64.into();
        }
    }
    let metadata = json!({"name": format!("{JOB}{number}"), "namespace": TENANT, "annotations": annotations});
    let body = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec});
    Request { method: "POST", path: format!("/apis/batch/v1/namespaces/{TENANT}/jobs"), body }
}

/// The paths of the tenant's Jobs.
pub(crate) fn jobs(ledger: &Ledger) -> Vec<String> {
    let jobs = ledger.jobs.values().filter(|job| job.exists && job.name().0 == TENANT);
    jobs.map(|job| format!("/apis/batch/v1/namespaces/{TENANT}/jobs/{}", job.name().1)).collect()
}

/// The paths of the pods of the tenant's Jobs.
pub(crate) fn pods(ledger: &Ledger) -> Vec<String> {
    let is_own = |pod: &&crate::ledger::PodFacts| {
        pod.exists() && pod.name().0 == TENANT && !pod.name().1.starts_with(POD)
    };
    let pods = ledger.pods.values().filter(is_own);
    pods.map(|pod| format!("/api/v1/namespaces/{TENANT}/pods/{}", pod.name().1)).collect()
}

/// A patch of the status of the Job of this path.
pub(crate) fn write_status(path: &str, edge: StatusEdge) -> Request {
    const MAX: i32 = i32::MAX;
    let status = match edge {
        StatusEdge::Largest => json!({
            "active": MAX, "ready": MAX, "terminating": MAX, "succeeded": MAX, "failed": MAX,
        }),
        StatusEdge::Phantoms => json!({"uncountedTerminatedPods": {
            "succeeded": (0..50).map(|number| format!("phantom-{number}")).collect::<Vec<_>>(), "failed": ["x"],
        }}),
        StatusEdge::Future => json!({"startTime": "9999-12-30T00:00:00Z", "succeeded": 1, "failed": MAX}),
        StatusEdge::Complete => {
            let at = "2027-01-15T08:00:00Z";
            let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "X", "message": "", "lastTransitionTime": at});
            json!({
                "startTime": at, "completionTime": at, "active": 0, "ready": 0, "terminating": 0,
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
            })
        }
    };
    Request { method: "PATCH", path: format!("{path}/status"), body: json!({"status": status}) }
}

/// A patch that adds a finalizer which never goes to the object of this path.
pub(crate) fn hold(path: String, object: &Value) -> Request {
    let before = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let held: Vec<Value> = before.into_iter().filter(|one| one != HOLD).chain([json!(HOLD)]).collect();
    Request { method: "PATCH", path, body: json!({"metadata": {"finalizers": held}}) }
}

/// Whether an object is in the tenant's namespace.
pub(crate) fn is_in_namespace(object: &Value) -> bool {
    name(object).0 == TENANT
}
