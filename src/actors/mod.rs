//! Who does it: actix actors, thin shells round [`crate::job`].
//!
//! One [`replica_actor`] brings Jobs to [`shard_actor`]s, which bring pods to [`job_actor`]s, which own the state of their
//! Job and carry out its plans. The [`housekeeper`] sees to pods that are of no shard.

pub mod clock;
mod config;
mod controller;
mod directory;
mod gang_requests;
mod housekeeper;
mod inbox;
mod job_actor;
mod job_book;
mod job_input;
mod keeper;
mod loads;
mod owners;
mod pod_events;
mod pump;
mod replica_actor;
mod requests;
mod shard_actor;
mod strays;
pub mod threads;
mod waits;
mod watch_over;

pub use config::{ControllerConfig, FeatureGates, Ownership, ReconcileHook};
pub use controller::{Controller, ControllerError};
pub use keeper::LayoutError;
pub use shard_actor::ShardReport;
pub use waits::WaitingJob;
