//! Pauses and turns of work that is repeated, or that tenants can cause again and again.
//!
//! - *In:* times and durations, namespaces, outcomes of attempts.
//! - *Out:* how long a caller waits, or a turn. [`api_backoff`] paces attempts that fail and [`pauses`]
//!   writes that are undone. [`rest`] and [`long_works`] pace work by the time that it took.
//!   [`large_pods`] and [`read_retries`] give turns to namespaces.
//! - *Never:* the rules of Jobs, actors, the network. Callers bring their requests as closures.

pub(super) mod api_backoff;
pub(super) mod large_pods;
pub(super) mod long_works;
pub(super) mod pauses;
pub(super) mod read_retries;
pub(super) mod rest;
