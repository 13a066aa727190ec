//! How many of many alike are kept: all of a few, and fewer and fewer of more.

/// The first that are all kept.
const FIRST: u64 = 16;
/// Kept of the following, each time their number doubles.
const EACH_DOUBLING: u64 = 2;

/// Counts similar events, and keeps some: the first 16, and 2 more each time their number doubles, so
/// of 100,000 about 40.
#[derive(Clone, Debug, Default)]
pub struct Thinning {
    seen: u64,
}

impl Thinning {
    /// Counts one more, and returns whether it is kept.
    pub fn keeps_next(&mut self) -> bool {
        self.seen += 1;
        keeps(self.seen)
    }

    /// Whether the next one will be kept.
    pub fn would_keep_next(&self) -> bool {
        keeps(self.seen + 1)
    }
}

/// Whether the `number`th of many is kept, counted from 1.
pub(super) fn keeps(number: u64) -> bool {
    number <= FIRST || {
        let step = 1 << number.ilog2();
        number.is_multiple_of((step / EACH_DOUBLING).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(of: u64) -> Vec<u64> {
        let mut thinning = Thinning::default();
        (1..=of).filter(|_| thinning.keeps_next()).collect()
    }

    #[test]
    fn few_are_all_kept_and_of_many_some_of_every_age() {
        assert_eq!(kept(16), (1..=16).collect::<Vec<_>>());
        assert_eq!(kept(100)[16..], [24, 32, 48, 64, 96]);
        assert!(kept(100_000).len() <= 42);
        assert!(kept(100_000).last() >= Some(&90_000));
    }

    #[test]
    fn what_would_be_kept_is_kept() {
        let mut thinning = Thinning::default();
        for _ in 0..200 {
            assert_eq!(thinning.would_keep_next(), thinning.keeps_next());
        }
    }
}
