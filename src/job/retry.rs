//! Back-off of refused requests: 1 s after the first refusal, doubled with each further one, at most 1 min.

use jiff::Timestamp;

use super::exponential::Exponential;
use crate::mutants::{Mutant, is};

/// Refusals in a row of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    refusals: u32,
    until: Option<Timestamp>,
}

impl Retry {
    /// Takes in a refusal. Refusals during the wait count once with the one that began it.
    pub fn refused(&mut self, delays: Exponential, now: Timestamp) {
        if self.waits(now).is_some() || is(Mutant::NoBackoff) {
            return;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.until = Some(delays.after(now, self.refusals));
    }

    /// Takes in a success.
    pub fn accepted(&mut self) {
        *self = Self::default();
    }

    /// The end of the wait, if there is one and it is not over.
    pub fn waits(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn delays_double_until_a_request_is_accepted() {
        let policy = Exponential { initial: Duration::from_secs(1), max: Duration::from_secs(5) };
        let (mut retry, mut now) = (Retry::default(), Timestamp::UNIX_EPOCH);
        for seconds in [1, 2, 4, 5, 5] {
            retry.refused(policy, now);
            retry.refused(policy, now);
            let until = now.checked_add(SignedDuration::from_secs(seconds)).unwrap();
            assert_eq!(retry.waits(now), Some(until));
            assert_eq!(retry.waits(until), None);
            now = until;
        }
        retry.accepted();
        retry.refused(policy, now);
        assert_eq!(retry.waits(now), Some(now.checked_add(SignedDuration::from_secs(1)).unwrap()));
    }
}
