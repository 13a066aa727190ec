//! Bodies of every kind and patch type, after each other, as recorded from a real API server.

use std::path::Path;

use bytes::BytesMut;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};
use serde_json::{Value, json};
use yardmaster_embedded::{decode_protobuf, encode_watch_event};

use crate::api::{Api, Call};
use crate::driver::{Target, fuzz};
use crate::mutate;

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The first bytes of an object in protobuf.
const MAGIC: &[u8] = b"k8s\0";
const CONTENT_TYPES: [&str; 8] = [
    "application/json",
    "application/yaml",
    PROTOBUF,
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "",
];
const ACCEPTS: [&str; 5] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
];
const METHODS: [&str; 6] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"];
const PARAMETERS: [&str; 19] = [
    "gracePeriodSeconds",
    "timeoutSeconds",
    "limit",
    "continue",
    "resourceVersion",
    "resourceVersionMatch",
    "labelSelector",
    "fieldSelector",
    "shardSelector",
    "watch",
    "allowWatchBookmarks",
    "sendInitialEvents",
    "dryRun",
    "fieldManager",
    "fieldValidation",
    "force",
    "propagationPolicy",
    "orphanDependents",
    "includeObject",
];

struct Requests(Api);

impl Target for Requests {
    const NAME: &str = "requests";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let mut calls: Vec<Call> = serde_json::from_slice(input).unwrap_or_default();
        let other: Vec<Call> =
            others.choose(random).and_then(|other| serde_json::from_slice(other).ok()).unwrap_or_default();
        let other = other.choose(random).cloned();
        match (random.random_range(0..10), other) {
            (0, _) if calls.len() > 1 => drop(calls.remove(random.random_range(0..calls.len()))),
            (1, Some(other)) => calls.insert(random.random_range(0..=calls.len()), other),
            (_, other) => {
                if let Some(call) = calls.choose_mut(random) {
                    change(call, other, random);
                }
            }
        }
        calls.truncate(12);
        serde_json::to_vec(&calls).unwrap()
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let calls: Vec<Call> = serde_json::from_slice(input).map_err(|error| error.to_string())?;
        calls.iter().try_for_each(|call| self.0.send(call).map_err(|problem| format!("{call:?}: {problem}")))
    }
}

fn change(call: &mut Call, other: Option<Call>, random: &mut SmallRng) {
    match random.random_range(0..16) {
        0 => call.method = (*METHODS.choose(random).unwrap()).to_owned(),
        1 => call.content_type = (*CONTENT_TYPES.choose(random).unwrap()).to_owned(),
        2 => call.accept = (*ACCEPTS.choose(random).unwrap()).to_owned(),
        3 | 4 => {
            let separator = if call.path.contains('?') { '&' } else { '?' };
            let value = mutate::text(b"1", &[], random);
            let value: String = form_urlencoded::byte_serialize(&value).collect();
            let name = PARAMETERS.choose(random).unwrap();
            call.path = format!("{}{separator}{name}={value}", call.path);
            call.path.truncate(2000);
        }
        5 => call.path = other.map(|other| other.path).unwrap_or_default(),
        6 => {
            let body = mutate::text(call.body.as_bytes(), &[], random);
            call.body = String::from_utf8_lossy(&body).into_owned();
        }
        7 | 8 if call.binary.is_empty() => {
            if let Some(same) = in_protobuf(call) {
                *call = same;
            }
        }
        _ if !call.binary.is_empty() => change_binary(call, other.as_ref(), random),
        _ => {
            if let Ok(mut body) = serde_json::from_str(&call.body) {
                let other = other.and_then(|other| serde_json::from_str(&other.body).ok());
                mutate::json(&mut body, other.as_ref(), random);
                call.body = body.to_string();
            }
        }
    }
}

/// Changes a body in protobuf: its bytes, its numbers and lengths, or the object that it is.
fn change_binary(call: &mut Call, other: Option<&Call>, random: &mut SmallRng) {
    match random.random_range(0..4) {
        0 => {
            let others: Vec<Vec<u8>> = other.map(|other| other.binary.clone()).into_iter().collect();
            call.binary = mutate::bytes(&call.binary, &others, random);
        }
        1 => call.binary = mutate::protobuf(&call.binary, random),
        _ => {
            let Ok(mut object) = decode_protobuf(&call.binary) else { return };
            let other = other.and_then(|other| decode_protobuf(&other.binary).ok());
            mutate::json(&mut object, other.as_ref(), random);
            if let Some(binary) = encode(object) {
                call.binary = binary;
            }
        }
    }
}

/// An object in protobuf, if it can be written so.
fn encode(mut object: Value) -> Option<Vec<u8>> {
    let fields = object.as_object_mut()?;
    let (version, kind) = (fields.remove("apiVersion")?, fields.remove("kind")?);
    let text = serde_json::to_vec(&object).unwrap();
    let mut event = BytesMut::new();
    encode_watch_event(&mut event, "ADDED", version.as_str()?, kind.as_str()?, &text).ok()?;
    // The object is the last part of the event.
    let begin = event.windows(MAGIC.len()).position(|bytes| bytes == MAGIC)?;
    Some(event[begin..].to_vec())
}

/// The same request with its object in protobuf.
fn in_protobuf(call: &Call) -> Option<Call> {
    let binary = encode(serde_json::from_str(&call.body).ok()?)?;
    Some(Call { content_type: PROTOBUF.to_owned(), body: String::new(), binary, ..call.clone() })
}

/// The requests of all recorded cases, in one namespace.
fn recorded() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/apiserver");
    let mut cases = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let Ok(recording) = serde_json::from_str::<Value>(&text) else { continue };
        for case in recording["cases"].as_array().into_iter().flatten() {
            let mut text = case["steps"].to_string();
            if let Some(namespace) = case["namespace"].as_str() {
                text = text.replace(&format!("namespaces/{namespace}"), "namespaces/default");
                text = text.replace(&format!("\"{namespace}\""), "\"default\"");
            }
            let steps: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
            let calls: Vec<Call> = steps.iter().filter_map(|step| call(&step["request"])).take(12).collect();
            if !calls.is_empty() {
                cases.push(serde_json::to_vec(&calls).unwrap());
            }
        }
    }
    assert!(cases.len() > 500, "{}", cases.len());
    cases
}

fn call(request: &Value) -> Option<Call> {
    let header = |name: &str| request["headers"][name].as_str().unwrap_or_default().to_owned();
    Some(Call {
        method: request["method"].as_str()?.to_owned(),
        path: request["path"].as_str()?.to_owned(),
        accept: header("Accept"),
        content_type: header("Content-Type"),
        body: match &request["body"] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        },
        binary: Vec::new(),
    })
}

/// A pod that runs nowhere, and each patch type on it.
fn patches() -> Vec<u8> {
    let path = "/api/v1/namespaces/default/pods";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "finalizers": ["a.b/c"]},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 1}]}],
        "terminationGracePeriodSeconds": 30, "nodeName": "n"}});
    let call = |method: &str, path: String, content_type: &str, body: Value| Call {
        method: method.into(),
        path,
        content_type: content_type.into(),
        body: body.to_string(),
        ..Call::default()
    };
    let patch = |kind: &str, body: Value| {
        call("PATCH", format!("{path}/p?fieldManager=f"), &format!("application/{kind}"), body)
    };
    let calls = [
        call("POST", path.into(), "application/json", pod.clone()),
        patch(
            "json-patch+json",
            json!([{"op": "copy", "from": "/metadata", "path": "/metadata/annotations"},
            {"op": "move", "from": "/metadata/finalizers", "path": "/metadata/labels"},
            {"op": "test", "path": "/kind", "value": "Pod"},
            {"op": "remove", "path": "/metadata/labels"},
            {"op": "replace", "path": "/metadata/finalizers/0", "value": "a.b/d"},
            {"op": "add", "path": "/metadata/finalizers/-", "value": "a.b/e"}]),
        ),
        patch("merge-patch+json", json!({"metadata": {"labels": {"a": "b"}, "annotations": null}})),
        patch(
            "strategic-merge-patch+json",
            json!({"metadata": {"$setElementOrder/finalizers": ["a.b/e"], "$deleteFromPrimitiveList/finalizers":
            ["a.b/c"]}, "spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "c",
            "image": "j", "$patch": "merge", "$retainKeys": ["name"]}]}}),
        ),
        patch("apply-patch+yaml", pod),
        call(
            "DELETE",
            format!("{path}/p"),
            "application/json",
            json!({"gracePeriodSeconds": 300_000_000_000_i64}),
        ),
        call("DELETE", format!("{path}/p"), "application/json", json!({"propagationPolicy": "Foreground"})),
    ];
    serde_json::to_vec(&calls).unwrap()
}

/// The recorded cases that have objects in their requests, with these in protobuf.
fn recorded_in_protobuf(cases: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let converted = cases.iter().filter_map(|case| {
        let mut calls: Vec<Call> = serde_json::from_slice(case).unwrap();
        let mut any = false;
        for call in &mut calls {
            if let Some(same) = in_protobuf(call) {
                *call = same;
                any = true;
            }
        }
        any.then(|| serde_json::to_vec(&calls).unwrap())
    });
    converted.collect()
}

#[test]
fn bodies_in_protobuf_are_understood() {
    let cases = recorded_in_protobuf(&recorded());
    assert!(cases.len() > 200, "{}", cases.len());
    let calls: Vec<Call> =
        cases.iter().flat_map(|case| serde_json::from_slice::<Vec<Call>>(case).unwrap()).collect();
    let whole = calls.iter().filter(|call| !call.binary.is_empty());
    for call in whole {
        let object = decode_protobuf(&call.binary).unwrap();
        assert!(object["kind"].is_string(), "{object}");
    }
}

#[test]
fn requests() {
    let mut seeds = recorded();
    seeds.extend(recorded_in_protobuf(&seeds));
    seeds.extend(std::iter::repeat_n(patches(), 40));
    fuzz(&Requests(Api::new(Requests::NAME)), seeds);
}
