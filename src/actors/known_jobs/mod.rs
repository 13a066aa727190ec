//! The tables of Jobs that the actors of a replica share. Each table has one lock or one owner.
//!
//! - *In:* Jobs as the watch of all Jobs shows them; corrections and reports of the Job actors.
//! - *Out:* answers. [`job_cache`] finds the Jobs of a shard, [`jobs_by_name`] those that others wait
//!   for. [`job_index`] finds the Job of a pod. [`loads`], [`waiting_jobs`] and [`last_failures`] are for
//!   heartbeats and pages. [`catch_up`] says whether the watch has come as far as a claim.
//! - *Bounds:* [`memory_shares`] keeps the Jobs of a namespace within its share.
//! - *Never:* pods beyond the names of their Jobs, requests, Leases, actors.

pub(super) mod catch_up;
pub(super) mod job_cache;
pub(super) mod job_index;
pub(super) mod jobs_by_name;
pub mod last_failures;
pub(super) mod loads;
pub(super) mod memory_shares;
pub(super) mod waiting_jobs;
