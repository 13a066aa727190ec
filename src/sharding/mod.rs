//! Which shard a Job belongs to, and which replica owns a shard.
//!
//! Replicas agree through Leases alone ([`lease`] tells how they are written). Each has a heartbeat ([`right`]: what it
//! gives the right to do; [`members`]: how others judge it), and each shard has a claim. From the same Leases all
//! replicas compute the same [`assignment`]; one of them says which shards are to change places, so that work is spread
//! as evenly as shards are ([`balance`]). The [`coordinator`] brings what is to what should be, one shard at a time ([`lifecycle`]).
//!
//! Nothing here waits or sends: the coordinator is told what happens and when, and says what is to be done.

mod assignment;
mod balance;
mod coordinator;
mod hash;
pub mod lease;
mod lease_validity;
mod lifecycle;
mod loads;
mod members;
mod shard;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use coordinator::{Action, Coordinator, ReplicaIdentity, Written};
pub use hash::{ShardCount, ShardCountError, ShardId};
pub use lifecycle::ShardState;
pub use loads::{Loads, LoadsError};

/// A moment of this process's monotonic clock: the time since an arbitrary one.
pub type Moment = Duration;

/// The times that leases are kept by. `retry_period < renew_deadline < lease_duration`.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTimes {
    /// How long a replica may be silent before the others count it as dead.
    pub lease_duration: Duration,
    /// How long a replica acts after it has sent a heartbeat.
    pub renew_deadline: Duration,
    /// Time between heartbeats.
    pub retry_period: Duration,
}
