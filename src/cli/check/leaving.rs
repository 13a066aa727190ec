//! Whether Jobs would be left without a controller, and pods with its finalizer.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::api::ListParams;

use super::context::{Context, message};
use super::pods::{self, Held};
use super::{CheckId, Finding};
use crate::cli::job_view::{JobView, all_jobs};
use crate::cli::lists::all_objects;
use crate::job::names::EXTERNAL_FINALIZER;

pub(super) const JOBS: CheckId = CheckId { group: "leaving", name: "unfinished-jobs" };
pub(super) const FINALIZERS: CheckId = CheckId { group: "leaving", name: "pods-with-finalizer" };

/// Objects that are named.
const NAMED: usize = 10;

/// The remaining work of the controller. In replacement mode finalizers do not count: the built-in controller has the same,
/// and takes the pods over together with their Jobs.
pub(super) async fn check(cx: &Context) -> Vec<(CheckId, Finding)> {
    let in_place = cx.controller.replaces_built_in();
    let held = if in_place { Ok(BTreeMap::new()) } else { held_twice(cx).await };
    // Listed after the pods: a pod is younger than its Job.
    let jobs = match jobs(cx).await {
        Ok(jobs) => jobs,
        Err(error) => return vec![(JOBS, unknown("Jobs", &error))],
    };
    let mut findings = vec![(JOBS, evaluate_jobs(&jobs.unfinished, in_place))];
    if !in_place {
        let finding = match held {
            Ok(held) => evaluate_pods(&without_others(held, &jobs.of_others)),
            Err(error) => unknown("pods", &error),
        };
        findings.push((FINALIZERS, finding));
    }
    findings
}

fn unknown(what: &str, error: &kube::Error) -> Finding {
    Finding::failed(
        format!("cannot list {what}: {}", message(error)),
        format!(
            "Use an account that may list {what} in all namespaces, and check that the API server answers. \
             Mend or delete what cannot be read."
        ),
    )
}

/// Pods that have the finalizer at two looks. In between the controller releases those whose Job has just ended.
async fn held_twice(cx: &Context) -> Result<BTreeMap<String, Held>, kube::Error> {
    let first = pods::held(cx).await?;
    if first.is_empty() {
        return Ok(first);
    }
    cx.pause(pods::RELEASE).await;
    let mut second = pods::held(cx).await?;
    second.retain(|uid, _| first.contains_key(uid));
    Ok(second)
}

#[derive(Debug, Default)]
struct Jobs {
    /// Unfinished Jobs that the controller manages, as `NAMESPACE/NAME`.
    unfinished: Vec<String>,
    /// UIDs of the Jobs that it does not manage.
    of_others: BTreeSet<String>,
}

async fn jobs(cx: &Context) -> Result<Jobs, kube::Error> {
    let mut all = pin!(all_objects(all_jobs(&cx.client), &ListParams::default()));
    let mut jobs = Jobs::default();
    while let Some(JobView { metadata, spec, status, .. }) = all.try_next().await? {
        if !cx.controller.manages(spec.managed_by.as_deref()) {
            jobs.of_others.extend(metadata.uid);
        } else if !status.unwrap_or_default().is_finished() {
            let (namespace, name) =
                (metadata.namespace.unwrap_or_default(), metadata.name.unwrap_or_default());
            jobs.unfinished.push(format!("{namespace}/{name}"));
        }
        if cx.is_stopped() {
            break;
        }
    }
    Ok(jobs)
}

/// Names of the pods whose Job is managed by this controller or gone. All controllers beside the built-in one have the same
/// finalizer.
fn without_others(held: BTreeMap<String, Held>, of_others: &BTreeSet<String>) -> Vec<String> {
    let is_ours = |pod: &Held| pod.job.as_ref().is_none_or(|job| !of_others.contains(job));
    held.into_values().filter(is_ours).map(|pod| pod.name).collect()
}

/// The first names of a list.
fn first(names: &[String]) -> String {
    let more = if names.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", "))
}

fn evaluate_jobs(jobs: &[String], replaces_built_in: bool) -> Finding {
    let count = match jobs.len() {
        0 => return Finding::ok("no unfinished Job is managed by this controller"),
        1 => "1 unfinished Job is".to_owned(),
        count => format!("{count} unfinished Jobs are"),
    };
    let remedy = if replaces_built_in {
        "Let them finish (`yardmaster status`), delete them (`kubectl delete job`), or move them: the \
         built-in Job controller takes them over once it is switched on again."
    } else {
        "Let them finish (`yardmaster status`), delete them (`kubectl delete job`), or move them: create \
         them again without spec.managedBy, which cannot be changed."
    };
    Finding::failed(format!("{count} managed by this controller: {}", first(jobs)), remedy)
}

fn evaluate_pods(pods: &[String]) -> Finding {
    let count = match pods.len() {
        0 => return Finding::ok("no pod waits for this controller to remove its finalizer"),
        1 => "1 pod has".to_owned(),
        count => format!("{count} pods have"),
    };
    Finding::failed(
        format!("{count} the finalizer {EXTERNAL_FINALIZER}: {}", first(pods)),
        "Keep a replica running: it removes the finalizer once a pod is counted, or its Job is gone. Without \
         it such pods stay in Terminating. If no replica will run again, remove it by `yardmaster release -A`, \
         which counts what has ended first.",
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::time::Duration;

    use bytes::Bytes;
    use futures::stream;

    use super::*;
    use crate::actors::ControllerConfig;
    use crate::cli::check::report::Status;
    use crate::cli::lists::tests::answering;
    use crate::job::names::BUILT_IN_CONTROLLER;

    #[tokio::test]
    async fn a_job_that_cannot_be_read_is_no_absent_job() {
        const LIST: &[u8] = br#"{"metadata":{"resourceVersion":"7"},"items":[
            {"metadata":{"namespace":"ml","name":"x","finalizers":1},"spec":{}}]}"#;
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let controller_name = BUILT_IN_CONTROLLER.to_owned();
        let controller = ControllerConfig { controller_name, ..ControllerConfig::default() };
        let mut cx = Context::connect(config, controller, None, Duration::ZERO).unwrap();
        cx.client = answering(stream::iter([Bytes::from_static(LIST)]));
        let findings = check(&cx).await;
        let [(JOBS, finding)] = &findings[..] else { panic!("{findings:?}") };
        assert_eq!(finding.status, Status::Failed);
        assert!(finding.message.starts_with("cannot list Jobs: ml/x cannot be read"), "{}", finding.message);
    }

    #[test]
    fn the_first_ten_jobs_are_named() {
        let jobs = |count| (1..=count).map(|number| format!("n/job-{number}")).collect::<Vec<_>>();
        assert_eq!(evaluate_jobs(&[], false).status, Status::Ok);
        let one = evaluate_jobs(&jobs(1), false);
        assert_eq!(
            (one.status, &*one.message),
            (Status::Failed, "1 unfinished Job is managed by this controller: n/job-1")
        );
        assert!(one.remedy.unwrap().contains("without spec.managedBy"));
        let many = evaluate_jobs(&jobs(12), true);
        assert!(
            many.message.starts_with("12 unfinished Jobs are") && many.message.ends_with("n/job-10, ...")
        );
        assert!(many.remedy.unwrap().contains("built-in"));
        assert!(!evaluate_jobs(&jobs(10), true).message.contains("..."));
    }

    #[test]
    fn pods_count_unless_their_job_has_another_controller() {
        let held = |job: Option<&str>| Held {
            name: format!("n/of-{}", job.unwrap_or("nobody")),
            deleted_at: None,
            job: job.map(str::to_owned),
        };
        let held = [Some("ours"), Some("theirs"), Some("gone"), None].map(held);
        let held = held.into_iter().map(|pod| (pod.name.clone(), pod)).collect();
        let pods = without_others(held, &BTreeSet::from(["theirs".to_owned(), "another".to_owned()]));
        assert_eq!(pods, ["n/of-gone", "n/of-nobody", "n/of-ours"]);
        let finding = evaluate_pods(&pods);
        assert_eq!(
            (finding.status, &*finding.message),
            (
                Status::Failed,
                "3 pods have the finalizer yardmaster.dev/job-tracking: n/of-gone, n/of-nobody, n/of-ours"
            )
        );
        assert_eq!(evaluate_pods(&[]).status, Status::Ok);
    }
}
