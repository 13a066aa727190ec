//! Times of pods, in whole seconds.

use std::num::NonZeroU64;

use jiff::Timestamp;

/// A time in whole seconds, the precision that the Kubernetes API has for pods. It takes half the size of a
/// [`Timestamp`], and a third if optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Second(NonZeroU64);

impl Second {
    /// The bits that [`number`](Self::number) needs: years in the API have four digits.
    pub const BITS: u32 = 40;

    /// A number that grows with the time.
    pub fn number(self) -> u64 {
        self.0.get()
    }
}

impl From<Timestamp> for Second {
    fn from(time: Timestamp) -> Self {
        // Before 1970, a part of a second counts backwards.
        let second = time.as_second() - i64::from(time.subsec_nanosecond() < 0);
        let since_first = second.max(Timestamp::MIN.as_second()).abs_diff(Timestamp::MIN.as_second());
        Self(NonZeroU64::MIN.saturating_add(since_first))
    }
}

impl From<Second> for Timestamp {
    fn from(Second(number): Second) -> Self {
        let second = Timestamp::MIN.as_second().saturating_add_unsigned(number.get() - 1);
        Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn whole_seconds_are_converted_without_loss() {
        for second in [Timestamp::MIN.as_second(), -1, 0, 1_800_000_000, Timestamp::MAX.as_second()] {
            let time = Timestamp::from_second(second).unwrap();
            assert_eq!(Timestamp::from(Second::from(time)), time);
        }
        assert!(Second::from(Timestamp::MAX).number() < 1 << Second::BITS);
        assert_eq!(size_of::<Option<Second>>(), 8);
    }

    #[test]
    fn a_part_of_a_second_does_not_count_before_1970_either() {
        for nanoseconds in [-1, -999_999_999] {
            let time = Timestamp::new(-5, nanoseconds).unwrap();
            assert_eq!(Second::from(time), Second::from(Timestamp::from_second(-6).unwrap()));
        }
        assert_eq!(Timestamp::from(Second::from(Timestamp::MIN)), Timestamp::MIN);
    }

    #[test]
    fn seconds_are_ordered_as_times() {
        let [a, b] = [7, 8].map(|second| Second::from(Timestamp::from_second(second).unwrap()));
        assert!(a < b);
    }
}
