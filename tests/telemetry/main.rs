//! What operators see: traces, metrics, the page, logs.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../binary/mod.rs"]
mod binary;
mod browser;
#[path = "../cluster/mod.rs"]
mod cluster;
mod metrics;
mod page;
