//! Replicas share the work. Every shard has one owner at a time, through joins, leaves, crashes, freezes and
//! partitions.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod cluster;
#[path = "sharding/one_watch.rs"]
mod one_watch;
#[path = "sharding/versions.rs"]
mod versions;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, Patch, PatchParams};
use nix::sys::signal::Signal;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tempfile::TempDir;
use yardmaster::actors::ControllerConfig;
use yardmaster::actors::test_hooks::TestHooks;
use yardmaster::sharding::lease::LeaseRecord;
use yardmaster::sharding::{ShardCount, ShardId};
use yardmaster_embedded::{ApiServerConfig, AuditRecord, Fault, FaultScope};

use crate::binary::{Background, PATIENCE, yardmaster};
use crate::cluster::{Cluster, REPLACEMENT, has};

const SHARDS: u32 = 16;

/// A cluster with each replica in its own process.
struct Yard {
    cluster: Cluster,
    leases: Api<Lease>,
    directory: TempDir,
    replicas: BTreeMap<usize, Background>,
}

impl Yard {
    async fn start(config: ApiServerConfig) -> Self {
        let cluster = Cluster::with(config).await;
        let leases = Api::default_namespaced(kube::Client::try_from(cluster.config.clone()).unwrap());
        Self { cluster, leases, directory: tempfile::tempdir().unwrap(), replicas: BTreeMap::new() }
    }

    fn join(&mut self, numbers: impl IntoIterator<Item = usize>) {
        let program = yardmaster().get_program().to_owned();
        self.join_as(&program, numbers);
    }

    /// Starts replicas of a program.
    fn join_as(&mut self, program: &OsStr, numbers: impl IntoIterator<Item = usize>) {
        for number in numbers {
            let mut command = self.cluster.replica_of(program, &self.directory);
            command.args(["--identity", &format!("replica-{number}"), "--shards", &SHARDS.to_string()]);
            command.args(["--lease-duration", "6s", "--renew-deadline", "4s", "--retry-period", "1s"]);
            self.replicas.insert(number, Background::start(&mut command));
        }
    }

    /// Ends a replica by SIGTERM.
    fn leave(&mut self, number: usize) {
        let mut replica = self.replicas.remove(&number).unwrap();
        replica.signal(Signal::SIGTERM);
        assert_eq!(replica.exit_code(), Some(0));
    }

    /// Ends a replica by SIGKILL.
    fn crash(&mut self, number: usize) {
        drop(self.replicas.remove(&number).unwrap());
    }

    /// Whether a Job has finished.
    async fn has_finished(&self) -> bool {
        let jobs = self.cluster.jobs.list(&ListParams::default()).await.unwrap().items;
        jobs.iter().any(|job| has(job, "Complete"))
    }

    fn signal(&self, number: usize, signal: Signal) {
        self.replicas[&number].signal(signal);
    }

    /// Owner and epoch of every claimed shard.
    async fn claims(&self) -> BTreeMap<ShardId, (Option<String>, u64)> {
        let leases = self.leases.list(&ListParams::default()).await.unwrap().items;
        let claims = leases.iter().filter_map(LeaseRecord::read).filter_map(|record| match record {
            LeaseRecord::Claim(claim) => {
                let owner = claim.holder.map(|holder| holder.identity.to_string());
                Some((claim.shard, (owner, claim.epoch)))
            }
            _ => None,
        });
        claims.collect()
    }

    /// Waits until these replicas own all shards, in shares that differ by at most one.
    async fn shared_by(&mut self, numbers: &[usize]) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            for (number, replica) in &mut self.replicas {
                let ended = replica.0.try_wait().unwrap();
                assert!(ended.is_none(), "replica {number} has ended: {ended:?}");
            }
            let claims = self.claims().await;
            let share = |number: &usize| {
                let identity = Some(format!("replica-{number}"));
                claims.values().filter(|(owner, _)| *owner == identity).count()
            };
            let shares: Vec<usize> = numbers.iter().map(share).collect();
            let (fewest, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            if shares.iter().sum::<usize>() == SHARDS as usize && most - fewest <= 1 {
                return;
            }
            assert!(Instant::now() < deadline, "not shared by {numbers:?}: {claims:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns once one replica owns this many shards.
    async fn until_claimed(&self, shards: usize, identity: &str) {
        let deadline = Instant::now() + PATIENCE;
        let is_its = |owner: Option<&str>| owner == Some(identity);
        while self.claims().await.values().filter(|(owner, _)| is_its(owner.as_deref())).count() < shards {
            assert!(Instant::now() < deadline, "{identity} does not own {shards} shards");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates Jobs that take some seconds, spread over the shards.
    async fn create_jobs(&self) {
        self.create_jobs_of("250ms").await;
    }

    /// Creates Jobs, spread over the shards, with pods that run for a time.
    async fn create_jobs_of(&self, run_time: &str) {
        for job in 0..JOBS {
            let mode = if job % 2 == 0 { "Indexed" } else { "NonIndexed" };
            let spec = json!({"completions": PODS, "parallelism": 2, "completionMode": mode});
            self.cluster.create(&format!("job-{job}"), spec, run_time).await;
        }
    }

    async fn assert_exact(&self) {
        for job in 0..JOBS {
            self.cluster.assert_exact(&format!("job-{job}"), PODS).await;
        }
        self.cluster.assert_pods_ever(JOBS * PODS as usize).await;
    }

    async fn end(mut self) {
        let numbers: Vec<usize> = self.replicas.keys().copied().collect();
        numbers.into_iter().for_each(|number| self.leave(number));
        self.cluster.end().await;
    }
}

const JOBS: usize = 16;
const PODS: i32 = 24;

/// A replica's uninterrupted writes for one shard.
#[derive(Debug)]
struct Reign {
    replica: String,
    first: jiff::Timestamp,
    last: jiff::Timestamp,
}

/// The successive writers of each shard, from the API server's audit record.
async fn reigns(cluster: &Cluster) -> BTreeMap<ShardId, Vec<Reign>> {
    let count = ShardCount::new(SHARDS).unwrap();
    let mut shards = HashMap::new();
    for job in cluster.jobs.list(&ListParams::default()).await.unwrap().items {
        shards.insert(job.metadata.name.unwrap(), count.shard_of(&job.metadata.uid.unwrap()));
    }
    let job_of = |name: &str| shards.get(name).copied();
    // Pod names start with the name of their Job.
    let pod_of = |name: &str| job_of(name.splitn(3, '-').take(2).collect::<Vec<_>>().join("-").as_str());
    let shard_of = |write: &AuditRecord| {
        let path: Vec<&str> = write.path.split('/').collect();
        match path.as_slice() {
            [.., "pods"] => pod_of(write.created.as_deref()?),
            [.., "pods", name] => pod_of(name),
            [.., "jobs", name, "status"] => job_of(name),
            _ => None,
        }
    };
    let mut reigns: BTreeMap<ShardId, Vec<Reign>> = BTreeMap::new();
    let mut writes: Vec<AuditRecord> =
        cluster.writes().into_iter().filter(|write| write.user_agent.starts_with("yardmaster/")).collect();
    writes.sort_by_key(|write| write.received);
    for write in writes {
        let Some(shard) = shard_of(&write) else { continue };
        let reigns = reigns.entry(shard).or_default();
        match reigns.last_mut() {
            Some(reign) if reign.replica == write.user_agent => reign.last = reign.last.max(write.answered),
            _ => {
                reigns.push(Reign { replica: write.user_agent, first: write.received, last: write.answered })
            }
        }
    }
    reigns
}

/// Asserts that no owner's writes for a shard overlap with those of the next owner.
async fn assert_one_at_a_time(yard: &Yard) {
    for (shard, reigns) in reigns(&yard.cluster).await {
        for pair in reigns.windows(2) {
            assert!(pair[0].last <= pair[1].first, "shard {shard}: {pair:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_join_and_leave_under_load() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0]);
    yard.shared_by(&[0]).await;
    yard.create_jobs().await;
    yard.join([1, 2, 3]);
    yard.shared_by(&[0, 1, 2, 3]).await;
    yard.leave(0);
    yard.shared_by(&[1, 2, 3]).await;
    yard.leave(2);
    yard.shared_by(&[1, 3]).await;
    yard.assert_exact().await;
    assert_one_at_a_time(&yard).await;
    let moves: u64 = yard.claims().await.values().map(|(_, epoch)| epoch - 1).sum();
    // At most a share and one for each replica that joins or leaves: 8, 6, 4 for the joins, 4, 6 for the
    // leaves.
    assert!(moves <= 8 + 6 + 4 + 4 + 6 + 5, "{moves} shards were moved");
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_replica_is_replaced() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0, 1, 2]);
    yard.shared_by(&[0, 1, 2]).await;
    yard.create_jobs().await;
    yard.cluster.until_pods(60).await;
    yard.signal(1, Signal::SIGKILL);
    yard.replicas.remove(&1);
    yard.shared_by(&[0, 2]).await;
    yard.assert_exact().await;
    assert_one_at_a_time(&yard).await;
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_owner_does_no_harm_when_it_resumes() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0, 1]);
    yard.shared_by(&[0, 1]).await;
    yard.create_jobs().await;
    yard.cluster.until_pods(60).await;
    yard.signal(0, Signal::SIGSTOP);
    yard.shared_by(&[1]).await;
    yard.signal(0, Signal::SIGCONT);
    yard.shared_by(&[0, 1]).await;
    yard.assert_exact().await;
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partitioned_owner_is_replaced_and_comes_back() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0, 1]);
    yard.shared_by(&[0, 1]).await;
    yard.create_jobs().await;
    yard.cluster.until_pods(60).await;
    let scope = || FaultScope { user_agent: "(replica-0)".into(), ..FaultScope::default() };
    let faults = yard.cluster.server.faults();
    let held = faults.inject(Fault::HoldWatches, scope(), None);
    let cut = faults.inject(Fault::Partition, scope(), None);
    yard.shared_by(&[1]).await;
    yard.cluster.server.faults().remove(cut);
    yard.cluster.server.faults().remove(held);
    yard.shared_by(&[0, 1]).await;
    yard.assert_exact().await;
    assert_one_at_a_time(&yard).await;
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ownership_survives_lost_answers_and_a_slow_api_server() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    let faults = yard.cluster.server.faults();
    let leases =
        || FaultScope { user_agent: "yardmaster/".into(), path: "/leases".into(), ..FaultScope::default() };
    faults.inject(Fault::LoseReplies, FaultScope { every: 3, ..leases() }, None);
    faults.inject(Fault::Delay(Duration::from_millis(500)), leases(), None);
    yard.join([0, 1, 2]);
    yard.create_jobs().await;
    yard.shared_by(&[0, 1, 2]).await;
    yard.leave(1);
    yard.shared_by(&[0, 2]).await;
    yard.assert_exact().await;
    assert_one_at_a_time(&yard).await;
    yard.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_different_shard_count_is_refused_until_reshard() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0]);
    yard.shared_by(&[0]).await;
    yard.cluster.create("before", json!({"completions": 40, "parallelism": 4}), "100ms").await;
    yard.cluster.until_pods(4).await;
    let kubeconfig = yard.cluster.write_kubeconfig(yard.directory.path());
    let run = |arguments: &[&str]| {
        let mut command = yardmaster();
        command.args(arguments).args(["--controller-name", REPLACEMENT, "--kubeconfig"]).arg(&kubeconfig);
        command.output().unwrap()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();

    let refused = run(&["controller", "--shards", "64", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(2));
    let line = text(&refused.stderr);
    assert!(line.contains("--shards 64") && line.contains("reshard --to 64"), "{line}");

    let refused = run(&["reshard", "--to", "64"]);
    assert_eq!(refused.status.code(), Some(3), "while a replica runs");
    assert!(text(&refused.stderr).contains("replica-0 runs"), "{}", text(&refused.stderr));

    // Where the command was given the wrong namespace.
    let refused = run(&["reshard", "--to", "64", "--lease-namespace", "elsewhere"]);
    assert_eq!(refused.status.code(), Some(3), "while a replica runs");
    let line = text(&refused.stderr);
    assert!(line.contains("replica-0 runs, with its Leases in namespace default"), "{line}");

    yard.leave(0);
    let refused = run(&["reshard", "--to", "64", "--lease-namespace", "elsewhere"]);
    assert_eq!(refused.status.code(), Some(3));
    let line = text(&refused.stderr);
    assert!(line.contains("recorded in namespace elsewhere") && line.contains("--force"), "{line}");
    // A webhook for one user's pods does not stop the Jobs of others.
    let labels =
        FaultScope { methods: vec![http::Method::PATCH], path: "/pods/".into(), ..FaultScope::default() };
    yard.cluster.server.faults().inject(Fault::DenyByWebhook(1 << 20), labels, Some(1));
    let changed = run(&["reshard", "--to", "64"]);
    assert_eq!(changed.status.code(), Some(0), "{}", text(&changed.stderr));
    let lines = text(&changed.stdout);
    assert!(lines.contains("Cannot label pod default/before-"), "{lines}");
    assert!(lines.contains(" to 64 shards and relabelled "), "{lines}");
    let refused = run(&["controller", "--shards", "16", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.status.code(), Some(2));

    let mut command = yard.cluster.replica(&yard.directory);
    let mut replica = Background::start(command.args(["--shards", "64", "--identity", "replica-9"]));
    yard.until_claimed(64, "replica-9").await;
    yard.cluster.assert_exact("before", 40).await;
    yard.cluster.assert_pods_ever(40).await;
    let count = ShardCount::new(64).unwrap();
    for pod in yard.cluster.pods_of("before").await {
        let shard = count.shard_of(&pod.metadata.owner_references.unwrap()[0].uid);
        let is_refused = lines.contains(&format!("default/{}:", pod.metadata.name.unwrap()));
        let is_right = pod.metadata.labels.unwrap()["yardmaster.dev/shard"] == shard.to_string();
        assert!(is_right || is_refused && pod.metadata.finalizers.is_none(), "{lines}");
    }
    replica.signal(Signal::SIGTERM);
    assert_eq!(replica.exit_code(), Some(0));
    yard.end().await;
}

/// Without Leases: names, UIDs and versions alone must keep two owners from doing harm.
#[tokio::test(flavor = "multi_thread")]
async fn two_owners_of_everything_create_no_extra_pod_and_count_none_twice() {
    for seed in 0..3 {
        let cluster = Cluster::start().await;
        let settings = |identity: &str| ControllerConfig {
            controller_name: REPLACEMENT.into(),
            identity: identity.into(),
            shards: ShardCount::new(2).unwrap(),
            api_backoff: Duration::from_millis(50),
            api_backoff_max: Duration::from_millis(200),
            test_hooks: TestHooks { without_leases: true, ..TestHooks::default() },
            seed,
            ..ControllerConfig::default()
        };
        let mut random = SmallRng::seed_from_u64(seed);
        let one = cluster.controller(settings("one")).await;
        let two = cluster.controller(settings("two")).await;
        for job in 0..6 {
            let mode = if job % 2 == 0 { "Indexed" } else { "NonIndexed" };
            let parallelism = random.random_range(1..8);
            let spec = json!({"completions": 30, "parallelism": parallelism, "completionMode": mode});
            cluster.create(&format!("job-{job}"), spec, "30ms").await;
        }
        for job in 0..6 {
            cluster.assert_exact(&format!("job-{job}"), 30).await;
        }
        cluster.assert_pods_ever(180).await;
        one.abort().await;
        two.abort().await;
        cluster.end().await;
    }
}

/// Nearly all work is in the shards of one replica, although both own the same number of shards.
#[tokio::test(flavor = "multi_thread")]
async fn shards_are_balanced_by_work() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0, 1]);
    yard.shared_by(&[0, 1]).await;
    // The long Jobs are suspended until their shards are known. Then the Jobs in shards of replica 0 are
    // resumed.
    let much = json!({"completions": 1000, "parallelism": 20, "suspend": true});
    for job in 0..24 {
        yard.cluster.create(&format!("long-{job}"), much.clone(), "5s").await;
    }
    for job in 0..JOBS {
        let spec = json!({"completions": PODS, "parallelism": 2, "completionMode": "Indexed"});
        yard.cluster.create(&format!("job-{job}"), spec, "1s").await;
    }
    let (count, claims) = (ShardCount::new(SHARDS).unwrap(), yard.claims().await);
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    let mut resumed = Vec::new();
    for job in yard.cluster.jobs.list(&ListParams::default()).await.unwrap().items {
        let (name, shard) = (job.metadata.name.unwrap(), count.shard_of(&job.metadata.uid.unwrap()));
        if name.starts_with("long") && claims[&shard].0.as_deref() == Some("replica-0") {
            yard.cluster.jobs.patch(&name, &PatchParams::default(), &resume).await.unwrap();
            resumed.push(shard);
        }
    }
    let deadline = Instant::now() + PATIENCE;
    loop {
        let claims = yard.claims().await;
        let others = resumed.iter().filter(|shard| claims[*shard].0.as_deref() == Some("replica-1"));
        if others.count() * 4 >= resumed.len() {
            break;
        }
        assert!(Instant::now() < deadline, "replica 0 still has nearly all: {resumed:?} {claims:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    yard.shared_by(&[0, 1]).await;
    for job in 0..JOBS {
        yard.cluster.assert_exact(&format!("job-{job}"), PODS).await;
    }
    assert_one_at_a_time(&yard).await;
    yard.end().await;
}

/// The Lease of a heartbeat or a claim may be deleted by hand at any time.
#[tokio::test(flavor = "multi_thread")]
async fn leases_deleted_by_hand_are_created_again() {
    let mut yard = Yard::start(ApiServerConfig::default()).await;
    yard.join([0, 1]);
    yard.shared_by(&[0, 1]).await;
    yard.create_jobs().await;
    yard.cluster.until_pods(40).await;
    for lease in yard.leases.list(&ListParams::default()).await.unwrap().items {
        let name = lease.metadata.name.unwrap();
        if !name.ends_with("layout") {
            // It may be gone already, or deleted and created again.
            let _deleted = yard.leases.delete(&name, &Default::default()).await;
        }
    }
    yard.shared_by(&[0, 1]).await;
    yard.assert_exact().await;
    yard.end().await;
}
