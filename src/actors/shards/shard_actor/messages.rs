//! The messages to a shard, and its reports.

use std::sync::Arc;
use std::time::Instant;

use actix::Message;

use crate::actors::known_jobs::waiting_jobs::WaitingJob;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;

/// The Jobs of the replica have been listed: the shard may list its pods.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobsListed;

/// The watch of Jobs has come as far as the claim on the shard.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobsCaughtUp;

/// A Job of the shard was added or changed.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobSeen {
    /// The Job.
    pub job: Arc<ObservedJob>,
    /// When the watch brought it.
    pub arrived: Instant,
}

/// A Job of the shard no longer exists.
#[derive(Message)]
#[rtype(result = "()")]
pub struct JobVanished(pub JobId);

/// A Job of another controller is gone. Pods with the label of any shard may name it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ForeignJobVanished(pub JobId);

/// End at once, and all Jobs of the shard with it.
#[derive(Message)]
#[rtype(result = "()")]
pub struct End;

/// Report on the shard, for `/debug/shards`.
#[derive(Message)]
#[rtype(result = "ShardReport")]
pub struct Describe;

/// Decide nothing more for the shard. Answered when all requests in flight are answered and reported.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Drain;

/// The state of a shard and its work.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ShardReport {
    /// Number of the shard.
    pub shard: u32,
    /// How often the shard has been claimed.
    pub epoch: u64,
    /// `syncing`, `active` or `draining`.
    pub state: &'static str,
    /// Jobs held.
    pub jobs: usize,
    /// Jobs held that have finished and need nothing, and so have no actor.
    pub passivated: usize,
    /// Pods held.
    pub pods: usize,
    /// The work that remains, in pods: one for each unfinished Job, one for each missing pod, and
    /// half for each pod that has its finalizer. A Job counts at most four times its parallelism of
    /// missing pods, and weighs 10,001 at most.
    pub load: u32,
    /// Jobs that are not done although no pod of theirs is created.
    pub waiting: usize,
    /// The first 100 of them by name.
    pub waits: Vec<WaitingJob>,
}
