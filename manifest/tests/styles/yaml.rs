//! YAML as PyYAML, Go's `yaml` and people print it.

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::scalars::{
    Double, double, folded, is_block, is_folded, is_plain, is_single, literal, single, single_wrapped,
};

#[derive(Clone, Copy, Debug)]
pub struct Style {
    flow: Flow,
    /// Whether the elements of a list in a map are indented further than its key.
    lists_indented: bool,
    only_ascii: bool,
    /// Whether texts are quoted even if they need no quotes.
    quotes: bool,
    comments: bool,
    markers: Markers,
    /// Numbers as Helm prints those that it has made floats of.
    floats: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Flow {
    Never,
    /// Maps and lists that contain none, as PyYAML by default before version 5.
    Leaves,
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Markers {
    Between,
    Before,
    BeforeAndAfter,
}

pub fn style() -> impl Strategy<Value = Style> {
    let flow = select(&[Flow::Never, Flow::Never, Flow::Leaves, Flow::Always][..]);
    let markers = select(&[Markers::Between, Markers::Before, Markers::BeforeAndAfter][..]);
    (flow, markers, any::<[bool; 5]>()).prop_map(
        |(flow, markers, [lists_indented, only_ascii, quotes, comments, floats])| Style {
            flow,
            lists_indented,
            only_ascii,
            quotes,
            comments,
            markers,
            floats,
        },
    )
}

/// The objects in a style. The seed decides on the rest, such as the quotes of a text.
pub fn print(objects: &[Value], style: Style, seed: u64) -> String {
    let mut printer = Printer { style, chance: seed | 1, out: String::new() };
    for (number, object) in objects.iter().enumerate() {
        if number > 0 || style.markers != Markers::Between {
            printer.out.push_str(if style.comments { "--- # the next\n" } else { "---\n" });
        }
        match style.flow {
            Flow::Always => printer.flow(object, 1),
            _ => printer.map(object, 0),
        }
        printer.end_line();
        if style.markers == Markers::BeforeAndAfter {
            printer.out.push_str("...\n");
        }
    }
    printer.out
}

/// Extra indentation of continued lines, so that they are deeper than everything around them.
const INNER: usize = 2;

struct Printer {
    style: Style,
    chance: u64,
    out: String,
}

impl Printer {
    /// Chooses one of several ways, each as probable.
    fn choose(&mut self, ways: u64) -> u64 {
        // Xorshift: good enough to vary styles.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        self.chance % ways
    }

    fn end_line(&mut self) {
        if !self.out.ends_with('\n') {
            self.out.push('\n');
        }
    }

    fn is_flow(&self, value: &Value) -> bool {
        let is_leaf = |value: &Value| !value.is_array() && !value.is_object();
        match value {
            Value::Array(items) => {
                items.is_empty() || self.style.flow == Flow::Leaves && items.iter().all(is_leaf)
            }
            Value::Object(map) => {
                map.is_empty() || self.style.flow == Flow::Leaves && map.values().all(is_leaf)
            }
            _ => true,
        }
    }

    /// The entries of a map, the first of which begins here.
    fn map(&mut self, map: &Value, indent: usize) {
        for (number, (key, value)) in map.as_object().into_iter().flatten().enumerate() {
            if number > 0 {
                self.begin_line(indent);
            }
            self.key(key, indent);
            self.value(value, indent);
        }
    }

    fn begin_line(&mut self, indent: usize) {
        self.end_line();
        // After a block with its last lines kept, a comment would be one of them.
        if self.style.comments && self.choose(4) == 0 && !self.out.ends_with("\n\n") {
            self.out.push_str(&format!("{}# a comment: 'with' \"signs\"\n", " ".repeat(indent)));
        }
        self.out.push_str(&" ".repeat(indent));
    }

    /// A key. If it does not fit a line, it stands after `? `.
    fn key(&mut self, key: &str, indent: usize) {
        if key.len() > 100 || key.contains('\n') || self.choose(20) == 0 {
            self.out.push_str("? ");
            let text = self.text(key, indent + INNER, true);
            self.out.push_str(&text);
            self.end_line();
            self.out.push_str(&format!("{}:", " ".repeat(indent)));
        } else {
            let text = self.one_line(key, false);
            self.out.push_str(&text);
            self.out.push(':');
        }
    }

    /// A value after a key.
    fn value(&mut self, value: &Value, indent: usize) {
        match value {
            value if self.is_flow(value) => {
                self.out.push(' ');
                self.scalar_or_flow(value, indent + INNER);
            }
            Value::Array(_) => {
                let indent = if self.style.lists_indented { indent + 2 } else { indent };
                self.begin_line(indent);
                self.list(value, indent);
            }
            _ => {
                self.begin_line(indent + 2);
                self.map(value, indent + 2);
            }
        }
    }

    /// The elements of a list, the first of which begins here.
    fn list(&mut self, list: &Value, indent: usize) {
        for (number, item) in list.as_array().into_iter().flatten().enumerate() {
            if number > 0 {
                self.begin_line(indent);
            }
            self.out.push_str("- ");
            match item {
                item if self.is_flow(item) => self.scalar_or_flow(item, indent + INNER),
                Value::Array(_) => self.list(item, indent + 2),
                _ => self.map(item, indent + 2),
            }
        }
    }

    fn scalar_or_flow(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => {
                let text = self.text(text, indent, true);
                self.out.push_str(&text);
            }
            _ => self.flow(value, indent),
        }
        let is_block = self.out.ends_with('\n')
            || self.out.rsplit('\n').next().is_some_and(|line| line.starts_with(' '));
        if self.style.comments && !is_block && self.choose(8) == 0 {
            self.out.push_str(" # a comment");
        }
    }

    fn flow(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => {
                let text = self.text(text, indent, false);
                self.out.push_str(&text);
            }
            Value::Array(items) => {
                self.out.push('[');
                for (number, item) in items.iter().enumerate() {
                    self.separate(number, indent);
                    self.flow(item, indent);
                }
                self.out.push(']');
            }
            Value::Object(map) => {
                self.out.push('{');
                for (number, (key, item)) in map.iter().enumerate() {
                    self.separate(number, indent);
                    let is_long = key.len() > 100;
                    let key = self.one_line(key, true);
                    self.out.push_str(&if is_long { format!("? {key} : ") } else { format!("{key}: ") });
                    self.flow(item, indent);
                }
                self.out.push('}');
            }
            Value::Number(number) => {
                let number = number.as_i64().map_or_else(|| number.to_string(), |number| self.number(number));
                self.out.push_str(&number);
            }
            Value::Null => {
                let word = if self.choose(2) == 0 { "null" } else { "~" };
                self.out.push_str(word);
            }
            Value::Bool(value) => self.out.push_str(if *value { "true" } else { "false" }),
        }
    }

    fn separate(&mut self, number: usize, indent: usize) {
        if number > 0 {
            self.out.push(',');
        }
        if number > 0 && self.choose(4) == 0 {
            self.out.push_str(&format!("\n{}", " ".repeat(indent)));
        } else if number > 0 {
            self.out.push(' ');
        }
    }

    fn number(&mut self, number: i64) -> String {
        #[expect(clippy::cast_precision_loss, reason = "they are small")]
        let float = number as f64;
        if !self.style.floats || self.choose(2) == 0 {
            return number.to_string();
        }
        if number.abs() < 1_000_000 {
            return format!("{float:.1}");
        }
        let printed = format!("{float:e}");
        let (digits, exponent) = printed.split_once('e').unwrap();
        format!("{digits}e+{:02}", exponent.parse::<u32>().unwrap())
    }

    /// A text on one line.
    fn one_line(&mut self, text: &str, in_flow: bool) -> String {
        let way = self.choose(3);
        if !self.style.quotes && is_plain(text, in_flow) {
            return text.to_owned();
        }
        if way == 0 && is_single(text) && (!self.style.only_ascii || text.is_ascii()) {
            return single(text);
        }
        double(text, Double { only_ascii: self.style.only_ascii, wrapped: None })
    }

    /// A text that may take several lines, which are indented this much.
    fn text(&mut self, text: &str, indent: usize, in_block: bool) -> String {
        let as_it_is = !self.style.only_ascii || text.is_ascii();
        match self.choose(6) {
            0 | 1 if in_block && as_it_is && is_block(text) => literal(text, indent),
            2 if in_block && as_it_is && is_folded(text) => folded(text, indent),
            3 if as_it_is && is_single(text) => single_wrapped(text, indent),
            4 => double(text, Double { only_ascii: self.style.only_ascii, wrapped: Some(indent) }),
            _ => self.one_line(text, !in_block),
        }
    }
}
