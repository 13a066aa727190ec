//! Pods that cannot go because their finalizer is not removed.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ListParams};
use serde::de::DeserializeOwned;

use super::context::{Context, message};
use super::{CheckId, Finding};
use crate::cli::lists::all_metadata;
use crate::job::names::{JOB_NAME_LABEL, SHARD_LABEL};

pub(super) const CHECK: CheckId = CheckId { group: "jobs", name: "pods-on-finalizers" };

/// A deleted pod is gone by then, however long its grace period.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// A pod whose Job has just been deleted is released by then.
pub(super) const RELEASE: Duration = Duration::from_secs(3);
/// No Job has a longer UID, in bytes.
const LONGEST_UID: usize = 64;
/// Pods that are named.
const NAMED: usize = 10;

/// A pod with our finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// `NAMESPACE/NAME`.
    pub(super) name: String,
    /// When it should have been gone.
    pub(super) deleted_at: Option<Timestamp>,
    /// UID of the Job that controls it.
    pub(super) job: Option<String>,
}

/// Why a pod is stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Deleted,
    NoJob,
}

pub(super) async fn check(cx: &Context) -> Finding {
    let first = match stuck(cx).await {
        Ok(stuck) => stuck,
        Err(error) => return unknown(&error),
    };
    if first.is_empty() {
        return evaluate(&first);
    }
    // Pods that a controller is about to release are not stuck.
    cx.pause(RELEASE).await;
    match stuck(cx).await {
        Ok(mut second) => {
            second.retain(|uid, _| first.contains_key(uid));
            evaluate(&second)
        }
        Err(error) => unknown(&error),
    }
}

fn unknown(error: &kube::Error) -> Finding {
    Finding::warning(
        format!("cannot list pods and Jobs: {}", message(error)),
        "Use an account that may list pods and Jobs in all namespaces. Mend or delete what cannot be read.",
    )
}

/// Names of stuck pods, and why they are stuck, by UID.
type Stuck = BTreeMap<String, (String, Reason)>;

/// All pods with our finalizer, by UID.
pub(super) async fn held(cx: &Context) -> Result<BTreeMap<String, Held>, kube::Error> {
    let finalizer = cx.controller.finalizer();
    let mut held = BTreeMap::new();
    // Pods of Jobs, and pods that were taken from their Job.
    for label in [JOB_NAME_LABEL, SHARD_LABEL] {
        for_each::<Pod>(cx, Some(label), |meta| {
            let uid = meta.uid.clone();
            held.extend(uid.zip(Held::of(meta, finalizer)));
        })
        .await?;
    }
    Ok(held)
}

async fn stuck(cx: &Context) -> Result<Stuck, kube::Error> {
    let held = held(cx).await?;
    if held.is_empty() {
        return Ok(Stuck::new());
    }
    // Listed after the pods: a pod is younger than its Job.
    let mut jobs = BTreeSet::new();
    for_each::<Job>(cx, None, |meta| jobs.extend(meta.uid)).await?;
    Ok(choose(held, &jobs, Timestamp::now()))
}

/// Reads the metadata of all objects with a label.
async fn for_each<K>(
    cx: &Context,
    label: Option<&str>,
    mut take: impl FnMut(ObjectMeta),
) -> Result<(), kube::Error>
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let api: Api<K> = Api::all(cx.client.clone());
    let label_selector = label.map(str::to_owned);
    let mut all = pin!(all_metadata(api, &ListParams { label_selector, ..ListParams::default() }));
    while let Some(object) = all.try_next().await? {
        take(object);
        if cx.is_stopped() {
            break;
        }
    }
    Ok(())
}

impl Held {
    fn of(meta: ObjectMeta, finalizer: &str) -> Option<Self> {
        meta.finalizers.iter().flatten().find(|name| *name == finalizer)?;
        let mut owners = meta.owner_references.into_iter().flatten();
        let job = owners.find(|owner| owner.controller == Some(true)).map(|owner| owner.uid);
        let job = job.filter(|uid| uid.len() <= LONGEST_UID);
        let name = format!("{}/{}", meta.namespace.unwrap_or_default(), meta.name.unwrap_or_default());
        Some(Self { name, deleted_at: meta.deletion_timestamp.map(|time| time.0), job })
    }
}

fn choose(held: BTreeMap<String, Held>, jobs: &BTreeSet<String>, now: Timestamp) -> Stuck {
    let reason = |pod: &Held| {
        if pod.job.as_ref().is_none_or(|job| !jobs.contains(job)) {
            Some(Reason::NoJob)
        } else {
            pod.deleted_at.filter(|at| now.duration_since(*at) > PATIENCE).map(|_| Reason::Deleted)
        }
    };
    held.into_iter().filter_map(|(uid, pod)| reason(&pod).map(|reason| (uid, (pod.name, reason)))).collect()
}

fn evaluate(stuck: &Stuck) -> Finding {
    if stuck.is_empty() {
        return Finding::ok("no pod is stuck on its finalizer");
    }
    let part = |reason: Reason, text: &str| {
        let names: Vec<&str> =
            stuck.values().filter(|(_, of)| *of == reason).map(|(name, _)| &**name).collect();
        let more = if names.len() > NAMED { ", ..." } else { "" };
        let first = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("{} {text}: {first}{more}", names.len()))
    };
    let parts =
        [part(Reason::Deleted, "deleted more than 5 minutes ago"), part(Reason::NoJob, "without a Job")];
    Finding::warning(
        format!("pods keep their finalizer: {}", parts.into_iter().flatten().collect::<Vec<_>>().join("; ")),
        "A running controller releases them: check the replicas above. If no controller will run again, \
         remove the finalizer (kubectl patch pod NAME --type=merge -p \
         '{\"metadata\":{\"finalizers\":null}}').",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::cli::check::report::Status;
    use crate::job::names::EXTERNAL_FINALIZER;

    fn held(finalizer: &str, deleted_at: Option<&str>, job: Option<&str>) -> Option<Held> {
        let owners: Vec<_> = job
            .into_iter()
            .map(|uid| json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true}))
            .collect();
        let meta = json!({
            "name": "p", "namespace": "n", "finalizers": ["other", finalizer], "ownerReferences": owners,
            "deletionTimestamp": deleted_at,
        });
        Held::of(serde_json::from_value(meta).unwrap(), EXTERNAL_FINALIZER)
    }

    #[test]
    fn a_pod_is_stuck_long_after_its_deletion_or_without_its_job() {
        let now = "2026-01-01T01:00:00Z".parse().unwrap();
        let jobs = BTreeSet::from(["j1".to_owned()]);
        assert_eq!(held("another", None, Some("j1")), None);
        for (deleted_at, job, expected) in [
            (None, Some("j1"), None),
            (Some("2026-01-01T00:58:00Z"), Some("j1"), None),
            (Some("2026-01-01T00:50:00Z"), Some("j1"), Some(Reason::Deleted)),
            // A long grace period ends in the future.
            (Some("2026-01-01T02:00:00Z"), Some("j1"), None),
            (None, Some("j2"), Some(Reason::NoJob)),
            (None, None, Some(Reason::NoJob)),
        ] {
            let pod = held(EXTERNAL_FINALIZER, deleted_at, job).unwrap();
            let stuck = choose(BTreeMap::from([("u".to_owned(), pod)]), &jobs, now);
            assert_eq!(stuck.get("u").map(|(_, reason)| *reason), expected, "{deleted_at:?} {job:?}");
        }
    }

    #[test]
    fn the_first_stuck_pods_are_named() {
        let stuck = |count, reason| -> Stuck {
            (0..count)
                .map(|number| (format!("{reason:?}{number:02}"), (format!("n/p{number}"), reason)))
                .collect()
        };
        assert_eq!(evaluate(&Stuck::new()).status, Status::Ok);
        let mut both = stuck(11, Reason::NoJob);
        both.extend(stuck(1, Reason::Deleted));
        let finding = evaluate(&both);
        assert_eq!(finding.status, Status::Warning);
        assert!(
            finding.message.contains("1 deleted more than 5 minutes ago: n/p0; 11 without a Job: n/p0, ")
        );
        assert!(finding.message.ends_with("n/p9, ..."), "{}", finding.message);
    }
}
