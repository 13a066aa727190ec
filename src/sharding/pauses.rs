//! Pauses after failures in a row.

use std::time::Duration;

/// Counts failures in a row. The default has had none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pauses(u32);

impl Pauses {
    /// The pause after another failure: `first`, and twice as long with each more, up to `longest`.
    pub(super) fn next(&mut self, first: Duration, longest: Duration) -> Duration {
        let pause = first.saturating_mul(2_u32.saturating_pow(self.0)).min(longest);
        self.0 = self.0.saturating_add(1);
        pause
    }
}
