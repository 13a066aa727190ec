//! The messages between actors. Every other folder may know them.
//!
//! - *In:* nothing. This folder has types, and the inbox of a Job actor.
//! - *Out:* [`protocol`] has the commands of the lease manager and the reports of shards and Jobs.
//!   [`job_input`] goes to a Job, and [`inbox`] makes many inputs one wake-up. [`subscription`] says
//!   which watch sent a message.
//! - *Never:* the actors that send or receive them, requests, services of a replica.

pub(super) mod inbox;
pub(super) mod job_input;
pub(super) mod protocol;
pub(super) mod subscription;
