//! The access of strangers to the embedded cluster and to a controller.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod access;
#[path = "../binary/mod.rs"]
mod binary;
#[path = "../cluster/mod.rs"]
mod cluster;
#[path = "../telemetry/collector.rs"]
mod collector;
mod controller;
mod files;
mod input;
mod job_page;
mod output;
mod secrets;
