//! How long a replica may not know what has happened.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Act, Fault, Plan, Refused, Step};
use crate::time::Time;

/// News, and a request that was sent before they came, when nothing is wrong.
const UNDER_WAY: Duration = Duration::from_millis(10);

/// If the opening of a watch is not answered, the watch is silent for a minute.
const UNANSWERED: Duration = Duration::from_secs(70);

/// Watches that break together are opened again one after the other.
const OPENED_AGAIN: Duration = Duration::from_secs(15);

/// After the last answer 429: the longest pause of the gate, and the turns of the writes that have waited.
const PAUSE: Duration = Duration::from_secs(10);

/// A watch that has panicked.
const BEGUN_AGAIN: Duration = Duration::from_secs(2);

impl Plan {
    /// How much later than something happens a request of one of these replicas may arrive that does not know of it. A fault
    /// that begins before the news has come holds it up. A watch that is opened meanwhile, as for the shards that a replica
    /// takes over, shows it late from then on.
    pub(crate) fn news_take(&self, at: Time, replicas: &BTreeSet<usize>) -> Duration {
        let lag = self.settings.lag_of(replicas) * 2;
        let mut known = at + lag + UNDER_WAY + self.pause_asked(at + lag);
        loop {
            let hides = |step: &Step| {
                let (replica, time) = step.act.hides_news()?;
                replica.is_none_or(|replica| replicas.contains(&replica)).then(|| step.at + time + lag)
            };
            let later = self.steps.iter().filter(|step| step.at <= known).filter_map(hides).max();
            match later.filter(|later| *later > known) {
                Some(later) => known = later,
                None => return known.since(at),
            }
        }
    }

    /// How much later a request decided at this time may arrive since the API server is too busy to read any
    /// (429). It waits unchanged until that ends, and for the pause after it.
    pub(crate) fn pause_asked(&self, at: Time) -> Duration {
        let asks = |step: &Step| match step.act {
            Act::Fault(Fault::Refuse { code: 429, time, .. }) => {
                let until = step.at + time + PAUSE;
                (step.at <= at + UNDER_WAY && at <= until).then(|| until.since(at))
            }
            _ => None,
        };
        self.steps.iter().filter_map(asks).max().unwrap_or_default()
    }

    /// How long the removal of a pod, once it is decided, may wait for its turn under a limited rate.
    pub(crate) fn removals_wait(&self) -> Duration {
        /// Requests that wait before it.
        const AHEAD: u32 = 100;
        AHEAD * Duration::from_secs(1).checked_div(self.settings.qps).unwrap_or_default()
    }

    /// Whether requests about pods are refused or lost, or were shortly before.
    pub(crate) fn refuses(&self, now: Time) -> bool {
        self.lasts(now, Act::refuses)
    }

    /// Whether requests of any kind are refused, or were shortly before.
    pub(crate) fn refuses_any(&self, now: Time) -> bool {
        self.lasts(now, |act| match act {
            Act::Fault(Fault::Refuse { time, .. }) => Some(*time),
            _ => None,
        })
    }

    /// Whether a replica misses what concerns a Job, or cannot do its part, or could not shortly before.
    pub(crate) fn hinders(&self, now: Time) -> bool {
        self.refuses(now) || self.lasts(now, Act::hinders)
    }

    /// Whether something that lasts for so long is under way, or was shortly before.
    fn lasts(&self, now: Time, what: impl Fn(&Act) -> Option<Duration>) -> bool {
        const AFTERMATH: Duration = Duration::from_secs(30);
        let is_under_way =
            |step: &Step| what(&step.act).is_some_and(|time| now <= step.at + time + AFTERMATH);
        self.steps.iter().filter(|step| step.at <= now).any(is_under_way)
    }
}

impl Act {
    /// Which replica (all: `None`) may miss what happens, and for how long from then on.
    fn hides_news(&self) -> Option<(Option<usize>, Duration)> {
        match self {
            Self::Fault(fault) => fault.hides_news(),
            Self::Rare(rare) => rare.hides_news(),
            Self::User { .. } | Self::Tenant(_) => None,
        }
    }

    /// For how long requests about pods are refused, or one is not answered.
    fn refuses(&self) -> Option<Duration> {
        match *self {
            Self::Fault(Fault::Refuse { time, what: Refused::PodPatches | Refused::PodDeletes, .. }) => {
                Some(time)
            }
            Self::Fault(Fault::Swallow { .. }) => Some(UNANSWERED),
            _ => None,
        }
    }

    /// For how long this keeps replicas from what they have to do for single Jobs.
    fn hinders(&self) -> Option<Duration> {
        match self {
            Self::Fault(Fault::Undecodable { time, .. }) => Some(*time),
            Self::Fault(Fault::Panic { .. } | Fault::PanicShard { .. } | Fault::PanicWatch { .. }) => {
                Some(BEGUN_AGAIN)
            }
            Self::Rare(rare) => rare.hides_news().map(|(_, time)| time),
            Self::Fault(_) | Self::User { .. } | Self::Tenant(_) => None,
        }
    }
}

impl Fault {
    fn hides_news(&self) -> Option<(Option<usize>, Duration)> {
        Some(match *self {
            Self::Partition { replica, time }
            | Self::LoseReplies { replica, time, .. }
            | Self::HoldWatches { replica, time }
            | Self::Slow { replica, time, .. }
            | Self::Freeze { replica, time }
            | Self::Suspend { replica, time } => (Some(replica), time + UNANSWERED),
            Self::Swallow { replica, .. } => (Some(replica), UNANSWERED),
            Self::Unreachable { replica, time } => (Some(replica), time + OPENED_AGAIN),
            Self::Down { time } | Self::Refuse { time, what: Refused::All | Refused::Reads, .. } => {
                (None, time + OPENED_AGAIN)
            }
            Self::CachesBehind { replica, time, by } => (Some(replica), time + by + OPENED_AGAIN),
            Self::CutWatches { replica } => (Some(replica), OPENED_AGAIN),
            Self::PanicWatch { replica } => (Some(replica), BEGUN_AGAIN),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::generate;

    #[test]
    fn news_is_held_up_by_faults_that_begin_before_it_has_come() {
        let second = |second: u64| Time::ms(second * 1_000);
        let held = Fault::HoldWatches { replica: 0, time: Duration::from_secs(5) };
        let step = |at, fault| Step { at: second(at), act: Act::Fault(fault) };
        let mut plan = generate(0);
        plan.settings.lags = Vec::new();
        plan.steps =
            vec![step(10, held), step(80, Fault::CutWatches { replica: 0 }), step(200, Fault::Compact)];
        for (at, takes) in [(0, 0), (9, 0), (10, 85), (84, 11), (96, 0), (200, 0)] {
            let of = |replicas: &[usize]| {
                plan.news_take(second(at), &replicas.iter().copied().collect()).as_secs()
            };
            assert_eq!((of(&[0, 1]), of(&[1])), (takes, 0), "{at}");
        }
    }
}
