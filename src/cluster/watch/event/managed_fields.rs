//! Leaving out what is the larger part of many objects' metadata, and read by nobody here.

use std::borrow::Cow;

use memchr::{memchr2, memmem};

/// How the member begins as API servers write it. In a string of JSON these bytes cannot stand: its quotes are escaped.
const MEMBER: &[u8] = br#""managedFields":["#;

/// The event with an empty `managedFields` in the place of its first, which is that of the object: `metadata` stands before
/// `spec`. To find its end costs a fraction of what a parser takes to step over each of its members.
pub(super) fn without_managed_fields(event: &[u8]) -> Cow<'_, [u8]> {
    cut(event).unwrap_or(Cow::Borrowed(event))
}

fn cut(event: &[u8]) -> Option<Cow<'_, [u8]>> {
    let member = memmem::find(event, MEMBER)?;
    let (before, fields) = event.split_at(member + MEMBER.len());
    let after = fields.get(end(fields)?..)?;
    Some([before, after].concat().into())
}

/// Where the array ends whose first element begins here. `None` if it does not.
fn end(fields: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        match fields.get(at)? {
            b'"' => at += string(fields.get(at + 1..)?)?,
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return Some(at),
            b']' | b'}' => depth -= 1,
            _ => {}
        }
        at += 1;
    }
}

/// Length of a string with its closing quote.
fn string(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_first_is_emptied_and_nothing_else_is_touched() {
        for (event, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"managedFields":[],"b":[2]}"#, r#"{"managedFields":[],"b":[2]}"#),
            (r#"{"managedFields":null}"#, r#"{"managedFields":null}"#),
            (
                r#"{"managedFields":[{"k:{\"a\":\"]\"}":{"f:b":{}}},"]\\"],"c":[3]}"#,
                r#"{"managedFields":[],"c":[3]}"#,
            ),
            (
                r#"{"m":{"managedFields":[[1],[2]]},"s":{"managedFields":[3]}}"#,
                r#"{"m":{"managedFields":[]},"s":{"managedFields":[3]}}"#,
            ),
            (r#"{"note":"\"managedFields\":[","c":[3]}"#, r#"{"note":"\"managedFields\":[","c":[3]}"#),
            // What is cut off is for the parser to refuse.
            (r#"{"managedFields":[{"a":1}"#, r#"{"managedFields":[{"a":1}"#),
            (r#"{"managedFields":["a\"#, r#"{"managedFields":["a\"#),
        ] {
            assert_eq!(String::from_utf8_lossy(&without_managed_fields(event.as_bytes())), expected);
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
            r#"[\[\]{}"\\,:]{0,6}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            let key = r#"[fk:\[\]{}"\\]{0,5}"#;
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(key, inner, 0..4).prop_map(|members| json!(members)),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_left_reads_as_before(name in any::<String>(), fields in prop::collection::vec(anything(), 0..4), spec in anything()) {
            let event = |fields: &[Value]| {
                json!({"object": {"metadata": {"managedFields": fields, "name": name}, "spec": spec}})
            };
            let text = event(&fields).to_string();
            let left: Value = serde_json::from_slice(&without_managed_fields(text.as_bytes())).unwrap();
            prop_assert_eq!(left, event(&[]));
        }
    }
}
