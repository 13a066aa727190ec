//! Invalid values as Kubernetes' messages print them.
//!
//! Plain Go strings are printed like `%q`. All other values are encoded in JSON as Go does, including strings
//! of a named type and pointers to strings. Rules written by hand see objects in the API server's internal
//! types. These types have no JSON tags: their JSON has the names and the order of the Go fields, and
//! contains unset fields. Types of `meta/v1` are the same inside and outside. Rules that are declared in the
//! API's own types see those, whose JSON is that of the API.

use std::fmt::Write as _;
use std::sync::LazyLock;

use fnv::FnvHashMap;
use serde_json::Value;

/// The types that messages print: a line with the type's name, then a line per field. A field has its name in
/// the message, the path of its value in the API's JSON, and its form ([`Form`]). The path `.` is the object
/// itself. The name `-` means that the fields of the inner struct are printed as fields of the outer one.
static TYPES: &str = include_str!("go_types.txt");

/// Unchanged lines around a change.
const DIFF_CONTEXT: usize = 3;

static TABLE: LazyLock<FnvHashMap<&'static str, Vec<Field>>> = LazyLock::new(|| parse(TYPES));

struct Field {
    name: &'static str,
    path: &'static str,
    /// Whether an absent value is left out.
    omitted: bool,
    form: Form,
}

enum Form {
    /// Printed as it is, or as this text if it is absent.
    Plain(&'static str),
    /// `core.Probe`: a struct, printed even if it is absent.
    Struct(&'static str),
    /// `*core.Probe`: a struct, null if it is absent.
    Pointer(&'static str),
    /// `[]core.Probe`: a list of structs, null if it is absent.
    List(&'static str),
}

/// Parses the table. It skips malformed lines; a test checks that there are none.
fn parse(text: &'static str) -> FnvHashMap<&'static str, Vec<Field>> {
    let mut types: FnvHashMap<&str, Vec<Field>> = FnvHashMap::default();
    let mut current = "";
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            [name] => current = name,
            [name, path, form] => {
                let (omitted, form) = form.strip_prefix('?').map_or((false, *form), |form| (true, form));
                let form = Form::parse(form);
                types.entry(current).or_default().push(Field { name, path, omitted, form });
            }
            _ => {}
        }
    }
    types
}

impl Form {
    fn parse(text: &'static str) -> Self {
        match (text.strip_prefix('*'), text.strip_prefix("[]")) {
            (Some(name), _) => Self::Pointer(name),
            (_, Some(name)) => Self::List(name),
            _ if text.contains('.') => Self::Struct(text),
            _ => Self::Plain(text),
        }
    }
}

/// A value in the form of Go's JSON encoder.
pub(super) fn json(value: &Value) -> String {
    escape(&value.to_string())
}

/// Escapes what Go's encoder escapes and others do not; it occurs only within strings.
fn escape(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

/// A value, null if absent, as the JSON of a Go type that is in the table, such as `batch.SuccessPolicy`.
pub(super) fn of_type(ty: &str, value: &Value) -> String {
    let mut out = String::new();
    write_struct_or_null(&mut out, ty, value);
    escape(&out)
}

/// The same of a list.
pub(super) fn of_list(ty: &str, list: &Value) -> String {
    let mut out = String::new();
    write_list(&mut out, ty, list);
    escape(&out)
}

/// The changes from one value of a Go type to another: a unified diff of their indented JSON.
pub(super) fn difference(ty: &str, old: &Value, new: &Value) -> String {
    let [old, new] = [old, new].map(|value| indented(&of_type(ty, value)) + "\n");
    similar::TextDiff::from_lines(&old, &new).unified_diff().context_radius(DIFF_CONTEXT).to_string()
}

/// JSON without spaces, in lines that are indented by a space a level.
fn indented(json: &str) -> String {
    let (mut out, mut depth, mut in_text, mut escaped) = (String::new(), 0, false, false);
    let new_line = |out: &mut String, depth| {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', depth));
    };
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_text {
            out.push(c);
            (in_text, escaped) = (escaped || c != '"', !escaped && c == '\\');
            continue;
        }
        match c {
            '{' | '[' => {
                out.push(c);
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        new_line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth -= 1;
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c => {
                in_text = c == '"';
                out.push(c);
            }
        }
    }
    out
}

fn write_struct_or_null(out: &mut String, ty: &str, value: &Value) {
    if value.is_null() {
        out.push_str("null");
        return;
    }
    out.push('{');
    write_fields(out, ty, value);
    out.push('}');
}

fn write_fields(out: &mut String, ty: &str, value: &Value) {
    for Field { name, path, omitted, form } in TABLE.get(ty).map_or(&[][..], Vec::as_slice) {
        let value = match *path {
            "." => value,
            path => path.split('.').fold(value, |value, part| &value[part]),
        };
        if *omitted && value.is_null() {
            continue;
        }
        if let ("-", Form::Struct(inner)) = (*name, form) {
            write_fields(out, inner, value);
            continue;
        }
        if !out.ends_with('{') {
            out.push(',');
        }
        out.push('"');
        out.push_str(name);
        out.push_str("\":");
        match form {
            Form::Plain(zero) if value.is_null() => out.push_str(zero),
            Form::Plain(_) => out.push_str(&value.to_string()),
            Form::Pointer(ty) => write_struct_or_null(out, ty, value),
            Form::List(ty) => write_list(out, ty, value),
            Form::Struct(ty) => {
                out.push('{');
                write_fields(out, ty, value);
                out.push('}');
            }
        }
    }
}

fn write_list(out: &mut String, ty: &str, list: &Value) {
    let Some(list) = list.as_array() else { return out.push_str("null") };
    out.push('[');
    for (index, value) in list.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_struct_or_null(out, ty, value);
    }
    out.push(']');
}

/// A text like Go's `%q`.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            c if c.is_ascii_control() => drop(write!(quoted, "\\x{:02x}", u32::from(c))),
            c if is_printable(c) => quoted.push(c),
            c if u32::from(c) <= 0xffff => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => drop(write!(quoted, "\\U{:08x}", u32::from(c))),
        }
    }
    quoted.push('"');
    quoted
}

/// Whether Go's `%q` shows the character as it is. The criterion is that of Rust's own debug form, which
/// escapes a combining mark only at the beginning of a text.
fn is_printable(c: char) -> bool {
    c.is_ascii() || ["a", &String::from(c)].concat().escape_debug().count() == 2
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::rules::schema::definitions;

    #[test]
    fn every_line_is_a_type_or_a_field_of_known_form() {
        let fields = TYPES.lines().filter(|line| line.contains(' ')).count();
        assert_eq!(TABLE.values().map(Vec::len).sum::<usize>(), fields);
        let names: Vec<&str> = TYPES.lines().filter(|line| !line.contains(' ')).collect();
        assert!(names.is_sorted());
        for Field { form, name, omitted, .. } in TABLE.values().flatten() {
            match form {
                Form::Struct(ty) | Form::Pointer(ty) | Form::List(ty) => {
                    assert!(TABLE.contains_key(ty), "{ty}");
                }
                Form::Plain(zero) => {
                    assert!(*omitted || serde_json::from_str::<Value>(zero).is_ok(), "{name} {zero}");
                    assert_ne!(*name, "-");
                }
            }
        }
    }

    /// First and last parts of the paths of all fields, including those of structs at the same place.
    fn parts(ty: &str) -> Vec<&'static str> {
        let mut parts = Vec::new();
        for Field { path, form, .. } in &TABLE[ty] {
            match form {
                Form::Struct(inner) if *path == "." => parts.extend(self::parts(inner)),
                _ => parts.extend(path.split('.')),
            }
        }
        parts
    }

    /// No field of the API is forgotten, except for a deprecated one that the internal type does not have.
    #[test]
    fn every_property_of_the_api_is_printed() {
        let (definitions, mut compared) = (definitions(), 0);
        for ty in TABLE.keys() {
            let (package, name) = ty.split_once('.').unwrap();
            let package = if package == "meta" { "machinery.pkg.apis.meta" } else { &format!(".{package}") };
            let Some(definition) = definitions.get(&format!("io.k8s.api{package}.v1.{name}")) else {
                continue;
            };
            let known = parts(ty);
            for property in definition["properties"].as_object().unwrap().keys() {
                let printed = known.contains(&property.as_str());
                assert!(
                    printed || (*ty, property.as_str()) == ("core.PodSpec", "serviceAccount"),
                    "{ty} {property}"
                );
                compared += 1;
            }
        }
        assert!(compared > 400, "{compared}");
    }

    #[test]
    fn texts_are_quoted_as_go_does() {
        let cases = [
            ("a<b", r#""a<b""#, r#""a\u003cb""#),
            ("\u{7}\u{7f}\u{1}", r#""\a\x7f\x01""#, "\"\\u0007\u{7f}\\u0001\""),
            ("\"\\\t", r#""\"\\\t""#, r#""\"\\\t""#),
            (
                "é\u{301}\u{200b}\u{a0}\u{e000}",
                "\"é\u{301}\\u200b\\u00a0\\ue000\"",
                "\"é\u{301}\u{200b}\u{a0}\u{e000}\"",
            ),
            ("\u{2028}\u{10ffff}", r#""\u2028\U0010ffff""#, "\"\\u2028\u{10ffff}\""),
        ];
        for (text, plain, typed) in cases {
            assert_eq!((quoted(text).as_str(), json(&text.into()).as_str()), (plain, typed));
        }
    }

    #[test]
    fn changes_are_shown_as_a_unified_diff() {
        let [old, new] = [json!({"key": "a:{"}), json!({"key": "a:{", "operator": "Exists"})];
        let wanted = "@@ -1,6 +1,6 @@\n {\n  \"Key\": \"a:{\",\n- \"Operator\": \"\",\n+ \"Operator\": \"Exists\",\n  \"Value\": \"\",\n  \"Effect\": \"\",\n  \"TolerationSeconds\": null\n";
        assert_eq!(difference("core.Toleration", &old, &new), wanted);
        assert_eq!(indented(r#"{"a\"":[],"b":[{}]}"#), "{\n \"a\\\"\": [],\n \"b\": [\n  {}\n ]\n}");
    }

    #[test]
    fn internal_types_are_printed_with_their_own_names_order_and_unset_fields() {
        let volume = json!({"name": "v", "emptyDir": {"sizeLimit": "1Gi"}});
        let printed = of_type("core.Volume", &volume);
        let start = r#"{"Name":"v","HostPath":null,"EmptyDir":{"Medium":"","SizeLimit":"1Gi"},"GCEPersistentDisk":null"#;
        assert!(printed.starts_with(start), "{printed}");
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"hostPID": true}});
        let printed = of_type("core.PodTemplateSpec", &template);
        assert!(printed.starts_with(r#"{"labels":{"a":"b"},"Spec":{"Volumes":null,"#), "{printed}");
        assert!(printed.contains(r#""SecurityContext":{"HostNetwork":false,"HostPID":true,"#), "{printed}");
        assert_eq!(of_type("batch.SuccessPolicy", &Value::Null), "null");
    }
}
