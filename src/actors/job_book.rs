//! The Jobs that a replica sees, by shard: what a shard that it takes over begins with, and how much work is left for each.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::ControllerConfig;
use super::loads::{LoadBoard, work_left};
use crate::cluster::wire::ObservedJob;
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::ShardId;

/// Where Jobs come from: the list and watch of one shard, or of all.
pub type Source = Option<ShardId>;

/// The Jobs that a replica sees.
#[derive(Debug)]
pub struct JobBook {
    config: Arc<ControllerConfig>,
    loads: LoadBoard,
    shards: HashMap<ShardId, Shelf>,
    /// Jobs in the lists under way.
    listings: HashMap<Source, UidSet>,
}

/// The Jobs of a shard.
#[derive(Debug, Default)]
struct Shelf {
    jobs: UidMap<Arc<ObservedJob>>,
    /// The work that is left for those that are ours.
    work: u64,
}

impl JobBook {
    /// No Jobs; what work there is for them is written on `loads`.
    pub fn new(config: Arc<ControllerConfig>, loads: LoadBoard) -> Self {
        Self { config, loads, shards: HashMap::new(), listings: HashMap::new() }
    }

    /// A list begins.
    pub fn restart(&mut self, source: Source) {
        self.listings.insert(source, UidSet::default());
    }

    /// Takes in a Job. Its shard, unless the source should not have told of it: not every API server narrows what it tells.
    pub fn insert(&mut self, source: Source, job: Arc<ObservedJob>) -> Option<ShardId> {
        let id = self.config.shards.shard_of(&job.uid.to_string());
        if source.is_some_and(|source| source != id) {
            return None;
        }
        if let Some(listing) = self.listings.get_mut(&source) {
            listing.insert(job.uid.clone());
        }
        let work = self.work(&job);
        let shelf = self.shards.entry(id).or_default();
        let before = shelf.jobs.insert(job.uid.clone(), job);
        shelf.work += work;
        self.less(id, before);
        Some(id)
    }

    /// Takes in that a Job is gone. Its shard, if it was known.
    pub fn remove(&mut self, uid: &Uid) -> Option<ShardId> {
        let id = self.config.shards.shard_of(&uid.to_string());
        let job = self.shards.get_mut(&id)?.jobs.remove(uid)?;
        self.less(id, Some(job));
        Some(id)
    }

    /// A list is complete: the Jobs that were known and are not in it.
    pub fn missing(&mut self, source: Source) -> Vec<Uid> {
        let listed = self.listings.remove(&source).unwrap_or_default();
        let covered = self.shards.iter().filter(|(shard, _)| source.is_none_or(|source| source == **shard));
        covered
            .flat_map(|(_, shelf)| shelf.jobs.keys())
            .filter(|uid| !listed.contains(*uid))
            .cloned()
            .collect()
    }

    /// The Jobs of a shard.
    pub fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<ObservedJob>> {
        self.shards.get(&shard).into_iter().flat_map(|shelf| shelf.jobs.values())
    }

    /// Forgets a shard, and what a source of its own was telling.
    pub fn forget(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.listings.remove(&Some(shard));
        self.loads.write(shard, 0);
    }

    /// The work that is left for a Job, if it is one of ours.
    fn work(&self, job: &ObservedJob) -> u64 {
        let ours = self.config.manages(job.managed_by.as_deref());
        job.job.as_ref().ok().filter(|_| ours).map_or(0, work_left)
    }

    /// Writes down the work of a shard, without that of a Job that has gone from its shelf.
    fn less(&mut self, id: ShardId, gone: Option<Arc<ObservedJob>>) {
        let gone = gone.map_or(0, |job| self.work(&job));
        if let Some(shelf) = self.shards.get_mut(&id) {
            shelf.work = shelf.work.saturating_sub(gone);
            self.loads.write(id, shelf.work);
        }
    }
}
