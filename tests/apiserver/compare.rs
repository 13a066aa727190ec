//! Compares an answer with a recorded one. Tokens in the recording stand for values that differ from run to
//! run.

use regex::Regex;
use serde_json::Value;

/// Tokens and the patterns that they stand for.
const TOKENS: &[(&str, &str)] = &[
    ("<uid>", "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ("<rv>", "[1-9][0-9]*"),
    ("<time>", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"),
    ("<microtime>", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"),
    ("<token>", "[A-Za-z0-9_=-]+"),
    ("<any>", "(?s:.*)"),
];

/// Appends the differences between a recorded value and an answer.
pub(crate) fn values(wanted: &Value, got: &Value, path: &str, differences: &mut Vec<String>) {
    match (wanted, got) {
        (Value::String(text), _) if text == "<any>" => {}
        (Value::String(wanted), Value::String(got)) => {
            let aged = || path.contains(".cells[") && longer_ago(wanted, got);
            if !(texts(wanted, got) || aged()) {
                differences.push(format!("{path}: wanted {wanted:?}, got {got:?}"));
            }
        }
        (Value::Array(wanted), Value::Array(got)) => {
            if wanted.len() != got.len() {
                differences.push(format!("{path}: wanted {} elements, got {}", wanted.len(), got.len()));
                differences.push(format!("    wanted {}", cut(&Value::Array(wanted.clone()))));
                differences.push(format!("    got    {}", cut(&Value::Array(got.clone()))));
                return;
            }
            for (at, (wanted, got)) in wanted.iter().zip(got).enumerate() {
                values(wanted, got, &format!("{path}[{at}]"), differences);
            }
        }
        (Value::Object(wanted), Value::Object(got)) => {
            let mut unseen: Vec<&String> = got.keys().collect();
            for (key, value) in wanted {
                let Some(place) = unseen.iter().position(|have| texts(key, have)) else {
                    differences.push(format!("{path}.{key}: wanted {}, got nothing", cut(value)));
                    continue;
                };
                let have = unseen.swap_remove(place);
                values(value, &got[have.as_str()], &format!("{path}.{key}"), differences);
            }
            for key in unseen {
                differences.push(format!("{path}.{key}: wanted nothing, got {}", cut(&got[key.as_str()])));
            }
        }
        _ if wanted == got => {}
        _ => differences.push(format!("{path}: wanted {}, got {}", cut(wanted), cut(got))),
    }
}

fn cut(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() > 300 {
        format!("{}...", text.chars().take(300).collect::<String>())
    } else {
        text
    }
}

/// Whether a text matches a recorded one with tokens.
pub(crate) fn texts(wanted: &str, got: &str) -> bool {
    wanted == got || (wanted.contains('<') && pattern(wanted).is_some_and(|pattern| pattern.is_match(got)))
}

fn pattern(wanted: &str) -> Option<Regex> {
    let mut pattern = String::from("^");
    let mut remaining = wanted;
    while !remaining.is_empty() {
        if let Some((token, pattern_of)) = TOKENS.iter().find(|(token, _)| remaining.starts_with(token)) {
            pattern.push_str(pattern_of);
            remaining = &remaining[token.len()..];
        } else if let Some((prefix, after)) =
            remaining.strip_prefix("<name:").and_then(|name| name.split_once('>'))
        {
            pattern.push_str(&regex::escape(prefix));
            pattern.push_str("[bcdfghjklmnpqrstvwxz2456789]{5}");
            remaining = after;
        } else {
            let letter = remaining.chars().next()?;
            pattern.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
            remaining = &remaining[letter.len_utf8()..];
        }
    }
    pattern.push('$');
    regex::RegexBuilder::new(&pattern).size_limit(1 << 26).build().ok()
}

/// Whether both are ages in days, and the actual age is not below the recorded one.
fn longer_ago(wanted: &str, got: &str) -> bool {
    days(wanted).zip(days(got)).is_some_and(|(wanted, got)| got >= wanted)
}

/// Days in a duration as tables print it from two days on: `689d`, `2y3d`, `9y`.
fn days(text: &str) -> Option<u32> {
    let number = |text: &str| text.parse::<u32>().ok();
    match (text.split_once('y'), text.strip_suffix('d')) {
        (Some((years, "")), _) => Some(number(years)? * 365),
        (Some((years, days)), _) => Some(number(years)? * 365 + number(days.strip_suffix('d')?)?),
        (None, Some(days)) => number(days),
        (None, None) => None,
    }
}

/// Keeps in the array at `path` only elements whose field `by` (a dotted path) is among `wanted`.
pub(crate) fn keep(value: &mut Value, path: &[&str], by: &str, wanted: &[Value]) {
    match path {
        [] => {
            if let Value::Array(elements) = value {
                elements.retain(|element| {
                    let place = format!("/{}", by.replace('.', "/"));
                    // The core group has no name: a missing field counts as empty.
                    let empty = Value::from("");
                    wanted.contains(element.pointer(&place).unwrap_or(&empty))
                });
            }
        }
        ["*", remaining @ ..] => {
            for element in value.as_array_mut().into_iter().flatten() {
                keep(element, remaining, by, wanted);
            }
        }
        [field, remaining @ ..] => {
            let inner = match field.parse::<usize>() {
                Ok(at) if value.is_array() => value.get_mut(at),
                _ => value.get_mut(*field),
            };
            if let Some(inner) = inner {
                keep(inner, remaining, by, wanted);
            }
        }
    }
}

/// Applies `change` to all `metadata` of a value.
fn for_managed_fields(value: &mut Value, change: fn(&mut serde_json::Map<String, Value>)) {
    match value {
        Value::Array(elements) => elements.iter_mut().for_each(|one| for_managed_fields(one, change)),
        Value::Object(fields) => {
            if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                change(metadata);
            }
            fields.values_mut().for_each(|one| for_managed_fields(one, change));
        }
        _ => {}
    }
}

/// Removes `metadata.managedFields` everywhere.
pub(crate) fn without_managed_fields(value: &mut Value) {
    for_managed_fields(value, |metadata| {
        metadata.remove("managedFields");
    });
}

/// Sorts `metadata.managedFields`. The server's order depends on the second in which each manager wrote; this
/// one does not.
pub(crate) fn sort_managed_fields(value: &mut Value) {
    for_managed_fields(value, |metadata| {
        if let Some(managers) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            managers.sort_by_key(|entry| {
                (text(entry, "operation"), text(entry, "manager"), text(entry, "subresource"))
            });
        }
    });
}
