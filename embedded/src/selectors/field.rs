//! Field selectors: `metadata.name=a,status.phase!=Running`.

use crate::object::Header;
use crate::resources::{Resource, UnknownField};

/// A term of a field selector.
#[derive(Clone, Debug)]
pub(super) struct Requirement {
    field: Selected,
    value: Box<str>,
    equal: bool,
}

#[derive(Clone, Copy, Debug)]
enum Selected {
    Name,
    Namespace,
    /// An index into the kind's own table of fields.
    Own(usize),
}

impl Requirement {
    pub(super) fn matches(&self, header: &Header) -> bool {
        let value = match self.field {
            Selected::Name => &header.name,
            Selected::Namespace => &header.namespace,
            Selected::Own(place) => match header.fields.get(place) {
                Some(value) => value,
                None => return !self.equal,
            },
        };
        (value == &self.value) == self.equal
    }
}

/// Parses a field selector with the selectable fields of the kind.
pub(super) fn parse(resource: &Resource, text: &str) -> Result<Vec<Requirement>, String> {
    split(text)
        .into_iter()
        .filter(|term| !term.is_empty())
        .map(|term| {
            let Some((label, equal, value)) = operator(&term) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{term}'"));
            };
            Ok(Requirement { field: select(resource, label)?, value: unescape(value)?, equal })
        })
        .collect()
}

fn select(resource: &Resource, label: &str) -> Result<Selected, String> {
    match label {
        "metadata.name" => return Ok(Selected::Name),
        "metadata.namespace" if resource.namespaced => return Ok(Selected::Namespace),
        _ => {}
    }
    if let Some(place) = resource.fields.iter().position(|field| field.label == label) {
        return Ok(Selected::Own(place));
    }
    Err(match resource.unknown_field {
        UnknownField::Label => format!("field label not supported: {label}"),
        UnknownField::LabelForKind => {
            format!("field label \"{label}\" not supported for {}", resource.kind)
        }
        UnknownField::Known => format!(
            "\"{label}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        ),
    })
}

/// Splits at commas that are not escaped by a backslash.
fn split(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for letter in text.chars() {
        if letter == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = letter == '\\' && !escaped;
        if let Some(term) = terms.last_mut() {
            term.push(letter);
        }
    }
    terms
}

/// The first operator of a term and its two operands.
fn operator(term: &str) -> Option<(&str, bool, &str)> {
    for (at, letter) in term.char_indices() {
        let tail = term.get(at..)?;
        if letter == '=' {
            let value = tail.strip_prefix("==").or_else(|| tail.strip_prefix('='))?;
            return Some((term.get(..at)?, true, value));
        }
        if let Some(value) = tail.strip_prefix("!=") {
            return Some((term.get(..at)?, false, value));
        }
    }
    None
}

fn unescape(value: &str) -> Result<Box<str>, String> {
    let mut plain = String::with_capacity(value.len());
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped @ ('\\' | ',' | '=')) => plain.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {letter}"));
            }
            _ => plain.push(letter),
        }
    }
    Ok(plain.into())
}
