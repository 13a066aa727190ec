//! The shards of a replica, and which Job has which pod.
//!
//! - *In:* commands of the lease manager, Jobs of the whole cluster, pods of the replica's shards,
//!   reports of Job actors.
//! - *Out:* inputs for Job actors; progress for the lease manager; descriptions for pages.
//!   [`replica_actor`] owns the watch of all Jobs and starts a [`shard_actor`] for each shard.
//!   [`pod_owners`] is its table of pods. [`watch_feed`] turns watches and lists into messages.
//! - *Never:* when a pod is created, counted or deleted: only its Job decides. Nor Leases: commands name
//!   an epoch and a fence.

pub(super) mod pod_owners;
pub(super) mod replica_actor;
pub(super) mod shard_actor;
pub(super) mod watch_feed;
