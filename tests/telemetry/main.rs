//! The telemetry for operators: traces, metrics, the page, logs.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../binary/mod.rs"]
mod binary;
mod browser;
#[path = "../cluster/mod.rs"]
mod cluster;
mod collector;
mod metrics;
mod page;
mod traces;
mod waterfall;
