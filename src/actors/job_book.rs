//! The Jobs that a replica sees, by shard: what a shard that it takes over begins with.

use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::wire::ObservedJob;
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::{ShardCount, ShardId};

/// Where Jobs come from: the list and watch of one shard, or of all.
pub type Source = Option<ShardId>;

/// The Jobs that a replica sees.
#[derive(Debug)]
pub struct JobBook {
    count: ShardCount,
    shards: HashMap<ShardId, UidMap<Arc<ObservedJob>>>,
    /// Jobs in the lists under way.
    listings: HashMap<Source, UidSet>,
}

impl JobBook {
    /// No Jobs, in so many shards.
    pub fn new(count: ShardCount) -> Self {
        Self { count, shards: HashMap::new(), listings: HashMap::new() }
    }

    /// A list begins.
    pub fn restart(&mut self, source: Source) {
        self.listings.insert(source, UidSet::default());
    }

    /// Takes in a Job. Its shard, unless the source should not have told of it: not every API server narrows what it tells.
    pub fn insert(&mut self, source: Source, job: Arc<ObservedJob>) -> Option<ShardId> {
        let shard = self.count.shard_of(&job.uid.to_string());
        if source.is_some_and(|source| source != shard) {
            return None;
        }
        if let Some(listing) = self.listings.get_mut(&source) {
            listing.insert(job.uid.clone());
        }
        self.shards.entry(shard).or_default().insert(job.uid.clone(), job);
        Some(shard)
    }

    /// Takes in that a Job is gone. Its shard, if it was known.
    pub fn remove(&mut self, uid: &Uid) -> Option<ShardId> {
        let shard = self.count.shard_of(&uid.to_string());
        self.shards.get_mut(&shard)?.remove(uid).map(|_| shard)
    }

    /// A list is complete: the Jobs that were known and are not in it.
    pub fn missing(&mut self, source: Source) -> Vec<Uid> {
        let listed = self.listings.remove(&source).unwrap_or_default();
        let covered = self.shards.iter().filter(|(shard, _)| source.is_none_or(|source| source == **shard));
        covered.flat_map(|(_, jobs)| jobs.keys()).filter(|uid| !listed.contains(*uid)).cloned().collect()
    }

    /// The Jobs of a shard.
    pub fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<ObservedJob>> {
        self.shards.get(&shard).into_iter().flat_map(HashMap::values)
    }

    /// Forgets a shard, and what a source of its own was telling.
    pub fn forget(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.listings.remove(&Some(shard));
    }
}
