//! A client that behaves like kube-controller-manager 1.36 gets only answers that it expects. Its flags are
//! `--kube-api-content-type=application/json` and the controllers garbagecollector, namespace,
//! ttl-after-finished and job.
//!
//! Paths, queries, headers and bodies of the requests are those of client-go.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod client;
mod garbage;
mod informers;
mod jobs;
mod namespaces;
mod start_up;
