//! Faults that tests inject into a controller. They exist only with the cargo feature `test-hooks`, which no
//! released program has.

use std::fmt;
use std::sync::Arc;

use crate::job::spec::Job;

/// The faults of one replica; by default none.
#[derive(Clone, Debug, Default)]
pub struct TestHooks {
    /// The replica acts for all shards without asking the Leases, as after a bug in them. With it, tests show
    /// that two owners at once create no pod twice and count none twice.
    pub without_leases: bool,
    /// Called before a Job is reconciled; it may panic.
    pub before_reconcile: Option<ReconcileHook>,
    /// Called before a shard applies changes of pods; it may panic.
    pub before_pods: Option<ShardHook>,
    /// Called where a part of the replica works; it may panic.
    pub at: Option<PartHook>,
}

impl TestHooks {
    /// Calls the hook of a part.
    pub(super) fn pass(&self, part: Part) {
        if let Some(hook) = &self.at {
            (hook.0)(part);
        }
    }
}

/// A part of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The lease manager, before it decides.
    LeaseManager,
    /// The replica actor, when it applies Jobs.
    Replica,
    /// The search for pods without labels, when it applies pods.
    StrippedPods,
    /// A request of a Job.
    Request,
    /// The way from a watch to its actor.
    Feed,
}

/// A function that is called with a part.
#[derive(Clone)]
pub struct PartHook(pub Arc<dyn Fn(Part) + Send + Sync>);

impl fmt::Debug for PartHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartHook")
    }
}

/// A function that is called with the number of a shard.
#[derive(Clone)]
pub struct ShardHook(pub Arc<dyn Fn(u32) + Send + Sync>);

impl fmt::Debug for ShardHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShardHook")
    }
}

/// A function that is called with a Job.
#[derive(Clone)]
pub struct ReconcileHook(pub Arc<dyn Fn(&Job) + Send + Sync>);

impl fmt::Debug for ReconcileHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReconcileHook")
    }
}
