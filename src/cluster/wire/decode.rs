//! How objects of the API server are read: one decoder for each kind.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::protobuf::Malformed;
use crate::job::short_text::short;

/// Why a body could not be decoded. The message is short, although the JSON parser quotes texts of the body.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {}", short(&.0.to_string()))]
    Json(#[from] serde_json::Error),
    /// The body is not a protobuf message, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {0}")]
    Protobuf(#[from] Malformed),
    /// A field that every stored object has is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Reading it ended in a panic: a fault of this program, or of a library.
    #[error("it cannot be read because of a fault of this program")]
    Fault,
}

/// Reads one object. A fault that its author has found makes it unreadable, and costs no other object.
pub(crate) fn guarded<T>(read: impl FnOnce() -> Result<T, DecodeError>) -> Result<T, DecodeError> {
    // State that decoders share, such as interned texts, is whole after each step.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or(Err(DecodeError::Fault))
}

/// `Accept` for kinds that are read in JSON only.
pub(crate) const JSON: &str = "application/json";
/// `Accept` as Kubernetes' own clients send it: API servers without protobuf for a resource answer in JSON.
const PROTOBUF_FIRST: &str = "application/vnd.kubernetes.protobuf, application/json";

/// Reads an object from its protobuf message, without the envelope.
pub type FromProtobuf<D> = fn(&D, &[u8]) -> Result<<D as Decoder>::Object, DecodeError>;

/// Decodes one kind of API object.
pub trait Decoder: Clone + Send + Sync + 'static {
    /// The JSON, borrowed from the body.
    type Wire<'a>: serde::Deserialize<'a>;
    /// The part of an object that is kept.
    type Object: Send + 'static;

    /// Keeps the fields of an object that matter.
    ///
    /// # Errors
    /// When the object lacks a field that every stored object has.
    fn observe(&self, wire: Self::Wire<'_>) -> Result<Self::Object, DecodeError>;

    /// The reader for protobuf, for kinds where it is worth having one.
    const FROM_PROTOBUF: Option<FromProtobuf<Self>> = None;

    /// `Accept` for lists and watches of this kind.
    const ACCEPT: &str = if Self::FROM_PROTOBUF.is_some() { PROTOBUF_FIRST } else { JSON };

    /// `metadata.resourceVersion` as a number: the later of two readings has the larger one.
    fn version(object: &Self::Object) -> u64;

    /// The approximate memory of an object, if the authors of objects choose how much that is.
    fn bytes(_object: &Self::Object) -> usize {
        size_of::<Self::Object>()
    }

    /// Decodes one object.
    ///
    /// # Errors
    /// When the bytes are not an object of this kind.
    fn decode(&self, json: &[u8]) -> Result<Self::Object, DecodeError> {
        guarded(|| self.observe(serde_json::from_slice(json)?))
    }
}
