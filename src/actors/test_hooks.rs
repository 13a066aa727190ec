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
    /// Called before a shard takes in changes of pods; it may panic.
    pub before_pods: Option<ShardHook>,
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
