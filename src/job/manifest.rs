//! The pods that are made from a Job's template.

use std::fmt::{Display, Write as _};

use bytes::Bytes;
use serde::Serialize;

use super::json::json_text;
use super::names;
use super::pod::NewPod;
use super::pod_name::{generate_prefix, pod_name};
use super::spec::Job;
use super::template::{Parts, TemplateError};
use super::uid::Uid;
use crate::mutants::{Mutant, is};

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
    /// W3C `traceparent` for the containers, if they are to know it. The same for all pods of a Job.
    pub traceparent: Option<&'a str>,
}

/// A pod to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodManifest {
    /// `metadata.name`.
    pub name: String,
    /// The whole object as JSON.
    pub body: Bytes,
}

impl PodManifest {
    /// The pod of a plan.
    ///
    /// # Errors
    /// When the template has a form that the API server would not accept.
    pub fn new(maker: Maker<'_>, new: &NewPod) -> Result<Self, TemplateError> {
        let job = maker.job;
        // From here on, nothing in them needs escaping.
        for name in [&*job.name, &*job.namespace, maker.pod_group.unwrap_or_default()] {
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
                return Err(TemplateError::NoName(name.into()));
            }
        }
        let index = job.spec.completion.indexes().map(|_| new.place.number);
        let Parts { labels, annotations, failure_counts, spec, finalizers: given, .. } =
            job.spec.template.parts(index.is_some(), maker.traceparent)?;
        let name = pod_name(&job.name, &job.uid.to_string(), index, new.place);
        let own = OWN_LENGTH + NAMES * job.name.len() + job.namespace.len();
        let mut body = String::with_capacity(own + labels.len() + annotations.len() + spec.len());
        body.extend([
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":""#,
            if is(Mutant::RandomPodNames) { "" } else { &name },
            r#"","generateName":""#,
            &generate_prefix(&job.name, index),
            r#"","namespace":""#,
            &job.namespace,
            r#"","labels":{"#,
        ]);
        Members(&mut body).own_labels(maker, index).all(labels);
        body.push_str(r#"},"annotations":{"#);
        let own = Members(&mut body).own_annotations(new, index);
        own.failure_counts(new, failure_counts).all(annotations);
        body.extend([r#"},"finalizers":"#, &finalizers(given, maker.finalizer), r#","ownerReferences":["#]);
        body.extend([&json_text(&OwnerReference::of(job)), r#"]},"spec":{"#]);
        Members(&mut body).own_spec(maker, index).all(spec);
        body.push_str("}}");
        Ok(Self { name, body: body.into() })
    }
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
        self
    }

    /// The failures of the index, or `given` if the Job does not count them.
    fn failure_counts(mut self, new: &NewPod, given: &str) -> Self {
        match new.index_failures {
            None => self.all(given),
            Some(failures) => {
                self.text(names::INDEX_FAILURE_COUNT, failures.counted);
                if failures.ignored > 0 {
                    self.text(names::INDEX_IGNORED_FAILURE_COUNT, failures.ignored);
                }
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::job::pod::{BackoffRecord, IndexFailures, Place};
    use crate::job::spec::Completion;
    use crate::job::template::PodTemplate;
    use crate::job::tests::fixture::{at, job, with};

    const FINALIZER: &str = "batch.kubernetes.io/job-tracking";

    fn made(completion: Completion, template: &Value, new: &NewPod, pod_group: Option<&str>) -> Value {
        made_in(completion, template, new, (pod_group, None))
    }

    fn made_in(
        completion: Completion,
        template: &Value,
        new: &NewPod,
        (pod_group, traceparent): (Option<&str>, Option<&str>),
    ) -> Value {
        let template = RawValue::from_string(template.to_string()).unwrap();
        let job = with(job(completion, 1), |spec| spec.template = PodTemplate::new(&template));
        let maker = Maker { job: &job, finalizer: FINALIZER, shard: 7, pod_group, traceparent };
        let manifest = PodManifest::new(maker, new).unwrap();
        let pod: Value = serde_json::from_slice(&manifest.body).unwrap();
        assert_eq!(pod["metadata"]["name"], manifest.name);
        assert_eq!(pod.to_string().len(), manifest.body.len(), "no key is written twice");
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
        let given = json!({"metadata": {"annotations": {counted: "7", ignored: "3", "a": "b"}}, "spec": {}});
        let annotations = |index_failures, completion| {
            let new = NewPod { index_failures, ..first(1) };
            let annotations = made(completion, &given, &new, None)["metadata"]["annotations"].clone();
            [counted, ignored, "a"].map(|key| annotations[key].as_str().unwrap_or_default().to_owned())
        };
        let own = ["7", "3", "b"];
        assert_eq!(annotations(None, Completion::Indexed(3)), own, "no limit per index");
        assert_eq!(annotations(None, Completion::Count(3)), own);
        assert_eq!(annotations(failures(1, 2), Completion::Indexed(3)), ["1", "2", "b"]);
        let streak = BackoffRecord { failures: 3, last: at(150) };
        assert_eq!(of(None, Some(streak))["yardmaster.dev/backoff"], "3@1970-01-01T00:02:30Z");
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
    fn containers_learn_the_trace_where_the_job_asks_for_it() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let (given, trace) = (
            json!({"name": "TRACEPARENT", "value": "mine"}),
            json!({"name": "TRACEPARENT", "value": parent}),
        );
        let template = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [given]}]}});
        for completion in [Completion::Count(1), Completion::Indexed(1)] {
            let env = |traceparent| {
                let pod = made_in(completion, &template, &first(0), (None, traceparent));
                let has = |container: usize, wanted: &Value| {
                    let env = pod["spec"]["containers"][container]["env"].as_array().cloned();
                    env.unwrap_or_default().contains(wanted)
                };
                (has(0, &trace), has(1, &trace), has(1, &given))
            };
            assert_eq!(env(Some(parent)), (true, false, true));
            assert_eq!(env(None), (false, false, true));
        }
    }

    #[test]
    fn the_tracking_finalizer_is_added_once() {
        let template = json!({"metadata": {"finalizers": [FINALIZER]}, "spec": {}});
        let pod = made(Completion::Count(1), &template, &first(0), None);
        assert_eq!(pod["metadata"]["finalizers"], json!([FINALIZER]));
    }

    #[test]
    fn no_name_can_add_fields_to_a_pod() {
        let new = |name: &str, pod_group| {
            let job = Job { name: name.into(), ..job(Completion::Count(1), 1) };
            let maker = Maker { job: &job, finalizer: FINALIZER, shard: 0, pod_group, traceparent: None };
            PodManifest::new(maker, &first(0))
        };
        assert!(new("a-1.b", Some("c")).is_ok());
        for name in ["a\",\"b\":\"c", "a\\", "a\0", "a/b"] {
            assert_eq!(new(name, None), Err(TemplateError::NoName(name.into())));
            assert_eq!(new("a", Some(name)), Err(TemplateError::NoName(name.into())));
        }
    }

    #[test]
    fn a_malformed_template_is_an_error() {
        let template = RawValue::from_string(r#"{"metadata": {"labels": [1]}}"#.into()).unwrap();
        let job = with(job(Completion::Count(1), 1), |spec| spec.template = PodTemplate::new(&template));
        let maker = Maker { job: &job, finalizer: FINALIZER, shard: 0, pod_group: None, traceparent: None };
        assert!(PodManifest::new(maker, &first(0)).is_err());
    }
}
