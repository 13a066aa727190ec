//! The facts about pods that options need.

/// Facts about a Job's pods that its options need. Other Jobs forget them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Failed pods that are counted, by their names.
    pub counted_failures: bool,
    /// Succeeded pods that are counted, by their names.
    pub counted_successes: bool,
    /// Since when pods wait to start, or run.
    pub times: bool,
    /// Whether pods are deleted by force, which ends them.
    pub lost_nodes: bool,
    /// The exit codes of failed pods, until they are recorded.
    pub exit_codes: bool,
    /// The nodes on which pods have failed.
    pub failed_nodes: bool,
    /// Which containers have run out of memory.
    pub memory: bool,
    /// How often all pods were replaced together.
    pub attempts: bool,
}

impl Needs {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            counted_failures: self.counted_failures || other.counted_failures,
            counted_successes: self.counted_successes || other.counted_successes,
            times: self.times || other.times,
            lost_nodes: self.lost_nodes || other.lost_nodes,
            exit_codes: self.exit_codes || other.exit_codes,
            failed_nodes: self.failed_nodes || other.failed_nodes,
            memory: self.memory || other.memory,
            attempts: self.attempts || other.attempts,
        }
    }

    /// Whether the lessons are needed that pods carry, and those of their failures
    /// ([`Lineage`](crate::job::lineage::Lineage)).
    pub fn lineage(self) -> bool {
        self.failed_nodes || self.memory || self.attempts
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
