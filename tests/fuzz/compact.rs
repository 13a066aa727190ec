//! Large objects in few bytes, so that a corpus stays readable and findings become small.
//!
//! | compact | stands for |
//! |---|---|
//! | `{"$text": N, "of": "ab", "by": ","}` | a string: `N` copies, with the separator between them |
//! | `{"$times": N, "of": VALUE}` in a list | `N` copies of the value |
//! | `{"$keys": {"$times": N, "key": "a-#", "of": VALUE}}` in a map | `N` entries |
//!
//! In each copy, `#` stands for its number and `%` for twice its number.

use serde_json::{Map, Value};

/// Most bytes of an object: API servers store none that is larger.
const BYTES_MAX: usize = 1_500_000;

/// Expands a value. Copies that would make it larger than an object can be are left out.
pub(crate) fn expand(value: &Value) -> Value {
    Expansion { left: BYTES_MAX }.value(value, None)
}

struct Expansion {
    left: usize,
}

impl Expansion {
    /// Reserves this many bytes. Returns whether there is room for them.
    fn takes(&mut self, bytes: usize) -> bool {
        let fits = self.left > bytes;
        self.left = self.left.saturating_sub(bytes);
        fits
    }

    fn value(&mut self, value: &Value, number: Option<u64>) -> Value {
        match value {
            Value::String(text) => {
                let text = numbered(text, number);
                if self.takes(text.len() + 3) { text.into() } else { "".into() }
            }
            Value::Array(list) => self.list(list, number),
            Value::Object(map) => match (map.get("$text").and_then(Value::as_u64), map.get("of")) {
                (Some(times), Some(Value::String(of))) => {
                    let by = map.get("by").and_then(Value::as_str).unwrap_or_default();
                    self.text(times, of, by)
                }
                _ => self.map(map, number),
            },
            scalar => {
                self.takes(8);
                scalar.clone()
            }
        }
    }

    fn text(&mut self, times: u64, of: &str, by: &str) -> Value {
        let mut text = String::new();
        for number in 0..times {
            let next = numbered(of, Some(number));
            if !self.takes(next.len() + by.len()) {
                break;
            }
            text.push_str(if number == 0 { "" } else { by });
            text.push_str(&next);
        }
        text.into()
    }

    fn list(&mut self, list: &[Value], number: Option<u64>) -> Value {
        let mut out = Vec::new();
        for item in list {
            match (item["$times"].as_u64(), item.get("of")) {
                (Some(times), Some(of)) => {
                    for number in 0..times {
                        if self.left == 0 {
                            break;
                        }
                        out.push(self.value(of, Some(number)));
                    }
                }
                _ => out.push(self.value(item, number)),
            }
        }
        out.into()
    }

    fn map(&mut self, map: &Map<String, Value>, number: Option<u64>) -> Value {
        let mut out = Map::new();
        for (key, value) in map {
            let copies = (value["$times"].as_u64(), value["key"].as_str(), value.get("of"));
            if let ("$keys", (Some(times), Some(key), Some(of))) = (&**key, copies) {
                for number in 0..times {
                    let key = numbered(key, Some(number));
                    if !self.takes(key.len() + 4) {
                        break;
                    }
                    out.insert(key, self.value(of, Some(number)));
                }
            } else if self.takes(key.len() + 4) {
                out.insert(numbered(key, number), self.value(value, number));
            }
        }
        out.into()
    }
}

fn numbered(text: &str, number: Option<u64>) -> String {
    match number {
        Some(number) if text.contains(['#', '%']) => {
            text.replace('#', &number.to_string()).replace('%', &(2 * number).to_string())
        }
        _ => text.to_owned(),
    }
}

#[test]
fn copies_are_numbered_and_bounded() {
    use serde_json::json;
    let compact = json!({
        "text": {"$text": 3, "of": "%", "by": ","},
        "list": [1, {"$times": 2, "of": {"name": "c-#"}}],
        "map": {"a": 1, "$keys": {"$times": 2, "key": "k#", "of": "v#"}},
    });
    let expected = json!({
        "text": "0,2,4", "list": [1, {"name": "c-0"}, {"name": "c-1"}], "map": {"a": 1, "k0": "v0", "k1": "v1"},
    });
    assert_eq!(expand(&compact), expected);
    let huge = json!([{"$times": u64::MAX, "of": {"$keys": {"$times": u64::MAX, "key": "#", "of": "x"}}}]);
    assert!(expand(&huge).to_string().len() < 2 * BYTES_MAX);
}
