//! Virtual time.

use std::fmt;
use std::ops::{Add, AddAssign};
use std::time::Duration;

use jiff::Timestamp;

/// The wall clock at the beginning of every world.
pub(crate) const EPOCH: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A moment of virtual time: whole milliseconds since the beginning of the world.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct Time(u64);

impl Time {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// Later than everything that happens.
    pub const NEVER: Self = Self(u64::MAX / 4);

    /// A moment this many milliseconds after the beginning.
    pub const fn ms(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the beginning.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// The time since an earlier moment; nothing since a later one.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0 + time.as_millis() as u64)
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

/// Seconds and milliseconds.
impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}
