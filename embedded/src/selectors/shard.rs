//! Shard selectors: `shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000') || ...`.
//!
//! An object belongs to a range by the 64-bit FNV-1a hash of the field's text.

use std::fmt;
use std::hash::Hasher as _;

use fnv::FnvHasher;

use crate::object::Header;

/// The hash ranges of a field: at least one.
#[derive(Clone, Debug)]
pub(super) struct ShardSelector {
    field: HashedField,
    ranges: Vec<Range>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HashedField {
    Uid,
    Namespace,
}

/// Inclusive lower and exclusive upper bound; 2^64 is the upper bound of the last range.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: u128,
    end: u128,
}

impl ShardSelector {
    pub(super) fn matches(&self, header: &Header) -> bool {
        let text = match self.field {
            HashedField::Uid => &header.uid,
            HashedField::Namespace => &header.namespace,
        };
        let mut hasher = FnvHasher::default();
        hasher.write(text.as_bytes());
        let hash = u128::from(hasher.finish());
        self.ranges.iter().any(|range| range.start <= hash && hash < range.end)
    }
}

impl HashedField {
    fn path(self) -> &'static str {
        match self {
            Self::Uid => "object.metadata.uid",
            Self::Namespace => "object.metadata.namespace",
        }
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.ranges.iter().enumerate() {
            let or = if at == 0 { "" } else { " || " };
            let field = self.field.path();
            write!(out, "{or}shardRange({field}, '0x{:016x}', '0x{:016x}')", range.start, range.end)?;
        }
        Ok(())
    }
}

/// Parses a shard selector; an empty text means none.
pub(super) fn parse(text: &str) -> Result<Option<ShardSelector>, String> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    if text.contains("&&") {
        return Err("unsupported function \"_&&_\"; only shardRange() and || are allowed".into());
    }
    let mut selector: Option<ShardSelector> = None;
    for call in text.split("||") {
        let (field, range) = parse_call(call.trim())?;
        match &mut selector {
            None => selector = Some(ShardSelector { field, ranges: vec![range] }),
            Some(selector) if selector.field == field => selector.ranges.push(range),
            Some(selector) => {
                return Err(format!(
                    "all shard ranges must use the same field, got \"{}\" and \"{}\"",
                    selector.field.path(),
                    field.path()
                ));
            }
        }
    }
    Ok(selector)
}

fn parse_call(call: &str) -> Result<(HashedField, Range), String> {
    let Some((function, arguments)) = call.strip_suffix(')').and_then(|call| call.split_once('(')) else {
        return Err("unexpected expression kind 3; expected shardRange() call or || operator".into());
    };
    if function.trim() != "shardRange" {
        return Err(format!(
            "unsupported function \"{}\"; only shardRange() and || are allowed",
            function.trim()
        ));
    }
    let arguments: Vec<&str> = arguments.split(',').map(str::trim).collect();
    let [field, start, end] = arguments.as_slice() else {
        return Err(format!("shardRange() requires exactly 3 arguments, got {}", arguments.len()));
    };
    let field = match *field {
        "object.metadata.uid" => HashedField::Uid,
        "object.metadata.namespace" => HashedField::Namespace,
        other => {
            return Err(format!(
                "unsupported field path \"{other}\"; supported: object.metadata.uid, object.metadata.namespace"
            ));
        }
    };
    let (start, end) = (bound("hexStart", start)?, bound("hexEnd", end)?);
    if start >= end {
        return Err(format!("shard range start 0x{start:016x} must be less than end 0x{end:016x}"));
    }
    Ok((field, Range { start, end }))
}

/// A quoted bound: exactly 16 hexadecimal digits, or 2^64.
fn bound(name: &str, quoted: &str) -> Result<u128, String> {
    let text = quoted.trim_matches(['\'', '"']);
    let Some(digits) = text.strip_prefix("0x") else {
        return Err(format!("{name} must have '0x' prefix, got \"{text}\""));
    };
    if let Some(wrong) = digits.chars().find(|digit| !digit.is_ascii_hexdigit()) {
        return Err(format!("{name}: invalid hex character \"{wrong}\" in \"{text}\""));
    }
    if digits == "10000000000000000" {
        return Ok(1 << 64);
    }
    if digits.len() != 16 {
        let hint =
            if digits.len() < 16 { format!(" (did you mean \"0x{digits:0>16}\"?)") } else { String::new() };
        return Err(format!("{name} must be a 0x-prefixed 16-digit hex value, got \"{text}\"{hint}"));
    }
    u128::from_str_radix(digits, 16).map_err(|error| format!("{name}: {error}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of_uid(uid: &str) -> Header {
        Header { uid: uid.into(), ..Header::default() }
    }

    #[test]
    fn the_hash_is_that_of_kubernetes() {
        // Recorded from Kubernetes 1.36.2: the uids in a list of each quarter of the hash's range.
        let recording: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/data/apiserver/lists.json")).unwrap();
        let mut seen = 0;
        for step in
            recording["cases"].as_array().unwrap().iter().flat_map(|case| case["steps"].as_array().unwrap())
        {
            let (Some(uids), Some(selector)) =
                (step["raw_uids"].as_object(), step["request"]["query"]["shardSelector"].as_str())
            else {
                continue;
            };
            let selector = parse(selector).unwrap().unwrap();
            for uid in uids.values().filter_map(|uid| uid.as_str()) {
                assert!(selector.matches(&of_uid(uid)), "{uid} is in {selector}");
                seen += 1;
            }
        }
        assert!(seen > 0, "the recording names uids");
    }

    #[test]
    fn ranges_that_cover_everything_contain_every_object_once() {
        let low = parse("shardRange(object.metadata.uid,'0x0000000000000000','0x8000000000000000')").unwrap();
        let high =
            parse("shardRange(object.metadata.uid,'0x8000000000000000','0x10000000000000000')").unwrap();
        let (low, high) = (low.unwrap(), high.unwrap());
        for uid in (0..1000).map(|number| format!("uid-{number}")) {
            assert_ne!(low.matches(&of_uid(&uid)), high.matches(&of_uid(&uid)), "{uid}");
        }
    }
}
