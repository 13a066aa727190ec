//! `metadata.managedFields`: which manager set which fields.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::super::Subresource;
use super::Conflict;
use super::field_set::FieldSet;

/// How a manager wrote its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Operation {
    /// Server-side apply: the manager specifies all fields that it wants.
    Apply,
    /// Any other write.
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The identity of a manager: its name, operation, API version and subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity<'a> {
    pub(super) name: &'a str,
    pub(super) operation: Operation,
    pub(super) api_version: &'a str,
    /// Empty for the object itself.
    pub(super) subresource: &'a str,
}

impl<'a> Identity<'a> {
    pub(super) fn new(
        name: &'a str,
        operation: Operation,
        api_version: &'a str,
        subresource: Subresource,
    ) -> Self {
        let subresource = match subresource {
            Subresource::Main => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Binding => "binding",
        };
        Self { name, operation, api_version, subresource }
    }

    /// The manager in the form of conflict messages.
    fn shown(&self) -> String {
        let mut shown = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            shown.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            shown.push_str(&format!(" using {}", self.api_version));
        }
        shown
    }
}

/// The fields of one manager. Most managers of an object are not affected by a write, and their entries are
/// not parsed.
#[derive(Clone, Debug)]
enum Fields<'a> {
    /// The unparsed `fieldsV1` of the stored entry with this number.
    Stored(usize, &'a Value),
    /// The parsed or new set.
    Known(FieldSet<'a>),
}

impl<'a> Fields<'a> {
    fn meet(&self, set: &FieldSet<'_>) -> bool {
        match self {
            Self::Stored(_, json) => set.meets(json),
            Self::Known(own) => !own.intersection(set).is_empty(),
        }
    }

    fn set(&self) -> FieldSet<'a> {
        match self {
            Self::Stored(_, json) => FieldSet::from_json(json),
            Self::Known(fields) => fields.clone(),
        }
    }

    /// The fields, for a change: the entry will be rewritten.
    fn known(&mut self) -> &mut FieldSet<'a> {
        if let Self::Stored(_, json) = self {
            *self = Self::Known(FieldSet::from_json(json));
        }
        match self {
            Self::Known(fields) => fields,
            Self::Stored(..) => unreachable!("just read"),
        }
    }
}

/// An entry of `managedFields`.
#[derive(Clone, Debug)]
struct Manager<'a> {
    identity: Identity<'a>,
    /// When the manager last changed something; RFC 3339.
    time: Option<&'a str>,
    fields: Fields<'a>,
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managers<'a>(Vec<Manager<'a>>);

/// An entry of `managedFields` to write.
pub(super) enum Entry {
    /// The stored entry with this number, unchanged.
    AsStored(usize),
    /// A new or changed entry.
    Changed(Value),
}

impl<'a> Managers<'a> {
    /// Reads entries of `metadata.managedFields`. `canonical` entries were written by
    /// [`into_entries`](Self::into_entries).
    pub(super) fn read(entries: &'a [Value], canonical: bool) -> Self {
        let mut managers: Vec<Manager<'a>> =
            entries.iter().enumerate().filter_map(|(number, entry)| read(number, entry)).collect();
        if !canonical {
            for manager in &mut managers {
                manager.fields.known();
            }
        }
        Self(managers)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The entries to write, in their order.
    pub(super) fn into_entries(mut self) -> Vec<Entry> {
        self.0.retain(|manager| !matches!(&manager.fields, Fields::Known(fields) if fields.is_empty()));
        self.0.sort_by_key(|manager| {
            let Identity { name, operation, api_version, subresource } = manager.identity;
            (operation, manager.time, name, api_version, subresource)
        });
        self.0.into_iter().map(entry).collect()
    }

    /// The fields of a manager.
    pub(super) fn fields(&self, identity: &Identity<'_>) -> FieldSet<'a> {
        let manager = self.0.iter().find(|manager| manager.identity == *identity);
        manager.map(|manager| manager.fields.set()).unwrap_or_default()
    }

    /// Replaces the fields of a manager, or adds it.
    pub(super) fn set(&mut self, identity: Identity<'a>, fields: FieldSet<'a>) {
        let fields = Fields::Known(fields);
        match self.0.iter_mut().find(|manager| manager.identity == identity) {
            Some(manager) => manager.fields = fields,
            None => self.0.push(Manager { identity, time: None, fields }),
        }
    }

    /// Records the time of a manager's write.
    pub(super) fn touch(&mut self, identity: &Identity<'_>, time: &'a str) {
        if let Some(manager) = self.0.iter_mut().find(|manager| manager.identity == *identity) {
            manager.fields.known();
            manager.time = Some(time);
        }
    }

    /// The fields of all managers.
    pub(super) fn owned(&self) -> FieldSet<'a> {
        let mut owned = FieldSet::default();
        // The first of several entries with one identity counts.
        let mut known = HashSet::new();
        for manager in self.0.iter().filter(|manager| known.insert(manager.identity)) {
            owned.absorb(manager.fields.set());
        }
        owned
    }

    /// Removes the `written` fields from all managers except `writer`, and the removed fields from all.
    /// Without `force`, a write to another manager's field is a conflict.
    pub(super) fn resolve(
        &mut self,
        writer: &Identity<'_>,
        written: &FieldSet<'_>,
        removed: &FieldSet<'_>,
        force: bool,
    ) -> Result<(), Vec<Conflict>> {
        let mut conflicts = Vec::new();
        let others = self.0.iter_mut().filter(|manager| manager.identity != *writer);
        for manager in others.filter(|manager| manager.fields.meet(written)) {
            let fields = manager.fields.known();
            if !force {
                let taken = fields.intersection(written).paths().into_iter();
                let shown = manager.identity.shown();
                conflicts.extend(taken.map(|field| Conflict { manager: shown.clone(), field }));
            }
            fields.subtract(written);
        }
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
        for manager in self.0.iter_mut().filter(|manager| manager.fields.meet(removed)) {
            manager.fields.known().subtract(removed);
        }
        Ok(())
    }
}

/// Removes the entries of `metadata.managedFields` from an object and returns them.
pub(super) fn take_entries(object: &mut Value) -> Vec<Value> {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    match metadata.and_then(|metadata| metadata.remove("managedFields")) {
        Some(Value::Array(entries)) => entries,
        _ => Vec::new(),
    }
}

/// Sets `metadata.managedFields` of an object with metadata; `stored` are the entries that were read.
pub(super) fn put_entries(object: &mut Value, mut stored: Vec<Value>, entries: Vec<Entry>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    let value = |entry| match entry {
        Entry::AsStored(number) => stored.get_mut(number).map(Value::take).unwrap_or_default(),
        Entry::Changed(value) => value,
    };
    let entries: Vec<Value> = entries.into_iter().map(value).collect();
    if entries.is_empty() {
        metadata.remove("managedFields");
    } else {
        metadata.insert("managedFields".into(), entries.into());
    }
}

fn read(number: usize, entry: &Value) -> Option<Manager<'_>> {
    let text = |field: &str| entry[field].as_str().unwrap_or_default();
    let operation = match entry["operation"].as_str()? {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let identity = Identity {
        name: text("manager"),
        operation,
        api_version: text("apiVersion"),
        subresource: text("subresource"),
    };
    Some(Manager {
        identity,
        time: entry["time"].as_str(),
        fields: Fields::Stored(number, &entry["fieldsV1"]),
    })
}

fn entry(manager: Manager<'_>) -> Entry {
    let fields = match manager.fields {
        Fields::Stored(number, _) => return Entry::AsStored(number),
        Fields::Known(fields) => fields,
    };
    let Identity { name, operation, api_version, subresource } = manager.identity;
    let mut entry = Map::new();
    entry.insert("manager".into(), json!(name));
    entry.insert("operation".into(), json!(operation.name()));
    entry.insert("apiVersion".into(), json!(api_version));
    if let Some(time) = manager.time {
        entry.insert("time".into(), json!(time));
    }
    entry.insert("fieldsType".into(), json!("FieldsV1"));
    entry.insert("fieldsV1".into(), fields.into_json());
    if !subresource.is_empty() {
        entry.insert("subresource".into(), json!(subresource));
    }
    Entry::Changed(Value::Object(entry))
}
