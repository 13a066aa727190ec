//! Mutations of bytes, of JSON and of text with a grammar.

use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

/// Numbers at the edges of types.
const NUMBERS: [i64; 18] = [
    i64::MIN,
    i64::MIN + 1,
    -(1 << 32),
    i32::MIN as i64,
    -2,
    -1,
    0,
    1,
    2,
    255,
    65_536,
    i32::MAX as i64 - 1,
    i32::MAX as i64,
    u32::MAX as i64 - 1,
    u32::MAX as i64,
    300_000_000_000,
    i64::MAX - 1,
    i64::MAX,
];

/// Texts with a meaning somewhere, or without.
const TEXTS: [&str; 36] = [
    "",
    "a",
    "-",
    ".",
    "..",
    "/",
    "~1",
    "\0",
    "ä€𝄞",
    "0",
    "-1",
    "4294967295",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551616",
    "0-4294967295",
    "0-4294967294,4294967295",
    "3-1",
    "1e309",
    "9e18Ei",
    "-1n",
    "0.000000000000000000001",
    "9999-12-31T23:59:59Z",
    "-9999-01-01T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-23:59",
    "1970-01-01T00:00:60Z",
    "9999999999999h",
    "292277026596y",
    "0s",
    "foregroundDeletion",
    "orphan",
    "default",
    "Indexed",
    "batch/v1",
    "application/json",
];

/// Deletes, repeats, inserts or changes bytes.
pub(crate) fn bytes(input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
    let mut out = input.to_vec();
    let from = random.random_range(0..=out.len());
    let len = random.random_range(0..=(out.len() - from).min(64));
    match random.random_range(0..7) {
        0 | 1 => drop(out.drain(from..from + len)),
        2 => out.truncate(from),
        3 => {
            let part = out[from..from + len].to_vec();
            let times = random.random_range(1..40);
            out.splice(from..from, part.repeat(times));
        }
        4 => {
            let other: &[u8] = others.choose(random).map_or(&[], Vec::as_slice);
            let start = random.random_range(0..=other.len());
            let len = random.random_range(0..=(other.len() - start).min(256));
            out.splice(from..from, other[start..start + len].iter().copied());
        }
        5 => {
            let text = TEXTS.choose(random).unwrap().bytes();
            out.splice(from..from + len, text);
        }
        _ => {
            for byte in &mut out[from..from + len] {
                if random.random_ratio(1, 4) {
                    *byte = [0, 0x7f, 0x80, 0xff, random.random()][random.random_range(0..5)];
                }
            }
        }
    }
    out.truncate(64 << 10);
    out
}

/// Parts of protobuf messages at the edges: unusual numbers, lengths, and tags.
const WIRE: [&[u8]; 14] = [
    // Varints: the largest, the smallest signed one, -1 of 32 bits, one of too many bytes.
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    // Texts or messages of 2 GiB, 4 GiB and 8 EiB in field 1, and an empty one.
    b"\x0a\xff\xff\xff\xff\x07",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x0a\x00",
    // The beginning and the end of a group, the unknown wire type 7, field 0, the last field.
    b"\x0b",
    b"\x0c",
    b"\x0f",
    b"\x00\x00",
    b"\xf8\xff\xff\xff\x0f\x00",
    // No UTF-8.
    b"\x0a\x02\xc3\x28",
];

/// Changes a number, a length or a tag of a protobuf message, or cuts it off.
pub(crate) fn protobuf(input: &[u8], random: &mut SmallRng) -> Vec<u8> {
    let mut out = input.to_vec();
    let at = random.random_range(0..=out.len());
    match random.random_range(0..6) {
        0 => out.truncate(at),
        1 => {
            // A message within a message within a message.
            let levels = [3, 60, 200][random.random_range(0..3)];
            let nested = (0..levels).fold(Vec::new(), |inner: Vec<u8>, _| {
                let mut outer = vec![0x0a, (inner.len() & 0x7f) as u8 | 0x80, (inner.len() >> 7) as u8];
                outer.extend(inner);
                outer
            });
            out.splice(at..at, nested);
        }
        2 | 3 => {
            let part = *WIRE.choose(random).unwrap();
            out.splice(at..at, part.iter().copied());
        }
        _ => {
            let part = *WIRE.choose(random).unwrap();
            let end = (at + part.len()).min(out.len());
            out.splice(at..end, part.iter().copied());
        }
    }
    out.truncate(64 << 10);
    out
}

/// Text that stays UTF-8.
pub(crate) fn text(input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
    String::from_utf8_lossy(&bytes(input, others, random)).into_owned().into_bytes()
}

/// Changes one value within a JSON value.
pub(crate) fn json(value: &mut Value, other: Option<&Value>, random: &mut SmallRng) {
    let count = nodes(value);
    let chosen = random.random_range(0..count);
    let given = other.map(|other| {
        let at = random.random_range(0..nodes(other));
        pick(other, &mut { at }).cloned().unwrap_or_default()
    });
    if let Some(slot) = pick_mut(value, &mut { chosen }) {
        change(slot, given, random);
    }
}

fn change(slot: &mut Value, given: Option<Value>, random: &mut SmallRng) {
    match (slot, random.random_range(0..12)) {
        (Value::Object(map), 0..=2) if !map.is_empty() => {
            let key = map.keys().nth(random.random_range(0..map.len())).cloned().unwrap();
            map.remove(&key);
        }
        (Value::Object(map), 3 | 4) if !map.is_empty() => {
            let key = map.keys().nth(random.random_range(0..map.len())).cloned().unwrap();
            let value = map.remove(&key).unwrap();
            map.insert((*TEXTS.choose(random).unwrap()).to_owned(), value);
        }
        (Value::Object(map), 5) => {
            let key = (*TEXTS.choose(random).unwrap()).to_owned();
            map.insert(key, given.unwrap_or(Value::Null));
        }
        (Value::Array(list), 0..=2) if !list.is_empty() => {
            list.remove(random.random_range(0..list.len()));
        }
        (Value::Array(list), 3 | 4) if !list.is_empty() => {
            let item = list[random.random_range(0..list.len())].clone();
            let times = [1, 2, 30, 500][random.random_range(0..4)];
            list.extend(std::iter::repeat_n(item, times));
        }
        (Value::Array(list), 5) => list.push(given.unwrap_or(Value::Null)),
        (Value::Array(list), 6) => list.reverse(),
        (slot @ (Value::Object(_) | Value::Array(_)), 7) => {
            let levels = [1, 3, 60, 130][random.random_range(0..4)];
            let deep = |inner, _| if levels % 2 == 0 { json!([inner]) } else { json!({ "f:a": inner }) };
            *slot = (0..levels).fold(slot.take(), deep);
        }
        (slot, 8 | 9) if given.is_some() => *slot = given.unwrap_or_default(),
        (slot, _) => *slot = scalar(random),
    }
}

/// Takes something away from a JSON value.
pub(crate) fn smaller(value: &mut Value, random: &mut SmallRng) {
    let chosen = random.random_range(0..nodes(value));
    match pick_mut(value, &mut { chosen }) {
        Some(Value::Object(map)) if !map.is_empty() => {
            let key = map.keys().nth(random.random_range(0..map.len())).cloned().unwrap();
            map.remove(&key);
        }
        Some(Value::Array(list)) if random.random() => list.truncate(list.len() / 2),
        Some(Value::Array(list)) if !list.is_empty() => drop(list.remove(random.random_range(0..list.len()))),
        Some(Value::String(text)) => *text = text.chars().take(text.chars().count() / 2).collect(),
        Some(slot @ Value::Number(_)) => *slot = slot.as_i64().map_or(0, |number| number / 10).into(),
        _ => {}
    }
}

fn scalar(random: &mut SmallRng) -> Value {
    match random.random_range(0..10) {
        0 => Value::Null,
        1 => random.random::<bool>().into(),
        2 => json!({}),
        3 => json!([]),
        4 => [json!(u64::MAX), json!(1.5), json!(-0.0), json!(1e308)][random.random_range(0..4)].clone(),
        5 => "x".repeat([10, 64, 300, 20_000][random.random_range(0..4)]).into(),
        6 | 7 => (*NUMBERS.choose(random).unwrap()).into(),
        _ => (*TEXTS.choose(random).unwrap()).into(),
    }
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

/// The value with this number, in the order of the text.
fn pick<'v>(value: &'v Value, number: &mut usize) -> Option<&'v Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(list) => list.iter().find_map(|item| pick(item, number)),
        Value::Object(map) => map.values().find_map(|item| pick(item, number)),
        _ => None,
    }
}

fn pick_mut<'v>(value: &'v mut Value, number: &mut usize) -> Option<&'v mut Value> {
    if *number == 0 {
        return Some(value);
    }
    *number -= 1;
    match value {
        Value::Array(list) => list.iter_mut().find_map(|item| pick_mut(item, number)),
        Value::Object(map) => map.values_mut().find_map(|item| pick_mut(item, number)),
        _ => None,
    }
}

/// Changes an input that is JSON; as bytes if it is not.
pub(crate) fn json_text(input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
    let Ok(mut value) = serde_json::from_slice::<Value>(input) else { return bytes(input, others, random) };
    let other = others.choose(random).and_then(|other| serde_json::from_slice(other).ok());
    json(&mut value, other.as_ref(), random);
    value.to_string().into_bytes()
}
