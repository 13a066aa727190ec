//! The replicas of one load, running and ended.

use anyhow::Result;
use futures::future::join_all;
use nix::sys::signal::Signal;

use crate::replicas::{Cost, Probe, Recipe, Replica};
use crate::usage::Usage;

/// A changing set of replicas.
pub(crate) struct Fleet {
    recipe: Recipe,
    running: Vec<Replica>,
    ended: Vec<Cost>,
    started: usize,
}

impl Fleet {
    /// No replicas yet.
    pub(crate) fn new(recipe: Recipe) -> Self {
        Self { recipe, running: Vec::new(), ended: Vec::new(), started: 0 }
    }

    /// Number of running replicas.
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    /// Names of the running replicas, in the order of their start.
    pub(crate) fn identities(&self) -> Vec<String> {
        self.running.iter().map(|replica| replica.identity.clone()).collect()
    }

    /// Adds a controller that was started elsewhere.
    pub(crate) fn adopt(&mut self, mut replica: Replica) {
        replica.begin();
        self.running.push(replica);
    }

    /// Starts replicas until `to` run. Does not wait until they are ready.
    pub(crate) fn grow(&mut self, to: usize) -> Result<()> {
        while self.running.len() < to {
            self.running.push(self.recipe.start(self.started)?);
            self.started += 1;
        }
        Ok(())
    }

    /// Waits until all are ready.
    pub(crate) async fn ready(&mut self) -> Result<()> {
        futures::future::try_join_all(self.running.iter_mut().map(Replica::ready)).await.map(drop)
    }

    /// Ends the oldest replicas by SIGTERM until `to` are left.
    pub(crate) async fn shrink(&mut self, to: usize) {
        let leaving = self.running.drain(..self.running.len().saturating_sub(to));
        self.ended.extend(join_all(leaving.map(Replica::end)).await);
    }

    /// A running replica, counted from the oldest.
    pub(crate) fn get(&self, index: usize) -> Option<&Replica> {
        self.running.get(index)
    }

    /// Probes of the ready replicas, in the order of their start.
    pub(crate) fn probes(&self) -> Vec<Probe> {
        self.running.iter().filter_map(Replica::probe).collect()
    }

    /// Ends a replica, counted from the oldest, by SIGKILL and returns its name.
    pub(crate) async fn kill(&mut self, index: usize) -> Option<String> {
        if index >= self.running.len() {
            return None;
        }
        let mut replica = self.running.remove(index);
        replica.measure();
        replica.count().await;
        replica.signal(Signal::SIGKILL);
        let identity = replica.identity.clone();
        self.ended.push(replica.cost());
        replica.wait().await;
        Some(identity)
    }

    /// Counts the usage and requests of all from now on.
    pub(crate) async fn begin_counting(&mut self) {
        join_all(self.running.iter_mut().map(Replica::begin_counting)).await;
    }

    /// Reads the current resource usage of each replica.
    pub(crate) fn measure(&mut self) -> Vec<(String, Usage)> {
        self.running.iter_mut().map(|replica| (replica.identity.clone(), replica.measure())).collect()
    }

    /// An error if a replica has ended without being asked.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.running.iter_mut().try_for_each(Replica::check)
    }

    /// Ends all replicas. Returns the cost of each, in the order of their start.
    pub(crate) async fn end(mut self) -> Vec<Cost> {
        self.shrink(0).await;
        self.ended
    }
}
