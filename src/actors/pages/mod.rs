//! The state of a replica, for operators and probes.
//!
//! - *In:* descriptions by the replica actor and its shards, the view of the lease manager, the tables of
//!   [`known_jobs`](super::known_jobs).
//! - *Out:* [`probe`] answers the HTTP server, [`overview`] composes the page at `/` and merges those of
//!   several replicas. [`liveness`] finds parts that hang.
//! - *Never:* decisions. No actor imports this folder, so a page cannot delay a Job.

pub(super) mod liveness;
pub mod overview;
pub(super) mod probe;
