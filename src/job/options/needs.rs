//! What options need to know of pods that need no more counting.

/// What must be remembered of a Job's pods because of its options. Other Jobs forget it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Failed pods that are counted, by their names.
    pub counted_failures: bool,
    /// Succeeded pods that are counted, by their names.
    pub counted_successes: bool,
}

impl Needs {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            counted_failures: self.counted_failures || other.counted_failures,
            counted_successes: self.counted_successes || other.counted_successes,
        }
    }

    /// Whether nothing must be remembered.
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Whether something must be remembered that `before` did not ask for.
    pub fn exceeds(self, before: Self) -> bool {
        self.and(before) != before
    }
}
