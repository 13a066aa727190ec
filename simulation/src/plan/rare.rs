//! Rare events: strangers that change pods and Leases, objects that this version cannot decode, other
//! controllers, and bugs in parts of a replica.

use std::time::Duration;

use yardmaster::actors::test_hooks::Part;

/// A rare event.
#[derive(Clone, Debug)]
pub enum Rare {
    /// A pod is shown in a form that cannot be decoded.
    UnreadablePod {
        /// The number of its Job.
        job: usize,
        /// Which of the pods that there are then.
        nth: usize,
        /// For how long.
        time: Duration,
    },
    /// A Job is shown with an unknown completion mode.
    UnknownMode {
        /// The number of the Job.
        job: usize,
        /// For how long.
        time: Duration,
    },
    /// A user removes labels from a pod, so that its Job no longer selects it.
    Unselect {
        /// The number of its Job.
        job: usize,
        /// Which of the pods that there are then.
        nth: usize,
        /// All of its labels, not only that by which it is selected.
        all: bool,
        /// When it gets them back, if it does.
        back: Option<Duration>,
    },
    /// A user creates a pod that a Job would adopt if the pod were not being deleted.
    DeletingOrphan {
        /// The number of the Job.
        job: usize,
        /// How long it stays.
        time: Duration,
    },
    /// A user creates a pod in another namespace that a Job would adopt in its own.
    DistantOrphan {
        /// The number of the Job.
        job: usize,
    },
    /// A stranger changes a Lease.
    Lease {
        /// Which kind.
        kind: LeaseKind,
        /// Which of the Leases of this kind.
        nth: usize,
        /// The damage.
        how: LeaseDamage,
    },
    /// Another controller finishes its Job.
    FinishForeign {
        /// The number of the Job.
        job: usize,
        /// Whether the Job fails.
        failed: bool,
    },
    /// A user sets the TTL of a Job, or takes it away.
    SetTtl {
        /// The number of the Job.
        job: usize,
        /// In seconds.
        ttl: Option<u32>,
    },
    /// A panic in a part of a replica.
    PanicPart {
        /// Which replica.
        replica: usize,
        /// Which part.
        part: Part,
        /// If the process ends, until it starts again.
        down: Duration,
    },
    /// A webhook takes the shard label off again when it is put on a pod.
    Unlabelling {
        /// Where.
        namespace: String,
        /// For how long.
        time: Duration,
    },
}

/// A kind of Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseKind {
    /// The claim of a shard.
    Claim,
    /// The heartbeat of a replica.
    Heartbeat,
    /// The number of shards.
    Layout,
    /// The shards that change places.
    Balance,
}

/// Damage of a Lease by a stranger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseDamage {
    /// Deletes it.
    Deleted,
    /// Takes all labels off.
    Unlabelled,
    /// Changes its labels, so that it is shown and means nothing.
    Relabelled,
    /// Takes all annotations away.
    Unannotated,
}

impl Rare {
    /// How long it lasts.
    pub(crate) fn duration(&mut self) -> Option<&mut Duration> {
        match self {
            Self::UnreadablePod { time, .. }
            | Self::UnknownMode { time, .. }
            | Self::DeletingOrphan { time, .. }
            | Self::Unlabelling { time, .. }
            | Self::PanicPart { down: time, .. } => Some(time),
            Self::Unselect { back, .. } => back.as_mut(),
            Self::DistantOrphan { .. }
            | Self::Lease { .. }
            | Self::FinishForeign { .. }
            | Self::SetTtl { .. } => None,
        }
    }

    /// The Job that it concerns.
    pub(crate) fn job(&self) -> Option<usize> {
        match *self {
            Self::UnreadablePod { job, .. }
            | Self::UnknownMode { job, .. }
            | Self::Unselect { job, .. }
            | Self::DeletingOrphan { job, .. }
            | Self::DistantOrphan { job }
            | Self::FinishForeign { job, .. }
            | Self::SetTtl { job, .. } => Some(job),
            Self::Lease { .. } | Self::PanicPart { .. } | Self::Unlabelling { .. } => None,
        }
    }

    /// Which replica (all: `None`) may miss changes, and for how long. Reads are retried with growing pauses.
    pub(super) fn hides_news(&self) -> Option<(Option<usize>, Duration)> {
        const READ_AGAIN: Duration = Duration::from_secs(15);
        match *self {
            Self::UnreadablePod { time, .. }
            | Self::UnknownMode { time, .. }
            | Self::Unlabelling { time, .. } => Some((None, time + READ_AGAIN)),
            Self::PanicPart { replica, down, .. } => Some((Some(replica), down + READ_AGAIN)),
            _ => None,
        }
    }

    /// Which replica (all: `None`) has a reason to lose its shards, and for how long.
    pub(crate) fn disturbs(&self) -> Option<(Option<usize>, Duration)> {
        match *self {
            Self::Lease { .. } => Some((None, Duration::ZERO)),
            Self::PanicPart { replica, down, .. } => Some((Some(replica), down)),
            // A Job whose pods are not known, and neither its mode, waits.
            Self::UnreadablePod { time, .. }
            | Self::UnknownMode { time, .. }
            | Self::Unlabelling { time, .. } => Some((None, time)),
            _ => None,
        }
    }

    /// Whether a replica may miss changes of a Job, although nothing else is wrong with it.
    pub(super) fn deafens(&self) -> bool {
        matches!(
            self,
            Self::UnreadablePod { .. }
                | Self::UnknownMode { .. }
                | Self::PanicPart { .. }
                | Self::Unlabelling { .. }
        )
    }
}
