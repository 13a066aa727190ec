//! Pods that no Job actor owns: their Job is gone, is not known yet, or is another shard's.
//!
//! - *In:* pods that a shard cannot give to any of its Jobs. Besides, a search finds pods that have lost
//!   the labels of the watches.
//! - *Out:* an orphan loses our finalizer and label; a pod of another shard gets the label of that shard.
//!   [`orphan_pods`] owns the pods of one shard, [`stripped_pods`] searches the cluster on one elected
//!   replica. [`labelling`] and [`release_with_job`] are their writes.
//! - *Never:* plans, statuses, Leases of shards. If a Job is only unknown here, its pods are no orphans:
//!   a live read asks for it first.

pub(super) mod labelling;
pub(super) mod orphan_pods;
pub(super) mod release_with_job;
pub(super) mod stripped_pods;
