//! The watch of the pods of a replica, and the way of each pod to its shard.
//!
//! - *In:* lists and watch events of pods; the shards that ask for them, with a version.
//! - *Out:* to each shard, batches of changes of its pods, in order, and the end of each list.
//!   [`pod_places`] says which shards a pod concerns; [`pod_watch`] lists, watches and delivers.
//! - *Never:* the state of a Job, writes, Leases. Absence proves nothing: shards judge that.

pub(super) mod pod_places;
pub(super) mod pod_watch;
