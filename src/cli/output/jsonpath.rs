//! Templates of `-o jsonpath`, as kubectl reads them: text with paths in braces, `{range PATH}...{end}`, and quoted text.
//!
//! The paths are kubectl's dialect. They are rewritten into that of RFC 9535, which a library evaluates.

use std::str::FromStr;

use jsonpath_rust::parser::model::JpQuery;
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::js_path_process;
use serde_json::Value;

use crate::telemetry::printable::AllLines;

/// A template.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// The values that a path finds, with spaces between them.
    Values(Path),
    /// The parts for each value that a path finds.
    Range(Path, Vec<Part>),
}

#[derive(Clone, Debug)]
struct Path {
    query: JpQuery,
    /// It begins at the whole object, also within a range.
    from_root: bool,
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains('{') {
            return Err(format!("a path stands in braces: jsonpath='{{{text}}}'"));
        }
        // The parts of each range that has begun, below those of the template.
        let mut open: Vec<(Option<Path>, Vec<Part>)> = vec![(None, Vec::new())];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let end = closing(after, '{', '}').ok_or("a { has no }")?;
            let inner = after[..end].trim();
            let part = match inner.split_once(char::is_whitespace) {
                Some(("range", path)) => {
                    push(&mut open, Part::Text(before.to_owned()))?;
                    open.push((Some(path.trim().parse()?), Vec::new()));
                    None
                }
                _ if inner == "end" => {
                    push(&mut open, Part::Text(before.to_owned()))?;
                    match open.pop() {
                        Some((Some(path), parts)) => Some(Part::Range(path, parts)),
                        _ => return Err("{end} without {range}".to_owned()),
                    }
                }
                _ => {
                    push(&mut open, Part::Text(before.to_owned()))?;
                    Some(match quoted(inner) {
                        Some(text) => Part::Text(text),
                        None => Part::Values(inner.parse()?),
                    })
                }
            };
            if let Some(part) = part {
                push(&mut open, part)?;
            }
            rest = &after[end + 1..];
        }
        push(&mut open, Part::Text(rest.to_owned()))?;
        match (open.pop(), open.is_empty()) {
            (Some((None, parts)), true) => Ok(Self(parts)),
            _ => Err("{range} without {end}".to_owned()),
        }
    }
}

/// Adds a part to the innermost range.
fn push(open: &mut [(Option<Path>, Vec<Part>)], part: Part) -> Result<(), String> {
    let (_, parts) = open.last_mut().ok_or("{end} without {range}")?;
    parts.push(part);
    Ok(())
}

/// Where the text before the letter `end` ends. Quoted text and pairs of `begin` and `end` are parts of the text.
fn closing(text: &str, begin: char, end: char) -> Option<usize> {
    let (mut quote, mut escaped, mut depth) = (None, false, 0_usize);
    text.char_indices().find_map(|(place, letter)| {
        match (quote, letter) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (Some(open), _) if open == letter => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, _) if letter == begin => depth += 1,
            (None, _) if letter == end && depth == 0 => return Some(place),
            (None, _) if letter == end => depth -= 1,
            (None, _) => {}
        }
        None
    })
}

/// Text in quotes, with its escapes.
fn quoted(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let (mut letters, mut out) = (inner.chars(), String::new());
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' => match letters.next()? {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            },
            other => other,
        });
    }
    Some(out)
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let from_root = text.starts_with('$');
        let relative = text.strip_prefix(['$', '@']).unwrap_or(text);
        let query =
            standard(relative).ok_or_else(|| format!("{text}: expected a path such as .status.failed"))?;
        match parse_json_path(&query) {
            Ok(query) => Ok(Self { query, from_root }),
            Err(_) => Err(format!("{text}: not a path that can be read")),
        }
    }
}

/// A path of kubectl in the notation of RFC 9535, where names of any letters stand in brackets and quotes.
fn standard(path: &str) -> Option<String> {
    let (mut rest, mut out) = (path, "$".to_owned());
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after, '[', ']')?;
            out.push_str(&rest[..end + 2]);
            rest = &rest[end + 2..];
            continue;
        }
        let descends = rest.starts_with("..");
        rest = if descends { &rest[2..] } else { rest.strip_prefix('.')? };
        if descends {
            out.push_str("..");
        }
        if rest.starts_with('[') || rest.is_empty() && !descends {
            continue;
        }
        let (name, after) = name(rest)?;
        match name.as_str() {
            "*" => out.push_str("[*]"),
            name => out.push_str(&format!("[{}]", Value::from(name))),
        }
        rest = after;
    }
    Some(out)
}

/// The name at the beginning of a path, in which a backslash makes the next letter a part of it.
fn name(path: &str) -> Option<(String, &str)> {
    let (mut name, mut escaped) = (String::new(), false);
    for (place, letter) in path.char_indices() {
        match letter {
            _ if escaped => {
                name.push(letter);
                escaped = false;
            }
            '\\' => escaped = true,
            '.' | '[' => return (!name.is_empty()).then(|| (name, &path[place..])),
            letter if letter.is_whitespace() => return None,
            letter => name.push(letter),
        }
    }
    (!name.is_empty()).then_some((name, ""))
}

impl Template {
    /// The text that the template makes of an object. Characters that would control a terminal are escaped.
    pub(in crate::cli) fn text(&self, object: &Value) -> String {
        let mut out = String::new();
        write(&self.0, object, object, &mut out);
        AllLines(&out).to_string()
    }
}

fn write(parts: &[Part], root: &Value, current: &Value, out: &mut String) {
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Values(path) => {
                let found: Vec<_> = path.find(root, current).into_iter().map(shown).collect();
                out.push_str(&found.join(" "));
            }
            Part::Range(path, parts) => {
                path.find(root, current).into_iter().for_each(|value| write(parts, root, value, out));
            }
        }
    }
}

impl Path {
    /// The values; none where a field is missing.
    fn find<'a>(&self, root: &'a Value, current: &'a Value) -> Vec<&'a Value> {
        let from = if self.from_root { root } else { current };
        let found = js_path_process(&self.query, from).unwrap_or_default();
        found.into_iter().map(|found| found.val()).collect()
    }
}

/// A text as it is, other values as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn text(template: &str) -> String {
        let object = json!({
            "kind": "List",
            "items": [
                {"metadata": {"name": "a", "labels": {"app.example.com/part-of": "x"}}, "status": {"failed": 2}},
                {"metadata": {"name": "b"}, "status": {"succeeded": 3, "conditions": [
                    {"type": "Suspended", "status": "False"}, {"type": "Complete", "status": "True"},
                ]}},
            ],
        });
        template.parse::<Template>().unwrap().text(&object)
    }

    #[test]
    fn templates_are_those_of_kubectl() {
        for (template, expected) in [
            ("{.items[*].metadata.name}", "a b"),
            ("{$.kind}: {.items[0].status}", r#"List: {"failed":2}"#),
            ("{.items[-1:].metadata.name}", "b"),
            ("{..name}", "a b"),
            ("{.items[*]['metadata'].name}", "a b"),
            (r"{.items[0].metadata.labels.app\.example\.com/part-of}", "x"),
            (r#"{range .items[*]}{.metadata.name}={.status.succeeded}{"\n"}{end}"#, "a=\nb=3\n"),
            ("{range .items[*]}{@.metadata.name}{$.kind} {end}", "aList bList "),
            (r#"{.items[*].status.conditions[?(@.type=="Complete")].status}"#, "True"),
            ("{range .items[*]}{range .status.conditions[*]}{.type},{end}{end}", "Suspended,Complete,"),
            (r#"{.items[?(@.status.conditions[1].type=="Complete")].metadata.name}"#, "b"),
            (r#"{.items[*].status.conditions[?(@.type!="]")].type}"#, "Suspended Complete"),
            ("{.absent.field}", ""),
            (r"{'\t}'}{.kind}", "\t}List"),
        ] {
            assert_eq!(text(template), expected, "{template}");
        }
    }

    #[test]
    fn a_template_that_cannot_be_read_is_refused() {
        for (template, problem) in [
            (".items", "a path stands in braces: jsonpath='{.items}'"),
            ("{.a", "a { has no }"),
            ("{range .a}x", "{range} without {end}"),
            ("{end}", "{end} without {range}"),
            ("{name}", "name: expected a path such as .status.failed"),
            ("{.a[?(}", "a"),
        ] {
            let error = template.parse::<Template>().unwrap_err();
            assert!(error.contains(problem), "{template}: {error}");
        }
    }

    #[test]
    fn values_cannot_control_a_terminal() {
        let template: Template = "{.a}".parse().unwrap();
        assert_eq!(template.text(&json!({"a": "x\u{1b}[2J\ny"})), "x\\u{1b}[2J\ny");
    }
}
