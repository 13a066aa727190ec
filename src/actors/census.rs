//! The census: a scan for pods of Jobs that no shard sees, since they carry no label of a shard. Such pods are
//! left by the controller built into Kubernetes, by a backup, or by somebody who has removed the label.
//!
//! Invariant: known before planned. A shard lists its pods only after a census that began when the shard was
//! claimed already. So a pod that gets its label in between is in the list, and one that has none is in the
//! census. It need not be of one version: no pod that stays without label escapes a list that reads each name once.
//! One census counts for all shards that were claimed before it began. The API server evaluates the selector, so
//! where all pods are labelled the answer is empty.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use actix::Message;

use super::context::ReplicaContext;
use super::job_index::JobIndex;
use crate::cluster::resource::Resource;
use crate::cluster::watch::Selection;
use crate::cluster::wire::{ControllerRef, ObservedPod, Unreadable};
use crate::job::names::{CONTROLLER_UID_LABEL, SHARD_LABEL};
use crate::sharding::{ShardCount, ShardId};

/// How long a census waits for further shards that are claimed at the same time.
pub const GATHERING: Duration = Duration::from_millis(10);
/// Most shards whose numbers the selector lists; it would be too long for a URL otherwise.
const MAX_NAMED: u32 = 256;

/// The pods of a shard's Jobs that carry no label of a shard, by their metadata: they have neither spec nor
/// status.
#[derive(Debug, Default, Message)]
#[rtype(result = "()")]
pub struct CensusTaken {
    /// The pods.
    #[expect(clippy::vec_box, reason = "they go on one by one, as they are")]
    pub pods: Vec<Box<ObservedPod>>,
    /// Pods that exist and cannot be read.
    pub unreadable: Vec<Unreadable>,
}

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
///
/// Beside another controller, pods that are not tracked are kept only if their Job is in `job_index`: that one may
/// have a hundred thousand of its own.
pub async fn take(
    cx: &ReplicaContext,
    job_index: &JobIndex,
    shards: BTreeSet<ShardId>,
) -> BTreeMap<ShardId, CensusTaken> {
    let labels = format!("{CONTROLLER_UID_LABEL},{}", of_no_shard(cx.config.shards));
    let selection = Selection::all(Resource::PODS).labelled(labels);
    let shard_of = |job: &str| Some(cx.config.shards.shard_of(job)).filter(|shard| shards.contains(shard));
    let shard_of_pod = |pod: &ObservedPod| match &pod.controller {
        Some(ControllerRef::Job(job)) => shard_of(&job.uid().to_string()),
        Some(ControllerRef::Other) => None,
        // No shard would see it.
        Some(ControllerRef::NoJob) => shard_of(&pod.pod.uid.to_string()),
        // Of a Job that is gone or was taken from it: nobody else sees it if it has a label of no shard.
        None => shard_of(pod.labels.get(CONTROLLER_UID_LABEL)?),
    };
    let may_be_ours = |pod: &ObservedPod| {
        let is_of_ours = || pod.controller.is_none() || pod.job().is_some_and(|job| job_index.contains(job));
        cx.config.replaces_built_in() || pod.pod.tracked || is_of_ours()
    };
    let keep = |pod: &ObservedPod| may_be_ours(pod) && shard_of_pod(pod).is_some();
    let mut backoff = cx.api_backoff();
    let list = loop {
        match cx.reads.list_pod_metadata(&selection, keep).await {
            Ok(list) => break list,
            Err(error) => tracing::warn!(%error, "pods without shard are not known yet"),
        }
        backoff.pause().await;
    };
    let mut found: BTreeMap<ShardId, CensusTaken> = BTreeMap::new();
    for pod in list.pods {
        if let Some(shard) = shard_of_pod(&pod) {
            found.entry(shard).or_default().pods.push(pod);
        }
    }
    for pod in list.unreadable {
        if let Some(shard) = pod.job.as_ref().and_then(|job| shard_of(&job.uid().to_string())) {
            found.entry(shard).or_default().unreadable.push(pod);
        }
    }
    found
}

/// The selector of objects whose label names none of these shards; beyond 256 shards only those without label.
pub fn of_no_shard(shards: ShardCount) -> String {
    if shards.get() > MAX_NAMED {
        return format!("!{SHARD_LABEL}");
    }
    let numbers: Vec<String> = shards.shards().map(|shard| shard.to_string()).collect();
    format!("{SHARD_LABEL} notin ({})", numbers.join(","))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::actors::test_api::{TestApi, job, list, observed_job, pod, replica, run};
    use crate::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};

    /// The names of the pods in a census of all shards, where the Job `ours` is known.
    async fn counted(controller_name: &str, tracked: &str) -> Vec<String> {
        let finalizer = tracked.to_owned();
        let api = TestApi::new(move |_, _| {
            let mut tracked = pod("tracked", "theirs");
            tracked["metadata"]["finalizers"] = [&*finalizer].into();
            let mut untracked = pod("untracked", "ours");
            untracked["metadata"]["finalizers"] = [""; 0].into();
            list(7, &[tracked, untracked, pod("built-in", "theirs")])
        });
        let index = JobIndex::default();
        index.insert(observed_job(&job("ours", serde_json::json!({}))).job.as_ref().unwrap());
        let found = take(&replica(&api, controller_name), &index, [ShardId(0)].into()).await;
        found.into_values().flat_map(|found| found.pods).map(|pod| pod.pod.name.into()).collect()
    }

    #[test]
    fn beside_another_controller_only_pods_that_may_be_ours_are_kept() {
        run(async {
            let external = counted(EXTERNAL_CONTROLLER, "yardmaster.dev/job-tracking").await;
            assert_eq!(external, ["tracked", "untracked"]);
            let replacement = counted(BUILT_IN_CONTROLLER, "batch.kubernetes.io/job-tracking").await;
            assert_eq!(replacement, ["tracked", "untracked", "built-in"]);
        });
    }

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
        let of = |count| of_no_shard(ShardCount::new(count).unwrap());
        assert_eq!(of(4), "yardmaster.dev/shard notin (0,1,2,3)");
        assert!(of(256).len() < 1_100);
        assert_eq!(of(4096), "!yardmaster.dev/shard");
    }
}
