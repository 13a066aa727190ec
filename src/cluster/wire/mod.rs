//! What the API server says and hears: bytes to the types of [`crate::job`], and those back to patches.
//!
//! Objects are decoded in one pass into borrowed, trimmed structs and from there into the owned types. Unknown fields
//! are skipped without being built, so `managedFields`, volumes, images and the like cost their scanning only, and in
//! protobuf not even that (invariant 8: small objects).

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
    /// It is not JSON, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {0}")]
    Json(#[from] serde_json::Error),
    /// It is no message, or a field has a type that Kubernetes does not give it.
    #[error("malformed object: {0}")]
    Protobuf(#[from] Malformed),
    /// A field is missing that every stored object has.
    #[error("{0} is missing")]
    Missing(&'static str),
}

/// Reads an object out of its message, without the envelope.
pub type FromProtobuf<D> = fn(&D, &[u8]) -> Result<<D as Decoder>::Object, DecodeError>;

/// One kind of API object and how to read it.
pub trait Decoder: Clone + Send + Sync + 'static {
    /// The JSON, borrowed from the body.
    type Wire<'a>: serde::Deserialize<'a>;
    /// What is kept of an object.
    type Object: Send + 'static;

    /// Keeps what matters of an object.
    ///
    /// # Errors
    /// When the object lacks a field that every stored object has.
    fn observe(&self, wire: Self::Wire<'_>) -> Result<Self::Object, DecodeError>;

    /// How to read an object in protobuf, where that is worth it.
    const FROM_PROTOBUF: Option<FromProtobuf<Self>> = None;

    /// `metadata.resourceVersion` as a number: the later of two readings has the larger.
    fn version(object: &Self::Object) -> u64;

    /// The object of this event of a watch (JSON), if the event tells of a change that is known without it.
    fn recall(&self, _event: &[u8]) -> Option<Self::Object> {
        None
    }

    /// Decodes one object.
    ///
    /// # Errors
    /// When the bytes are no such object.
    fn decode(&self, json: &[u8]) -> Result<Self::Object, DecodeError> {
        self.observe(serde_json::from_slice(json)?)
    }
}
