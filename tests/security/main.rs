//! What strangers can and cannot do to the embedded cluster and to a controller.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, missing_docs)]

mod access;
#[path = "../binary/mod.rs"]
mod binary;
mod files;
mod input;
