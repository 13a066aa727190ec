//! Access to an API server: small types, watches, the write gate, Events.
//!
//! | module | purpose |
//! |---|---|
//! | [`transport`] | the only seam to the network: requests, and streams of watches |
//! | [`answer_body`] | bodies in one piece, and the turns of long ones |
//! | `connections` | the connections of the transport: pools, renewal, proxies |
//! | `credentials`, `exec_plugin`, `impersonation` | our identity, as files, plugins and a kubeconfig state it |
//! | [`wire`] | decodes API objects into the types of [`crate::job`], and encodes patches |
//! | [`list`] | reads a list while it arrives, and sees whether it is complete |
//! | [`watch`] | lists and watches one resource, resuming after every failure |
//! | [`gate`] | all writes except those of Leases: fenced, by priority, fair, within limits |
//! | [`answer_time`] | how quickly the API server answers at present |
//! | [`leases`] | reads and writes of Leases, which bypass the gate |
//! | [`reads`] | live reads: few at once, fair between Jobs, and one of each object |
//! | [`events`] | `v1` Events about Jobs, aggregated |
//! | [`resource`] | resources of the API and their paths |
//! | [`supervision`] | catches panics, and restarts tasks |
//! | [`version`] | the version of the API server |
//! | [`fence`] | how long writes for a shard may leave |
//! | [`departure`] | checks a fence when the bytes of a request leave |
//! | [`boot_clock`] | the clock by which rights end: it goes on while the machine is suspended |
//! | [`access_review`] | who may read the pages of a replica |

pub mod access_review;
pub mod answer_body;
pub mod answer_time;
pub mod boot_clock;
mod byte_queue;
mod connections;
mod credentials;
pub mod departure;
pub mod elsewhere;
pub mod events;
mod exec_plugin;
mod fair_queue;
pub mod fair_semaphore;
pub mod fence;
pub mod gate;
mod impersonation;
mod joined_reads;
pub mod leases;
pub mod list;
mod measured;
mod rate;
mod read_gate;
pub mod reads;
pub mod relist;
pub mod resource;
pub mod supervision;
#[cfg(test)]
pub(crate) mod test_api;
#[cfg(test)]
pub(crate) mod test_protobuf;
pub mod transport;
pub mod version;
pub mod watch;
pub mod wire;
