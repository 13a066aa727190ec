//! Field paths and the causes collected by validation.

use std::fmt;

use serde_json::Value;

use super::{Cause, CauseReason, go_value};

/// Path of a field during validation. It lives on the stack and is formatted only for a cause.
#[derive(Clone, Copy)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
    Entry(&'a str),
}

impl<'a> Path<'a> {
    /// The path of a top-level field.
    pub(crate) const fn root(name: &'a str) -> Self {
        Self { parent: None, segment: Segment::Field(name) }
    }

    /// `self.name`
    pub(crate) const fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), segment: Segment::Field(name) }
    }

    /// `self[index]`
    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), segment: Segment::Index(index) }
    }

    /// `self[key]`, an entry of a map.
    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), segment: Segment::Key(key) }
    }

    /// An entry of the map at `self` where Kubernetes names the map alone.
    pub(crate) const fn entry(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), segment: Segment::Entry(key) }
    }

    fn unnamed_entry(&self) -> Option<String> {
        match self.segment {
            Segment::Entry(key) => Some(key.to_owned()),
            _ => None,
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Field(name) if self.parent.is_some() => write!(f, ".{name}"),
            Segment::Field(name) => f.write_str(name),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
            Segment::Entry(_) => Ok(()),
        }
    }
}

/// Maximum size of all causes together, in bytes. An object may have many causes, each with a large part of
/// it.
const SIZE_MAX: usize = 16 << 20;

/// The causes found so far, in the order in which Kubernetes reports them. Causes beyond a size that no
/// client reads are left out.
#[derive(Default)]
pub(crate) struct Causes {
    list: Vec<Cause>,
    /// Bytes of all fields and messages.
    size: usize,
}

impl Causes {
    pub(crate) fn into_vec(self) -> Vec<Cause> {
        self.list
    }

    /// The number of causes, which grows until they are full.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether further causes are left out.
    pub(crate) fn is_full(&self) -> bool {
        self.size >= SIZE_MAX
    }

    fn push(&mut self, reason: CauseReason, path: &Path<'_>, message: String) {
        if !self.is_full() {
            let cause = Cause { reason, field: path.to_string(), message, entry: path.unnamed_entry() };
            let entry = cause.entry.as_ref().map_or(0, String::len);
            self.size += cause.field.len() + cause.message.len() + entry;
            self.list.push(cause);
        }
    }

    fn push_with_detail(&mut self, reason: CauseReason, path: &Path<'_>, head: String, detail: &str) {
        let message = if detail.is_empty() { head } else { format!("{head}: {detail}") };
        self.push(reason, path, message);
    }

    pub(crate) fn required(&mut self, path: &Path<'_>, detail: &str) {
        self.push_with_detail(CauseReason::Required, path, "Required value".into(), detail);
    }

    /// An invalid value whose JSON in Go is that of the API; a string has a named type there.
    pub(crate) fn invalid(&mut self, path: &Path<'_>, value: &Value, detail: &str) {
        self.invalid_shown(path, &go_value::json(value), detail);
    }

    /// An invalid struct of this Go type.
    pub(crate) fn invalid_of(&mut self, path: &Path<'_>, ty: &str, value: &Value, detail: &str) {
        self.invalid_shown(path, &go_value::of_type(ty, value), detail);
    }

    /// An invalid plain string.
    pub(crate) fn invalid_str(&mut self, path: &Path<'_>, value: &str, detail: &str) {
        self.invalid_shown(path, &go_value::quoted(value), detail);
    }

    /// An invalid value, shown in the given form.
    pub(crate) fn invalid_shown(&mut self, path: &Path<'_>, shown: &str, detail: &str) {
        self.push_with_detail(CauseReason::Invalid, path, format!("Invalid value: {shown}"), detail);
    }

    /// An invalid plain string, with a cause for each detail.
    pub(crate) fn invalid_each(&mut self, path: &Path<'_>, value: &str, details: Vec<String>) {
        for detail in details {
            self.invalid_str(path, value, &detail);
        }
    }

    /// An invalid value, omitted from the message.
    pub(crate) fn invalid_omitted(&mut self, path: &Path<'_>, detail: &str) {
        self.push(CauseReason::Invalid, path, format!("Invalid value: {detail}"));
    }

    /// A value that is not among the supported ones; a string has a named type in Go.
    pub(crate) fn not_supported(&mut self, path: &Path<'_>, value: &Value, supported: &[&str]) {
        self.not_supported_shown(path, &go_value::json(value), supported);
    }

    /// The same of a plain string.
    pub(crate) fn not_supported_str(&mut self, path: &Path<'_>, value: &str, supported: &[&str]) {
        self.not_supported_shown(path, &go_value::quoted(value), supported);
    }

    fn not_supported_shown(&mut self, path: &Path<'_>, shown: &str, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|text| go_value::quoted(text)).collect();
        let message = format!("Unsupported value: {shown}: supported values: {}", supported.join(", "));
        self.push(CauseReason::NotSupported, path, message);
    }

    /// A duplicate plain string.
    pub(crate) fn duplicate_str(&mut self, path: &Path<'_>, value: &str) {
        self.duplicate_shown(path, &go_value::quoted(value));
    }

    /// A duplicate number, or string of a named type.
    pub(crate) fn duplicate(&mut self, path: &Path<'_>, value: &Value) {
        self.duplicate_shown(path, &go_value::json(value));
    }

    /// A duplicate, shown in the given form.
    pub(crate) fn duplicate_shown(&mut self, path: &Path<'_>, shown: &str) {
        self.push(CauseReason::Duplicate, path, format!("Duplicate value: {shown}"));
    }

    pub(crate) fn too_long(&mut self, path: &Path<'_>, max_bytes: usize) {
        self.push(CauseReason::TooLong, path, format!("Too long: may not be more than {max_bytes} bytes"));
    }

    pub(crate) fn too_many(&mut self, path: &Path<'_>, actual: usize, max: usize) {
        self.push(CauseReason::TooMany, path, format!("Too many: {actual}: must have at most {max} items"));
    }

    pub(crate) fn forbidden(&mut self, path: &Path<'_>, detail: &str) {
        self.push_with_detail(CauseReason::Forbidden, path, "Forbidden".into(), detail);
    }

    pub(crate) fn not_found(&mut self, path: &Path<'_>, value: &str) {
        self.not_found_because(path, value, "");
    }

    /// A name that does not exist, and where it was searched for.
    pub(crate) fn not_found_because(&mut self, path: &Path<'_>, value: &str, detail: &str) {
        let head = format!("Not found: {}", go_value::quoted(value));
        self.push_with_detail(CauseReason::NotFound, path, head, detail);
    }

    /// Refuses a number below zero.
    pub(crate) fn non_negative(&mut self, path: &Path<'_>, value: &Value) {
        if value.as_i64().is_some_and(|number| number < 0) {
            self.invalid(path, value, "must be greater than or equal to 0");
        }
    }

    /// Refuses a change of this value.
    pub(crate) fn immutable(&mut self, path: &Path<'_>, new: &Value, old: &Value) {
        if new != old {
            self.invalid(path, new, "field is immutable");
        }
    }

    /// Refuses a change of this struct of a Go type.
    pub(crate) fn immutable_of(&mut self, path: &Path<'_>, ty: &str, new: &Value, old: &Value) {
        if new != old {
            self.invalid_of(path, ty, new, "field is immutable");
        }
    }

    /// Refuses an absent or empty string, and one that is not in `supported`.
    pub(crate) fn required_enum(&mut self, path: &Path<'_>, value: &Value, supported: &[&str]) {
        match value.as_str().unwrap_or_default() {
            "" => self.required(path, ""),
            given if !supported.contains(&given) => self.not_supported(path, value, supported),
            _ => {}
        }
    }
}
