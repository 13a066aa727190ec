//! The texts about the values: each value has a comment, a place in the schema and a line in the README.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{project, updating, yaml};

const BEGIN: &str =
    "<!-- values: begin (made from values.yaml: YARDMASTER_UPDATE=1 cargo test --test chart) -->\n";
const END: &str = "<!-- values: end -->";
/// Where a comment about a value begins.
const MARK: &str = "# -- ";
/// Properties of the schema that are not for this chart itself: see there.
const FOR_OTHER_CHARTS: [&str; 2] = ["enabled", "global"];

/// A value with a comment; objects and lists may have one as a whole.
struct Documented {
    /// Its name in values.yaml, with those of the objects that it is in.
    path: Vec<String>,
    comment: String,
}

/// The values with comments, in the order of the file.
fn documented(text: &str) -> Vec<Documented> {
    let mut found: Vec<Documented> = Vec::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment: Option<String> = None;
    for line in text.lines() {
        let content = line.trim_start();
        if let Some(begin) = content.strip_prefix(MARK) {
            comment = Some(begin.to_owned());
        } else if let Some(more) = content.strip_prefix("# ") {
            if let Some(comment) = &mut comment {
                *comment = format!("{comment} {more}");
            }
        } else if let Some((key, _)) = content.split_once(':').filter(|_| !content.starts_with('-')) {
            let indent = line.len() - content.len();
            path.retain(|(of, _)| *of < indent);
            path.push((indent, key.to_owned()));
            if let Some(comment) = comment.take() {
                found.push(Documented { path: path.iter().map(|(_, key)| key.clone()).collect(), comment });
            }
        }
        assert!(comment.is_none() || content.starts_with('#'), "a comment about nothing: {line}");
    }
    found
}

/// The node of the schema at a path, with references followed.
fn schema_at<'a>(schema: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(schema, |node, key| {
        let property = &node["properties"][key];
        let node = match property["$ref"].as_str() {
            Some(reference) => schema.pointer(reference.trim_start_matches('#')).unwrap(),
            None => property,
        };
        (!node.is_null()).then_some(node)
    })
}

fn value_at<'a>(values: &'a Value, path: &[String]) -> &'a Value {
    path.iter().fold(values, |value, key| &value[key])
}

/// Every value that is not an object with something in it.
fn leaves(value: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    match value.as_object() {
        Some(object) if !object.is_empty() => {
            for (key, value) in object {
                path.push(key.clone());
                leaves(value, path, found);
                path.pop();
            }
        }
        _ => found.push(path.clone()),
    }
}

fn values_text() -> String {
    std::fs::read_to_string(project("charts/yardmaster/values.yaml")).unwrap()
}

fn schema() -> Value {
    let text = std::fs::read_to_string(project("charts/yardmaster/values.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn every_value_has_a_comment() {
    let documented = documented(&values_text());
    let mut all = Vec::new();
    leaves(&yaml("charts/yardmaster/values.yaml"), &mut Vec::new(), &mut all);
    for path in all {
        let has_one = documented.iter().any(|value| path.starts_with(&value.path));
        assert!(has_one, "{}: no comment", path.join("."));
    }
    for value in &documented {
        let ends = value.comment.ends_with(['.', ':', '`']);
        assert!(ends, "{}: half a sentence: {}", value.path.join("."), value.comment);
    }
}

#[test]
fn schema_and_values_have_the_same_fields() {
    let (values, schema) = (yaml("charts/yardmaster/values.yaml"), schema());
    let documented: Vec<_> = documented(&values_text()).into_iter().map(|value| value.path).collect();
    for path in &documented {
        assert!(schema_at(&schema, path).is_some(), "{}: not in the schema", path.join("."));
    }
    // Objects that have no comment as a whole are sections; their fields are all there are.
    let mut sections = BTreeSet::from([Vec::new()]);
    sections.extend(documented.iter().flat_map(|path| (1..path.len()).map(|length| path[..length].to_vec())));
    for section in sections {
        let node = schema_at(&schema, &section).unwrap();
        assert_eq!(node["additionalProperties"], false, "{}", section.join("."));
        let fields = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
        let mut allowed = fields(&node["properties"]);
        if section.is_empty() {
            allowed.retain(|field| !FOR_OTHER_CHARTS.contains(&&**field));
        }
        assert_eq!(fields(value_at(&values, &section)), allowed, "{}", section.join("."));
    }
}

/// The type of a value, in a word or two.
fn type_of(node: &Value) -> String {
    match &node["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            names.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>().join(" or ")
        }
        _ => "string".to_owned(),
    }
}

fn table() -> String {
    let (values, schema) = (yaml("charts/yardmaster/values.yaml"), schema());
    let mut table = "| value | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    for Documented { path, comment } in documented(&values_text()) {
        let default = value_at(&values, &path).to_string().replace('|', "\\|");
        let kind = type_of(schema_at(&schema, &path).unwrap());
        let comment = comment.replace('|', "\\|");
        table += &format!("| `{}` | {kind} | `{default}` | {comment} |\n", path.join("."));
    }
    table
}

#[test]
fn the_readme_has_the_table_of_values() {
    let file = project("charts/yardmaster/README.md");
    let readme = std::fs::read_to_string(&file).unwrap();
    let (head, rest) = readme.split_once(BEGIN).expect("where the table begins");
    let (_, tail) = rest.split_once(END).expect("where the table ends");
    let wanted = [head, BEGIN, &table(), END, tail].concat();
    if updating() {
        std::fs::write(&file, &wanted).unwrap();
    } else {
        assert!(
            readme == wanted,
            "charts/yardmaster/README.md is old: YARDMASTER_UPDATE=1 cargo test --test chart"
        );
    }
}
