//! A client that behaves like kube-controller-manager 1.36 (`--kube-api-content-type=application/json`, controllers
//! garbagecollector, namespace, ttl-after-finished and job) meets no answer that it does not expect.
//!
//! The requests are those that client-go makes: their paths, queries, headers and bodies.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod client;
mod garbage;
mod informers;
mod jobs;
mod namespaces;
mod start_up;
