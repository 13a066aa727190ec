//! The documents of a file: where each ends, and whether it is JSON or YAML.
//!
//! A line that begins with `---` ends a document, whatever it is in: no text of YAML or JSON can contain such a line. A document
//! that begins with `{` is JSON, one object or several, if all of it is; otherwise it is YAML.

use std::rc::Rc;

use serde_json::Value;

use crate::node::Node;
use crate::source::{MARK, Source};
use crate::{SyntaxError, json, wording, yaml};

impl Source {
    /// All documents, each of which can be wrong alone. Empty documents are left out.
    pub fn documents(&self) -> Vec<Result<Rc<Node>, SyntaxError>> {
        let mut documents = Vec::new();
        for (start, text) in parts(self.text()) {
            let better = |error| wording::of_template(self.text(), error);
            documents.extend(read(text, start).into_iter().map(|document| document.map_err(better)));
        }
        documents.retain(|document| !matches!(document, Ok(node) if node.is_null()));
        documents
    }
}

/// The value of a text that has one document, as the body of a request has.
///
/// # Errors
/// The text is neither JSON nor YAML, or has no document, or several.
pub fn value(bytes: &[u8]) -> Result<Value, SyntaxError> {
    let source = Source::new(bytes);
    let mut documents = source.documents().into_iter();
    match (documents.next(), documents.next()) {
        (None, _) => Ok(Value::Null),
        (Some(document), None) => Ok(document?.to_value()),
        (Some(_), Some(second)) => {
            Err(second.map_or_else(|error| error, |second| SyntaxError::new(second.at, "a second document")))
        }
    }
}

/// The documents of one part of a file.
fn read(mut text: &str, mut start: usize) -> Vec<Result<Rc<Node>, SyntaxError>> {
    let mut documents = Vec::new();
    loop {
        let objects = without_comments(text);
        if !objects.starts_with('{') {
            documents.push(yaml::read(text, start));
            return documents;
        }
        start += text.len() - objects.len();
        let json::Objects { read, rest } = json::read(objects, start);
        documents.extend(read);
        let Some((begin, not_json)) = rest else { return documents };
        text = &objects[begin..];
        if !text.trim_start().starts_with('#') {
            // The author meant the format that explains more of the text.
            let is_cut = not_json.at >= start + objects.trim_end().len();
            let better = |not_yaml: SyntaxError| {
                if not_yaml.at > not_json.at && !is_cut { not_yaml } else { not_json }
            };
            documents.push(yaml::read(text, start + begin).map_err(better));
            return documents;
        }
        start += begin;
    }
}

/// The text without blank lines and lines of comment at its beginning. YAML has comments, and so have files of JSON objects that
/// people edit.
fn without_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    while rest.starts_with('#') {
        rest = rest.find('\n').map_or("", |end| rest[end..].trim_start());
    }
    rest
}

/// The parts of a text between lines that begin with `---`, and where they begin. Each may begin with a mark, which is no part of
/// it: that is so in files that were joined.
fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut begin, mut at) = (0, 0);
    for line in text.split_inclusive('\n') {
        if let Some(rest) = line.trim_start_matches(MARK).strip_prefix("---")
            && (rest.is_empty() || rest.starts_with(char::is_whitespace))
        {
            parts.push((begin, without_last_directives(&text[begin..at])));
            // A document may begin on the line itself.
            let is_empty = rest.trim_start().is_empty() || rest.trim_start().starts_with('#');
            begin = if is_empty { at + line.len() } else { at };
        }
        at += line.len();
    }
    parts.push((begin, &text[begin..]));
    let unmarked = |(begin, part): (usize, &'_ str)| {
        let rest = part.trim_start_matches(MARK);
        (begin + part.len() - rest.len(), &text[begin + part.len() - rest.len()..begin + part.len()])
    };
    parts.into_iter().map(unmarked).filter(|(_, part)| !is_only_directives(part)).collect()
}

/// The part without `%YAML` lines at its end. In joined files, they belong to the next document.
fn without_last_directives(part: &str) -> &str {
    let mut rest = part;
    loop {
        let line = rest.trim_end().rfind('\n').map_or(0, |end| end + 1);
        if !rest[line..].starts_with(DIRECTIVE) {
            return rest;
        }
        rest = &rest[..line];
    }
}

/// The begin of a line that says which version of YAML follows.
const DIRECTIVE: &str = "%YAML ";

/// Whether a part says only which version of YAML follows.
fn is_only_directives(part: &str) -> bool {
    let mut lines = part.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.all(|line| line.starts_with(DIRECTIVE))
}
