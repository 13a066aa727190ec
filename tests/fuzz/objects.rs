//! Jobs and pods by the API's schema with hostile values, through both decoders and the rules, with limits of CPU time and
//! memory.

use std::fmt::Debug;
use std::time::Duration;

use bytes::BytesMut;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use yardmaster::cluster::watch::{Event, read_event, read_frame};
use yardmaster::cluster::wire::{Decoder, JobDecoder, PodDecoder};
use yardmaster::job::manifest::Maker;
use yardmaster::job::names::BUILT_IN_FINALIZER;
use yardmaster::job::pod::{Behind, NewPod, Place};
use yardmaster_embedded::encode_watch_event;

use crate::compact::expand;
use crate::cost::{Limit, measure};
use crate::driver::{Target, fuzz};
use crate::hostile::OWN;
use crate::{jobs, mutate, schema};

/// Of one object. Debug builds need some 100 ns for a byte.
const DECODING: Limit = Limit {
    cpu: Duration::from_millis(100),
    cpu_per_byte: Duration::from_nanos(400),
    bytes: 64 << 10,
    allocated_per_byte: 40,
    peak_per_byte: 30,
    kept_per_byte: 16,
};
/// Of the rules for a Job and its pods, for each look at the Job.
const RULES: Limit = Limit {
    cpu: Duration::from_millis(300),
    cpu_per_byte: Duration::from_micros(2),
    bytes: 1 << 20,
    allocated_per_byte: 100,
    peak_per_byte: 100,
    kept_per_byte: 0,
};
/// Of making a pod of a Job, for each byte of the Job or of the pod.
const MAKING: Limit = Limit {
    cpu: Duration::from_millis(100),
    cpu_per_byte: Duration::from_micros(1),
    bytes: 64 << 10,
    allocated_per_byte: 40,
    peak_per_byte: 20,
    kept_per_byte: 3,
};
/// Most pods of a Job.
const PODS: usize = 5;

/// A Job, its pods in the order of the events about them, and the seconds at which they arrive: all compact.
struct Objects;

impl Target for Objects {
    const NAME: &str = "objects";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else { return input.to_vec() };
        if others.is_empty() {
            mutate::smaller(&mut case, random);
            return case.to_string().into_bytes();
        }
        for _ in 0..random.random_range(1..4) {
            let pods = case["pods"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
            match random.random_range(0..=pods.len()) {
                0 => schema::mutate(&mut case["job"], schema::JOB, random),
                nth => schema::mutate(&mut pods[nth - 1], schema::POD, random),
            }
        }
        if let Some(pods) = case["pods"].as_array_mut()
            && pods.len() < PODS
            && random.random_ratio(1, 4)
        {
            pods.push(pods.choose(random).cloned().unwrap_or_else(|| pod(0, 0)));
        }
        case.to_string().into_bytes()
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let Ok(mut case) = serde_json::from_slice::<Value>(input) else { return Ok(()) };
        if !case.is_object() {
            return Ok(());
        }
        fix(&mut case["job"]);
        case["pods"].as_array_mut().into_iter().flatten().for_each(fix);
        let job = expand(&case["job"]).to_string();
        let pods: Vec<String> =
            case["pods"].as_array().into_iter().flatten().map(|pod| expand(pod).to_string()).collect();
        in_json("Job", &JobDecoder::new(), &job)?;
        make_pod(&job)?;
        for pod in &pods {
            both(("v1", "Pod"), &PodDecoder::new(BUILT_IN_FINALIZER).reading_runs(true), pod)?;
        }
        let seconds: Vec<i64> =
            case["seconds"].as_array().into_iter().flatten().filter_map(Value::as_i64).collect();
        let (played, cost) = measure(|| jobs::play(&job, &pods, &seconds));
        played?;
        let bytes = job.len() + pods.iter().map(String::len).sum::<usize>();
        RULES.check("the rules", bytes * (pods.len() + 1), &cost)
    }
}

/// Reads an object as a watch shows it in both formats, which must show the same.
fn both<D: Decoder<Object: Debug>>(
    (version, kind): (&str, &str),
    decoder: &D,
    object: &str,
) -> Result<(), String> {
    let of_json = in_json(kind, decoder, object)?;
    let mut frame = BytesMut::new();
    if encode_watch_event(&mut frame, "ADDED", version, kind, object.as_bytes()).is_err() {
        return Ok(());
    }
    let frame = &frame[size_of::<u32>()..];
    let read = || read_frame(frame, |message| D::FROM_PROTOBUF.unwrap()(decoder, message));
    let (of_protobuf, cost) = measure(read);
    DECODING.check(&format!("{kind} in protobuf"), object.len(), &cost)?;
    let (Some(json), Ok(Event::Applied { object: protobuf, .. })) = (of_json, of_protobuf) else {
        return Ok(());
    };
    let [json, protobuf] = [json, protobuf].map(|object| format!("{object:?}"));
    if json == protobuf { Ok(()) } else { Err(format!("{json} in JSON is {protobuf} in protobuf")) }
}

/// Reads an object as a watch shows it in JSON.
fn in_json<D: Decoder>(kind: &str, decoder: &D, object: &str) -> Result<Option<D::Object>, String> {
    let line = format!(r#"{{"type":"ADDED","object":{object}}}"#);
    let (event, cost) = measure(|| read_event(decoder, line.as_bytes()));
    DECODING.check(&format!("{kind} in JSON"), object.len(), &cost)?;
    Ok(match event {
        Ok(Event::Applied { object, .. }) => Some(object),
        _ => None,
    })
}

/// Makes a pod of a Job, however long its template is.
fn make_pod(job: &str) -> Result<(), String> {
    let Some(seen) = in_json("Job", &JobDecoder::new().with_templates(), job)? else { return Ok(()) };
    let Ok(read) = &seen.job else { return Ok(()) };
    let (made, cost) = measure(|| {
        let maker = Maker::new(read, BUILT_IN_FINALIZER, 0, None).ok()?;
        let place = Place { number: 0, attempt: 0 };
        Some(
            maker
                .manifest(NewPod {
                    place,
                    index_failures: None,
                    backoff: None,
                    lineage: None,
                    behind: Behind::default(),
                })
                .body(),
        )
    });
    // The index in the environment of each container may be most of a pod.
    let bytes = job.len().max(made.map_or(0, |body| body.len()));
    MAKING.check("a pod", bytes, &cost)
}

/// Gives an object what the API server gives to all.
pub(crate) fn fix(object: &mut Value) {
    if !object.is_object() {
        *object = json!({});
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    let metadata = &mut object["metadata"];
    let is_given = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    for (field, usual) in [
        ("name", "own-0"),
        ("namespace", NAMESPACE),
        ("uid", OWN[0]),
        ("resourceVersion", "10"),
        ("creationTimestamp", "2027-01-15T08:00:00Z"),
    ] {
        let is_name = matches!(field, "name" | "namespace");
        if !is_given(&metadata[field]) || is_name && !is_valid_name(metadata[field].as_str().unwrap()) {
            metadata[field] = usual.into();
        }
    }
}

/// Whether an object can have this name: a DNS subdomain.
pub(crate) fn is_valid_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let ends = label.bytes().next().is_some_and(inner) && label.bytes().last().is_some_and(inner);
        ends && label.bytes().all(|byte| inner(byte) || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The namespace of the hostile author.
pub(crate) const NAMESPACE: &str = "evil";

/// The Job `own-NTH`, without anything unusual.
pub(crate) fn job(nth: usize) -> Value {
    let uid = OWN[nth];
    json!({
        "metadata": {
            "name": format!("own-{nth}"), "namespace": NAMESPACE, "uid": uid, "resourceVersion": "10",
            "creationTimestamp": "2027-01-15T08:00:00Z", "generation": 1,
        },
        "spec": {
            "parallelism": 2, "completions": 3, "completionMode": "NonIndexed", "backoffLimit": 6, "suspend": false,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "podReplacementPolicy": "TerminatingOrFailed",
            "template": {
                "metadata": {"labels": {
                    "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": format!("own-{nth}"),
                }},
                "spec": {
                    "restartPolicy": "Never", "terminationGracePeriodSeconds": 30,
                    "containers": [{"name": "main", "image": "i", "resources": {}}],
                },
            },
        },
        "status": {},
    })
}

/// The pod with this number of the Job `own-OWNER`, as a kubelet has left it.
pub(crate) fn pod(nth: usize, owner: usize) -> Value {
    let (name, uid) = (format!("own-{owner}-{nth}"), OWN[owner]);
    json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": format!("pod-uid-{owner}-{nth}"), "resourceVersion": "10",
            "creationTimestamp": "2027-01-15T08:00:00Z",
            "labels": {
                "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": format!("own-{owner}"),
            },
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": format!("own-{owner}"), "uid": uid, "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 30, "nodeName": "node-1",
            "containers": [{"name": "main", "image": "i", "resources": {}}],
        },
        "status": {
            "phase": (["Running", "Failed", "Succeeded"][nth % 3]), "startTime": "2027-01-15T08:00:00Z",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T08:00:01Z"},
            ],
            "containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
                "state": {"terminated": {
                    "exitCode": nth % 3 % 2, "startedAt": "2027-01-15T08:00:01Z", "finishedAt": "2027-01-15T08:00:05Z",
                }},
            }],
        },
    })
}

fn seeds() -> Vec<Vec<u8>> {
    let indexed = |mut job: Value| {
        job["spec"]["completionMode"] = "Indexed".into();
        job["spec"]["backoffLimitPerIndex"] = 1.into();
        job
    };
    let seconds = json!([1_800_000_000, 1_800_000_010, 1_800_003_600]);
    [job(0), indexed(job(0))]
        .map(|job| {
            let pods = [pod(0, 0), pod(1, 0), pod(2, 0)];
            json!({"job": job, "pods": pods, "seconds": seconds}).to_string().into_bytes()
        })
        .into()
}

/// Parts of a template that take few bytes each, and very many of which fit into an object.
#[test]
fn a_pod_costs_what_the_template_weighs() {
    let lists = [
        ("env", json!({"name": "a"})),
        ("env", json!({"name": "a", "value": "b"})),
        ("volumeMounts", json!({"name": "a"})),
        ("args", json!("a")),
    ];
    for (list, item) in lists {
        for completion_mode in ["Indexed", "NonIndexed"] {
            let mut job = job(0);
            job["spec"]["completionMode"] = completion_mode.into();
            job["spec"]["template"]["spec"]["containers"][0][list] = vec![item.clone(); 100_000].into();
            make_pod(&job.to_string()).unwrap();
        }
    }
    let mut many = job(0);
    many["spec"]["completionMode"] = "Indexed".into();
    many["spec"]["template"]["spec"]["containers"] = vec![json!({"name": "a", "image": "b"}); 50_000].into();
    make_pod(&many.to_string()).unwrap();
}

#[test]
fn objects() {
    fuzz(&Objects, seeds());
}
