//! How long a replica may act on its heartbeat (invariant 5: one owner at a time).
//!
//! A renewal that was sent at `t` and acknowledged lets the replica act until `t + renew_deadline`. Others
//! regard it as dead once they have seen its heartbeat unchanged for `lease_duration`. The timeout of others
//! ends later, since they cannot have seen the heartbeat before it was sent. Between the two the replica is
//! silent: it writes nothing. It may go on if another renewal is acknowledged by the middle of that time.
//! After that it regards itself as dead, and everything that it owned is lost.

use super::{LeaseTimes, Moment};
use crate::mutants::{Mutant, is};

/// Until when this replica may act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeaseValidity {
    /// No heartbeat has been acknowledged.
    None,
    /// Heartbeats are acknowledged.
    Until {
        /// Writes may leave before this moment.
        silent: Moment,
        /// From this moment on everything is lost.
        lost: Moment,
    },
}

impl LeaseValidity {
    /// The validity after a renewal that was sent at `sent` and is acknowledged `now`; `None` if that is too
    /// late.
    pub(super) fn renewed(self, times: &LeaseTimes, sent: Moment, now: Moment) -> Option<Self> {
        let beyond = if is(Mutant::ActsBeyondLease) { times.lease_duration } else { Moment::ZERO };
        let silent = sent + times.renew_deadline + beyond;
        let lost = sent + (times.renew_deadline + times.lease_duration) / 2 + beyond;
        match self {
            Self::Until { lost: before, .. } if now >= before => None,
            _ if now >= silent => None,
            _ => Some(Self::Until { silent, lost }),
        }
    }

    /// Whether writes may leave.
    pub(super) fn acts(self, now: Moment) -> bool {
        matches!(self, Self::Until { silent, .. } if now < silent)
    }

    /// Whether everything that was owned is lost.
    pub(super) fn is_lost(self, now: Moment) -> bool {
        matches!(self, Self::Until { lost, .. } if now >= lost)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn times() -> LeaseTimes {
        LeaseTimes { lease_duration: at(15), renew_deadline: at(10), retry_period: at(2) }
    }

    fn first() -> LeaseValidity {
        LeaseValidity::None.renewed(&times(), at(0), at(1)).unwrap_or(LeaseValidity::None)
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent() {
        assert!(first().acts(at(9)) && !first().acts(at(10)));
        assert_eq!(
            LeaseValidity::None.renewed(&times(), at(0), at(10)),
            None,
            "acknowledged too late to be of use"
        );
    }

    #[test]
    fn silence_ends_with_a_renewal_or_in_loss() {
        let late = first().renewed(&times(), at(5), at(11)).unwrap_or(LeaseValidity::None);
        assert!(late.acts(at(14)) && !late.acts(at(15)), "an API server that answers six seconds late");
        assert!(!first().is_lost(at(12)) && first().is_lost(at(13)));
        assert_eq!(first().renewed(&times(), at(9), at(13)), None, "others may have taken over");
    }
}
