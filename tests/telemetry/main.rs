//! What operators see: traces, metrics, the page, logs.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../binary/mod.rs"]
mod binary;
mod browser;
mod page;
