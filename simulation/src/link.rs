//! The way between a replica and the API server, and what is wrong with it.

use std::time::Duration;

use http::{Method, Request};

use crate::chance::Chance;
use crate::network::FASTEST;
use crate::time::Time;

/// The state of one replica's network.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Packets vanish until then.
    pub(crate) partitioned_until: Time,
    /// Connections fail at once until then.
    pub(crate) unreachable_until: Time,
    /// Answers get lost until then, with this probability in percent.
    pub(crate) losing: (Time, u32),
    /// Messages take this much longer until then.
    pub(crate) slow: (Time, Duration),
    /// Watches say nothing until then.
    pub(crate) watches_held_until: Time,
    /// Watches say everything twice until then.
    pub(crate) events_come_twice_until: Time,
    /// Until then, the caches of its API server are behind by this time.
    pub(crate) behind: (Time, Duration),
    /// The number of requests that vanish: heartbeats only, or any.
    pub(crate) swallows: u32,
    pub(crate) swallows_heartbeats: bool,
}

/// The fate of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    /// It arrives.
    At(Time),
    /// It never arrives, and the sender gets no error.
    Vanishes,
    /// The connection breaks.
    Breaks,
}

impl Link {
    /// How far behind the caches of its API server are.
    pub(crate) fn caches_behind(&self, now: Time) -> Duration {
        if now < self.behind.0 { self.behind.1 } else { Duration::ZERO }
    }

    /// The fate of a request that is sent at `sent`.
    pub(crate) fn request<B>(&mut self, request: &Request<B>, sent: Time, chance: &mut Chance) -> Passage {
        let heartbeat = request.method() == Method::PUT && request.uri().path().contains("-replica-");
        if self.swallows > 0 && (heartbeat || !self.swallows_heartbeats) {
            self.swallows -= 1;
            return Passage::Vanishes;
        }
        if sent < self.unreachable_until {
            return Passage::Breaks;
        }
        self.pass(sent, chance)
    }

    /// The fate of an answer that is sent at `sent`.
    pub(crate) fn answer(&self, sent: Time, chance: &mut Chance) -> Passage {
        if sent < self.losing.0 && chance.percent(self.losing.1) {
            return if chance.percent(50) { Passage::Breaks } else { Passage::Vanishes };
        }
        self.pass(sent, chance)
    }

    /// When a piece of a watch arrives, after the pieces before it. `lag`: how late its API server is.
    pub(crate) fn piece(&self, sent: Time, lag: Duration, last: Time, chance: &mut Chance) -> Time {
        let begins = (sent + lag).max(self.watches_held_until).max(self.partitioned_until);
        (begins + self.delay(begins, chance)).max(last)
    }

    /// TCP sends again what was lost: once packets pass, a message may arrive after all.
    fn pass(&self, sent: Time, chance: &mut Chance) -> Passage {
        if sent >= self.partitioned_until {
            return Passage::At(sent + self.delay(sent, chance));
        }
        let late = self.partitioned_until.since(sent) < Duration::from_secs(20) && chance.percent(50);
        if late { Passage::At(self.partitioned_until + self.delay(sent, chance)) } else { Passage::Vanishes }
    }

    fn delay(&self, now: Time, chance: &mut Chance) -> Duration {
        let extra = if now < self.slow.0 { self.slow.1 } else { Duration::ZERO };
        FASTEST + extra + chance.millis(0..=3)
    }
}
