//! The actors (actix): thin shells around the rules of [`crate::job`].
//!
//! The [`replica_actor`](shards::replica_actor) delivers Jobs to [`shard_actor`](shards::shard_actor)s.
//! They deliver pods to [`job_actor`](jobs::job_actor)s, which own the state of their Job and carry out
//! its plans.
//!
//! # Folders
//!
//! A folder imports only folders above it in this table, and its `mod.rs` says what comes in and what
//! goes out. [`context`] stands between [`pods`] and [`leases`]: it holds what all actors of a replica
//! share.
//!
//! | folder | owns |
//! |---|---|
//! | [`messages`] | the messages between actors, and the inbox of a Job |
//! | [`pacing`] | pauses and turns of work that is repeated |
//! | [`known_jobs`] | the tables of Jobs that the actors of a replica share |
//! | [`pods`] | the watch of the pods, and the way of a pod to its shard |
//! | [`leases`] | the Leases of the replica |
//! | [`jobs`] | one Job: state, plan, requests, metrics, trace |
//! | [`orphans`] | pods without a Job, or with the label of another shard |
//! | [`shards`] | the shards of the replica, and which Job has which pod |
//! | [`pages`] | the state of the replica, for operators and probes |
//!
//! Beside the folders, [`controller`] and [`replica`] start and end a replica, with and without threads
//! and network. [`config`] has its settings, [`clock`] its time, [`threads`] its runtimes.
//! [`supervision`] says how much a panic ends.

pub mod clock;
mod config;
mod context;
mod controller;
mod jobs;
mod known_jobs;
mod leases;
mod messages;
mod orphans;
mod pacing;
mod pages;
mod pods;
mod replica;
mod shards;
mod supervision;
#[cfg(test)]
mod test_api;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
pub mod threads;

pub use config::{ControllerConfig, DebugAccess, FeatureGates, MetricsAccess};
pub use context::ReplicaContext;
pub use controller::{Controller, ControllerError};
pub use known_jobs::last_failures;
pub use known_jobs::waiting_jobs::WaitingJob;
pub use leases::Incompatibility;
pub use pages::overview;
pub use replica::Replica;
pub use shards::shard_actor::ShardReport;
pub use supervision::Fatal;
