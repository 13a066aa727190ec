//! How long a replica may not know what has happened.

use std::time::Duration;

use super::{Act, Fault, Plan, Refused, Step};
use crate::time::Time;

/// News, and a request that was sent before they came, when nothing is wrong.
const UNDER_WAY: Duration = Duration::from_millis(10);

/// A watch is silent for a minute if nobody answers its opening.
const UNANSWERED: Duration = Duration::from_secs(70);

/// Watches that break together are opened again one after the other.
const OPENED_AGAIN: Duration = Duration::from_secs(15);

/// A watch that has panicked.
const BEGUN_AGAIN: Duration = Duration::from_secs(2);

impl Plan {
    /// How much later than something happens a request of a replica may arrive that does not know of it. A fault that begins
    /// before the news has come holds it up.
    pub(crate) fn news_take(&self, at: Time) -> Duration {
        let lag = self.settings.lag();
        let mut known = at + lag + UNDER_WAY;
        loop {
            let hidden =
                self.steps.iter().filter(|step| step.at <= known).map(|step| step.at + step.hides_news());
            let later = hidden.map(|until| until + lag).max().unwrap_or(known).max(known);
            if later == known {
                return known.since(at);
            }
            known = later;
        }
    }
}

impl Step {
    /// For how long from then on a replica may miss what happens.
    fn hides_news(&self) -> Duration {
        match &self.act {
            Act::Fault(fault) => fault.hides_news(),
            Act::Rare(rare) => rare.hides_news(),
            Act::User { .. } => Duration::ZERO,
        }
    }
}

impl Fault {
    fn hides_news(&self) -> Duration {
        match *self {
            Self::Partition { time, .. }
            | Self::LoseReplies { time, .. }
            | Self::HoldWatches { time, .. }
            | Self::Slow { time, .. }
            | Self::Freeze { time, .. }
            | Self::Suspend { time, .. } => time + UNANSWERED,
            Self::Swallow { .. } => UNANSWERED,
            Self::Down { time }
            | Self::Unreachable { time, .. }
            | Self::Refuse { time, what: Refused::All | Refused::Reads, .. } => time + OPENED_AGAIN,
            Self::CachesBehind { time, by, .. } => time + by + OPENED_AGAIN,
            Self::CutWatches { .. } => OPENED_AGAIN,
            Self::PanicWatch { .. } => BEGUN_AGAIN,
            _ => Duration::ZERO,
        }
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
            assert_eq!(plan.news_take(second(at)).as_secs(), takes, "{at}");
        }
    }
}
