//! Chance: all of it follows from the seed.

use std::ops::RangeInclusive;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

/// A source of chance.
#[derive(Clone, Debug)]
pub(crate) struct Chance(SmallRng);

impl Chance {
    /// The source for one purpose in the world of this seed. Draws for one purpose do not change the others.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let mix = purpose.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(SmallRng::seed_from_u64(mix))
    }

    /// A number of the range.
    pub(crate) fn number(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.random_range(range)
    }

    /// A number below `end`; 0 if there is none.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { self.0.random_range(0..end) }
    }

    /// Milliseconds of the range.
    pub(crate) fn millis(&mut self, range: RangeInclusive<u64>) -> Duration {
        Duration::from_millis(self.number(range))
    }

    /// True with this probability, in percent.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.0.random_range(0..100) < percent
    }

    /// Picks an element.
    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}
