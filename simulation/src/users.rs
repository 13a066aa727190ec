//! The users of a world.

use serde_json::{Value, json};
use yardmaster::job::names::SHARD_LABEL;

use crate::kubelet::{Request, drain};
use crate::ledger::{Ledger, PodFacts};
use crate::plan::{JobPlan, LeaseDamage, LeaseKind, UserAct, options};
use crate::time::{EPOCH, Time};

/// Finalizer with which a user holds a pod.
pub(crate) const HOLD: &str = "example.com/hold";

/// A label that some selectors name, and the value that they rule out.
pub(crate) const TIER: &str = "tier";
pub(crate) const RULED_OUT: &str = "test";

/// Whether a user holds a pod.
pub(crate) fn holds(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|one| one == HOLD))
}

/// The manifest of a Job.
pub(crate) fn manifest(job: &JobPlan) -> Value {
    let mut spec = job.spec.clone();
    let mut labels = json!({});
    if job.adopts {
        labels["app"] = job.name.clone().into();
        spec["manualSelector"] = true.into();
        spec["selector"] = json!({"matchLabels": {"app": job.name}});
    }
    if !job.expressions.is_empty() {
        spec["selector"]["matchExpressions"] = job.expressions.clone().into();
    }
    let mut container = json!({"name": "main", "image": "i"});
    if job.has_env {
        container["env"] =
            json!([{"name": "MODE", "value": "fast"}, {"name": "TRACEPARENT", "value": "own"}]);
    }
    if job.needs_memory.is_some() {
        container["resources"] = options::resources();
    }
    spec["template"] = json!({
        "metadata": {"labels": labels},
        "spec": {
            "restartPolicy": if job.restarts { "OnFailure" } else { "Never" },
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    });
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": job.name, "namespace": job.namespace, "annotations": job.annotations},
        "spec": spec,
    })
}

/// The creation of a Job.
pub(crate) fn create(job: &JobPlan) -> Request {
    let path = format!("/apis/batch/v1/namespaces/{}/jobs", job.namespace);
    Request { method: "POST", path, body: manifest(job) }
}

/// The UID of the Job of a plan, if it exists.
pub(crate) fn uid_of<'a>(ledger: &'a Ledger, job: &JobPlan) -> Option<&'a str> {
    let is_it =
        |facts: &&crate::ledger::JobFacts| facts.exists && facts.name() == (&job.namespace, &job.name);
    ledger.jobs.iter().find(|(_, facts)| is_it(facts)).map(|(uid, _)| uid.as_str())
}

/// The pod that a user picks among the pods of the Job.
pub(crate) fn pick<'a>(ledger: &'a Ledger, job: &str, nth: usize) -> Option<(&'a str, &'a PodFacts)> {
    let pods: Vec<_> =
        ledger.pods.iter().filter(|(_, pod)| pod.exists() && pod.job.as_deref() == Some(job)).collect();
    let chosen = pods.get(nth.checked_rem(pods.len())?)?;
    Some((chosen.0.as_str(), chosen.1))
}

/// The creation of a pod that the Job may adopt.
pub(crate) fn orphan(job: &JobPlan, number: u64) -> Request {
    let name = format!("{}-by-hand-{number}", job.name);
    let mut labels = json!({"app": job.name});
    if !job.expressions.is_empty() {
        // Some of them the expressions rule out.
        labels[TIER] = ["front", RULED_OUT, "back"][(number % 3) as usize].into();
    }
    let body = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": job.namespace, "labels": labels},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "i"}],
        },
    });
    Request { method: "POST", path: format!("/api/v1/namespaces/{}/pods", job.namespace), body }
}

/// The requests of a user's act on several pods, or in several requests. Returns `None` if the act is one
/// request.
pub(crate) fn requests(ledger: &Ledger, uid: &str, act: &UserAct, now: Time) -> Option<Vec<Request>> {
    match act {
        UserAct::DeleteEnded => {
            let ended =
                ledger.pods_of(uid).filter(|pod| pod.exists() && pod.end.is_some() && pod.deleted.is_none());
            let delete = |pod: &PodFacts| {
                let (namespace, name) = pod.name();
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
                Request { method: "DELETE", path, body: json!({}) }
            };
            Some(ended.map(delete).collect())
        }
        UserAct::Evict { nth } => {
            let pod = pick(ledger, uid, *nth).filter(|(_, pod)| pod.is_active());
            Some(pod.map(|(uid, pod)| drain(pod, uid, now)).into_iter().flatten().collect())
        }
        _ => None,
    }
}

/// The request of a user's act. Returns `None` if its target does not exist.
pub(crate) fn request(ledger: &Ledger, job: &JobPlan, act: &UserAct) -> Option<Request> {
    let uid = uid_of(ledger, job)?;
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{}", job.namespace, job.name);
    let patch = |body: Value| Some(Request { method: "PATCH", path: path.clone(), body });
    let pod_path = |pod: &PodFacts| {
        let (namespace, name) = pod.name();
        format!("/api/v1/namespaces/{namespace}/pods/{name}")
    };
    let of_pod = |nth: usize, body: Value| {
        let (_, pod) = pick(ledger, uid, nth)?;
        Some(Request { method: "PATCH", path: pod_path(pod), body })
    };
    match act {
        UserAct::Delete(policy) => {
            Some(Request { method: "DELETE", path, body: json!({"propagationPolicy": policy}) })
        }
        UserAct::Scale(parallelism) => patch(json!({"spec": {"parallelism": parallelism}})),
        UserAct::Suspend(suspend) => patch(json!({"spec": {"suspend": suspend}})),
        UserAct::Annotate => patch(json!({"metadata": {"annotations": {"example.com/note": uid}}})),
        UserAct::SetOption { name, value } => {
            let key = format!("{}{name}", yardmaster::job::options::PREFIX);
            patch(json!({"metadata": {"annotations": {key: value}}}))
        }
        UserAct::Resize(size) => patch(json!({"spec": {"completions": size, "parallelism": size}})),
        UserAct::DeletePod { nth, force } => {
            let (_, pod) = pick(ledger, uid, *nth)?;
            let body = if *force { json!({"gracePeriodSeconds": 0}) } else { json!({}) };
            Some(Request { method: "DELETE", path: pod_path(pod), body })
        }
        UserAct::AddOrphans(_) | UserAct::DeleteEnded | UserAct::Evict { .. } => None,
        UserAct::AdoptElsewhere { nth } => of_pod(
            *nth,
            json!({"metadata": {"ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "other", "controller": true,
                "uid": "11111111-2222-4333-8444-555555555555",
            }]}}),
        ),
        UserAct::StripLabel { nth } => of_pod(*nth, json!({"metadata": {"labels": {SHARD_LABEL: null}}})),
        UserAct::WrongShard { nth } => of_pod(*nth, json!({"metadata": {"labels": {SHARD_LABEL: "999"}}})),
        UserAct::OtherShard { nth, shard } => {
            of_pod(*nth, json!({"metadata": {"labels": {SHARD_LABEL: shard.to_string()}}}))
        }
        UserAct::Relabel { nth } => of_pod(*nth, json!({"metadata": {"labels": {"app": "other"}}})),
        UserAct::StripFinalizers { nth } => of_pod(*nth, json!({"metadata": {"finalizers": null}})),
        UserAct::HoldPod { nth, .. } => {
            let (_, pod) = pick(ledger, uid, *nth)?;
            let before = pod.object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            let held: Vec<Value> = before.into_iter().chain([json!(HOLD)]).collect();
            Some(Request {
                method: "PATCH",
                path: pod_path(pod),
                body: json!({"metadata": {"finalizers": held}}),
            })
        }
    }
}

/// The request with which a stranger damages a Lease. Returns `None` if no Lease of this kind exists.
pub(crate) fn damage(ledger: &Ledger, kind: LeaseKind, nth: usize, how: LeaseDamage) -> Option<Request> {
    let mark = match kind {
        LeaseKind::Claim => "-shard-",
        LeaseKind::Heartbeat => "-replica-",
        LeaseKind::Layout => "-layout",
        LeaseKind::Balance => "-balance",
    };
    let of_kind: Vec<&Value> =
        ledger.leases.iter().filter(|(name, _)| name.contains(mark)).map(|(_, lease)| lease).collect();
    let lease = of_kind.get(nth.checked_rem(of_kind.len())?)?;
    let (namespace, name) = crate::ledger::name(lease);
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let patch = |body: Value| Some(Request { method: "PATCH", path: path.clone(), body });
    match how {
        LeaseDamage::Deleted => Some(Request { method: "DELETE", path, body: json!({}) }),
        LeaseDamage::Unlabelled => patch(json!({"metadata": {"labels": null}})),
        LeaseDamage::Relabelled => patch(
            json!({"metadata": {"labels": {"yardmaster.dev/lease": "something", "yardmaster.dev/shard": "x"}}}),
        ),
        LeaseDamage::Unannotated => patch(json!({"metadata": {"annotations": null}})),
    }
}

/// The status that another controller writes when its Job ends.
pub(crate) fn finish(job: &JobPlan, failed: bool, now: Time) -> Request {
    let at = (EPOCH + now.since(Time::ZERO)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "", "lastTransitionTime": at,
            "lastProbeTime": at})
    };
    let mut status = match failed {
        true => json!({"conditions": [condition("FailureTarget", "X"), condition("Failed", "X")]}),
        false => json!({
            "completionTime": at,
            "conditions": [condition("SuccessCriteriaMet", "X"), condition("Complete", "X")],
        }),
    };
    status["startTime"] = at.clone().into();
    let path = format!("/apis/batch/v1/namespaces/{}/jobs/{}/status", job.namespace, job.name);
    Request { method: "PATCH", path, body: json!({"status": status}) }
}
