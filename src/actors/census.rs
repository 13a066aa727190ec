//! The census: a scan for pods of Jobs that no shard sees, since they carry no label of a shard. Such pods are
//! left by the controller built into Kubernetes, by a backup, or by somebody who has removed the label.
//!
//! Invariant: known before planned. A shard lists its pods only after a census that began when the shard was
//! claimed already. So a pod that gets its label in between is in the list, and one that has none is in the
//! census. One census counts for all shards that were claimed before it began. The API server evaluates the
//! selector, so where all pods are labelled the answer is empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix::Message;

use super::context::ReplicaContext;
use crate::cluster::wire::ObservedPod;
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::sharding::{ShardCount, ShardId};

/// How long a census waits for further shards that are claimed at the same time.
pub const GATHERING: Duration = Duration::from_millis(10);
/// Most shards whose numbers the selector lists; it would be too long for a URL otherwise.
const MAX_NAMED: u32 = 256;

/// The pods of a shard's Jobs that carry no label of a shard, by their metadata: they have neither spec nor
/// status.
#[derive(Default, Message)]
#[rtype(result = "()")]
pub struct CensusTaken(
    /// The pods.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub Vec<Box<ObservedPod>>,
);

/// Which shards wait for a census.
///
/// ```text
///        join              begin
///  idle ──────> scheduled ───────> in progress
///    ^             ^  no shard is left │
///    └─────────────│───────────────────┤ end
///                  └───────────────────┘ others have joined meanwhile
/// ```
#[derive(Debug, Default)]
pub struct Census {
    /// A census is scheduled or in progress.
    busy: bool,
    /// The shards that the census in progress counts for.
    covered: BTreeSet<ShardId>,
    /// The shards that the next one counts for.
    waiting: BTreeSet<ShardId>,
}

impl Census {
    /// A shard was claimed. Returns whether a census has to be scheduled.
    pub fn join(&mut self, shard: ShardId) -> bool {
        self.covered.remove(&shard);
        self.waiting.insert(shard);
        !std::mem::replace(&mut self.busy, true)
    }

    /// A shard is no longer ours.
    pub fn leave(&mut self, shard: ShardId) {
        self.covered.remove(&shard);
        self.waiting.remove(&shard);
    }

    /// A census is about to begin. Returns the shards that it counts for, unless nobody waits any more.
    pub fn begin(&mut self) -> Option<BTreeSet<ShardId>> {
        self.covered = std::mem::take(&mut self.waiting);
        self.busy = !self.covered.is_empty();
        self.busy.then(|| self.covered.clone())
    }

    /// The census has ended. Returns the shards that it counts for, and whether another has to be scheduled.
    pub fn end(&mut self) -> (BTreeSet<ShardId>, bool) {
        self.busy = !self.waiting.is_empty();
        (std::mem::take(&mut self.covered), self.busy)
    }
}

/// Lists the pods of the Jobs of these shards, by their metadata, that carry no label of a shard. Repeats that
/// until it succeeds.
pub async fn take(cx: &ReplicaContext, shards: BTreeSet<ShardId>) -> BTreeMap<ShardId, CensusTaken> {
    let labels = selector(cx.config.shards);
    let shard_of = |pod: &ObservedPod| {
        let job = match &pod.controller {
            Some(owner) if owner.is_job() => owner.uid.to_string(),
            Some(_) => return None,
            // Of a Job that is gone or was taken from it: nobody else sees it if it has a label of no shard.
            None => pod.labels.get(CONTROLLER_UID_LABEL)?.to_owned(),
        };
        Some(cx.config.shards.shard_of(&job))
    };
    let is_wanted = |pod: &ObservedPod| shard_of(pod).is_some_and(|shard| shards.contains(&shard));
    let mut backoff = cx.api_backoff();
    let list = loop {
        match cx.reads.list_pod_metadata(&labels, is_wanted).await {
            Ok(list) => break list,
            Err(error) => tracing::warn!(%error, "pods without shard are not known yet"),
        }
        backoff.pause().await;
    };
    let mut found: BTreeMap<ShardId, CensusTaken> = BTreeMap::new();
    for pod in list.pods {
        if let Some(shard) = shard_of(&pod) {
            found.entry(shard).or_default().0.push(pod);
        }
    }
    found
}

/// Pods of Jobs whose label names none of these shards.
fn selector(shards: ShardCount) -> String {
    if shards.get() > MAX_NAMED {
        return format!("{CONTROLLER_UID_LABEL},!{SHARD_LABEL}");
    }
    let numbers: Vec<String> = shards.shards().map(|shard| shard.to_string()).collect();
    format!("{CONTROLLER_UID_LABEL},{SHARD_LABEL} notin ({})", numbers.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_census_counts_only_for_shards_that_were_claimed_before_it_began() {
        let [a, b, c] = [0, 1, 2].map(ShardId);
        let mut census = Census::default();
        assert!(census.join(a), "the first schedules it");
        assert!(!census.join(b));
        assert_eq!(census.begin(), Some([a, b].into()));
        assert!(!census.join(c), "another follows anyway");
        // Lost, and claimed again: what was found may be older than the claim.
        census.leave(b);
        assert!(!census.join(b));
        assert_eq!(census.end(), ([a].into(), true));
        assert_eq!(census.begin(), Some([b, c].into()));
        census.leave(c);
        assert_eq!(census.end(), ([b].into(), false));
        assert!(census.join(a));
        census.leave(a);
        assert_eq!(census.begin(), None, "nobody waits");
        assert!(census.join(a));
    }

    #[test]
    fn the_selector_names_every_shard_while_it_fits_into_a_url() {
        let of = |count| selector(ShardCount::new(count).unwrap());
        let labels = "batch.kubernetes.io/controller-uid,yardmaster.dev/shard notin (0,1,2,3)";
        assert_eq!(of(4), labels);
        assert!(of(256).len() < 1_100);
        assert_eq!(of(4096), "batch.kubernetes.io/controller-uid,!yardmaster.dev/shard");
    }
}
