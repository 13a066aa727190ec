//! JSON as jq, Python and Go print it.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Spaces of a level; all on one line without.
    indent: Option<usize>,
    /// As Python's `json` does by default.
    only_ascii: bool,
    /// `<`, `>` and `&` as escapes, as Go does by default.
    html: bool,
    /// After a colon, and on one line after a comma.
    space: &'static str,
    /// Between objects.
    separator: &'static str,
    tabs: bool,
}

pub fn style() -> impl Strategy<Value = Style> {
    let indent = select(&[None, Some(0), Some(2), Some(4)][..]);
    let separator = select(&["\n", "", " ", "\n\n", "\r\n", "\n---\n"][..]);
    (indent, any::<bool>(), any::<bool>(), select(&["", " "][..]), separator, any::<bool>()).prop_map(
        |(indent, only_ascii, html, space, separator, tabs)| Style {
            indent,
            only_ascii,
            html,
            space,
            separator,
            tabs,
        },
    )
}

pub fn print(objects: &[Value], style: Style) -> String {
    let printed: Vec<String> = objects
        .iter()
        .map(|object| {
            let mut out = String::new();
            style.value(object, 0, &mut out);
            out
        })
        .collect();
    printed.join(style.separator) + "\n"
}

impl Style {
    fn value(self, value: &Value, level: usize, out: &mut String) {
        match value {
            Value::String(text) => self.text(text, out),
            Value::Array(items) if items.is_empty() => out.push_str("[]"),
            Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
            Value::Array(items) => {
                out.push('[');
                for (number, item) in items.iter().enumerate() {
                    self.begin(number, level + 1, out);
                    self.value(item, level + 1, out);
                }
                self.line(level, out);
                out.push(']');
            }
            Value::Object(fields) => {
                out.push('{');
                for (number, (key, field)) in fields.iter().enumerate() {
                    self.begin(number, level + 1, out);
                    self.text(key, out);
                    out.push(':');
                    out.push_str(self.space);
                    self.value(field, level + 1, out);
                }
                self.line(level, out);
                out.push('}');
            }
            other => out.push_str(&other.to_string()),
        }
    }

    fn begin(self, number: usize, level: usize, out: &mut String) {
        if number > 0 {
            out.push(',');
            if self.indent.is_none() {
                out.push_str(self.space);
            }
        }
        self.line(level, out);
    }

    fn line(self, level: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.push_str(&if self.tabs { "\t".repeat(level) } else { " ".repeat(indent * level) });
        }
    }

    fn text(self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            match letter {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '/' if self.html && self.only_ascii => out.push_str("\\/"),
                letter if self.must_escape(letter) => {
                    for unit in letter.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                letter => out.push(letter),
            }
        }
        out.push('"');
    }

    fn must_escape(self, letter: char) -> bool {
        letter < ' '
            || self.only_ascii && !letter.is_ascii()
            || self.html && "<>&\u{2028}\u{2029}".contains(letter)
    }
}
