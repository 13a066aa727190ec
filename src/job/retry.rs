//! Back-off of refused requests: 1 s after the first refusal, doubled with each further one, at most 1 min.

use jiff::Timestamp;

use super::exponential::Exponential;
use crate::mutants::{Mutant, is};

/// From so many conflicts in a row on, each is followed by a wait, although a change of the object explains it: somebody may
/// change the object without end.
pub const CONFLICTS_AT_ONCE: u32 = 3;

/// Refusals in a row of one kind of request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retry {
    refusals: u32,
    conflicts: u32,
    last: Option<Timestamp>,
    until: Option<Timestamp>,
}

impl Retry {
    /// Takes in a refusal. Refusals during the wait count once with the one that began it.
    pub fn refused(&mut self, delays: Exponential, now: Timestamp) {
        if self.waits(now).is_some() || is(Mutant::NoBackoff) {
            return;
        }
        self.refusals = self.refusals.saturating_add(1);
        self.last = Some(now);
        self.until = Some(delays.after(now, self.refusals));
    }

    /// Records a conflict that a change of the object explains.
    pub fn conflicted(&mut self, delays: Exponential, now: Timestamp) {
        self.conflicts = self.conflicts.saturating_add(1);
        if self.conflicts >= CONFLICTS_AT_ONCE {
            self.refused(delays, now);
        }
    }

    /// Takes in a success.
    pub fn accepted(&mut self) {
        *self = Self::default();
    }

    /// Takes in that the next attempt may succeed: the last refusal counts as the first.
    pub fn ease(&mut self, delays: Exponential) {
        if let Some(last) = self.last {
            *self = Self::default();
            self.refused(delays, last);
        }
    }

    /// The end of the wait, if there is one and it is not over. After a refusal in the future nothing waits: the clock was
    /// wrong then, and has been set back.
    pub fn waits(&self, now: Timestamp) -> Option<Timestamp> {
        self.until.filter(|until| *until > now && self.last.is_none_or(|last| last <= now))
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

    #[test]
    fn the_third_conflict_in_a_row_is_followed_by_a_wait() {
        let (mut retry, now) = (Retry::default(), Timestamp::UNIX_EPOCH);
        for _ in 0..2 {
            for waits in [false, false, true] {
                retry.conflicted(Exponential::API_REQUEST, now);
                assert_eq!(retry.waits(now).is_some(), waits);
            }
            retry.accepted();
        }
    }

    #[test]
    fn nothing_waits_for_a_time_that_was_wrong() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut retry = Retry::default();
        retry.refused(Exponential::API_REQUEST, at(3_700));
        assert_eq!(retry.waits(at(100)), None);
        retry.refused(Exponential::API_REQUEST, at(100));
        assert_eq!(retry.waits(at(100)), Some(at(102)));
    }

    #[test]
    fn the_wait_begins_anew_at_the_last_refusal_once_there_is_reason_to_hope() {
        let policy = Exponential { initial: Duration::from_secs(1), max: Duration::from_secs(60) };
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut retry = Retry::default();
        retry.ease(policy);
        assert_eq!(retry.waits(at(0)), None, "there was no refusal");
        for second in [0, 1, 3, 7] {
            retry.refused(policy, at(second));
        }
        assert_eq!(retry.waits(at(7)), Some(at(15)));
        retry.ease(policy);
        assert_eq!((retry.waits(at(7)), retry.waits(at(8))), (Some(at(8)), None));
        retry.refused(policy, at(9));
        assert_eq!(retry.waits(at(9)), Some(at(11)));
    }
}
