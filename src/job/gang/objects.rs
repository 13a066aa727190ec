//! The Workload and the PodGroup of a Job (`scheduling.k8s.io/v1alpha2`): which of the existing ones are
//! used, and the manifests of new ones.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::job::job_id::JobId;
use crate::job::manifest::OwnerReference;
use crate::job::plan::{GangRequest, JobEvent};
use crate::job::pod_name::suffix;
use crate::job::spec::Job;
use crate::job::uid::Uid;

const API_VERSION: &str = "scheduling.k8s.io/v1alpha2";
/// Longest name of an object that need not be a DNS label.
const MAX_NAME: usize = 253;
/// Length of the suffix that distinguishes objects whose names begin alike.
const SUFFIX: usize = 10;

/// A Workload, as far as the rules look at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// The Job that controls it, if one does.
    pub controller: Option<JobId>,
    /// The Job that `spec.controllerRef` names.
    pub job: Option<Box<str>>,
    /// `spec.podGroupTemplates`.
    pub templates: Vec<GroupTemplate>,
}

/// A template of a Workload.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupTemplate {
    /// `name`.
    pub name: Box<str>,
    /// `schedulingPolicy`; `None` if it is longer than any.
    pub policy: Option<Value>,
}

/// A PodGroup, as far as the rules look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// `metadata.name`.
    pub name: Arc<str>,
    /// The Job that controls it, if one does.
    pub controller: Option<JobId>,
    /// `spec.podGroupTemplateRef.workload.workloadName`.
    pub workload: Option<Box<str>>,
}

/// The decision that follows from the objects that exist.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice<T> {
    /// Use this one: it is the Job's.
    Use(T),
    /// Create this one: there is none.
    Make(Bytes),
    /// The Job gets no gang.
    Leave,
}

/// How many objects that name the same owner a choice looks at: the second shows that the first is not the only one.
pub const LOOKED_AT: usize = 2;

/// Whether a Workload names the Job.
pub fn names_job(workload: &Workload, job: &Job) -> bool {
    workload.job.as_deref() == Some(&*job.name)
}

/// Whether a PodGroup names the Workload.
pub fn names_workload(group: &PodGroup, workload: &Workload) -> bool {
    group.workload.as_ref() == Some(&workload.name)
}

/// Chooses the Job's Workload among those of its namespace. It is the only one that names the Job, is
/// controlled by the Job, and has exactly one template. A Workload that somebody else has created for the Job
/// is left alone.
pub fn choose_workload(job: &Job, found: Vec<Workload>, request: GangRequest) -> Choice<Workload> {
    let of_job = found.into_iter().filter(|workload| names_job(workload, job));
    let has_one_template = |found: &Workload| match &found.templates[..] {
        [template] => template.policy.is_some(),
        _ => false,
    };
    let usable = |found: &Workload| is_controlled(&found.controller, job) && has_one_template(found);
    choose(of_job, usable, request, || new_workload(job))
}

/// Chooses the PodGroup of the Job's Workload among those of the Job's namespace. It is the only one that
/// names the Workload, and is controlled by the Job.
pub fn choose_pod_group(
    job: &Job,
    workload: &Workload,
    found: Vec<PodGroup>,
    request: GangRequest,
) -> Choice<PodGroup> {
    let Some(template) = workload.templates.first() else { return Choice::Leave };
    let of_workload = found.into_iter().filter(|group| names_workload(group, workload));
    let usable = |found: &PodGroup| is_controlled(&found.controller, job);
    choose(of_workload, usable, request, || new_pod_group(job, workload, template))
}

fn choose<T>(
    mut found: impl Iterator<Item = T>,
    usable: impl Fn(&T) -> bool,
    request: GangRequest,
    new: impl Fn() -> Value,
) -> Choice<T> {
    match (found.next(), found.next(), request) {
        (Some(only), None, _) if usable(&only) => Choice::Use(only),
        (None, None, GangRequest::Ensure) => Choice::Make(new().to_string().into()),
        _ => Choice::Leave,
    }
}

fn is_controlled(controller: &Option<JobId>, job: &Job) -> bool {
    controller.as_ref() == Some(&job.id())
}

/// The event about a new Workload.
pub fn workload_made(job: &Job, workload: &Workload) -> JobEvent {
    JobEvent {
        warning: false,
        reason: "WorkloadCreated".into(),
        message: format!("Created Workload {} for Job {}", workload.name, job.name).into(),
        terminal: false,
    }
}

/// A Workload with one template for all pods of the Job. The template's name must be a DNS label, so the API
/// server refuses the Workload of a Job whose name has more than 57 characters.
fn new_workload(job: &Job) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": join(&job.name, &suffix(&[job.uid.to_string().as_bytes()], SUFFIX)),
            "namespace": &*job.namespace,
            "ownerReferences": [OwnerReference::of(job)],
        },
        "spec": {
            "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": &*job.name},
            "podGroupTemplates": [{
                "name": format!("{}-pgt-0", job.name),
                "schedulingPolicy": {"gang": {"minCount": job.spec.parallelism}},
            }],
        },
    })
}

/// A PodGroup that the Job controls. Its reference to the Workload does not block the Workload's deletion.
fn new_pod_group(job: &Job, workload: &Workload, template: &GroupTemplate) -> Value {
    let (workload_name, template_name) = (&*workload.name, &*template.name);
    let suffix = suffix(&[workload_name.as_bytes(), template_name.as_bytes()], SUFFIX);
    let of_workload = json!({
        "apiVersion": API_VERSION, "kind": "Workload", "name": workload_name, "uid": workload.uid,
    });
    json!({
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {
            "name": join(&format!("{workload_name}-{template_name}"), &suffix),
            "namespace": &*job.namespace,
            "ownerReferences": [OwnerReference::of(job), of_workload],
        },
        "spec": {
            "podGroupTemplateRef": {"workload": {
                "workloadName": workload_name, "podGroupTemplateName": template_name,
            }},
            "schedulingPolicy": template.policy,
        },
    })
}

/// `<prefix>-<suffix>`, with the prefix cut if the name would be too long.
fn join(prefix: &str, suffix: &str) -> String {
    let room = MAX_NAME - suffix.len() - "-".len();
    let cut = prefix.get(..room).unwrap_or(prefix);
    format!("{}-{suffix}", cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
}
