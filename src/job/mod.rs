//! What a Job means: the rules of `batch/v1` as pure functions. No async, no clock, no I/O: time is a parameter.

pub mod adoption;
pub mod backoff;
pub mod counting;
pub mod end;
pub mod gang;
pub mod index_set;
pub mod manage;
pub mod names;
pub mod options;
pub mod passivation;
pub mod plan;
pub mod pod;
pub mod pod_failure_policy;
pub mod pod_name;
pub mod pod_set;
pub mod reconcile;
pub mod retention;
pub mod retry;
pub mod second;
pub mod selector;
pub mod slow_start;
pub mod spec;
pub mod state;
pub mod status;
pub mod success_policy;
pub mod template;
pub mod ttl;
pub mod uid;

#[cfg(test)]
pub(crate) mod tests;
