//! Yardmaster: a Kubernetes Job controller for large HPC and ML clusters.
//!
//! # The map
//!
//! | room | knows | must not know |
//! |---|---|---|
//! | [`job`] | what a Job means: the rules of `batch/v1` as pure functions | clocks, I/O, async, actix, kube |
//! | [`sharding`] | which shard a Job belongs to and which replica owns a shard | what a Job means |
//! | [`cluster`] | how to talk to an API server: small types, watches, the one write gate, events | actors, ownership rules |
//! | [`actors`] | who does the work: replica, shard and Job actors, thin shells round [`job`] | HTTP, the embedded cluster |
//! | [`telemetry`] | metrics, traces, health endpoints | what a Job means |
//! | [`net`] | how connections to other hosts are made: limits on time, proxies | Kubernetes |
//! | [`cli`] | the command line; the only room that puts the others together | |
//!
//! Knowledge flows one way: `cli` → `actors` → {`sharding`, `cluster` → `job`}; a test (`tests/rooms`)
//! reads the imports and fails when an arrow points back. The embedded cluster is a crate of its own,
//! `yardmaster-embedded`, which only `cli` uses (feature `embedded`): it and the controller meet through the
//! Kubernetes API.

// First, since its macros are for all that follow.
#[macro_use]
pub mod telemetry;

pub mod actors;
pub mod cli;
pub mod cluster;
pub mod job;
pub mod mutants;
pub mod net;
pub mod sharding;
