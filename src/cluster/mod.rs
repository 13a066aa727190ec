//! How Yardmaster talks to an API server: small types, watches, the one write gate, events.
//!
//! | part | what it is |
//! |---|---|
//! | [`transport`] | the one seam to the network: requests, and streams of watches |
//! | [`wire`] | JSON of the API to the types of [`crate::job`], and back as patches |
//! | [`watch`] | list and watch of one resource, resumed for ever |
//! | [`gate`] | all writes but Leases: fenced, by priority, fair, within limits |
//! | [`leases`] | Leases, past the gate |
//! | [`reads`] | live reads of single objects |
//! | [`events`] | `v1` Events about Jobs, aggregated |
//! | [`resource`] | resources of the API and their paths |

pub mod events;
pub mod gate;
pub mod leases;
mod rate;
pub mod reads;
pub mod resource;
pub mod transport;
pub mod watch;
pub mod wire;
