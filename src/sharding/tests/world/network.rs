//! The network between the replicas and the API server: delays and losses.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use rand::rngs::SmallRng;

use super::process::Cut;
use crate::sharding::lease::{Balance, Claim, Heartbeat};
use crate::sharding::tests::store::Change;

/// A request to the API server.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Beat(Heartbeat),
    Claim(Claim),
    Balance(Balance),
    Read(Arc<str>),
    Delete(Arc<str>, u64),
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    As(u64),
    Conflict(Option<Change>),
    Found(Option<Heartbeat>),
    Failed,
}

/// The present state of the network and the API server, the same for all replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    /// Messages get lost, and some are late.
    pub(super) lossy: bool,
    /// The API server takes up to five seconds.
    pub(super) slow: bool,
    /// The API server does not answer.
    pub(super) down: bool,
}

impl Network {
    pub(super) const HEALTHY: Self = Self { lossy: false, slow: false, down: false };
    /// How long a replica waits for an answer.
    pub(super) const TIMEOUT: Duration = Duration::from_secs(6);
    /// The longest time that a message takes.
    pub(super) const MAX_DELAY: Duration = Duration::from_secs(8);

    /// How long a message takes.
    pub(super) fn delay(self, random: &mut SmallRng) -> Duration {
        let usual = Duration::from_micros(random.random_range(500..20_000));
        let late = if self.slow { random.random_range(0..5_000) } else { 0 };
        let stuck = if self.lossy && random.random_bool(0.05) { random.random_range(0..3_000) } else { 0 };
        usual + Duration::from_millis(late + stuck)
    }

    /// Whether a message of a process with this cut gets lost, a request or an answer.
    pub(super) fn loses(self, cut: Cut, request: &Request, random: &mut SmallRng) -> bool {
        let write = !matches!(request, Request::Read(_));
        self.down
            || cut == Cut::All
            // Either the request or its answer may be the message that is lost.
            || (cut == Cut::Writes && write && random.random_bool(0.7))
            || (self.lossy && random.random_bool(0.1))
    }

    /// Whether a watch delivers nothing.
    pub(super) fn silences(self, cut: Cut) -> bool {
        self.down || matches!(cut, Cut::All | Cut::Watch)
    }
}
