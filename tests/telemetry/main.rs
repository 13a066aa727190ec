//! What operators see: traces, metrics, the page, logs.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../binary/mod.rs"]
mod binary;
#[path = "../cluster/mod.rs"]
mod cluster;
mod metrics;
