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
    /// Events that report failures, or how a Job ended. They, too, wait for a while only.
    Report,
    /// Events that only inform.
    Event,
}

impl Priority {
    /// All priorities, highest first.
    pub const ALL: [Self; 7] = [
        Self::Status,
        Self::Finalizer,
        Self::Delete,
        Self::Create,
        Self::Progress,
        Self::Report,
        Self::Event,
    ];

    /// Whether the write is an Event, which nothing in the controller waits for.
    pub fn is_event(self) -> bool {
        matches!(self, Self::Report | Self::Event)
    }

    /// The value of the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalizer => "finalizer",
            Self::Delete => "delete",
            Self::Create => "create",
            Self::Progress => "progress",
            Self::Report => "report",
            Self::Event => "event",
        }
    }
}
