//! The whole controller in a simulated world.
//!
//! Replicas run with all of their real code: rules, sharding, actors, watches, write gate. Three things are replaced,
//! at one seam each: the clock (`actors::clock`, and tokio's paused time), the network
//! (`cluster::transport`), and the API server, which is our embedded one, called in process. The world plays
//! everybody else: users, nodes, the garbage collector; and it decides when each message arrives, if at all. All
//! follows from one seed.

mod agenda;
mod chance;
mod checks;
mod gc;
pub mod known;
mod kubelet;
mod ledger;
mod link;
mod log;
pub mod mutants;
mod network;
mod past;
pub mod plan;
mod replica;
mod server;
mod time;
mod users;
mod world;

pub use checks::{Promise, Violation};
pub use log::Log;
pub use time::Time;
pub use world::{Outcome, World};
