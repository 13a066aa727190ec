//! The messages that cross between actors against the direction of knowledge: replica → shard → Job.
//!
//! A shard knows the actors of its Jobs, and the replica those of its shards. A Job actor answers its shard,
//! and the lease manager commands the replica, through a [`Recipient`](actix::Recipient) of these messages
//! alone.

use actix::Message;
use tokio::sync::mpsc;

use crate::cluster::gate::Fence;
use crate::cluster::wire::ObservedPod;
use crate::job::job_id::JobId;
use crate::sharding::ShardId;

/// A command of the lease manager to the replica.
#[derive(Message)]
#[rtype(result = "()")]
pub enum ShardCommand {
    /// The shard is ours: list it, and act for it while the fence is open.
    Start {
        /// The shard.
        shard: ShardId,
        /// How often it has been claimed.
        epoch: u64,
        /// The right to act for it.
        fence: Fence,
        /// The version at which it was claimed, or a later one.
        version: u64,
    },
    /// The shard goes to another replica: finish the requests in flight.
    Drain(ShardId),
    /// The shard is no longer ours.
    Drop(ShardId),
    /// Everything is read again: this replica was lost for a while. All shards were dropped before.
    Forget,
}

/// A report of the replica's actors to the lease manager.
#[derive(Clone, Copy, Debug)]
pub enum ShardProgress {
    /// The Jobs and pods of a shard are listed, in this epoch.
    Synced(ShardId, u64),
    /// No request is in flight for a shard any more.
    Drained(ShardId),
    /// A shard's actors have ended.
    Dropped(ShardId),
    /// A part of a shard's actors has panicked, in this epoch.
    Failed(ShardId, u64),
    /// The replica is to hand all shards over, and to end.
    Leave,
}

/// The way to the lease manager. Clones reach the same one.
#[derive(Clone, Debug)]
pub struct ProgressSender(mpsc::UnboundedSender<ShardProgress>);

impl ProgressSender {
    /// A way to a lease manager, and its end there.
    pub fn channel() -> (Self, mpsc::UnboundedReceiver<ShardProgress>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Reports progress. A lease manager that has ended needs none.
    pub fn report(&self, progress: ShardProgress) {
        let _ = self.0.send(progress);
    }
}

/// A report of a Job actor to its shard.
#[derive(Message)]
#[rtype(result = "()")]
pub enum JobReport {
    /// Another writer has changed the Job's status: the actor's knowledge of the pods may be older than that
    /// status. It asks for a new list, which the shard acknowledges with
    /// [`RelistAccepted`](super::job_input::JobInput::RelistAccepted).
    Relist(JobId),
    /// The Job knows of pods that a complete list has not shown. It asks for a live list of its pods, with
    /// any labels.
    PodsMissing(JobId),
    /// A pod that the Job has created, adopted or found by its name has the label of another shard: the watch may not show it.
    Hidden(Box<ObservedPod>),
    /// A pod without controller that the Job did not adopt after all, since it is being deleted.
    Declined(Box<ObservedPod>),
    /// The actor has ended.
    Ended {
        /// The Job.
        job: JobId,
        /// Why.
        reason: ExitReason,
    },
}

/// Why a Job actor has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// The Job is gone, or the shard.
    Over,
    /// The Job has finished and needs nothing. The shard has seen the Job as the actor knew it, or later.
    Passivated,
    /// A panic.
    Panic,
}

/// A question that every actor answers at once, unless it hangs.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Ping;
