//! The actors (actix): thin shells around the rules of [`crate::job`].
//!
//! The [`replica_actor`] delivers Jobs to [`shard_actor`]s. They deliver pods to [`job_actor`]s, which own
//! the state of their Job and carry out its plans. A search ([`stripped_pods`]) finds pods that have lost
//! the labels by which watches find pods.
//!
//! # Where to look
//!
//! | what | files |
//! |---|---|
//! | a replica: its start and end | [`controller`], [`replica`], [`config`], [`context`], [`threads`], [`clock`] |
//! | its shards: Leases, hand-over | [`lease_manager`], [`replica_actor`], [`loads`], [`catch_up`] |
//! | its readings: watches, lists | [`watch_feed`], [`pod_watch`], [`pod_places`], [`subscription`], [`relist`], [`rereads`], [`rest`] |
//! | which Job has which pod | [`shard_actor`], [`pod_owners`], [`job_index`], [`job_cache`] |
//! | pods without a Job, or with the label of another's shard | [`orphan_pods`], [`stripped_pods`], [`labelling`], [`release_with_job`] |
//! | one Job: inputs, plan, requests | [`job_actor`], [`inbox`], [`job_input`], [`requests`], [`begun`], [`long_works`] |
//! | its requests that need more than one step | [`adoption_requests`], [`gang_requests`], [`ttl_deletion`], [`api_backoff`], [`pauses`] |
//! | the messages between actors | [`protocol`] |
//! | panics and hanging parts | [`supervision`], [`liveness`] |
//! | reports for operators | [`overview`], [`probe`], [`waits`], [`last_failures`], [`job_metrics`], [`job_trace`], [`pod_events`], [`pod_sample`] |

mod adoption_requests;
mod api_backoff;
mod begun;
mod catch_up;
pub mod clock;
mod config;
mod context;
mod controller;
mod gang_requests;
mod inbox;
mod job_actor;
mod job_cache;
mod job_index;
mod job_input;
mod job_metrics;
mod job_trace;
mod jobs_by_name;
mod labelling;
mod large_pods;
mod large_templates;
pub mod last_failures;
mod lease_manager;
mod liveness;
mod loads;
mod long_works;
mod memory_shares;
mod orphan_pods;
pub mod overview;
mod pauses;
mod pod_events;
mod pod_owners;
mod pod_places;
mod pod_sample;
mod pod_watch;
mod probe;
mod protocol;
mod release_with_job;
mod relist;
mod replica;
mod replica_actor;
mod requests;
mod rereads;
mod rest;
mod shard_actor;
mod stripped_pods;
mod subscription;
mod supervision;
#[cfg(test)]
mod test_api;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;
pub mod threads;
mod ttl_deletion;
mod waits;
mod watch_feed;

pub use config::{ControllerConfig, DebugAccess, FeatureGates, MetricsAccess};
pub use context::ReplicaContext;
pub use controller::{Controller, ControllerError};
pub use lease_manager::Incompatibility;
pub use replica::Replica;
pub use shard_actor::ShardReport;
pub use supervision::Fatal;
pub use waits::WaitingJob;
