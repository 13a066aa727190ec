//! Pods whose label is not that of their Job's shard. Where one stream selects many shards, a pod that changes its
//! label from one of them to another is only shown as changed, and the shard that it has left must be told.

use std::collections::BTreeSet;

use crate::job::uid::{Uid, UidMap};
use crate::sharding::ShardId;

/// The strays. A pod that has the label of its Job's shard, as nearly all have, is none.
#[derive(Debug, Default)]
pub(super) struct Strays(UidMap<Stray>);

#[derive(Debug, Default)]
struct Stray {
    /// Shards that have been shown the pod, and not that it left. None is the shard of its Job.
    shown: BTreeSet<ShardId>,
    /// The shard of its Job has been told that the pod is not there.
    home_told: Option<ShardId>,
}

impl Strays {
    /// The pod has the label of this shard, and its Job is of `home`, if it has one.
    pub(super) fn shown(&mut self, pod: &Uid, at: ShardId, home: Option<ShardId>) {
        if home != Some(at) {
            self.0.entry(pod.clone()).or_default().shown.insert(at);
        } else if let Some(stray) = self.0.get_mut(pod) {
            stray.home_told = None;
        }
    }

    /// The shards that the pod is not at, and that may believe it is.
    pub(super) fn left(&self, pod: &Uid, at: Option<ShardId>, home: Option<ShardId>) -> Vec<ShardId> {
        let stray = self.0.get(pod);
        let told = stray.and_then(|stray| stray.home_told);
        let home = home.filter(|home| Some(*home) != at && Some(*home) != told);
        let shown = stray.into_iter().flat_map(|stray| &stray.shown).copied();
        shown.filter(|shard| Some(*shard) != at && Some(*shard) != home).chain(home).collect()
    }

    /// The shard has been told that the pod is not there.
    pub(super) fn told(&mut self, pod: &Uid, shard: ShardId, home: Option<ShardId>) {
        if let Some(stray) = self.0.get_mut(pod) {
            stray.shown.remove(&shard);
            if home == Some(shard) {
                stray.home_told = home;
            }
            if stray.shown.is_empty() {
                self.0.remove(pod);
            }
        }
    }

    /// The shard knows nothing any more.
    pub(super) fn forget(&mut self, shard: ShardId) {
        self.0.retain(|_, stray| {
            stray.shown.remove(&shard);
            stray.home_told.take_if(|home| *home == shard);
            !stray.shown.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_was_shown_a_stray_is_told_once_when_it_leaves() {
        let mut strays = Strays::default();
        let (pod, [home, a, b]) = (Uid::from("p"), [0, 1, 2].map(ShardId));
        strays.shown(&pod, home, Some(home));
        assert!(strays.0.is_empty() && strays.left(&pod, Some(home), Some(home)).is_empty());
        // It goes from home to `a`, to `b`, and home again.
        assert_eq!(strays.left(&pod, Some(a), Some(home)), [home]);
        strays.shown(&pod, a, Some(home));
        strays.told(&pod, home, Some(home));
        assert!(strays.left(&pod, Some(a), Some(home)).is_empty());
        assert_eq!(strays.left(&pod, Some(b), Some(home)), [a]);
        strays.shown(&pod, b, Some(home));
        strays.told(&pod, a, Some(home));
        strays.shown(&pod, home, Some(home));
        assert_eq!(strays.left(&pod, Some(home), Some(home)), [b]);
        strays.told(&pod, b, Some(home));
        assert!(strays.0.is_empty());
    }

    #[test]
    fn a_pod_without_a_job_is_at_no_home() {
        let mut strays = Strays::default();
        let (pod, [a, b]) = (Uid::from("p"), [0, 1].map(ShardId));
        strays.shown(&pod, a, None);
        assert_eq!(strays.left(&pod, Some(b), None), [a]);
        strays.forget(a);
        assert!(strays.0.is_empty(), "the shard lists its pods again");
    }
}
