//! The lifecycle of the watch of a shard's pods.

use crate::actors::messages::subscription::{Subscription, SubscriptionId};
use crate::cluster::relist::Relist;
use crate::job::job_id::{JobId, JobMap};
use crate::job::uid::{Uid, UidSet};
use crate::sharding::ShardState;

/// The life of the watch of a shard's pods.
///
/// ```text
///                  start                list_complete
///      Awaiting ─────────> Listing ──────────────────────> Watching
///                           │   ^                             │
///                           └───┴───── list_begins, start ────┘
///
///  drain: from everywhere to Draining, which nothing leaves
/// ```
#[derive(Debug)]
pub(super) enum PodFeed {
    /// The Jobs are being listed. Pods come later: one whose Job is not known yet would look like an orphan.
    Awaiting,
    /// The pods are being listed.
    Listing {
        /// The watch that lists them.
        subscription: Subscription,
        /// The pods in the list, by Job.
        relist: Relist<JobMap<UidSet>>,
        /// A list has been complete before.
        synced: bool,
    },
    /// All pods are known.
    Watching {
        /// The watch.
        subscription: Subscription,
        /// resourceVersion of the last complete list.
        version: u64,
    },
    /// Nothing more is decided for the shard, so nothing more needs to be known.
    Draining,
}

impl PodFeed {
    /// The life of a shard that was just claimed.
    pub(super) const NEW: Self = Self::Awaiting;

    /// The Jobs are known, or the pods must be listed again: `subscribe` begins a new watch. The watch
    /// before ends, and its messages in the mailbox are of another subscription.
    pub(super) fn start(&mut self, subscribe: impl FnOnce() -> Subscription) {
        if self.is_draining() {
            return;
        }
        let synced = self.is_synced();
        *self = Self::Listing { subscription: subscribe(), relist: Relist::default(), synced };
    }

    /// The watch begins to list, as it does at first and whenever it cannot go on where it was.
    pub(super) fn list_begins(&mut self) {
        *self = match std::mem::replace(self, Self::Draining) {
            Self::Watching { subscription, .. } => {
                Self::Listing { subscription, relist: Relist::default(), synced: true }
            }
            other => other,
        };
        if let Self::Listing { relist, .. } = self {
            relist.begin();
        }
    }

    /// A pod of a Job was shown.
    pub(super) fn mark(&mut self, job: &JobId, pod: &Uid) {
        if let Self::Listing { relist, .. } = self
            && let Some(marks) = relist.marks()
        {
            marks.entry(job.clone()).or_default().insert(pod.clone());
        }
    }

    /// The list is complete, at this resourceVersion. The pods in it by Job, and whether it was the first.
    /// Returns `None` if no list began: an empty list would mean that all pods are gone.
    pub(super) fn list_complete(&mut self, version: u64) -> Option<(JobMap<UidSet>, bool)> {
        let Self::Listing { relist, synced, .. } = self else { return None };
        let (listed, first) = (relist.finish()?, !*synced);
        if let Self::Listing { subscription, .. } = std::mem::replace(self, Self::Draining) {
            *self = Self::Watching { subscription, version };
        }
        Some((listed, first))
    }

    /// The watch is no longer needed. It may start again.
    pub(super) fn stop(&mut self) {
        if !self.is_draining() {
            *self = Self::NEW;
        }
    }

    /// Nothing more is to be decided for the shard.
    pub(super) fn drain(&mut self) {
        *self = Self::Draining;
    }

    /// Whether messages of this subscription still count.
    pub(super) fn receives(&self, from: SubscriptionId) -> bool {
        match self {
            Self::Listing { subscription, .. } | Self::Watching { subscription, .. } => subscription.is(from),
            Self::Awaiting | Self::Draining => false,
        }
    }

    /// The resourceVersion of the last list, if all pods are known.
    pub(super) fn version(&self) -> Option<u64> {
        match self {
            Self::Watching { version, .. } => Some(*version),
            _ => None,
        }
    }

    /// Whether the first list is still to come.
    pub(super) fn is_new(&self) -> bool {
        matches!(self, Self::Awaiting)
    }

    pub(super) fn is_draining(&self) -> bool {
        matches!(self, Self::Draining)
    }

    fn is_synced(&self) -> bool {
        match self {
            Self::Awaiting => false,
            Self::Listing { synced, .. } => *synced,
            Self::Watching { .. } | Self::Draining => true,
        }
    }

    /// The state of the shard in `/debug/shards`.
    pub(super) fn shard_state(&self) -> ShardState {
        match self {
            Self::Draining => ShardState::Draining,
            _ if self.is_synced() => ShardState::Active,
            _ => ShardState::Syncing,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio_util::task::AbortOnDropHandle;

    use super::*;

    fn subscription(id: u64) -> Subscription {
        Subscription::new(SubscriptionId(id), AbortOnDropHandle::new(tokio::spawn(std::future::pending())))
    }

    #[tokio::test]
    async fn a_shard_is_synced_by_its_first_complete_list_and_stays_so() {
        let mut feed = PodFeed::NEW;
        let (job, pod) = (JobId::from("job"), Uid::from("pod"));
        feed.start(|| subscription(1));
        assert_eq!((feed.shard_state(), feed.version()), (ShardState::Syncing, None));
        feed.list_begins();
        feed.mark(&job, &pod);
        let (listed, first) = feed.list_complete(7).unwrap();
        assert!(first && listed[&job].contains(&pod));
        assert_eq!((feed.shard_state(), feed.version()), (ShardState::Active, Some(7)));
        // The watch cannot go on where it was.
        feed.list_begins();
        assert_eq!((feed.shard_state(), feed.version()), (ShardState::Active, None));
        let (listed, first) = feed.list_complete(9).unwrap();
        assert!(!first && listed.is_empty(), "marks of an earlier list do not count");
    }

    #[tokio::test]
    async fn messages_of_a_watch_count_until_another_begins() {
        let mut feed = PodFeed::NEW;
        feed.start(|| subscription(1));
        assert!(feed.receives(SubscriptionId(1)));
        feed.start(|| subscription(2));
        assert!(feed.list_complete(3).is_none(), "no list has begun");
        assert!(feed.receives(SubscriptionId(2)) && !feed.receives(SubscriptionId(1)));
        feed.drain();
        feed.start(|| subscription(3));
        assert!(feed.is_draining() && !feed.receives(SubscriptionId(3)));
    }
}
