//! The order in which Jobs are shown: failures and trouble first.

use jiff::{SignedDuration, Timestamp};

/// How long a failed Job comes before all others.
const LATELY: SignedDuration = SignedDuration::from_hours(1);

/// The end of a Job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobEnd {
    /// When it ended, if that is known.
    pub at: Option<Timestamp>,
    /// Whether it has failed.
    pub has_failed: bool,
}

/// The order of Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Interest {
    /// The Job failed a short time ago.
    Failed,
    /// The Job waits, or pods of it failed.
    Trouble,
    /// Pods run.
    Running,
    /// The Job is suspended on purpose.
    Suspended,
    /// The Job has ended.
    Finished,
}

impl Interest {
    /// The interest in a Job at `now`. `has_trouble` says whether it waits or has failed pods.
    pub fn of(end: Option<JobEnd>, suspended: bool, has_trouble: bool, now: Timestamp) -> Self {
        let is_late = |end: JobEnd| end.at.is_some_and(|at| now.duration_since(at) < LATELY);
        match end {
            Some(end) if end.has_failed && is_late(end) => Self::Failed,
            Some(_) => Self::Finished,
            None if suspended => Self::Suspended,
            None if has_trouble => Self::Trouble,
            None => Self::Running,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_failed_within_the_hour_comes_first_and_other_ends_last() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let end = |at: &str, has_failed| Some(JobEnd { at: Some(at.parse().unwrap()), has_failed });
        for (end, suspended, has_trouble, interest) in [
            (end("2026-01-01T11:30:00Z", true), false, true, Interest::Failed),
            (end("2026-01-01T10:59:00Z", true), false, true, Interest::Finished),
            (end("2026-01-01T11:59:00Z", false), true, false, Interest::Finished),
            (Some(JobEnd { at: None, has_failed: true }), false, false, Interest::Finished),
            (None, true, true, Interest::Suspended),
            (None, false, true, Interest::Trouble),
            (None, false, false, Interest::Running),
        ] {
            assert_eq!(Interest::of(end, suspended, has_trouble, now), interest, "{end:?}");
        }
    }
}
