//! Comparison with recorded responses, in which tokens replace values that vary.

use serde_json::Value;

/// Tokens of the recordings; `<name:PREFIX>` is handled separately.
const TOKENS: [&str; 6] = ["<uid>", "<rv>", "<time>", "<microtime>", "<token>", "<any>"];

/// The first difference between a recorded and an actual value, as a path and both values.
pub(super) fn difference(recorded: &Value, actual: &Value) -> Option<String> {
    walk("", recorded, actual)
}

fn walk(path: &str, recorded: &Value, actual: &Value) -> Option<String> {
    match (recorded, actual) {
        (Value::Object(recorded), Value::Object(actual)) => {
            let keys = recorded.keys().chain(actual.keys().filter(|key| !recorded.contains_key(*key)));
            keys.into_iter().find_map(|key| {
                let path = format!("{path}.{key}");
                match (recorded.get(key), actual.get(key)) {
                    (Some(recorded), Some(actual)) => walk(&path, recorded, actual),
                    (Some(recorded), None) => Some(format!("{path}: {recorded} is missing")),
                    (_, actual) => {
                        Some(format!("{path}: {} was not recorded", actual.unwrap_or(&Value::Null)))
                    }
                }
            })
        }
        (Value::Array(recorded), Value::Array(actual)) if recorded.len() == actual.len() => recorded
            .iter()
            .zip(actual)
            .enumerate()
            .find_map(|(index, (recorded, actual))| walk(&format!("{path}[{index}]"), recorded, actual)),
        (Value::String(recorded), _) if recorded == "<any>" => None,
        (Value::String(recorded), Value::String(actual)) if matches(recorded, actual) => None,
        _ if recorded == actual => None,
        _ => Some(format!("{path}: recorded {recorded}, got {actual}")),
    }
}

/// Whether a text matches a recorded one with tokens.
pub(super) fn matches(recorded: &str, actual: &str) -> bool {
    let mut pieces = pieces(recorded).into_iter();
    let Some(mut tail) = pieces.next().and_then(|first| actual.strip_prefix(first)) else { return false };
    for piece in pieces {
        match tail.find(piece) {
            Some(at) if !piece.is_empty() => tail = &tail[at + piece.len()..],
            Some(_) => tail = "",
            None => return false,
        }
    }
    tail.is_empty() || TOKENS.iter().any(|token| recorded.ends_with(token))
}

/// The literal parts between tokens.
fn pieces(recorded: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut tail = recorded;
    loop {
        let plain = TOKENS.iter().filter_map(|token| Some((tail.find(token)?, token.len())));
        let name = tail.find("<name:").and_then(|at| Some((at, tail[at..].find('>')? + 1)));
        match plain.chain(name).min() {
            Some((at, len)) => {
                pieces.push(&tail[..at]);
                tail = &tail[at + len..];
            }
            None => {
                pieces.push(tail);
                return pieces;
            }
        }
    }
}
