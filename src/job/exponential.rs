//! Delays that double with each failure in a row.

use std::time::Duration;

use jiff::Timestamp;

use super::saturating::after;

/// A delay that doubles with each failure in a row, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exponential {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Longest delay.
    pub max: Duration,
}

impl Exponential {
    /// Before a failed pod is replaced, as in Kubernetes: 10 s to 10 min.
    pub const POD_FAILURE: Self = Self { initial: Duration::from_secs(10), max: Duration::from_secs(600) };
    /// Before a refused request is repeated: 1 s to 1 min.
    pub const API_REQUEST: Self = Self { initial: Duration::from_secs(1), max: Duration::from_secs(60) };

    /// The end of the delay after this many failures in a row, the last of which was at `at`.
    pub fn after(&self, at: Timestamp, failures: u32) -> Timestamp {
        let factor = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        let delay = self.initial.checked_mul(factor).unwrap_or(self.max).min(self.max);
        after(at, delay)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_delay_doubles_up_to_the_limit_and_never_overflows() {
        let at = |second| Timestamp::from_second(second).unwrap();
        for (failures, seconds) in [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (40, 600), (u32::MAX, 600)]
        {
            assert_eq!(Exponential::POD_FAILURE.after(at(1000), failures), at(1000 + seconds), "{failures}");
        }
        let endless = Exponential { initial: Duration::MAX, max: Duration::MAX };
        assert_eq!(endless.after(at(1000), 7), Timestamp::MAX);
    }
}
