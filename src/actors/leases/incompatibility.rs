//! Why a replica must not run on a cluster.

use crate::cluster::version::{MANAGED_BY, ServerVersion};
use crate::sharding::ShardCount;

/// Why this replica must not run on this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Incompatibility {
    /// The cluster has another number of shards.
    #[error(
        "--shards {}: this cluster has {} shards; give --shards {}, or change the cluster while no \
         replica runs by `yardmaster reshard --to {}` with the replicas' --controller-name and \
         --lease-namespace", .ours.get(), .theirs.get(), .theirs.get(), .ours.get()
    )]
    OtherCount {
        /// The number in this replica's settings.
        ours: ShardCount,
        /// The number recorded in the cluster.
        theirs: ShardCount,
    },
    /// The number of shards is being changed.
    #[error(
        "the number of shards is being changed to {}; once `yardmaster reshard --to {}` has ended, start \
         with --shards {}",
        .to.get(), .to.get(), .to.get()
    )]
    Resharding {
        /// The coming number.
        to: ShardCount,
    },
    /// The API server drops `spec.managedBy`, so the built-in controller would run our Jobs.
    #[error(
        "the API server is Kubernetes {found}, which drops spec.managedBy, so the built-in Job controller \
         would run the Jobs; upgrade it to {MANAGED_BY} or newer"
    )]
    NoManagedBy {
        /// The version of the API server.
        found: ServerVersion,
    },
}
