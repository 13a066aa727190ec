//! The outcome of a Lease write for the coordinator, and how writes end.

use std::sync::Arc;

use super::hash::ShardId;
use super::lease::{Balance, Claim, Heartbeat};

/// An action that the coordinator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write our heartbeat; answer by [`heartbeat_written`](super::Coordinator::heartbeat_written).
    WriteHeartbeat(Heartbeat),
    /// Read a heartbeat live; answer by [`heartbeat_read`](super::Coordinator::heartbeat_read).
    ReadHeartbeat(Arc<str>),
    /// Delete a heartbeat, if it still has this version. No answer.
    DeleteHeartbeat(Arc<str>, u64),
    /// Write a claim, or its release; answer by [`claim_written`](super::Coordinator::claim_written).
    WriteClaim(Claim),
    /// Write which shards change places; answer by [`balance_written`](super::Coordinator::balance_written).
    WriteBalance(Balance),
    /// Start the actors of a shard, with the epoch of its claim; answer by
    /// [`synced`](super::Coordinator::synced).
    Start(ShardId, u64),
    /// Finish the requests in flight for a shard; answer by [`drained`](super::Coordinator::drained).
    Drain(ShardId),
    /// Stop a shard's actors at once; answer by [`dropped`](super::Coordinator::dropped).
    Drop(ShardId),
    /// All shards are handed over. This is the last action.
    Left,
}

/// The result of writing a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The Lease was written, and has this version.
    As(u64),
    /// The Lease has changed since it was read, or already exists, or does not exist. Its present state is
    /// reported separately, directly before or after this answer. A missing Lease is reported as gone in the
    /// version that the write was to replace.
    Conflict,
    /// Refused, or the result is unknown; also a conflict after which the Lease could not be read.
    Failed,
}
