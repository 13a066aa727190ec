#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::*;
use crate::job::options::{JobOptions, PodFacts};
use crate::job::pod::{BackoffRecord, Behind, IndexFailures, Place};
use crate::job::spec::Completion;
use crate::job::template::PodTemplate;
use crate::job::tests::fixture::{at, job, with};
use crate::job::tests::protobuf::{Field, Message, envelope, text};

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
    let manifest = maker(&job, 7, pod_group).unwrap().manifest(new.clone()).with_overlay(traced(traceparent));
    let (pod, body): (Value, Bytes) = (in_json(&manifest), manifest.body());
    assert_eq!(pod["metadata"]["name"], manifest.name());
    assert_eq!(pod.to_string().len(), body.len(), "no key is written twice");
    pod
}

fn maker(job: &Job, shard: u32, pod_group: Option<&str>) -> Result<Arc<Maker>, TemplateError> {
    Maker::new(job, FINALIZER, shard, pod_group.map(Box::from))
}

/// The overlay of a Job that propagates this trace.
fn traced(traceparent: Option<&str>) -> Option<Arc<Overlay>> {
    let options = JobOptions::read([("yardmaster.dev/propagate-trace", "true")]);
    options.overlay(&PodFacts { traceparent, ..PodFacts::default() })
}

fn in_json(manifest: &PodManifest) -> Value {
    serde_json::from_slice(&manifest.body()).unwrap()
}

fn first(number: u32) -> NewPod {
    NewPod {
        place: Place { number, attempt: 0 },
        index_failures: None,
        backoff: None,
        lineage: None,
        behind: Behind::default(),
    }
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
    assert_eq!(annotations(failures(1, 0), Completion::Indexed(3)), ["1", "3", "b"], "none was ignored yet");
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
    let (given, trace) =
        (json!({"name": "TRACEPARENT", "value": "mine"}), json!({"name": "TRACEPARENT", "value": parent}));
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
        maker(&job, 0, pod_group).map(|_| ())
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
    assert!(maker(&job, 0, None).is_err());
}

/// A pod in JSON as it would be in protobuf, with the spec that the template has in protobuf.
fn in_protobuf_terms(json: &Value, spec: &[u8]) -> PodInProtobuf {
    let texts =
        |value: &Value| -> BTreeMap<String, String> { serde_json::from_value(value.clone()).unwrap() };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let meta = &json["metadata"];
    let owner = &meta["ownerReferences"][0];
    PodInProtobuf {
        api_version: text(&json["apiVersion"]),
        kind: text(&json["kind"]),
        name: text(&meta["name"]),
        generate_name: text(&meta["generateName"]),
        namespace: text(&meta["namespace"]),
        labels: texts(&meta["labels"]),
        annotations: texts(&meta["annotations"]),
        finalizers: serde_json::from_value(meta["finalizers"].clone()).unwrap(),
        owner: ["kind", "name", "uid", "apiVersion"].map(|field| text(&owner[field])),
        owner_flags: ["controller", "blockOwnerDeletion"]
            .map(|flag| u64::from(owner[flag].as_bool().unwrap())),
        hostname: json["spec"].get("hostname").map(text),
        spec: spec.to_vec(),
    }
}

/// The fields of a pod in protobuf.
#[derive(Debug, PartialEq, Eq)]
struct PodInProtobuf {
    api_version: String,
    kind: String,
    name: String,
    generate_name: String,
    namespace: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    finalizers: Vec<String>,
    /// Kind, name, UID and `apiVersion`.
    owner: [String; 4],
    /// `controller` and `blockOwnerDeletion`.
    owner_flags: [u64; 2],
    hostname: Option<String>,
    /// All other fields of the spec.
    spec: Vec<u8>,
}

impl PodInProtobuf {
    fn read(body: &[u8]) -> Self {
        let envelope = envelope(body);
        let (kind, pod) = (envelope.message(1, &[1, 2]), envelope.message(2, &[1, 2]));
        let meta = pod.message(1, &[1, 2, 3, 11, 12, 13, 14]);
        let owner = meta.message(13, &[1, 3, 4, 5, 6, 7]);
        let spec = pod.one(2);
        let hostname = Message::fields(spec).next().filter(|(field, ..)| *field == 16);
        let (hostname, spec) = match hostname {
            Some((_, Field::Bytes(hostname), rest)) => (Some(text(hostname)), rest),
            _ => (None, spec),
        };
        Self {
            api_version: text(kind.one(1)),
            kind: text(kind.one(2)),
            name: text(meta.one(1)),
            generate_name: text(meta.one(2)),
            namespace: text(meta.one(3)),
            labels: meta.map(11),
            annotations: meta.map(12),
            finalizers: meta.all(14).map(text).collect(),
            owner: [1, 3, 4, 5].map(|field| text(owner.one(field))),
            owner_flags: [6, 7].map(|flag| owner.number(flag)),
            hostname,
            spec: spec.to_vec(),
        }
    }
}

/// A template's spec in protobuf: a container `main`, and more than 127 bytes of other fields.
fn spec_in_protobuf() -> Vec<u8> {
    let mut spec = Writer::default();
    spec.message(field::CONTAINERS, |container| {
        container.bytes(1, b"main");
        // The index is there already: the spec stays as it is.
        container.message(field::ENV, |variable| variable.bytes(1, b"JOB_COMPLETION_INDEX"));
    });
    spec.bytes(8, &[b'x'; 300]);
    spec.number(4, 30_000);
    spec.into_bytes()
}

/// The pod in JSON, and in the form that it has where the template is known in protobuf.
fn in_both_forms(
    completion: Completion,
    template: &Value,
    new: &NewPod,
    pod_group: Option<&str>,
) -> [PodManifest; 2] {
    let template = RawValue::from_string(template.to_string()).unwrap();
    let indexed = completion.indexes().is_some();
    [false, true].map(|known| {
        let template = PodTemplate::new(&template);
        assert!(!template.knows_protobuf());
        if known {
            template.know_protobuf(spec_in_protobuf().into(), indexed);
            assert!(template.knows_protobuf());
        }
        let job = with(job(completion, 1), |spec| spec.template = template);
        maker(&job, 300, pod_group).unwrap().manifest(new.clone())
    })
}

#[test]
fn a_pod_says_the_same_in_protobuf_as_in_json() {
    let (count, indexed) = (Completion::Count(3), Completion::Indexed(20));
    let bare = json!({"spec": {"hostname": "own"}});
    let full = json!({
        "metadata": {
            "labels": {"app": "x", "long": "l".repeat(200), "yardmaster.dev/shard": "of the user",
                "batch.kubernetes.io/job-completion-index": "of the user"},
            "annotations": {"note": "\"y\" \u{e9}", "empty": "", "yardmaster.dev/place": "of the user",
                "yardmaster.dev/backoff": "of the user",
                "batch.kubernetes.io/job-completion-index": "of the user",
                "batch.kubernetes.io/job-index-failure-count": "7",
                "batch.kubernetes.io/job-index-ignored-failure-count": "3"},
            "finalizers": ["z/last", "a/first"],
        },
        "spec": {},
    });
    let tracked = json!({"metadata": {"finalizers": ["z/last", FINALIZER, "a/first"]}, "spec": {}});
    let place = |number, attempt| NewPod { place: Place { number, attempt }, ..first(0) };
    let failed = |counted, ignored| NewPod {
        index_failures: Some(IndexFailures { counted, ignored }),
        ..place(12, 3)
    };
    let backed_off = NewPod { backoff: Some(BackoffRecord { failures: 3, last: at(150) }), ..place(1, 2) };
    for (case, completion, template, new) in [
        ("nothing but the template's spec", count, &bare, place(0, 0)),
        ("an index", indexed, &bare, place(12, 0)),
        ("texts of the template", count, &full, place(2, 1)),
        ("texts of the template at an index, with its own failure counts", indexed, &full, place(12, 1)),
        ("failures of an index", indexed, &full, failed(2, 1)),
        ("no ignored failures of an index but those of the template", indexed, &full, failed(2, 0)),
        ("no failures of an index", indexed, &bare, failed(0, 0)),
        ("a back-off", count, &full, backed_off.clone()),
        ("a back-off at an index", indexed, &bare, backed_off),
        ("a template with the tracking finalizer", count, &tracked, place(0, 0)),
    ] {
        let [json, protobuf] = in_both_forms(completion, template, &new, None);
        assert_eq!((json.encoding(), protobuf.encoding()), (Encoding::Json, Encoding::Protobuf), "{case}");
        assert_eq!(protobuf.name(), json.name(), "{case}");
        let mut expected = in_json(&json);
        if completion == count {
            // The template's own hostname is among the fields of its spec.
            expected["spec"].as_object_mut().unwrap().remove("hostname");
        }
        let expected = in_protobuf_terms(&expected, &spec_in_protobuf());
        assert_eq!(PodInProtobuf::read(&protobuf.body()), expected, "{case}");
    }
}

#[test]
fn once_protobuf_was_refused_pods_are_json_for_good() {
    let template = PodTemplate::new(&RawValue::from_string(json!({"spec": {}}).to_string()).unwrap());
    template.know_protobuf(spec_in_protobuf().into(), false);
    let job = with(job(Completion::Count(1), 1), |spec| spec.template = template);
    let pod = || maker(&job, 7, None).unwrap().manifest(first(0));
    let in_protobuf = pod();
    assert_eq!(in_protobuf.encoding(), Encoding::Protobuf);
    in_protobuf.avoid_protobuf();
    assert_eq!((pod().encoding(), in_protobuf.encoding()), (Encoding::Json, Encoding::Protobuf));
    assert!(job.spec.template.knows_protobuf(), "it is not asked for again");
}

#[test]
fn a_pod_of_a_gang_is_json() {
    let template = json!({"spec": {"containers": [{"name": "main"}]}});
    for completion in [Completion::Count(1), Completion::Indexed(1)] {
        let [json, known] = in_both_forms(completion, &template, &first(0), Some("gang"));
        assert_eq!((known.encoding(), known.body()), (Encoding::Json, json.body()));
    }
}

/// Pods that follow each other have the same overlay in general.
#[test]
fn an_overlay_is_added_once_for_pods_that_follow_each_other() {
    let template = PodTemplate::new(&RawValue::from_string(json!({"spec": {}}).to_string()).unwrap());
    let overlay = |value: &str| Overlay { labels: vec![("a", value.into())], ..Overlay::default() };
    let parts = |value| template.overlaid(false, &overlay(value).into()).unwrap();
    let first = parts("1");
    assert!(Arc::ptr_eq(&first, &parts("1")) && !Arc::ptr_eq(&first, &parts("2")));
}

#[test]
fn a_malformed_template_is_not_known_in_protobuf() {
    for (metadata, known) in [(json!({"labels": {"a": "b"}}), true), (json!({"labels": [1]}), false)] {
        let template = RawValue::from_string(json!({"metadata": metadata, "spec": {}}).to_string()).unwrap();
        let template = PodTemplate::new(&template);
        template.know_protobuf(spec_in_protobuf().into(), false);
        assert_eq!(template.knows_protobuf(), known, "{metadata}");
    }
}

/// A Job may have many creations that wait, and a tenant many such Jobs.
#[test]
fn a_pod_that_waits_for_its_creation_shares_what_it_is_made_of_and_has_no_body() {
    let template = json!({"spec": {"containers": [{"name": "x".repeat(16 << 10)}]}});
    let template = PodTemplate::new(&RawValue::from_string(template.to_string()).unwrap());
    let job = with(job(Completion::Count(9), 9), |spec| spec.template = template.clone());
    let makers: Vec<_> = (0..8).map(|_| maker(&job, 0, None).unwrap()).collect();
    let parts = template.parts(false).unwrap();
    assert_eq!(Arc::strong_count(&parts), makers.len() + 2, "with the template's own");
    let pods: Vec<_> = (0..8).map(|number| makers[0].manifest(first(number))).collect();
    assert_eq!(Arc::strong_count(&makers[0]), pods.len() + 1);
    assert!(size_of::<PodManifest>() <= 96 && size_of::<Maker>() <= 160, "neither has a body");
    assert_eq!(pods[3].body(), pods[3].body(), "what is sent again is the same");
}
