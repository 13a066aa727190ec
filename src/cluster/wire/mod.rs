//! The wire format: decodes answers of the API server into the types of [`crate::job`], and encodes patches.
//!
//! Objects are decoded in one pass into borrowed, trimmed structs and from there into the owned types.
//! Unknown fields are skipped without being built, so `managedFields`, volumes, images and the like only cost
//! their scanning, and in protobuf not even that (invariant 8: small objects).

mod condition;
mod gang;
mod intern;
mod job;
mod job_spec;
mod job_status;
mod labels;
mod meta;
mod outline;
mod patch;
mod pod;
pub(crate) mod protobuf;
mod refusal;
mod selector;
mod self_writes;
mod status_patch;
mod text;

pub use gang::{PodGroupDecoder, WorkloadDecoder};
pub use job::{JobDecoder, ObservedJob, UnknownCompletionMode};
pub use labels::Labels;
pub(crate) use meta::{Bare, ListMeta, Versioned};
pub use meta::{ControllerRef, ResourceVersion};
pub use outline::{JobOutline, OutlineDecoder};
pub use patch::{
    Adoption, adopt_patch, label_patch, orphan_patch, release_patch, untrack_patch, untrack_unchanged_patch,
};
pub use pod::{ObservedPod, PodDecoder};
pub use protobuf::Malformed;
pub use refusal::Refusal;
pub(crate) use refusal::WireRefusal;
pub use self_writes::SelfWriteCache;
pub use status_patch::status_patch;
pub(crate) use text::Text;

/// Why a body could not be decoded.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// The body is not JSON, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {0}")]
    Json(#[from] serde_json::Error),
    /// The body is not a protobuf message, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {0}")]
    Protobuf(#[from] Malformed),
    /// A field that every stored object has is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}

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

    /// `metadata.resourceVersion` as a number: the later of two readings has the larger one.
    fn version(object: &Self::Object) -> u64;

    /// The object of this watch event (JSON), if its version is already known and need not be decoded.
    fn recall(&self, _event: &[u8]) -> Option<Self::Object> {
        None
    }

    /// Decodes one object.
    ///
    /// # Errors
    /// When the bytes are not an object of this kind.
    fn decode(&self, json: &[u8]) -> Result<Self::Object, DecodeError> {
        self.observe(serde_json::from_slice(json)?)
    }
}
