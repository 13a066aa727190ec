//! The whole controller in a simulated world.
//!
//! Replicas run with all of their real code: rules, sharding, actors, watches, write gate. Three parts are
//! replaced, at one seam each. The clock is `actors::clock` and tokio's paused time. The network is
//! `cluster::transport`. The API server is our embedded one, called in process. The world plays all other
//! clients: users, nodes, the garbage collector. It decides when each message arrives, if at all. All follows
//! from one seed.

mod agenda;
mod chance;
mod checks;
mod cut;
mod explain;
mod gc;
pub mod known;
mod kubelet;
mod ledger;
mod link;
mod log;
pub mod mutants;
mod network;
mod panics;
mod past;
pub mod plan;
mod replay;
mod replica;
mod run;
mod server;
mod shrink;
mod story;
mod tally;
mod tenant;
mod time;
mod users;
mod world;

pub use checks::{Promise, Violation};
pub use cut::{Cut, Kept, List, ListError};
pub use explain::explain;
pub use log::{Line, Log};
pub use replay::{Replay, ReplayError, defect, defects};
pub use run::{Finished, run, run_all};
pub use shrink::{Shrunk, shrink};
pub use story::{jobs_in, story};
pub use tally::{Broken, Tally};
pub use time::Time;
pub use world::{Outcome, World};
