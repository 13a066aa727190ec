//! The pod template of a Job, and the pods made from it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::names;
use super::plan::NewPod;
use super::pod_name::{generate_prefix, pod_name};
use super::spec::Job;
use super::uid::Uid;

/// `spec.template` of a Job. It is parsed when the first pod is made, and the parts that all pods share are
/// serialized once. Clones share the text and the parts.
#[derive(Clone, Debug)]
pub struct PodTemplate {
    json: Arc<RawValue>,
    written: Arc<Written>,
}

/// The parts for each kind of pod, serialized on first use, and answers to other questions. In practice a Job
/// uses one kind of parts only, since its completion mode does not change.
#[derive(Debug, Default)]
struct Written {
    plain: OnceLock<Box<Result<Parts, TemplateError>>>,
    indexed: OnceLock<Box<Result<Parts, TemplateError>>>,
    restarts_on_failure: OnceLock<bool>,
}

/// A pod template that no pod can be made from.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("spec.template cannot be read: {0}")]
pub struct TemplateError(Box<str>);

impl From<serde_json::Error> for TemplateError {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string().into())
    }
}

/// A template whose spec fields stay text: most of them are copied to pods unread.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template<'a> {
    metadata: TemplateMeta,
    #[serde(borrow)]
    spec: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

/// A template reduced to its restart policy.
#[derive(Debug, Deserialize)]
struct Restarting<'a> {
    #[serde(borrow)]
    spec: RestartPolicy<'a>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RestartPolicy<'a> {
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

/// The parts that all pods of a Job share: the members of JSON objects, as text.
#[derive(Debug)]
struct Parts {
    labels: String,
    annotations: String,
    /// For Indexed Jobs with the index in every container's environment, and without `hostname`.
    spec: String,
    finalizers: Vec<String>,
    /// Whether `spec.schedulingGroup` is set.
    names_scheduling_group: bool,
}

/// Labels and annotations that we set on each pod. Those of the template with these keys are ignored.
const OWN: [&str; 3] = [names::SHARD_LABEL, names::PLACE_ANNOTATION, names::BACKOFF_ANNOTATION];
/// The additional ones in Indexed Jobs.
const OWN_AT_INDEX: [&str; 3] =
    [names::COMPLETION_INDEX, names::INDEX_FAILURE_COUNT, names::INDEX_IGNORED_FAILURE_COUNT];

/// Capacity for the parts of a pod that are not shared, names excluded.
const OWN_LENGTH: usize = 560;
/// How often the Job's name occurs in a pod.
const NAMES: usize = 4;

/// The Job that pods are made for, and the settings of its controller.
#[derive(Clone, Copy, Debug)]
pub struct Maker<'a> {
    /// The Job.
    pub job: &'a Job,
    /// The tracking finalizer.
    pub finalizer: &'a str,
    /// The Job's shard.
    pub shard: u32,
    /// `spec.schedulingGroup.podGroupName`, for Jobs that are scheduled as a gang.
    pub pod_group: Option<&'a str>,
}

/// A pod to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodManifest {
    /// `metadata.name`.
    pub name: String,
    /// The whole object as JSON.
    pub body: Bytes,
}

impl PodTemplate {
    /// Keeps the text of `spec.template` unparsed.
    pub fn new(json: &RawValue) -> Self {
        Self { json: Arc::from(json.to_owned()), written: Arc::default() }
    }

    /// Whether both have the same text.
    pub fn same_text(&self, other: &PodTemplate) -> bool {
        Arc::ptr_eq(&self.json, &other.json) || self.json.get() == other.json.get()
    }

    /// The template without the parts serialized for pods.
    pub fn unwritten(&self) -> Self {
        Self { json: self.json.clone(), written: Arc::default() }
    }

    /// Whether `spec.restartPolicy` is `OnFailure`: container restarts then count as failures.
    pub fn restarts_on_failure(&self) -> bool {
        *self.written.restarts_on_failure.get_or_init(|| {
            let template: Result<Restarting<'_>, _> = serde_json::from_str(self.json.get());
            template.is_ok_and(|template| template.spec.restart_policy.as_deref() == Some("OnFailure"))
        })
    }

    /// Whether `spec.schedulingGroup` is set: the user has chosen a group for the pods. Called for Indexed
    /// Jobs only.
    pub fn names_scheduling_group(&self) -> bool {
        self.parts(true).is_ok_and(|parts| parts.names_scheduling_group)
    }

    fn parts(&self, indexed: bool) -> Result<&Parts, TemplateError> {
        let kind = if indexed { &self.written.indexed } else { &self.written.plain };
        let parts = kind.get_or_init(|| Box::new(Parts::read(&self.json, indexed)));
        (**parts).as_ref().map_err(Clone::clone)
    }

    /// Serializes a pod of a plan.
    ///
    /// # Errors
    /// When the template has a form that the API server would not accept.
    pub fn pod(&self, maker: Maker<'_>, new: &NewPod) -> Result<PodManifest, TemplateError> {
        let job = maker.job;
        let index = job.spec.completion.indexes().map(|_| new.place.number);
        let Parts { labels, annotations, spec, finalizers: given, .. } = self.parts(index.is_some())?;
        let name = pod_name(&job.name, &job.uid.to_string(), index, new.place);
        let own = OWN_LENGTH + NAMES * job.name.len() + job.namespace.len();
        let mut body = String::with_capacity(own + labels.len() + annotations.len() + spec.len());
        // Names hold only characters that DNS allows, so nothing in them needs escaping.
        body.extend([
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":""#,
            &name,
            r#"","generateName":""#,
            &generate_prefix(&job.name, index),
            r#"","namespace":""#,
            &job.namespace,
            r#"","labels":{"#,
        ]);
        Members(&mut body).own_labels(maker, index).all(labels);
        body.push_str(r#"},"annotations":{"#);
        Members(&mut body).own_annotations(new, index).all(annotations);
        body.extend([r#"},"finalizers":"#, &finalizers(given, maker.finalizer), r#","ownerReferences":["#]);
        body.extend([&json_text(&OwnerReference::of(job)), r#"]},"spec":{"#]);
        Members(&mut body).own_spec(maker, index).all(spec);
        body.push_str("}}");
        Ok(PodManifest { name, body: body.into() })
    }
}

impl Parts {
    fn read(json: &RawValue, indexed: bool) -> Result<Self, TemplateError> {
        let Template { metadata, spec } = serde_json::from_str(json.get())?;
        let given = spec.into_iter().filter(|(_, value)| value.get() != "null");
        let mut spec: BTreeMap<_, _> = given.map(|(field, value)| (field, Cow::Borrowed(value))).collect();
        if indexed {
            spec.remove("hostname");
            for kind in ["initContainers", "containers"] {
                if let Some(containers) = spec.get_mut(kind) {
                    *containers = Cow::Owned(with_index_env(containers)?);
                }
            }
        }
        let own = |key: &str| OWN.contains(&key) || (indexed && OWN_AT_INDEX.contains(&key));
        let shared = |given: &Option<BTreeMap<String, String>>| {
            members(&given.iter().flatten().filter(|(key, _)| !own(key)).collect::<BTreeMap<_, _>>())
        };
        Ok(Self {
            labels: shared(&metadata.labels),
            annotations: shared(&metadata.annotations),
            spec: members(&spec),
            finalizers: metadata.finalizers.unwrap_or_default(),
            names_scheduling_group: spec.contains_key("schedulingGroup"),
        })
    }
}

/// The members of a JSON object as text, without the braces.
fn members(object: &impl Serialize) -> String {
    let text = json_text(object);
    text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or_default().into()
}

fn with_index_env(containers: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut containers: Vec<Map<String, Value>> = serde_json::from_str(containers.get())?;
    containers.iter_mut().for_each(add_index_env);
    to_raw_value(&containers)
}

fn add_index_env(container: &mut Map<String, Value>) {
    let env = container.entry("env").or_insert_with(|| json!([]));
    if env.is_null() {
        *env = json!([]);
    }
    let Some(env) = env.as_array_mut() else { return };
    if env.iter().any(|var| var.get("name").and_then(Value::as_str) == Some(names::COMPLETION_INDEX_ENV)) {
        return;
    }
    let path = format!("metadata.labels['{}']", names::COMPLETION_INDEX);
    env.push(json!({"name": names::COMPLETION_INDEX_ENV, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
}

/// Writes the members of a JSON object.
struct Members<'a>(&'a mut String);

impl Members<'_> {
    /// A member with a text in which nothing needs escaping.
    fn text(&mut self, key: &str, value: impl Display) {
        self.separate();
        // Writing to a string never fails.
        let _ = write!(self.0, r#""{key}":"{value}""#);
    }

    /// Members that are text already.
    fn all(&mut self, members: &str) {
        if !members.is_empty() {
            self.separate();
            self.0.push_str(members);
        }
    }

    fn separate(&mut self) {
        if !self.0.ends_with('{') {
            self.0.push(',');
        }
    }

    fn own_spec(mut self, maker: Maker<'_>, index: Option<u32>) -> Self {
        if let Some(index) = index {
            self.text("hostname", format_args!("{}-{index}", maker.job.name));
        }
        if let Some(group) = maker.pod_group {
            self.all(&format!(r#""schedulingGroup":{{"podGroupName":"{group}"}}"#));
        }
        self
    }

    fn own_labels(mut self, maker: Maker<'_>, index: Option<u32>) -> Self {
        self.text(names::SHARD_LABEL, maker.shard);
        if let Some(index) = index {
            self.text(names::COMPLETION_INDEX, index);
        }
        self
    }

    fn own_annotations(mut self, new: &NewPod, index: Option<u32>) -> Self {
        self.text(names::PLACE_ANNOTATION, format_args!("{}/{}", new.place.number, new.place.attempt));
        if let Some(streak) = new.backoff {
            self.text(names::BACKOFF_ANNOTATION, format_args!("{}@{}", streak.failures, streak.last));
        }
        if let Some(index) = index {
            self.text(names::COMPLETION_INDEX, index);
        }
        if let Some(failures) = new.index_failures {
            self.text(names::INDEX_FAILURE_COUNT, failures.counted);
            if failures.ignored > 0 {
                self.text(names::INDEX_IGNORED_FAILURE_COUNT, failures.ignored);
            }
        }
        self
    }
}

fn finalizers(given: &[String], tracking: &str) -> String {
    let tracking = Some(tracking).filter(|tracking| !given.iter().any(|finalizer| finalizer == tracking));
    let all: Vec<&str> = given.iter().map(String::as_str).chain(tracking).collect();
    json_text(&all)
}

/// The reference that makes a Job the controller of an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    uid: &'a Uid,
    controller: bool,
    block_owner_deletion: bool,
}

impl<'a> OwnerReference<'a> {
    /// The reference to this Job.
    pub fn of(job: &'a Job) -> Self {
        Self {
            api_version: "batch/v1",
            kind: "Job",
            name: &job.name,
            uid: &job.uid,
            controller: true,
            block_owner_deletion: true,
        }
    }
}

/// The JSON of a value whose maps have text keys only, so that serializing it never fails.
pub(crate) fn json_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;
    use crate::job::end::condition;
    use crate::job::pod::{BackoffRecord, IndexFailures, Place};
    use crate::job::spec::Completion;
    use crate::job::status::{ConditionKind, ConditionStatus};
    use crate::job::tests::fixture::{at, job, with};

    const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

    fn made(completion: Completion, template: &Value, new: &NewPod, pod_group: Option<&str>) -> Value {
        let template = RawValue::from_string(template.to_string()).unwrap();
        let job = with(job(completion, 1), |spec| spec.template = PodTemplate::new(&template));
        let maker = Maker { job: &job, finalizer: FINALIZER, shard: 7, pod_group };
        let manifest = job.spec.template.pod(maker, new).unwrap();
        let pod: Value = serde_json::from_slice(&manifest.body).unwrap();
        assert_eq!(pod["metadata"]["name"], manifest.name);
        pod
    }

    fn first(number: u32) -> NewPod {
        NewPod { place: Place { number, attempt: 0 }, index_failures: None, backoff: None }
    }

    #[test]
    fn a_pod_is_the_template_and_belongs_to_the_job() {
        let template = json!({
            "metadata": {"labels": {"app": "x"}, "annotations": {"note": "y"}, "finalizers": ["a/b"]},
            "spec": {"hostname": "own", "containers": [{"name": "main"}]},
        });
        let pod = made(Completion::Count(3), &template, &first(2), None);
        assert_eq!((&pod["apiVersion"], &pod["kind"]), (&json!("v1"), &json!("Pod")));
        assert_eq!(pod["spec"], template["spec"]);
        let meta = &pod["metadata"];
        assert_eq!(meta["namespace"], "default");
        assert_eq!(meta["generateName"], "work-");
        assert_eq!(meta["labels"], json!({"app": "x", "yardmaster.dev/shard": "7"}));
        assert_eq!(meta["annotations"], json!({"note": "y", "yardmaster.dev/place": "2/0"}));
        assert_eq!(meta["finalizers"], json!(["a/b", FINALIZER]));
        let owner = json!([{
            "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid",
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(meta["ownerReferences"], owner);
    }

    #[test]
    fn an_indexed_pod_carries_its_index() {
        let given = json!({"name": "JOB_COMPLETION_INDEX", "value": "mine"});
        let index = json!({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
            "fieldPath": "metadata.labels['batch.kubernetes.io/job-completion-index']",
        }}});
        let other = json!({"name": "A", "value": "b"});
        let template = json!({
            "metadata": {"labels": {"batch.kubernetes.io/job-completion-index": "of the user"}},
            "spec": {
                "hostname": "own",
                "initContainers": [{"name": "setup", "env": null}],
                "containers": [{"name": "main", "env": [other]}, {"name": "side", "env": [given]}, {"name": "c"}],
            },
        });
        let pod = made(Completion::Indexed(20), &template, &first(12), None);
        let key = "batch.kubernetes.io/job-completion-index";
        assert_eq!(pod["metadata"]["labels"][key], "12");
        assert_eq!(pod["metadata"]["annotations"][key], "12");
        assert_eq!(pod["metadata"]["generateName"], "work-12-");
        assert_eq!(pod["spec"]["hostname"], "work-12");
        assert_eq!(pod["spec"]["initContainers"][0]["env"], json!([index]));
        let envs = [json!([other, index]), json!([given]), json!([index])];
        for (container, env) in envs.iter().enumerate() {
            assert_eq!(pod["spec"]["containers"][container]["env"], *env);
        }
    }

    #[test]
    fn annotations_carry_earlier_failures() {
        let of = |index_failures, backoff| {
            let new = NewPod { index_failures, backoff, ..first(1) };
            made(Completion::Indexed(3), &json!({"spec": {}}), &new, None)["metadata"]["annotations"].clone()
        };
        let failures = |counted, ignored| Some(IndexFailures { counted, ignored });
        let (counted, ignored) = (
            "batch.kubernetes.io/job-index-failure-count",
            "batch.kubernetes.io/job-index-ignored-failure-count",
        );
        assert_eq!((of(None, None).get(counted), of(None, None).get(ignored)), (None, None));
        assert_eq!(
            (&of(failures(0, 0), None)[counted], of(failures(0, 0), None).get(ignored)),
            (&json!("0"), None)
        );
        assert_eq!(
            (&of(failures(2, 1), None)[counted], &of(failures(2, 1), None)[ignored]),
            (&json!("2"), &json!("1"))
        );
        let streak = BackoffRecord { failures: 3, last: at(150) };
        assert_eq!(of(None, Some(streak))["yardmaster.dev/backoff"], "3@1970-01-01T00:02:30Z");
    }

    #[test]
    fn parts_are_serialized_on_first_use_and_shared_by_clones() {
        let template = RawValue::from_string(json!({"spec": {}}).to_string()).unwrap();
        let template = PodTemplate::new(&template);
        let written = |template: &PodTemplate| {
            (template.written.plain.get().is_some(), template.written.indexed.get().is_some())
        };
        let job = with(job(Completion::Count(1), 1), |spec| spec.template = template.clone());
        assert_eq!(written(&template), (false, false));
        let maker = Maker { job: &job, finalizer: FINALIZER, shard: 7, pod_group: None };
        job.spec.template.pod(maker, &first(0)).unwrap();
        assert_eq!(written(&template), (true, false));
        assert!(!template.names_scheduling_group());
        assert_eq!((written(&template), written(&template.unwritten())), ((true, true), (false, false)));
    }

    #[test]
    fn readings_of_a_job_share_the_template_until_it_is_finished() {
        let reading = |template: &str| {
            let template = RawValue::from_string(template.into()).unwrap();
            with(job(Completion::Count(1), 1), |spec| spec.template = PodTemplate::new(&template))
        };
        let shared = |a: &PodTemplate, b: &PodTemplate| {
            (Arc::ptr_eq(&a.json, &b.json), Arc::ptr_eq(&a.written, &b.written))
        };
        let known = reading("{}").spec.template.clone();
        let finished = |mut job: Job| {
            let complete = ConditionKind::Complete;
            job.status.ensure(condition(complete, ConditionStatus::True, "", "", at(1)));
            job
        };
        for (mut job, expected) in [
            (reading("{}"), (true, true)),
            (finished(reading("{}")), (true, false)),
            (reading(r#"{"spec":{}}"#), (false, false)),
        ] {
            job.share_template(&known);
            assert_eq!(shared(&job.spec.template, &known), expected);
        }
    }

    #[test]
    fn pods_of_a_gang_name_their_group() {
        for (completion, spec, expected) in [
            (Completion::Count(1), json!({}), json!({"schedulingGroup": {"podGroupName": "gang"}})),
            (
                Completion::Indexed(1),
                json!({"x": 1}),
                json!({"hostname": "work-0", "schedulingGroup": {"podGroupName": "gang"}, "x": 1}),
            ),
        ] {
            let pod = made(completion, &json!({"spec": spec}), &first(0), Some("gang"));
            assert_eq!(pod["spec"], expected);
        }
    }

    #[test]
    fn the_tracking_finalizer_is_added_once() {
        let template = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {}});
        let pod = made(Completion::Count(1), &template, &first(0), None);
        assert_eq!(pod["metadata"]["finalizers"], json!([FINALIZER]));
    }

    #[test]
    fn a_malformed_template_is_an_error() {
        let template = RawValue::from_string(r#"{"metadata": {"labels": [1]}}"#.into()).unwrap();
        let job = with(job(Completion::Count(1), 1), |spec| spec.template = PodTemplate::new(&template));
        let maker = Maker { job: &job, finalizer: FINALIZER, shard: 0, pod_group: None };
        assert!(job.spec.template.pod(maker, &first(0)).is_err());
    }
}
