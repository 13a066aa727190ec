//! The work on one Job: its state, its plans, its requests, and its traces.
//!
//! - *In:* inputs of the Job's [`inbox`](super::messages::inbox): readings of the Job and its pods,
//!   answers to requests, timers.
//! - *Out:* requests through the gate, reports to the shard, metrics, Events, spans. [`job_actor`] asks
//!   [`crate::job`] for a plan, and [`requests`] sends it. Some requests take more than one step:
//!   [`adoption_requests`], [`gang_requests`], [`large_templates`], [`ttl_deletion`].
//! - *Never:* other Jobs, except by name; the shard's pods, hand-overs, Leases. The shard is known only
//!   as the recipient of messages.

pub(super) mod adoption_requests;
pub(super) mod gang_requests;
pub(super) mod job_actor;
pub(super) mod job_metrics;
pub(super) mod job_trace;
pub(super) mod large_templates;
pub(super) mod pod_events;
pub(super) mod pod_sample;
pub(super) mod releases_in_flight;
pub(super) mod requests;
pub(super) mod ttl_deletion;
