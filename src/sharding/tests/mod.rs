//! Tests with several replicas, Leases and virtual time, without API server or clock.

mod answers;
mod balance;
mod store;
mod story;
mod timelines;
mod world;
