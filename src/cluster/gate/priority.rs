//! The priorities of writes.

/// The priority of a write, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Job status, as far as something waits for it.
    Status,
    /// Removals of finalizers, and other patches of pods.
    Finalizer,
    /// Deletions.
    Delete,
    /// Creations.
    Create,
    /// Job status that only shows progress. The longer it waits, the more it shows.
    Progress,
    /// Events, which nothing waits for.
    Event,
}

impl Priority {
    /// All priorities, highest first.
    pub const ALL: [Self; 6] =
        [Self::Status, Self::Finalizer, Self::Delete, Self::Create, Self::Progress, Self::Event];

    /// The value of the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalizer => "finalizer",
            Self::Delete => "delete",
            Self::Create => "create",
            Self::Progress => "progress",
            Self::Event => "event",
        }
    }
}
