//! `yardmaster cluster --data-dir`: acknowledged writes survive a kill, and no object is half written.
#![cfg(feature = "embedded")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod durability_cluster;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{
    Api, DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::{Client, ResourceExt as _};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;
use tokio::task::JoinSet;

use crate::binary::{PATIENCE, until};
use crate::durability_cluster::{DataDir, is_alive};

/// Number of times the server is started.
const LIVES: usize = 5;
const WRITERS: usize = 8;
/// Names that each writer creates, changes and deletes.
const NAMES: usize = 20;

/// A ConfigMap from the point of view of a writer.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    uid: String,
    version: u64,
    /// The writer's number for the write.
    write: u64,
}

/// The state that a writer relies on.
#[derive(Default)]
struct Memory {
    acknowledged: BTreeMap<String, Option<Known>>,
    /// Name of the object whose write was not answered, and the number of the write (`None` for a deletion).
    in_doubt: Option<(String, Option<u64>)>,
    writes: u64,
    /// The highest resourceVersion of any answer.
    newest: u64,
}

fn version(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

/// Every write sets all fields together, so a map is whole if they agree.
fn known(map: &ConfigMap) -> Known {
    let data = map.data.as_ref().unwrap();
    let write: u64 = data["write"].parse().unwrap();
    assert_eq!(data["again"], filler(write), "{} is half written", map.name_any());
    assert_eq!(map.labels()["write"], write.to_string(), "{} is half written", map.name_any());
    Known { uid: map.uid().unwrap(), version: version(map), write }
}

/// Long enough to span several disk pages.
fn filler(write: u64) -> String {
    format!("{write} ").repeat(usize::try_from(write % 1_500).unwrap())
}

/// Creates, changes and deletes objects until the server is gone.
async fn write_on(client: Client, writer: usize, mut memory: Memory) -> Memory {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    loop {
        memory.writes += 1;
        let write = memory.writes;
        let name = format!("writer-{writer}-{}", write as usize * 7 % NAMES);
        let before = memory.acknowledged.get(&name).cloned().flatten();
        let body = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"write": write.to_string()}},
            "data": {"write": write.to_string(), "again": filler(write)},
        });
        let deletes = before.is_some() && write.is_multiple_of(5);
        let outcome = if deletes {
            maps.delete(&name, &DeleteParams::default()).await.map(|_| None)
        } else if before.is_some() {
            maps.patch(&name, &PatchParams::default(), &Patch::Merge(body)).await.map(Some)
        } else {
            maps.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.map(Some)
        };
        match outcome {
            Ok(map) => {
                let now = map.as_ref().map(known);
                memory.newest = memory.newest.max(now.as_ref().map_or(0, |known| known.version));
                memory.acknowledged.insert(name, now);
            }
            Err(kube::Error::Api(status)) => panic!("write {write} of {name}: {status:?}"),
            // The connection broke: it is unknown whether this write was applied.
            Err(_) => {
                memory.in_doubt = Some((name, (!deletes).then_some(write)));
                return memory;
            }
        }
    }
}

/// Compares the present objects with those that a writer was promised, and resolves the write in doubt.
fn check(memory: &mut Memory, present: &BTreeMap<String, Known>) {
    for (name, promised) in &mut memory.acknowledged {
        let found = present.get(name);
        let in_doubt = memory.in_doubt.as_ref().filter(|(doubted, _)| doubted == name);
        let applied = in_doubt.is_some_and(|(_, write)| found.map(|known| known.write) == *write);
        assert!(
            applied || found == promised.as_ref(),
            "{name}: promised {promised:?}, found {found:?}, in doubt {in_doubt:?}"
        );
        *promised = found.cloned();
    }
    if let Some((name, _)) = memory.in_doubt.take() {
        memory.acknowledged.insert(name.clone(), present.get(&name).cloned());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_writes_survive_a_kill() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = DataDir::new();
    let mut memories: Vec<Memory> = (0..WRITERS).map(|_| Memory::default()).collect();
    for life in 0..LIVES {
        let cluster = directory.start(&["--api-only"]);
        let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
        let list = maps.list(&ListParams::default()).await.unwrap();
        let present: BTreeMap<String, Known> = list.iter().map(|map| (map.name_any(), known(map))).collect();
        let revision: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        for memory in &mut memories {
            assert!(revision >= memory.newest, "revisions went back from {} to {revision}", memory.newest);
            check(memory, &present);
        }
        let promised = memories.iter().flat_map(|memory| memory.acknowledged.values().flatten()).count();
        assert_eq!(promised, present.len(), "something is there that nobody wrote");
        println!("life {life}: {promised} objects at revision {revision}");

        let mut writers = JoinSet::new();
        for (writer, memory) in memories.drain(..).enumerate() {
            let client = cluster.client().await;
            writers.spawn(async move { (writer, write_on(client, writer, memory).await) });
        }
        tokio::time::sleep(Duration::from_millis(random.random_range(50..600))).await;
        cluster.kill();
        let mut ended = writers.join_all().await;
        ended.sort_by_key(|(writer, _)| *writer);
        memories = ended.into_iter().map(|(_, memory)| memory).collect();
    }
    let writes: u64 = memories.iter().map(|memory| memory.writes).sum();
    assert!(writes > 100, "only {writes} writes in {LIVES} lives");
    println!("{writes} writes");
}

#[tokio::test]
async fn a_full_disk_ends_the_cluster() {
    let directory = DataDir::new();
    let cluster = directory.start_with_little_room(32_768);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let create = async |maps: &Api<ConfigMap>, number: usize| {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{number:03}")},
            "data": {"much": "x".repeat(500_000)},
        });
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await
    };
    let mut acknowledged = Vec::new();
    while let Ok(map) = create(&maps, acknowledged.len()).await {
        assert!(acknowledged.len() < 100, "there was room for more than there is");
        acknowledged.push(map);
    }
    assert!(!acknowledged.is_empty());
    assert_eq!(cluster.ended(": cannot keep what is written: "), Some(3));

    let cluster = directory.start(&["--api-only"]);
    let list = maps.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(list, acknowledged, "all acknowledged objects are present, and the refused one is not");
    create(&maps, acknowledged.len()).await.unwrap();
    cluster.stop();
}

#[tokio::test]
async fn a_watch_resumes_after_a_restart_or_expires_with_410() {
    let directory = DataDir::new();
    let cluster = directory.start(&["--api-only"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let create = async |maps: &Api<ConfigMap>, name: &str| {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
    };
    let first = create(&maps, "first").await.resource_version().unwrap();
    let last = create(&maps, "last").await.resource_version().unwrap();
    let url = cluster.url.clone();
    cluster.kill();

    let cluster = directory.start(&["--api-only"]);
    assert_eq!(cluster.url, url, "the address stays");
    let mut events = maps.watch(&WatchParams::default(), &last).await.unwrap().boxed();
    let next = create(&maps, "next").await;
    match tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap().unwrap() {
        WatchEvent::Added(map) => assert_eq!(map, next),
        event => panic!("{event:?}"),
    }
    let mut events = maps.watch(&WatchParams::default(), &first).await.unwrap().boxed();
    match tokio::time::timeout(PATIENCE, events.next()).await.unwrap().unwrap() {
        Ok(WatchEvent::Error(status)) => assert_eq!(status.code, 410),
        event => panic!("{event:?}"),
    }
    cluster.stop();
}

#[test]
fn an_unusable_directory_is_reported_in_one_line() {
    let directory = DataDir::new();
    let cluster = directory.start(&["--api-only"]);
    let (code, line) = directory.refused();
    assert_eq!((code, line.contains("another process is using it")), (3, true), "{line}");
    cluster.stop();
    let store = directory.path().join("store.redb");
    let whole = std::fs::read(&store).unwrap();
    std::fs::write(&store, whole.get(..whole.len() / 3).unwrap()).unwrap();
    let (code, line) = directory.refused();
    assert_eq!((code, line.contains("damaged")), (3, true), "{line}");
    std::fs::remove_dir_all(directory.path()).unwrap();
    std::fs::write(directory.path(), "").unwrap();
    let (code, line) = directory.refused();
    assert_eq!((code, line.starts_with("--data-dir ")), (2, true), "{line}");
}

/// A Job whose pods record their process ids, wait for the file `go`, and record their names when they are
/// done.
fn job(policy: &str, completions: u32, directory: &DataDir) -> Job {
    let [pids, go, done] = ["pids", "go", "done"].map(|name| directory.file(name));
    let script = format!(
        "echo $$$$ >> {pids}; until test -e {go}; do sleep 0.05; done; sleep 0.2; echo $HOSTNAME >> {done}; echo done"
    );
    serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "work", "annotations": {
            // The many consecutive failures must not add up to minutes of back-off.
            "yardmaster.dev/backoff-initial": "50ms", "yardmaster.dev/backoff-max": "200ms",
        }},
        "spec": {
            "completions": completions, "parallelism": 6, "backoffLimit": 1000,
            "template": {"spec": {"restartPolicy": policy, "containers": [
                {"name": "main", "image": "none", "command": ["sh", "-c", script]},
            ]}},
        },
    }))
    .unwrap()
}

/// Runs a Job while the whole cluster is killed repeatedly. Returns it with its pods.
async fn run_through_kills(policy: &str, completions: u32) -> (Job, Vec<Pod>, DataDir) {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let directory = DataDir::new();
    let mut cluster = directory.start(&[]);
    let job = job(policy, completions, &directory);
    let jobs: Api<Job> = Api::default_namespaced(cluster.client().await);
    jobs.create(&PostParams::default(), &job).await.unwrap();
    // The first kill always hits a running container. The others come at random moments.
    until("a container runs", || !directory.lines("pids").is_empty());
    cluster.kill();
    std::fs::write(directory.file("go"), "").unwrap();
    for _ in 0..2 {
        cluster = directory.start(&[]);
        tokio::time::sleep(Duration::from_millis(random.random_range(200..1_200))).await;
        cluster.kill();
    }
    cluster = directory.start(&[]);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let job = loop {
        let job = jobs.get("work").await.unwrap();
        if job.status.as_ref().is_some_and(|status| status.completion_time.is_some()) {
            break job;
        }
        assert!(tokio::time::Instant::now() < deadline, "{:?}", job.status);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let pods: Api<Pod> = Api::default_namespaced(cluster.client().await);
    let list = pods.list(&ListParams::default()).await.unwrap().items;
    for pod in list.iter().filter(|pod| phase(pod) == "Succeeded") {
        let log = pods.logs(&pod.name_any(), &LogParams::default()).await.unwrap();
        assert_eq!(log, "done\n", "the log of {}, whenever it ended", pod.name_any());
    }
    for pid in directory.lines("pids") {
        assert!(!is_alive(&pid), "process {pid} of an earlier run is still alive");
    }
    cluster.stop();
    (job, list, directory)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_survives_kills_of_the_cluster_and_counts_exactly() {
    let (job, pods, directory) = run_through_kills("Never", 20).await;
    let status = job.status.unwrap();
    let names = |wanted: &str| -> Vec<String> {
        pods.iter().filter(|pod| phase(pod) == wanted).map(|pod| pod.name_any()).collect()
    };
    let (succeeded, failed) = (names("Succeeded"), names("Failed"));
    assert_eq!((status.succeeded, succeeded.len()), (Some(20), 20));
    assert_eq!(usize::try_from(status.failed.unwrap_or(0)).unwrap(), failed.len());
    assert_eq!(succeeded.len() + failed.len(), pods.len(), "no pod is left in between");
    let done = directory.lines("done");
    // If a pod has finished its work without a report, it has failed.
    for pod in &succeeded {
        assert_eq!(done.iter().filter(|name| *name == pod).count(), 1, "{pod}");
    }
    assert!(!failed.is_empty(), "some pod must have been hit");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_may_be_restarted_continue_after_kills_of_the_cluster() {
    let (job, pods, _directory) = run_through_kills("OnFailure", 20).await;
    let status = job.status.unwrap();
    assert_eq!((status.succeeded, status.failed.unwrap_or(0)), (Some(20), 0));
    assert!(pods.iter().all(|pod| phase(pod) == "Succeeded"));
    let restarts: i32 = pods
        .iter()
        .flat_map(|pod| pod.status.as_ref()?.container_statuses.as_ref()?.first())
        .map(|container| container.restart_count)
        .sum();
    assert!(restarts > 0, "some container must have been restarted");
}
