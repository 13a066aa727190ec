#![allow(clippy::unwrap_used)]
use serde_json::json;

use super::*;
use crate::resources::RESOURCES;
use crate::rules::schema::{definition_name, definitions};

#[path = "../../../tests/recorded/mod.rs"]
mod recorded;

/// A length-delimited field of fewer than 128 bytes.
fn bytes(number: u8, value: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, u8::try_from(value.len()).unwrap()][..], value].concat()
}

fn body(kind: &str, version: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = [bytes(1, version.as_bytes()), bytes(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, raw)].concat()
}

#[test]
fn a_job_decodes_to_its_json() {
    let container = [bytes(1, b"c"), bytes(2, b"i"), bytes(3, b"echo"), bytes(3, b"hi")].concat();
    let template = bytes(2, &[bytes(2, &container), bytes(3, b"Never")].concat());
    let spec = [&[1 << 3, 3][..], &bytes(6, &template)].concat();
    let metadata =
        [bytes(1, b"j"), bytes(8, b""), bytes(11, &[bytes(1, b"k"), bytes(2, b"v")].concat())].concat();
    let job = decode(&body("Job", "batch/v1", &[bytes(1, &metadata), bytes(2, &spec)].concat())).unwrap();
    let wanted = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "labels": {"k": "v"}},
        "spec": {"parallelism": 3, "template": {"spec": {
            "restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["echo", "hi"]}],
        }}},
    });
    assert_eq!(job, wanted);
}

/// kubectl asks for tokens in this format.
#[test]
fn a_request_for_a_token_decodes_to_its_json() {
    let pod = [bytes(1, b"Pod"), bytes(2, b"v1"), bytes(3, b"p"), bytes(4, b"u")].concat();
    let spec = [bytes(1, b"vault"), bytes(3, &pod), vec![4 << 3, 0xd8, 0x04]].concat();
    let request =
        body("TokenRequest", "authentication.k8s.io/v1", &[bytes(2, &spec), bytes(3, b"")].concat());
    let decoded = decode(&request).unwrap();
    let reference = json!({"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"});
    let wanted = json!({"audiences": ["vault"], "boundObjectRef": reference, "expirationSeconds": 600});
    assert_eq!(decoded["spec"], wanted);
}

#[test]
fn unknown_fields_are_refused_and_not_dropped() {
    let unknown_field = body("ConfigMap", "v1", &bytes(9, b"x"));
    let cases = [
        (unknown_field, "field 9 is not supported"),
        (body("Widget", "v1", b""), "kind \"Widget\" is not supported"),
        (b"{}".to_vec(), "does not appear to be a protobuf message"),
        (body("ConfigMap", "v1", &[0x0a, 0x7f]), "unexpected EOF"),
    ];
    for (body, why) in cases {
        let error = decode(&body).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
    assert!(decode(&body("ConfigMap", "v1", &bytes(9, b""))).is_ok(), "empty is not set");
}

/// The type and the object of a framed event, as a client would read them.
pub(crate) fn frame(out: &[u8]) -> Result<(String, Value), String> {
    let (length, event) = out.split_first_chunk().unwrap();
    assert_eq!(u32::from_be_bytes(*length) as usize, event.len());
    decode_event(event)
}

fn written(api_version: &str, kind: &str, object: &Value) -> Result<Value, String> {
    let mut out = BytesMut::from(&b"before"[..]);
    let text = object.to_string();
    write_event(&mut out, "ADDED", api_version, kind, text.as_bytes()).map_err(|error| {
        assert_eq!(&out[..], b"before");
        error.to_string()
    })?;
    let (event, object) = frame(&out[b"before".len()..])?;
    assert_eq!(event, "ADDED");
    Ok(object)
}

/// Encoded by hand from the numbers in `generated.proto`.
#[test]
fn a_frame_has_the_expected_bytes() {
    let mut out = BytesMut::new();
    let json = br#"{"metadata":{"name":"p","creationTimestamp":"1970-01-01T00:02:08Z"},"status":{}}"#;
    write_event(&mut out, "ADDED", "v1", "Pod", json).unwrap();
    let metadata = [bytes(1, b"p"), bytes(8, b"\x08\x80\x01\x10\x00")].concat();
    let pod = [bytes(1, &metadata), bytes(3, b"")].concat();
    let type_meta = [bytes(1, b"v1"), bytes(2, b"Pod")].concat();
    let unknown =
        [MAGIC.to_vec(), bytes(1, &type_meta), bytes(2, &pod), bytes(3, b""), bytes(4, b"")].concat();
    let event = [bytes(1, b"ADDED"), bytes(2, &bytes(1, &unknown))].concat();
    assert_eq!(out, [&[0, 0, 0, u8::try_from(event.len()).unwrap()][..], &event].concat());
}

#[test]
fn a_pod_survives_a_round_trip() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "generation": 1, "labels": {"a": "", "b": "2"}, "finalizers": ["f", "g"],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}],
            "managedFields": [{"fieldsV1": {"f:spec": {"k:{\"name\":\"c\"}": {".": {}}}}, "manager": "m"}],
        },
        "spec": {
            "volumes": [
                {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "w", "secret": {"secretName": "s", "defaultMode": 420}},
                {"name": "x", "projected": {"sources": [{"configMap": {"name": "c", "optional": false}}]}},
            ],
            "containers": [{
                "name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"limits": {"cpu": "100m"}}, "stdin": false,
                "livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 3},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
            }],
            "ephemeralContainers": [{"name": "e", "image": "i", "targetContainerName": "c"}],
            "securityContext": {"supplementalGroups": [1, 2], "runAsUser": -1},
            "tolerations": [{"key": "t", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Failed",
            "containerStatuses": [{
                "name": "c", "restartCount": 0, "lastState": {},
                "state": {"terminated": {"exitCode": -1, "finishedAt": "1969-12-31T23:59:59Z"}},
            }],
        },
    });
    let mut sent = pod.clone();
    let fields = sent.as_object_mut().unwrap();
    fields.remove("kind");
    fields.remove("apiVersion");
    assert_eq!(written("v1", "Pod", &sent).unwrap(), pod);
}

#[test]
fn unset_fields_are_not_written() {
    let read =
        written("v1", "Secret", &json!({"metadata": null, "data": {"k": "aGk="}, "type": "t"})).unwrap();
    assert_eq!(read, json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "aGk="}, "type": "t"}));
}

#[test]
fn fields_missing_from_the_table_are_refused_and_nothing_is_written() {
    let cases = [
        ("Pod", json!({"spec": {"schedulingGroups": {"podGroupName": "g"}}}), "\"schedulingGroups\""),
        ("Pod", json!({"spec": {"nodeName": 1}}), "invalid type: integer `1`, expected Text"),
        ("Pod", json!({"spec": {"containers": [null]}}), "null in a list"),
        ("Pod", json!({"metadata": {"creationTimestamp": "soon"}}), "failed to parse"),
        ("Widget", json!({}), "\"Widget\""),
    ];
    for (kind, object, why) in cases {
        let error = written("v1", kind, &object).unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

/// Removes values that protobuf cannot distinguish from unset ones.
pub(crate) fn without_empty(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(list) => {
            let list: Vec<Value> = list.iter().filter_map(without_empty).collect();
            (!list.is_empty()).then_some(list.into())
        }
        Value::Object(object) => {
            let object: Map<_, _> = object
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), without_empty(value)?)))
                .collect();
            (!object.is_empty()).then_some(object.into())
        }
        other => Some(other.clone()),
    }
}

#[test]
fn recorded_objects_survive_a_round_trip() {
    for of in [("v1", "Pod"), ("batch/v1", "Job")] {
        let mut written = 0;
        for (json, text) in recorded::objects(of) {
            let mut out = BytesMut::new();
            if write_event(&mut out, "ADDED", of.0, of.1, text.as_bytes()).is_ok() {
                let (_, object) = frame(&out).unwrap();
                assert_eq!(without_empty(&object), without_empty(&json));
                written += 1;
            }
        }
        assert!(written > 300, "{written} of {of:?}");
    }
}

/// An object in which every field has a value.
fn full(definitions: &Map<String, Value>, schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return match name.rsplit('.').next().unwrap() {
            "Time" => "2026-01-02T03:04:05Z".into(),
            "MicroTime" => "1969-12-31T23:59:59.000012Z".into(),
            "Quantity" => "1500m".into(),
            "IntOrString" => 80.into(),
            "FieldsV1" => json!({"f:spec": {".": {}}}),
            _ => full(definitions, &definitions[name]),
        };
    }
    match schema["type"].as_str().unwrap() {
        "string" => if schema["format"] == "byte" { "AP8=" } else { "text" }.into(),
        "boolean" => true.into(),
        "integer" => (-7).into(),
        "array" => json!([full(definitions, &schema["items"])]),
        _ => match &schema["additionalProperties"] {
            Value::Null => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                fields.map(|(name, schema)| (name.clone(), full(definitions, schema))).collect()
            }
            values => json!({"key": full(definitions, values)}),
        },
    }
}

#[test]
fn every_field_of_every_kind_survives_a_round_trip() {
    let definitions = definitions();
    let mut kinds = Vec::new();
    for resource in RESOURCES {
        let (api_version, kind) = (resource.api_version(), resource.kind);
        if !resource.has_verb("create") {
            assert!(!resource.has_verb("update"), "{kind}: clients write it, so it has to be in the table");
            continue;
        }
        let mut object = full(&definitions, &definitions[&definition_name(&api_version, kind)]);
        let fields = object.as_object_mut().unwrap();
        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        let mut read = written(&api_version, kind, &object).unwrap();
        let fields = read.as_object_mut().unwrap();
        fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
        assert_eq!(read, object, "{api_version} {kind}");
        kinds.push(kind);
    }
    assert!(kinds.len() > 25, "{kinds:?}");
}
