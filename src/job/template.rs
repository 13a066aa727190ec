//! The pod template of a Job, and the pods made from it.

mod memory_asked;
mod meta;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use self::memory_asked::{MemoryAsked, TemplateMemory};
pub(super) use self::meta::FailureCounts;
use self::meta::{TemplateMeta, Texts};
use super::json::members;
use super::overlay::{Overlay, SpecFields};
use super::protobuf::{FieldError, Writer, field, next_field};
use super::short_text::short;

/// Longest text of a template that is kept, in bytes. Templates of public examples have up to 8 KB. The API
/// server allows 1.5 MB, of which a replica would hold one for each Job of each tenant.
pub const KEPT_BYTES: usize = 16 << 10;

/// `spec.template` of a Job. It is parsed when the first pod is made, and the parts that all pods share are
/// serialized once. Clones share the text and the parts.
///
/// The text is kept for Jobs that may create pods now, up to [`KEPT_BYTES`]. Otherwise only the answers that the rules need
/// are kept, and the Job is read again when pods are to be made ([`is_kept`](Self::is_kept)).
#[derive(Clone, Debug)]
pub struct PodTemplate {
    /// Absent if it is not kept.
    text: Option<Arc<RawValue>>,
    /// The length of its text in bytes, whether it is kept or not.
    length: usize,
    restarts_on_failure: bool,
    names_scheduling_group: bool,
    written: Arc<Written>,
}

/// The parts for each kind of pod, serialized on first use. In practice a Job uses one kind of parts only, since its
/// completion mode does not change.
#[derive(Debug, Default)]
struct Written {
    plain: OnceLock<Result<Arc<Parts>, TemplateError>>,
    indexed: OnceLock<Result<Arc<Parts>, TemplateError>>,
    protobuf: OnceLock<Arc<ProtobufParts>>,
    /// Read once for all pods that ask for more.
    memory: OnceLock<TemplateMemory>,
    /// The parts with the overlay that was asked for last: in general, pods that follow each other have the same.
    overlaid: Mutex<Option<Overlaid<Parts>>>,
    overlaid_protobuf: Mutex<Option<Overlaid<ProtobufParts>>>,
}

/// Parts with an overlay.
#[derive(Clone, Debug)]
struct Overlaid<T> {
    overlay: Arc<Overlay>,
    parts: Arc<T>,
}

/// The parts that all pods of a Job share, as fields of protobuf messages. With these, pods are created in protobuf, which
/// costs the API server less than JSON.
#[derive(Debug)]
pub(super) struct ProtobufParts {
    /// Entries of `metadata.labels`.
    pub(super) labels: Vec<u8>,
    /// Entries of `metadata.annotations`.
    pub(super) annotations: Vec<u8>,
    /// As [`Parts::failure_counts`].
    pub(super) failure_counts: FailureCounts<Vec<u8>>,
    /// Fields of `spec`, as [`Parts::spec`].
    pub(super) spec: Bytes,
    pub(super) finalizers: Vec<String>,
    /// Further pods are made in JSON.
    pub(super) are_avoided: AtomicBool,
}

/// Why no pod can be made from a template.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum TemplateError {
    /// The template is malformed.
    #[error("spec.template cannot be read: {0}")]
    Malformed(Box<str>),
    /// The name of the Job, of its namespace or of its gang has characters that no name has.
    #[error("{0:?} is no name")]
    NoName(Box<str>),
    /// The text of the template is not kept.
    #[error("spec.template is not known; the Job is read again")]
    NotKept,
}

impl From<serde_json::Error> for TemplateError {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(short(&error.to_string()).into())
    }
}

impl From<FieldError> for TemplateError {
    fn from(error: FieldError) -> Self {
        Self::Malformed(error.to_string().into())
    }
}

/// A template whose spec fields stay text: most of them are copied to pods unread.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Template<'a> {
    metadata: TemplateMeta,
    #[serde(borrow)]
    spec: BTreeMap<Cow<'a, str>, &'a RawValue>,
}

/// A template reduced to what the rules ask.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked<'a> {
    #[serde(borrow)]
    spec: AskedSpec<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AskedSpec<'a> {
    #[serde(borrow)]
    restart_policy: Option<Cow<'a, str>>,
    scheduling_group: Option<IgnoredAny>,
}

/// The parts that all pods of a Job share: the members of JSON objects, as text.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) labels: String,
    pub(super) annotations: String,
    pub(super) failure_counts: FailureCounts<String>,
    /// For Indexed Jobs with the index in every container's environment, and without `hostname`.
    pub(super) spec: String,
    pub(super) finalizers: Vec<String>,
}

impl PodTemplate {
    /// The template with its text, unparsed, however long it is.
    pub fn new(json: &RawValue) -> Self {
        Self { text: Some(Arc::from(json.to_owned())), ..Self::unkept(json) }
    }

    /// The template without its text.
    pub fn unkept(json: &RawValue) -> Self {
        let Asked { spec } = serde_json::from_str(json.get()).unwrap_or_default();
        Self {
            text: None,
            length: json.get().len(),
            restarts_on_failure: spec.restart_policy.as_deref() == Some("OnFailure"),
            names_scheduling_group: spec.scheduling_group.is_some(),
            written: Arc::default(),
        }
    }

    /// Whether pods can be made of it.
    pub fn is_kept(&self) -> bool {
        self.text.is_some()
    }

    /// The length of its text as far as that is kept.
    pub fn kept_bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.get().len())
    }

    /// The length of its text in bytes, whether it is kept or not.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Whether both have the same text. It is not known of those whose text is not kept.
    pub fn same_text(&self, other: &PodTemplate) -> bool {
        let texts = self.text.as_ref().zip(other.text.as_ref());
        texts.is_some_and(|(text, other)| Arc::ptr_eq(text, other) || text.get() == other.get())
    }

    /// The template without its text, and without the parts serialized for pods.
    #[must_use]
    pub fn dropped(&self) -> Self {
        Self { text: None, written: Arc::default(), ..*self }
    }

    /// Whether `spec.restartPolicy` is `OnFailure`: container restarts then count as failures.
    pub fn restarts_on_failure(&self) -> bool {
        self.restarts_on_failure
    }

    /// Whether `spec.schedulingGroup` is set: the user has chosen a group for the pods.
    pub fn names_scheduling_group(&self) -> bool {
        self.names_scheduling_group
    }

    /// Adds `spec` of the template in protobuf. It must be that of this very template, and is not used if it cannot be read.
    pub fn know_protobuf(&self, spec: Bytes, indexed: bool) {
        let read = |text: &Arc<RawValue>| {
            let spec = if indexed { at_index(&spec).ok()?.into() } else { spec };
            ProtobufParts::read(text, indexed, spec, &Overlay::default()).ok()
        };
        let parts = self.text.as_ref().and_then(read);
        if let Some(parts) = parts {
            // Known already: it is the same.
            let _ = self.written.protobuf.set(parts.into());
        }
    }

    /// Whether its spec in protobuf is known, or of no use.
    pub fn knows_protobuf(&self) -> bool {
        self.written.protobuf.get().is_some()
    }

    pub(super) fn protobuf_parts(&self) -> Option<Arc<ProtobufParts>> {
        self.written.protobuf.get().filter(|parts| !parts.are_avoided.load(Ordering::Relaxed)).cloned()
    }

    /// The memory that a container of the template asks for. Of a template that is not kept, nothing is known.
    pub(super) fn memory_of(&self, container: &str) -> MemoryAsked {
        let Some(text) = &self.text else { return MemoryAsked::default() };
        self.written.memory.get_or_init(|| TemplateMemory::read(text)).of(container)
    }

    /// The parts of pods of a Job with this completion mode.
    ///
    /// # Errors
    /// When the template is malformed, or not kept.
    pub(super) fn parts(&self, indexed: bool) -> Result<Arc<Parts>, TemplateError> {
        let kind = if indexed { &self.written.indexed } else { &self.written.plain };
        let text = self.text.as_ref().ok_or(TemplateError::NotKept)?;
        kind.get_or_init(|| Parts::read(text, indexed, &Overlay::default()).map(Arc::new)).clone()
    }

    /// These parts of the template with an overlay.
    ///
    /// # Errors
    /// When a field that the overlay changes is malformed, or the template is not kept.
    pub(super) fn overlaid(
        &self,
        indexed: bool,
        overlay: &Arc<Overlay>,
    ) -> Result<Arc<Parts>, TemplateError> {
        let text = self.text.as_ref().ok_or(TemplateError::NotKept)?;
        with_overlay(&self.written.overlaid, overlay, || Parts::read(text, indexed, overlay))
    }

    /// The same in protobuf.
    ///
    /// # Errors
    /// As [`overlaid`](Self::overlaid).
    pub(super) fn overlaid_in_protobuf(
        &self,
        indexed: bool,
        parts: &ProtobufParts,
        overlay: &Arc<Overlay>,
    ) -> Result<Arc<ProtobufParts>, TemplateError> {
        let text = self.text.as_ref().ok_or(TemplateError::NotKept)?;
        with_overlay(&self.written.overlaid_protobuf, overlay, || {
            let spec = overlay.added_to_protobuf(&parts.spec)?.into();
            ProtobufParts::read(text, indexed, spec, overlay)
        })
    }
}

/// The parts with this overlay: those that were made last, or new ones.
fn with_overlay<T>(
    last: &Mutex<Option<Overlaid<T>>>,
    overlay: &Arc<Overlay>,
    make: impl FnOnce() -> Result<T, TemplateError>,
) -> Result<Arc<T>, TemplateError> {
    // Poisoning is ignored: the parts are replaced in one step.
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = last.as_ref().filter(|known| known.overlay == *overlay) {
        return Ok(known.parts.clone());
    }
    let parts = Arc::new(make()?);
    *last = Some(Overlaid { overlay: overlay.clone(), parts: parts.clone() });
    Ok(parts)
}

/// The spec of a template in protobuf as pods with an index have it: without `hostname`, and with the index in every
/// container's environment.
fn at_index(spec: &[u8]) -> Result<Vec<u8>, FieldError> {
    let (mut rest, mut copy) = (spec, Writer::default());
    while !rest.is_empty() {
        let before = rest;
        let (number, _) = next_field(&mut rest)?;
        if number != field::HOSTNAME {
            copy.append(&before[..before.len() - rest.len()]);
        }
    }
    Overlay::of_index().added_to_protobuf(&copy.into_bytes())
}

impl Parts {
    fn read(json: &RawValue, indexed: bool, overlay: &Overlay) -> Result<Self, TemplateError> {
        let Template { metadata, spec } = serde_json::from_str(json.get())?;
        let given = spec.into_iter().filter(|(_, value)| value.get() != "null");
        let mut spec: SpecFields<'_> = given.map(|(field, value)| (field, Cow::Borrowed(value))).collect();
        if indexed {
            spec.remove("hostname");
            Overlay::of_index().add_to_json(&mut spec)?;
        }
        overlay.add_to_json(&mut spec)?;
        let texts = |given: Texts<'_>| members(&given.collect::<BTreeMap<_, _>>());
        Ok(Self {
            labels: texts(metadata.labels(indexed, overlay)),
            annotations: texts(metadata.annotations(indexed, overlay)),
            failure_counts: metadata.failure_counts(indexed, texts),
            spec: members(&spec),
            finalizers: metadata.finalizers.unwrap_or_default(),
        })
    }
}

impl ProtobufParts {
    fn read(json: &RawValue, indexed: bool, spec: Bytes, overlay: &Overlay) -> Result<Self, TemplateError> {
        let Template { metadata, .. } = serde_json::from_str(json.get())?;
        let entries = |number, given: Texts<'_>| {
            let mut writer = Writer::default();
            given.for_each(|(key, value)| writer.entry(number, key, value));
            writer.into_bytes()
        };
        Ok(Self {
            labels: entries(field::LABELS, metadata.labels(indexed, overlay)),
            annotations: entries(field::ANNOTATIONS, metadata.annotations(indexed, overlay)),
            failure_counts: metadata.failure_counts(indexed, |given| entries(field::ANNOTATIONS, given)),
            spec,
            finalizers: metadata.finalizers.unwrap_or_default(),
            are_avoided: AtomicBool::new(false),
        })
    }
}

#[cfg(test)]
mod tests;
