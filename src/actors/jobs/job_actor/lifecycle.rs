//! The lifecycle of a Job actor: its knowledge decides its rights.

use crate::actors::messages::protocol::JobReport;
use crate::job::plan::Wait;
use crate::mutants::{Mutant, is};

/// The life of a Job actor. Plans are made in [`Ready`](Self::Ready) only.
///
/// ```text
///                    pods_listed, no relist requested
///        ListingPods ────────────────────────────────> Ready
///          ^    │  ^                                   │   ^
///          │    │  └─────────── relist, list begins ───┤   │ job_read
///  relist, │    │ pods_listed while the Job is read    │   │
///  list    │    └────────────────> ReadingJob <────────┘   │
///  begins  └──────────────────────────│   └── read_job ────┘
///
///  drain: from everywhere to Draining, which nothing leaves
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lifecycle {
    /// The pods are not all known as they were at one time.
    ListingPods {
        /// Lists that the actor has requested and that the shard has not accepted yet. A list that completes
        /// before that began before the request.
        requested: u32,
        /// A live read of the Job is in flight, too.
        reading_job: bool,
    },
    /// All pods are known. The Job is being read live, since its status is in doubt.
    ReadingJob,
    /// Everything is known.
    Ready,
    /// Nothing more is decided; answers to requests in flight are still applied.
    Draining,
}

impl Lifecycle {
    /// A new actor, which knows no pods.
    pub(super) const NEW: Self = Self::ListingPods { requested: 0, reading_job: false };

    fn listing(&mut self, requests: u32) {
        *self = match *self {
            Self::ListingPods { requested, reading_job } => {
                Self::ListingPods { requested: requested + requests, reading_job }
            }
            Self::ReadingJob => Self::ListingPods { requested: requests, reading_job: true },
            Self::Ready => Self::ListingPods { requested: requests, reading_job: false },
            Self::Draining => Self::Draining,
        };
    }

    /// The actor has requested a new list of pods.
    pub(super) fn relist_requested(&mut self) {
        self.listing(1);
    }

    /// The shard has accepted a request: the next list that completes began after it.
    pub(super) fn relist_accepted(&mut self) {
        if let Self::ListingPods { requested, .. } = self {
            *requested = requested.saturating_sub(1);
        }
    }

    /// A list of the pods begins.
    pub(super) fn list_begins(&mut self) {
        self.listing(0);
    }

    /// A list of the pods is complete.
    pub(super) fn pods_listed(&mut self) {
        *self = match *self {
            Self::ListingPods { requested: 0, reading_job: true } => Self::ReadingJob,
            Self::ListingPods { requested: 0, reading_job: false } => Self::Ready,
            other => other,
        };
    }

    /// A live read of the Job is sent.
    pub(super) fn read_job(&mut self) {
        if *self == Self::Ready {
            *self = Self::ReadingJob;
        }
    }

    /// The live read of the Job is answered.
    pub(super) fn job_read(&mut self) {
        match self {
            Self::ListingPods { reading_job, .. } => *reading_job = false,
            Self::ReadingJob => *self = Self::Ready,
            Self::Ready | Self::Draining => {}
        }
    }

    /// Nothing more is to be decided.
    pub(super) fn drain(&mut self) {
        *self = Self::Draining;
    }
}

impl super::JobActor {
    /// A list of the pods begins, which will show them.
    pub(super) fn list_begins(&mut self) {
        if !is(Mutant::PlansBeforePodsAreListed) {
            self.lifecycle.list_begins();
        }
        self.state.pods_listing();
    }

    /// The known pods are older than another part of the known state: nothing is decided until they are
    /// listed as they are now.
    pub(super) fn relist(&mut self) {
        self.lifecycle.relist_requested();
        self.notice.shard.do_send(JobReport::Relist(self.requests.job.clone()));
    }

    /// Pods may be hidden. The status or an earlier list counts more than the list shows, or the watch said
    /// DELETED for a pod with our finalizer. Nothing is decided until a live list has shown whether they
    /// exist.
    pub(super) fn pods_missing(&mut self) {
        self.lifecycle.list_begins();
        self.notice.shard.do_send(JobReport::PodsMissing(self.requests.job.clone()));
        self.report_wait(Some(&Wait::PodsUnknown));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Lifecycle::{self, Draining, ListingPods, ReadingJob, Ready};

    fn after(steps: &[fn(&mut Lifecycle)]) -> Lifecycle {
        let mut life = Lifecycle::NEW;
        steps.iter().for_each(|step| step(&mut life));
        life
    }

    const LISTED: fn(&mut Lifecycle) = Lifecycle::pods_listed;
    const BEGINS: fn(&mut Lifecycle) = Lifecycle::list_begins;
    const REQUEST: fn(&mut Lifecycle) = Lifecycle::relist_requested;
    const ACCEPTED: fn(&mut Lifecycle) = Lifecycle::relist_accepted;
    const READ: fn(&mut Lifecycle) = Lifecycle::read_job;
    const ANSWERED: fn(&mut Lifecycle) = Lifecycle::job_read;
    const DRAIN: fn(&mut Lifecycle) = Lifecycle::drain;

    #[test]
    fn a_list_counts_only_if_it_began_after_the_request() {
        let asked = |requested| ListingPods { requested, reading_job: false };
        for (steps, expected) in [
            (&[LISTED][..], Ready),
            (&[LISTED, REQUEST, LISTED], asked(1)),
            (&[LISTED, REQUEST, ACCEPTED, LISTED], Ready),
            (&[LISTED, REQUEST, REQUEST, ACCEPTED, LISTED], asked(1)),
            (&[REQUEST, LISTED, ACCEPTED], asked(0)),
            (&[LISTED, BEGINS], asked(0)),
            (&[LISTED, ACCEPTED], Ready),
        ] {
            assert_eq!(after(steps), expected);
        }
    }

    #[test]
    fn a_read_of_the_job_and_a_list_of_pods_may_overlap_and_both_must_end() {
        for steps in [
            &[LISTED, READ, ANSWERED][..],
            &[LISTED, READ, BEGINS, ANSWERED, LISTED],
            &[LISTED, READ, BEGINS, LISTED, ANSWERED],
            &[LISTED, READ, REQUEST, ACCEPTED, LISTED, ANSWERED],
        ] {
            let (last, before) = steps.split_last().unwrap();
            let mut life = after(before);
            assert_ne!(life, Ready);
            last(&mut life);
            assert_eq!(life, Ready);
        }
        assert_eq!(after(&[LISTED, READ]), ReadingJob);
    }

    #[test]
    fn nothing_leaves_draining() {
        for before in [&[][..], &[LISTED], &[LISTED, READ], &[LISTED, REQUEST]] {
            let mut life = after(before);
            for step in [DRAIN, BEGINS, REQUEST, ACCEPTED, LISTED, READ, ANSWERED] {
                step(&mut life);
                assert_eq!(life, Draining);
            }
        }
    }
}
