//! Which shard a Job belongs to, and which replica owns a shard.
//!
//! Replicas agree through Leases alone ([`lease`] is their format). Each replica has a heartbeat
//! ([`lease_validity`]: how long it may act on one; [`members`]: how the others judge it), and each shard has
//! a claim. From the same Leases all replicas compute the same [`assignment`]. The first replica proposes
//! which shards change places, so that work is spread as evenly as shards are ([`balance`]). The
//! [`coordinator`] reconciles actual with wanted ownership, shard by shard ([`lifecycle`]).
//!
//! Nothing here waits or sends: the coordinator takes events with their times, and returns the actions to
//! take.

mod action;
mod assignment;
mod balance;
mod coordinator;
mod hash;
pub mod lease;
mod lease_validity;
mod lifecycle;
mod loads;
mod members;
mod pauses;
mod shard;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use action::{Action, Written};
pub use coordinator::{Coordinator, ReplicaIdentity};
pub use hash::{ShardCount, ShardCountError, ShardId};
pub use lifecycle::ShardState;
pub use loads::{Loads, LoadsError};

/// A moment of this process's monotonic clock: the time since an arbitrary start.
pub type Moment = Duration;

/// The timing of Leases. `retry_period < renew_deadline < lease_duration`.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// How long a replica may be silent before the others regard it as dead.
    pub lease_duration: Duration,
    /// How long a replica acts after it has sent a heartbeat.
    pub renew_deadline: Duration,
    /// Time between heartbeats.
    pub retry_period: Duration,
}
