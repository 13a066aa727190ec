//! The wire format: decodes answers of the API server into the types of [`crate::job`], and encodes patches.
//!
//! Objects are decoded in one pass into borrowed, trimmed structs and from there into the owned types.
//! Unknown fields are skipped without being built. So `managedFields`, volumes, images and the like only cost
//! their scanning, and in protobuf not even that (invariant 8: small objects).

mod condition;
mod decode;
mod gang;
mod intern;
mod job;
mod job_spec;
mod job_status;
mod labels;
pub(crate) mod lenient;
mod meta;
mod observed_job;
mod patch;
mod pod;
mod pod_spec;
pub(crate) mod protobuf;
mod refusal;
mod selector;
mod status_patch;
mod text;
mod uids;
mod unreadable;

pub use decode::{DecodeError, Decoder, FromProtobuf};
pub(crate) use decode::{JSON, guarded};
pub use gang::{PodGroupDecoder, WorkloadDecoder};
pub use job::JobDecoder;
pub use labels::Labels;
pub(crate) use meta::{Bare, ListMeta, Versioned, version_number};
pub use meta::{ControllerRef, ResourceVersion};
pub use observed_job::{LONGEST_STATUSES, ObservedJob, Unserved};
pub use patch::{
    Adoption, adopt_patch, label_patch, orphan_patch, release_patch, untrack_ended_patch, untrack_patch,
    untrack_unchanged_patch,
};
pub use pod::{ObservedPod, PodDecoder, PodRun};
pub(crate) use pod_spec::WirePodSpec;
pub use protobuf::Malformed;
pub(crate) use refusal::LONGEST_REFUSAL;
pub use refusal::Refusal;
pub(crate) use refusal::WireRefusal;
pub use status_patch::status_patch;
pub(crate) use text::Text;
pub use unreadable::Unreadable;
