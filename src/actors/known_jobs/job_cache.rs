//! The Jobs that a replica sees, by shard: a shard that is taken over starts from them. The cache also sums
//! the work that remains for each shard, and bounds the memory for statuses and templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::loads::{LoadBoard, work_left};
use super::memory_shares::MemoryShares;
use crate::actors::config::ControllerConfig;
use crate::cluster::relist::Relist;
use crate::cluster::wire::ObservedJob;
use crate::job::job_id::JobId;
use crate::job::spec::JobSpec;
use crate::job::uid::{Uid, UidMap, UidSet};
use crate::sharding::ShardId;

/// The Jobs that a replica sees.
#[derive(Debug)]
pub struct JobCache {
    config: Arc<ControllerConfig>,
    loads: LoadBoard,
    shards: BTreeMap<ShardId, ShardJobs>,
    memory: MemoryShares,
    relist: Relist<UidSet>,
}

/// The Jobs of a shard.
#[derive(Debug, Default)]
struct ShardJobs {
    jobs: UidMap<Arc<ObservedJob>>,
    /// The work that remains for those that are ours.
    work: u64,
}

impl ShardJobs {
    fn spec_of(&self, job: &Uid) -> Option<&JobSpec> {
        let known = self.jobs.get(job)?.job.as_ref().ok()?;
        Some(&known.spec)
    }
}

impl JobCache {
    /// An empty cache, which records the work of each shard in `loads`.
    pub fn new(config: Arc<ControllerConfig>, loads: LoadBoard) -> Self {
        let (shards, relist) = (BTreeMap::new(), Relist::default());
        Self { config, loads, shards, memory: MemoryShares::default(), relist }
    }

    /// A list begins.
    pub fn restart(&mut self) {
        self.relist.begin();
    }

    /// The list in progress shows a Job that cannot be read.
    pub fn mark(&mut self, uid: &Uid) {
        self.relist.mark(uid);
    }

    /// The Job of this UID, if it is known.
    pub fn get(&self, uid: &Uid) -> Option<&Arc<ObservedJob>> {
        self.shards.get(&self.config.shards.shard_of(&uid.to_string()))?.jobs.get(uid)
    }

    /// Inserts a Job. Returns it as it is kept, with its shard.
    pub fn insert(&mut self, mut job: Arc<ObservedJob>) -> (ShardId, Arc<ObservedJob>) {
        let id = self.config.shards.shard_of(&job.uid.to_string());
        self.mark(&job.uid);
        let known = self.shards.entry(id).or_default();
        let before = known.jobs.get(&job.uid).filter(|before| self.config.manages_job(before));
        if self.config.manages_job(&job) {
            // A Job that comes from our own status write is shared, and has the known spec already.
            if let Some(ObservedJob { uid, job: Ok(job), .. }) = Arc::get_mut(&mut job)
                && let Some(known) = known.spec_of(uid)
            {
                job.share_parts(known);
            }
            self.memory.enter(&mut job, before.map(|before| &**before));
        } else {
            job.lighten();
        }
        let before = known.jobs.insert(job.uid.clone(), job.clone());
        self.count(id, self.work(&job), before);
        (id, job)
    }

    /// Removes a Job that is gone. Returns its shard, if the Job was known.
    pub fn remove(&mut self, uid: &Uid) -> Option<ShardId> {
        let id = self.config.shards.shard_of(&uid.to_string());
        let job = self.shards.get_mut(&id)?.jobs.remove(uid)?;
        if self.config.manages_job(&job) {
            self.memory.leave(&job);
        }
        self.count(id, 0, Some(job));
        Some(id)
    }

    /// A list is complete. Returns the known Jobs that are not in it.
    pub fn sweep(&mut self) -> Vec<Uid> {
        self.relist.sweep(self.shards.values().flat_map(|shard| shard.jobs.keys()))
    }

    /// The Jobs of a shard.
    pub fn of(&self, shard: ShardId) -> impl Iterator<Item = &Arc<ObservedJob>> {
        self.shards.get(&shard).into_iter().flat_map(|known| known.jobs.values())
    }

    /// All Jobs, with their shards.
    pub fn all(&self) -> impl Iterator<Item = (ShardId, &Arc<ObservedJob>)> {
        self.shards.iter().flat_map(|(id, known)| known.jobs.values().map(|job| (*id, job)))
    }

    /// Forgets the Jobs of a shard.
    pub fn forget(&mut self, shard: ShardId) {
        let jobs = self.shards.remove(&shard).unwrap_or_default().jobs;
        let ours = jobs.values().filter(|job| self.config.manages_job(job));
        ours.for_each(|job| self.memory.leave(job));
        self.loads.write(shard, 0);
    }

    /// Jobs that are left alone since their statuses were too long, and for which there is room now.
    pub fn fitting(&self) -> impl Iterator<Item = JobId> {
        self.memory.fitting().filter_map(|uid| self.get(uid)).map(|job| job.id())
    }

    /// The work that remains for a Job, if it is ours.
    fn work(&self, job: &ObservedJob) -> u64 {
        let ours = self.config.manages_job(job);
        job.job.as_ref().ok().filter(|_| ours).map_or(0, work_left)
    }

    /// Records the work of a shard: `more`, less the work of a Job that is gone or replaced.
    fn count(&mut self, id: ShardId, more: u64, gone: Option<Arc<ObservedJob>>) {
        let less = gone.map_or(0, |job| self.work(&job));
        if let Some(known) = self.shards.get_mut(&id) {
            known.work = (known.work + more).saturating_sub(less);
            self.loads.write(id, known.work);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;
    use crate::cluster::wire::{Decoder as _, JobDecoder, LONGEST_STATUSES, Unserved};
    use crate::job::names::BUILT_IN_CONTROLLER;

    fn seen(uid: &str, manager: Option<&str>, succeeded: u32) -> Arc<ObservedJob> {
        let job = json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parallelism": 3, "completions": 9, "completionMode": "NonIndexed", "managedBy": manager,
                "selector": {}, "template": {"spec": {}},
            },
            "status": {"succeeded": succeeded},
        });
        JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_work_of_a_shard_follows_its_jobs() {
        let config = Arc::new(ControllerConfig::default());
        let (ours, others) = (Some(config.controller_name.as_str()), None);
        let loads = LoadBoard::new(config.shards);
        let mut cache = JobCache::new(config.clone(), loads.clone());
        let total = || config.shards.shards().map(|shard| loads.read(shard)).sum::<u32>();
        for (uid, manager, succeeded, work) in [
            ("a", ours, 0, 10),
            ("b", others, 0, 10),
            ("c", ours, 4, 16),
            ("a", ours, 7, 9),
            ("c", ours, 4, 9),
        ] {
            cache.insert(seen(uid, manager, succeeded));
            assert_eq!(total(), work, "{uid} {succeeded}");
        }
        for removed in [true, false] {
            assert_eq!((cache.remove(&"c".into()).is_some(), total()), (removed, 3));
        }
        cache.restart();
        cache.insert(seen("b", others, 0));
        let missing = cache.sweep();
        assert_eq!(missing, ["a".into()]);
        cache.forget(config.shards.shard_of("a"));
        assert_eq!(total(), 0);
    }

    /// A Job of this namespace that needs 100,000 intervals of indexes, which take 1.1 MB.
    fn large(uid: &str, namespace: &str, intervals: u32, condition: &str) -> Arc<ObservedJob> {
        let indexes: Vec<String> = (0..intervals).map(|index| (2 * index).to_string()).collect();
        let job = json!({
            "metadata": {"name": uid, "namespace": namespace, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parallelism": 1, "completions": 300_000, "completionMode": "Indexed", "selector": {},
                "template": {"spec": {}},
            },
            "status": {
                "completedIndexes": indexes.join(","), "conditions": [{"type": condition, "status": "True"}],
                "uncountedTerminatedPods": {"succeeded": ["p"]},
            },
        });
        JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()
    }

    fn is_left_alone(job: &ObservedJob) -> bool {
        matches!(job.job, Err(Unserved::LongStatus { .. }))
    }

    fn lists(job: &ObservedJob) -> usize {
        job.may_have_pods().unwrap().status.list_bytes()
    }

    #[test]
    fn the_statuses_of_a_namespace_share_a_bound_and_jobs_beyond_it_are_left_alone() {
        let config =
            ControllerConfig { controller_name: BUILT_IN_CONTROLLER.into(), ..ControllerConfig::default() };
        let mut cache = JobCache::new(Arc::new(config), LoadBoard::new(ControllerConfig::default().shards));
        let mut insert = |job: Arc<ObservedJob>| cache.insert(job).1;
        for uid in ["a", "b", "c", "d", "e", "f", "g"] {
            assert!(!is_left_alone(&insert(large(uid, "n", 100_000, "X"))), "{uid}");
        }
        for turn in 0..2 {
            let beyond = insert(large("h", "n", 100_000, "X"));
            assert!(is_left_alone(&beyond) && lists(&beyond) == 0, "{turn}");
        }
        let Err(unserved) = &insert(large("i", "n", 70_000, "X")).job else { panic!("it is too long, too") };
        let (reason, message) = unserved.event();
        assert!(reason == "StatusTooLong" && message.contains("8388608"), "{message}");
        assert!(
            !is_left_alone(&insert(large("j", "n", 1_000, "X"))),
            "a status of the usual length has room"
        );
        assert!(
            !is_left_alone(&insert(large("k", "other", 100_000, "X"))),
            "another namespace has a share of its own"
        );
        assert_eq!(
            lists(&insert(large("l", "n", 100_000, "Complete"))),
            0,
            "one that has finished keeps no lists"
        );
        assert_eq!(cache.fitting().next(), None);
        // Room for one of them becomes free.
        cache.insert(large("a", "n", 100_000, "Failed"));
        let next = cache.fitting().next().unwrap();
        assert_eq!((&**next.namespace(), next.uid()), ("n", &Uid::from("i")), "the shortest");
        assert!(!is_left_alone(&cache.insert(large("i", "n", 70_000, "X")).1));
        assert_eq!(cache.fitting().next(), None);
        cache.remove(&"b".into());
        assert_eq!(cache.fitting().next().map(|job| job.uid().clone()), Some("h".into()));
        cache.remove(&"h".into());
        assert_eq!(cache.fitting().next(), None);
        let all: Vec<ShardId> = cache.config.shards.shards().collect();
        all.iter().for_each(|shard| cache.forget(*shard));
        assert_eq!(
            format!("{:?}", cache.memory),
            format!("{:?}", MemoryShares::default()),
            "nothing is left"
        );
    }

    /// A Job whose policies and conditions are as long as those of one Job may be.
    fn heavy(uid: &str, manager: Option<&str>, condition: &str) -> Arc<ObservedJob> {
        let indexes: Vec<String> = (0..500).map(|index| (2 * index).to_string()).collect();
        let rules = vec![json!({"succeededIndexes": indexes.join(",")}); 8];
        let labels: Vec<_> =
            (0..20).map(|n| json!({"key": format!("{n:030}"), "operator": "DoesNotExist"})).collect();
        let failure =
            json!({"action": "Ignore", "onPodConditions": vec![json!({"type": "t", "status": "True"}); 400]});
        let conditions = ["Suspended", condition].map(
            |kind| json!({"type": kind, "status": "True", "reason": "r".repeat(900), "message": "m".repeat(9_000)}),
        );
        let job = json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parallelism": 1, "completions": 3_000, "completionMode": "Indexed", "managedBy": manager,
                "selector": {"matchExpressions": labels},
                "template": {"spec": {}}, "successPolicy": {"rules": rules}, "podFailurePolicy": {"rules": [failure]},
            },
            "status": {"conditions": conditions},
        });
        JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn many_jobs_below_the_bounds_of_one_share_a_bound() {
        let config = Arc::new(ControllerConfig::default());
        let ours = Some(config.controller_name.as_str());
        for (manager, condition, most_served) in
            [(ours, "FailureTarget", 200), (ours, "Complete", 300), (Some("a/b"), "FailureTarget", 300)]
        {
            let mut cache = JobCache::new(config.clone(), LoadBoard::new(config.shards));
            (0..300).for_each(|number| _ = cache.insert(heavy(&number.to_string(), manager, condition)));
            let kept = cache.all().map(|(_, job)| job.may_have_pods().unwrap().weight()).sum::<usize>();
            // A Job that takes less than 1 KiB is not counted.
            assert!(kept < LONGEST_STATUSES + 300 * (1 << 10), "{manager:?} {condition}: {kept}");
            let served = cache.all().filter(|(_, job)| !is_left_alone(job)).count();
            assert!((most_served / 2..=most_served).contains(&served), "{manager:?} {condition}: {served}");
        }
    }

    #[test]
    fn the_templates_of_a_namespace_share_a_bound_and_jobs_beyond_it_are_served_without() {
        const BYTES: usize = 15_000;
        let config = Arc::new(ControllerConfig::default());
        let mut cache = JobCache::new(config.clone(), LoadBoard::new(config.shards));
        let job = |number: usize, namespace: &str| {
            let job = json!({
                "metadata": {
                    "name": "j", "namespace": namespace, "uid": format!("{namespace}-{number}"),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {
                    "parallelism": 1, "completions": 1, "completionMode": "NonIndexed", "selector": {},
                    "managedBy": config.controller_name, "template": {"spec": {"filler": "x".repeat(BYTES)}},
                },
            });
            JobDecoder::new().decode(job.to_string().as_bytes()).unwrap()
        };
        let keeps = |seen: &ObservedJob| seen.job.as_ref().unwrap().spec.template.is_kept();
        let kept = |cache: &JobCache| {
            let of_namespace = cache.all().filter(|(_, seen)| &*seen.namespace == "n");
            of_namespace.filter(|(_, seen)| keeps(seen)).count()
        };
        let most = (8 << 20) / BYTES;
        for turn in 0..2 {
            (0..2 * most).for_each(|number| _ = cache.insert(job(number, "n")));
            assert!((most * 9 / 10..=most).contains(&kept(&cache)), "{turn}");
        }
        assert!(keeps(&cache.insert(job(0, "other")).1), "another namespace has a share of its own");
        (0..most).for_each(|number| _ = cache.remove(&format!("n-{number}").as_str().into()));
        assert!(keeps(&cache.insert(job(2 * most - 1, "n")).1), "there is room again");
        config.shards.shards().for_each(|shard| cache.forget(shard));
        assert_eq!(format!("{:?}", cache.memory), format!("{:?}", MemoryShares::default()));
    }

    /// A tenant may have many namespaces. Together they stay within the bound, and every other namespace still gets its part.
    #[test]
    fn the_statuses_of_all_namespaces_share_a_bound_and_each_may_have_some() {
        let config =
            ControllerConfig { controller_name: BUILT_IN_CONTROLLER.into(), ..ControllerConfig::default() };
        let mut cache = JobCache::new(Arc::new(config), LoadBoard::new(ControllerConfig::default().shards));
        let hostile = |number: u32| format!("hostile-{number}");
        assert!(!is_left_alone(&cache.insert(large("served", "early", 100_000, "X")).1));
        for number in 0..50 {
            for job in 0..10 {
                let uid = format!("{number}-{job}");
                cache.insert(large(&uid, &hostile(number), 100_000 >> (job / 2), "X"));
            }
        }
        let kept = cache.all().map(|(_, job)| job.may_have_pods().unwrap().weight()).sum::<usize>();
        assert!(kept < (32 << 20) + 51 * (600 << 10), "{kept}");
        for intervals in [100_000, 60_000] {
            let served = cache.insert(large("served", "early", intervals, "X")).1;
            assert!(!is_left_alone(&served), "a Job keeps what it has");
        }
        assert!(!is_left_alone(&cache.insert(large("few", "n", 50_000, "X")).1));
        assert!(is_left_alone(&cache.insert(large("many", "n", 80_000, "X")).1));
        for number in 0..50 {
            (0..10).for_each(|job| _ = cache.remove(&format!("{number}-{job}").as_str().into()));
            let fitting: Vec<JobId> = cache.fitting().collect();
            for job in fitting {
                assert!(cache.remove(job.uid()).is_some());
                if **job.namespace() == *"n" {
                    return assert!(!is_left_alone(&cache.insert(large("many", "n", 80_000, "X")).1));
                }
            }
        }
        panic!("there is room in the end, although nothing happens in its own namespace");
    }

    /// The memory of a Job of another controller is not given back, since it was not taken.
    #[test]
    fn changes_of_jobs_of_others_make_no_room() {
        let config = Arc::new(ControllerConfig::default());
        let ours = Some(config.controller_name.as_str());
        let mut cache = JobCache::new(config.clone(), LoadBoard::new(config.shards));
        let mut number = 0;
        let mut fill = |cache: &mut JobCache| {
            for _ in 0..300 {
                number += 1;
                cache.insert(heavy(&number.to_string(), ours, "FailureTarget"));
            }
            cache.all().filter(|(_, job)| !is_left_alone(job)).count()
        };
        let served = fill(&mut cache);
        for _ in 0..1000 {
            cache.insert(heavy("foreign", Some("a/b"), "X"));
        }
        cache.remove(&"foreign".into());
        assert_eq!(fill(&mut cache), served);
    }

    #[test]
    fn jobs_of_others_keep_no_lists() {
        let config =
            Arc::new(ControllerConfig { controller_name: "a/b".into(), ..ControllerConfig::default() });
        let mut cache = JobCache::new(config.clone(), LoadBoard::new(config.shards));
        let job = large("a", "n", 100_000, "X");
        // Another holder may share it.
        let _shared = job.clone();
        assert_eq!(lists(&cache.insert(job).1), 0);
    }
}
