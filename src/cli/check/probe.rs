//! The probe Job: one that the controller must bring to Complete.
//!
//! Without an image it wants no completions, so a controller completes it without a pod.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use tokio::time::Instant;

use super::context::{Context, is_forbidden, message, unique_name};
use super::{CheckId, Finding};
use crate::actors::ControllerConfig;

pub(super) const CHECK: CheckId = CheckId { group: "jobs", name: "probe-job" };

/// Interval between reads of the probe Job.
const PERIOD: Duration = Duration::from_millis(100);
/// How long a second controller may take to react to what the first has done.
const AFTERMATH: Duration = Duration::from_millis(500);
/// Attempts to delete the probe Job.
const DELETIONS: usize = 3;
/// Seconds after which a TTL controller deletes a probe Job that was left over.
const TTL: u32 = 600;

/// The work of the probe Job.
#[derive(Clone, Debug)]
pub(super) enum Workload {
    NoPods,
    Pod { image: String, command: Vec<String> },
}

/// The result of the probe Job.
#[derive(Debug)]
pub(super) struct Probe {
    end: End,
    pub(super) writers: Writers,
    /// The Job that could not be deleted, and why.
    left: Option<(String, String)>,
    namespace: String,
}

#[derive(Debug)]
enum End {
    NotCreated {
        forbidden: bool,
        message: String,
    },
    /// The API server has dropped `spec.managedBy`.
    Unmanaged,
    Complete(Duration),
    Failed(String),
    /// It was as described when the time was over.
    Waiting(String),
    Unread(String),
}

/// The writers of the Job's status and of Events about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writers {
    /// Field managers of the status.
    pub(super) status: BTreeSet<String>,
    /// Component and field manager of each Event.
    pub(super) events: BTreeSet<(String, String)>,
}

/// Creates the probe Job, waits for its end, and deletes it in any case.
pub(super) async fn run(cx: &Context, workload: &Workload) -> Probe {
    let jobs: Api<Job> = Api::namespaced(cx.client.clone(), &cx.probe_namespace);
    let name = unique_name();
    let mut writers = Writers::default();
    let end = follow(cx, &jobs, &name, workload, &mut writers).await;
    let left = delete(&jobs, &name).await.err().map(|error| (name, error));
    // A creation that was refused has left nothing.
    let left = left.filter(|_| !matches!(end, End::NotCreated { .. }));
    Probe { end, writers, left, namespace: cx.probe_namespace.clone() }
}

async fn follow(
    cx: &Context,
    jobs: &Api<Job>,
    name: &str,
    workload: &Workload,
    writers: &mut Writers,
) -> End {
    let job = match serde_json::from_value::<Job>(manifest(name, workload, &cx.controller)) {
        Ok(job) => job,
        Err(error) => return End::NotCreated { forbidden: false, message: error.to_string() },
    };
    let started = Instant::now();
    let created = match jobs.create(&PostParams::default(), &job).await {
        Ok(created) => created,
        Err(error) => return End::NotCreated { forbidden: is_forbidden(&error), message: message(&error) },
    };
    let managed_by = created.spec.as_ref().and_then(|spec| spec.managed_by.as_deref());
    if !cx.controller.manages(managed_by) {
        return End::Unmanaged;
    }
    loop {
        let job = match jobs.get(name).await {
            Ok(job) => job,
            Err(error) => return End::Unread(message(&error)),
        };
        writers.observe(&job);
        let elapsed = started.elapsed();
        let end = end(&job, elapsed);
        if end.is_some() {
            cx.pause(AFTERMATH).await;
            if let Ok(job) = jobs.get(name).await {
                writers.observe(&job);
            }
        }
        if end.is_some() || elapsed >= cx.wait || cx.is_stopped() {
            writers.observe_events(cx, &job).await;
            return end.unwrap_or_else(|| End::Waiting(describe(&job)));
        }
        cx.pause(PERIOD.min(cx.wait - elapsed)).await;
    }
}

fn manifest(name: &str, workload: &Workload, controller: &ControllerConfig) -> serde_json::Value {
    let (completions, image, command) = match workload {
        // No pod is created, so the image is never pulled.
        Workload::NoPods => (0, "none.invalid/none", &[] as &[String]),
        Workload::Pod { image, command } => (1, &**image, &**command),
    };
    let limits = json!({"cpu": "100m", "memory": "64Mi"});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "yardmaster-check"}},
        "spec": {
            "managedBy": (!controller.replaces_built_in()).then_some(&controller.controller_name),
            "completions": completions, "parallelism": 1, "backoffLimit": 0, "ttlSecondsAfterFinished": TTL,
            "template": {"spec": {
                "restartPolicy": "Never", "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 5,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "probe", "image": image, "command": (!command.is_empty()).then_some(command),
                    "resources": {"requests": limits, "limits": limits},
                    "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                }],
            }},
        },
    })
}

/// Deletes the Job with its pods. A Job that does not exist is not an error.
async fn delete(jobs: &Api<Job>, name: &str) -> Result<(), String> {
    let mut last = String::new();
    for _ in 0..DELETIONS {
        match jobs.delete(name, &DeleteParams::background()).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            Err(error) => last = message(&error),
        }
        tokio::time::sleep(PERIOD).await;
    }
    Err(last)
}

fn end(job: &Job, elapsed: Duration) -> Option<End> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().filter(|condition| condition.status == "True").find_map(|condition| {
        match &*condition.type_ {
            "Complete" => Some(End::Complete(elapsed)),
            "Failed" => Some(End::Failed(condition.message.clone().unwrap_or_default())),
            _ => None,
        }
    })
}

/// How far an unfinished Job has come.
fn describe(job: &Job) -> String {
    let status = job.status.clone().unwrap_or_default();
    if job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true)) {
        return "it is suspended".to_owned();
    }
    match (status.active, status.start_time) {
        (Some(active), _) if active > 0 => "its pod has not ended".to_owned(),
        (_, Some(_)) => "it has started, but its pod is not counted".to_owned(),
        _ => "no controller has taken it up".to_owned(),
    }
}

impl Writers {
    fn observe(&mut self, job: &Job) {
        let entries = job.metadata.managed_fields.iter().flatten();
        let of_status = entries.filter(|entry| entry.subresource.as_deref() == Some("status"));
        self.status.extend(of_status.filter_map(|entry| entry.manager.clone()));
    }

    async fn observe_events(&mut self, cx: &Context, job: &Job) {
        let api: Api<Event> = Api::namespaced(cx.client.clone(), &cx.probe_namespace);
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let about = ListParams::default().fields(&format!("involvedObject.uid={uid}"));
        // Events only add to what the status shows.
        if let Ok(events) = api.list(&about).await {
            self.events.extend(events.items.iter().map(event_writer));
        }
    }
}

fn event_writer(event: &Event) -> (String, String) {
    let source = event.source.as_ref().and_then(|source| source.component.clone());
    let component = event.reporting_component.clone().filter(|name| !name.is_empty()).or(source);
    (component.unwrap_or_default(), manager(&event.metadata))
}

fn manager(meta: &ObjectMeta) -> String {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.find_map(|entry| entry.manager.clone()).unwrap_or_default()
}

pub(super) fn evaluate(probe: &Probe, controller: &ControllerConfig) -> Finding {
    let finding = judge(&probe.end, &probe.namespace, controller);
    match &probe.left {
        None => finding,
        Some((name, error)) => Finding::failed(
            format!("{}; the probe Job was not deleted: {error}", finding.message),
            format!("kubectl delete job -n {} {name}", probe.namespace),
        ),
    }
}

fn judge(end: &End, namespace: &str, controller: &ControllerConfig) -> Finding {
    match end {
        End::Complete(time) => Finding::ok(format!(
            "a Job in namespace {namespace} was Complete after {:.1} s",
            time.as_secs_f64()
        )),
        End::NotCreated { forbidden: true, message } => Finding::failed(
            format!("the probe Job was not created: {message}"),
            format!("Use an account that may create, get and delete Jobs in namespace {namespace}."),
        ),
        End::NotCreated { message, .. } => Finding::failed(
            format!("the probe Job was not created: {message}"),
            "Remove what refuses it there, such as a quota, a policy or a webhook.",
        ),
        End::Unmanaged if controller.replaces_built_in() => Finding::failed(
            "something has set spec.managedBy of the probe Job to another controller",
            "Exclude the namespace from the policy or webhook that sets the field.",
        ),
        End::Unmanaged => Finding::failed(
            "the API server has dropped spec.managedBy of the probe Job",
            "Upgrade the API server to 1.32 or newer, or switch its feature gate JobManagedBy on.",
        ),
        End::Failed(message) => Finding::failed(
            format!("the probe Job failed: {message}"),
            "Check --probe-image and --probe-command; the command must end with exit code 0, as user 65532.",
        ),
        End::Waiting(state) => Finding::failed(
            format!("the probe Job did not complete in time: {state}"),
            format!(
                "Check that replicas run with --controller-name {}, and their logs; a longer --wait helps \
                 if the pod is slow.",
                controller.controller_name
            ),
        ),
        End::Unread(message) => Finding::failed(
            format!("the probe Job cannot be read: {message}"),
            format!(
                "Use an account that may get Jobs in namespace {namespace}, and check that nobody deletes \
                 them."
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cli::check::report::Status;
    use crate::job::names::BUILT_IN_CONTROLLER;

    fn config(name: &str) -> ControllerConfig {
        ControllerConfig { controller_name: name.to_owned(), ..ControllerConfig::default() }
    }

    #[test]
    fn every_end_but_complete_fails_with_its_remedy() {
        let none = || "no".to_owned();
        for (end, status, part) in [
            (End::Complete(Duration::from_millis(300)), Status::Ok, ""),
            (End::NotCreated { forbidden: true, message: none() }, Status::Failed, "may create"),
            (End::NotCreated { forbidden: false, message: none() }, Status::Failed, "quota"),
            (End::Unmanaged, Status::Failed, "JobManagedBy"),
            (End::Failed(none()), Status::Failed, "--probe-image"),
            (End::Waiting(none()), Status::Failed, "--controller-name a.b/c"),
            (End::Unread(none()), Status::Failed, "may get"),
        ] {
            let finding = judge(&end, "n", &config("a.b/c"));
            assert_eq!(finding.status, status, "{end:?}");
            assert!(finding.remedy.unwrap_or_default().contains(part), "{end:?}");
        }
        let replacement = judge(&End::Unmanaged, "n", &config(BUILT_IN_CONTROLLER));
        assert!(replacement.message.contains("another controller"));
        let left = Some(("job-1".to_owned(), "no answer".to_owned()));
        let end = End::Complete(Duration::ZERO);
        let probe = Probe { end, writers: Writers::default(), left, namespace: "n".to_owned() };
        let finding = evaluate(&probe, &config("c"));
        assert_eq!(finding.status, Status::Failed);
        assert_eq!(finding.remedy.as_deref(), Some("kubectl delete job -n n job-1"));
    }

    #[test]
    fn the_manifest_is_a_job_of_the_controller() {
        let command = vec!["sleep".to_owned(), "1".to_owned()];
        let pod = Workload::Pod { image: "busybox".into(), command };
        let job = |workload, name| -> Job {
            serde_json::from_value(manifest("j", workload, &config(name))).unwrap()
        };
        let spec = job(&Workload::NoPods, "a.b/c").spec.unwrap();
        assert_eq!((spec.managed_by.as_deref(), spec.completions), (Some("a.b/c"), Some(0)));
        let spec = job(&pod, BUILT_IN_CONTROLLER).spec.unwrap();
        assert_eq!((spec.managed_by, spec.completions), (None, Some(1)));
        let container = &spec.template.spec.unwrap().containers[0];
        assert_eq!(container.image.as_deref(), Some("busybox"));
        assert_eq!(container.command.as_ref().map(Vec::len), Some(2));
    }

    #[test]
    fn a_job_shows_its_end_its_state_and_who_wrote_its_status() {
        let job = |job| serde_json::from_value::<Job>(job).unwrap();
        for (status, state) in [
            (json!(null), "no controller"),
            (json!({"active": 1}), "has not ended"),
            (json!({"startTime": "2026-01-01T00:00:00Z"}), "not counted"),
        ] {
            let job = job(json!({"spec": {"template": {}}, "status": status}));
            assert!(describe(&job).contains(state), "{status}");
            assert!(end(&job, Duration::ZERO).is_none());
        }
        assert_eq!(describe(&job(json!({"spec": {"template": {}, "suspend": true}}))), "it is suspended");
        let conditions =
            json!([{"type": "SuccessCriteriaMet", "status": "True"}, {"type": "Complete", "status": "True"}]);
        let complete = job(json!({
            "metadata": {"managedFields": [
                {"manager": "curl", "operation": "Update"},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
            ]},
            "status": {"conditions": conditions},
        }));
        assert!(matches!(end(&complete, Duration::ZERO), Some(End::Complete(_))));
        let mut writers = Writers::default();
        writers.observe(&complete);
        assert_eq!(writers.status, BTreeSet::from(["kube-controller-manager".to_owned()]));
    }
}
