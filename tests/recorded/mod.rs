//! Objects of a kind from all recordings of scenarios and of the API server.

use std::path::Path;

use serde_json::{Map, Value};

/// All stored objects of a kind (`apiVersion` and `kind`) in the recordings.
pub(crate) fn objects(of: (&str, &str)) -> Vec<(Value, String)> {
    // Recordings have placeholders for times.
    let times = regex::Regex::new(r#""<time[^"]*>""#).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().map(|folder| folder.join("tests/data"));
    let data = data.into_iter().find(|folder| folder.is_dir()).unwrap();
    let mut found = Vec::new();
    for folder in ["apiserver", "scenarios"] {
        for file in std::fs::read_dir(data.join(folder)).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let text = times.replace_all(&text, "\"2026-01-01T00:00:00Z\"");
            // Not all files are JSON.
            serde_json::from_str(&text).into_iter().for_each(|recording| of_kind(of, recording, &mut found));
        }
    }
    found.into_iter().map(|object| (Value::Object(object.clone()), stored(object))).collect()
}

fn stored(mut object: Map<String, Value>) -> String {
    object.remove("kind");
    object.remove("apiVersion");
    Value::Object(object).to_string()
}

/// The stored objects of a kind in a recording, at any depth.
fn of_kind((version, kind): (&str, &str), recording: Value, found: &mut Vec<Map<String, Value>>) {
    match recording {
        Value::Object(object) if object.get("kind") == Some(&kind.into()) => {
            // Objects without uid are requests or references.
            let is_stored = object.get("metadata").is_some_and(|metadata| metadata["uid"].is_string());
            found.extend(is_stored.then_some(object));
        }
        Value::Object(mut list) if list.get("kind") == Some(&format!("{kind}List").into()) => {
            for object in list["items"].as_array_mut().into_iter().flatten() {
                object["kind"] = kind.into();
                object["apiVersion"] = version.into();
                of_kind((version, kind), object.take(), found);
            }
        }
        Value::Object(object) => {
            object.into_iter().for_each(|(_, value)| of_kind((version, kind), value, found));
        }
        Value::Array(list) => list.into_iter().for_each(|value| of_kind((version, kind), value, found)),
        _ => {}
    }
}
