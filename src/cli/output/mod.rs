//! `--output`: objects for programs, in kubectl's formats.

mod jsonpath;

use serde::Serialize;

use self::jsonpath::Template;
use crate::telemetry::printable::{self, OneLine};

/// How an object is written.
#[derive(Clone, Debug)]
pub(super) enum Format {
    Json,
    Yaml,
    /// Kind and name of each Job, a line each.
    Name,
    /// The values that a template finds.
    JsonPath(Template),
}

/// The formats of a table, and those of objects.
#[derive(Clone, Debug)]
pub(super) enum TableFormat {
    /// The table with more columns.
    Wide,
    Object(Format),
}

/// Reads a format of objects.
pub(super) fn parse(text: &str) -> Result<Format, String> {
    match text.split_once('=') {
        None if text == "json" => Ok(Format::Json),
        None if text == "yaml" => Ok(Format::Yaml),
        None if text == "name" => Ok(Format::Name),
        Some(("jsonpath", template)) => template.parse().map(Format::JsonPath),
        None if text == "jsonpath" => {
            Err("jsonpath needs a template: jsonpath='{.status.failed}'".to_owned())
        }
        _ => Err("expected json, yaml, name or jsonpath=TEMPLATE".to_owned()),
    }
}

/// Reads a format of objects or of a table.
pub(super) fn parse_table(text: &str) -> Result<TableFormat, String> {
    match text {
        "wide" => Ok(TableFormat::Wide),
        _ => parse(text)
            .map(TableFormat::Object)
            .map_err(|error| error.replace("expected ", "expected wide, ")),
    }
}

impl Format {
    /// The text of an object; `names` are those of its Jobs, and JSON is on one line if it is `dense`.
    pub(super) fn text<'a>(
        &self,
        object: &impl Serialize,
        names: impl Iterator<Item = &'a str>,
        dense: bool,
    ) -> serde_json::Result<String> {
        Ok(match self {
            Self::Json if dense => printable::json(&serde_json::to_string(object)?) + "\n",
            Self::Json => printable::json(&serde_json::to_string_pretty(object)?) + "\n",
            Self::Yaml => {
                let text = serde_saphyr::to_string(object)
                    .map_err(<serde_json::Error as serde::ser::Error>::custom)?;
                printable::yaml(text, object)?
            }
            Self::Name => names.map(|name| format!("job.batch/{}\n", OneLine(name))).collect(),
            Self::JsonPath(template) => template.text(&serde_json::to_value(object)?),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_written_in_each_format() {
        let object = json!({"a": [1, 2]});
        for (format, text) in [
            ("json", "{\n  \"a\": [\n    1,\n    2\n  ]\n}\n"),
            ("yaml", "a:\n- 1\n- 2\n"),
            ("name", "job.batch/train\n"),
            ("jsonpath={.a[*]}", "1 2"),
        ] {
            let written = parse(format).unwrap().text(&object, ["train"].into_iter(), false).unwrap();
            assert_eq!(written.replace("  - ", "- "), text, "{format}");
        }
    }

    #[test]
    fn a_name_controls_no_terminal_and_forges_no_line() {
        let names = ["a\u{1b}[2J\njob.batch/b"].into_iter();
        let written = Format::Name.text(&json!({}), names, false).unwrap();
        assert_eq!(written, "job.batch/a\\u{1b}[2J job.batch/b\n");
    }

    #[test]
    fn a_wrong_format_names_the_right_ones() {
        assert!(parse("wide").is_err_and(|error| error == "expected json, yaml, name or jsonpath=TEMPLATE"));
        assert!(parse_table("xml").is_err_and(|error| error.starts_with("expected wide, json")));
        assert!(parse("jsonpath").is_err_and(|error| error.contains("needs a template")));
        assert!(matches!(parse_table("wide"), Ok(TableFormat::Wide)));
    }
}
