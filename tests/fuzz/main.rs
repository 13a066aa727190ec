//! Fuzzing: whatever strangers send, nothing panics, and the costs stay within what the input weighs.
//!
//! Each target replays its corpus, `tests/data/fuzz/TARGET`, and then runs mutations of it and of recordings for
//! a few seconds, or for `FUZZ_SECONDS`. `FUZZ_SEED` repeats a run. An input that breaks a promise is written
//! to the corpus.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "../recorded/mod.rs"]
mod recorded;

mod api;
mod compact;
mod cost;
mod driver;
mod hostile;
mod jobs;
mod leases;
mod manifests;
mod mutate;
mod objects;
mod protobuf;
mod requests;
mod schema;
mod selectors;
mod tenants;
mod watch_streams;
mod world;
