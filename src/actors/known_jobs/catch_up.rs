//! Whether the watch of Jobs has come as far as the claim on a shard.
//!
//! A replica that claims a shard knows its Jobs from a watch that has gone on meanwhile, and may
//! be behind. The events that it has not shown may include the predecessor's last write: it may
//! have counted a pod that is gone by now. So a Job whose shard has not caught up is read before
//! it gets pods.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sharding::ShardId;

/// Whether the Jobs of a shard have been shown as they were when it was claimed. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CaughtUp(Arc<AtomicBool>);

impl CaughtUp {
    /// Records that they have been. All of them were handed on before.
    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether they have been. It must be asked before a Job looks at the changes that were
    /// handed on to it.
    pub fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The shards that have not caught up, with the versions at which they were claimed.
#[derive(Debug, Default)]
pub struct CatchUp(BTreeMap<ShardId, u64>);

impl CatchUp {
    /// Records that a shard was claimed. Leases and Jobs are in one etcd, whose versions grow
    /// with each write.
    pub fn claimed(&mut self, shard: ShardId, version: u64) {
        self.0.insert(shard, version);
    }

    /// Records that a shard is no longer ours.
    pub fn left(&mut self, shard: ShardId) {
        self.0.remove(&shard);
    }

    /// Records that the watch has shown everything before `version`. Returns the shards that have
    /// caught up by that.
    pub fn shown(&mut self, version: u64) -> Vec<ShardId> {
        let caught_up = self.0.iter().filter(|(_, claimed)| **claimed <= version);
        let caught_up: Vec<ShardId> = caught_up.map(|(shard, _)| *shard).collect();
        caught_up.iter().for_each(|shard| self.left(*shard));
        caught_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_has_caught_up_once_its_watch_has_come_as_far_as_its_claim() {
        let [first, second, third] = [0, 1, 2].map(ShardId);
        let mut catch_up = CatchUp::default();
        catch_up.claimed(first, 10);
        catch_up.claimed(second, 20);
        catch_up.claimed(third, 20);
        assert_eq!(catch_up.shown(9), []);
        assert_eq!(catch_up.shown(10), [first]);
        catch_up.left(third);
        assert_eq!(catch_up.shown(30), [second]);
        assert_eq!(catch_up.shown(30), [], "each is told once");
    }
}
