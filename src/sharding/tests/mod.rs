//! Replicas, Leases and time, with no API server and no clock.

mod balance;
mod store;
mod story;
mod timelines;
mod world;
