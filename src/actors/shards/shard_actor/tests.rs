#![allow(clippy::unwrap_used)]

mod answered;
mod candidates;
mod caught_up;
mod foreign_jobs;
mod gangs;
mod held;
mod hidden_pods;
mod large_templates;
mod left_alone;
#[cfg(feature = "test-hooks")]
mod rebuilt;
mod relisted;
mod strangers;
mod taken_names;
mod tenants;
mod timers;
mod undone;
mod unlabelled;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::Message;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::actors::messages::protocol::JobReport;
use crate::actors::messages::subscription::SubscriptionId;
use crate::actors::pods::pod_watch::Pods;
use crate::actors::test_api::{
    TestApi, job, list, observed_job, observed_pod, pod, refusal, replica, replica_with, run,
};
use crate::cluster::boot_clock::AwakeClock;
use crate::cluster::watch::Change;
use crate::cluster::wire::Unreadable;
use crate::job::names::BUILT_IN_CONTROLLER;
use actix::Handler;

/// Time in which everything happens that does not wait for something.
const SOON: Duration = Duration::from_millis(500);
/// The requests that create pods.
const CREATION: &[&str] = &["POST /api/v1/namespaces/n/pods"];
/// The live lists of pods of Jobs in doubt.
const LIVE_LIST: &[&str] = &["GET", "controller-uid+in+%28"];
/// The statuses of `j` that count a pod.
const COUNTS: &[&str] = &["PATCH", "/jobs/j/status", r#""uncountedTerminatedPods":{"succeeded":["#];

/// A shard whose Jobs and first list of pods are known.
struct Shard(Addr<ShardActor>);

impl Shard {
    async fn start(api: &TestApi, jobs: &[Value], pods: Vec<Value>) -> Self {
        let cx = replica(api, BUILT_IN_CONTROLLER);
        Self::start_fenced(cx, Fence::unlimited(), jobs, pods).await
    }

    /// A shard whose Jobs may be older than the claim on it.
    async fn start_behind(api: &TestApi, jobs: &[Value], pods: Vec<Value>) -> Self {
        let cx = replica(api, BUILT_IN_CONTROLLER);
        let shard = Self::new(ShardId(0), cx, Fence::unlimited(), jobs).await;
        shard.all_listed(pods).await;
        shard
    }

    /// A shard that acts while this fence is open.
    async fn start_fenced(cx: ReplicaContext, fence: Fence, jobs: &[Value], pods: Vec<Value>) -> Self {
        Self::start_as(ShardId(0), cx, fence, jobs, pods).await
    }

    async fn start_as(
        id: ShardId,
        cx: ReplicaContext,
        fence: Fence,
        jobs: &[Value],
        pods: Vec<Value>,
    ) -> Self {
        let shard = Self::new(id, cx, fence, jobs).await;
        shard.caught_up().await;
        shard.all_listed(pods).await;
        shard
    }

    async fn new(id: ShardId, cx: ReplicaContext, fence: Fence, jobs: &[Value]) -> Self {
        let waits = WaitingJobs::new(&cx.metrics);
        let unit = Unit::new(cx.runtime.clone(), || {});
        let in_flight = TaskTracker::new();
        let owned = Owned { id, epoch: 1, fence, waits, in_flight, unit };
        for job in jobs {
            cx.job_index.insert(observed_job(job).job.as_ref().unwrap());
        }
        let progress = ProgressSender::channel().0;
        let shard = Self(ShardActor::create(|ctx| ShardActor::new(owned, cx, progress, &ctx.address())));
        for job in jobs {
            shard.job(job).await;
        }
        shard
    }

    async fn all_listed(&self, pods: Vec<Value>) {
        self.0.send(JobsListed).await.unwrap();
        self.listed(100, pods).await;
    }

    async fn caught_up(&self) {
        self.0.send(JobsCaughtUp).await.unwrap();
    }

    async fn job(&self, job: &Value) {
        self.0.send(JobSeen { job: observed_job(job), arrived: Instant::now() }).await.unwrap();
    }

    /// The watch lists these pods.
    async fn listed(&self, version: u64, pods: Vec<Value>) {
        let mut changes = vec![Change::Restarted];
        changes.extend(pods.iter().map(change));
        changes.push(synced(version));
        self.watched(changes).await;
        self.brought(SubscriptionId(1), vec![Change::Restarted, synced(version)]).await;
    }

    /// The watch brings these changes.
    async fn watched(&self, changes: Vec<Change<Box<ObservedPod>>>) {
        self.brought(SubscriptionId(0), changes).await;
    }

    /// Sends changes from a watch: the first, or that of unlabelled pods if there is one.
    async fn brought(&self, from: SubscriptionId, changes: Vec<Change<Box<ObservedPod>>>) {
        self.0.send(Pods { from, arrived: Instant::now(), changes }).await.unwrap();
    }
}

fn change(pod: &Value) -> Change<Box<ObservedPod>> {
    match unreadable(pod) {
        Some(unreadable) => Change::Unreadable(unreadable),
        None => Change::Listed(observed_pod(pod)),
    }
}

fn synced(version: u64) -> Change<Box<ObservedPod>> {
    Change::Synced { version }
}

fn applied(pod: &Value) -> Change<Box<ObservedPod>> {
    Change::Applied(observed_pod(pod))
}

fn unreadable(pod: &Value) -> Option<Unreadable> {
    let created = pod["metadata"]["creationTimestamp"].is_null();
    created.then(|| Unreadable::in_list(pod.to_string().as_bytes(), &std::fmt::Error).unwrap())
}

/// The pod, so that it cannot be read.
fn broken(mut pod: Value) -> Value {
    pod["metadata"]["creationTimestamp"] = Value::Null;
    pod
}

fn labelled(mut pod: Value) -> Value {
    pod["metadata"]["labels"]["yardmaster.dev/shard"] = "0".into();
    pod
}

/// A complete status with one active pod, after this many successes.
fn up_to_date(succeeded: u64) -> Value {
    json!({
        "active": 1, "ready": 0, "terminating": 0, "succeeded": succeeded, "uncountedTerminatedPods": {},
        "startTime": "1970-01-01T00:00:00Z",
    })
}

/// The Job `m`, which selects pods by a label of its own.
fn manual_job(status: Value) -> Value {
    let mut manual = job("m", status);
    manual["spec"]["manualSelector"] = true.into();
    manual["spec"]["selector"] = json!({"matchLabels": {"own": "m"}});
    manual["spec"]["template"]["metadata"]["labels"] = json!({"own": "m"});
    manual
}

/// The pod at this version, in this phase.
fn at(version: u64, phase: &str, mut pod: Value) -> Value {
    pod["metadata"]["resourceVersion"] = version.to_string().into();
    pod["status"] = json!({"phase": phase});
    pod
}

/// Whether a request is a live list for Jobs in doubt.
fn is_live(uri: &str) -> bool {
    uri.contains("controller-uid") && !uri.contains("watch")
}

/// A read of a pod, or a patch of one.
fn of_pod(method: &str, uri: &str, name: &str) -> bool {
    matches!(method, "GET" | "PATCH") && uri.contains(&format!("/pods/{name}"))
}

/// A clock of the test's own, on which an answer depends.
fn switch() -> (Arc<AtomicU64>, Arc<AtomicU64>) {
    let switch = Arc::new(AtomicU64::new(0));
    (switch.clone(), switch)
}

#[test]
fn a_job_without_unknown_pods_creates_one() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let _shard = Shard::start(&api, &[job("j", json!({}))], vec![]).await;
        sleep(SOON).await;
        assert_eq!(api.count(CREATION), 1);
    });
}

/// In the list of the shard before the Job is known or later, and in a live list.
#[test]
fn a_pod_that_cannot_be_read_holds_its_job_back_wherever_it_is_found() {
    for place in ["list", "list, before its Job", "live list"] {
        run(async {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match is_gone.load(Ordering::Relaxed) {
                _ if uri.contains("/events") => Some((201, json!({}))),
                0 if of_pod(method, uri, "p") => Some((200, broken(pod("p", "j")))),
                _ if of_pod(method, uri, "p") => refusal(404),
                0 if uri.contains("controller-uid") && !uri.contains("watch") => {
                    list(200, &[broken(pod("p", "j"))])
                }
                _ if uri.contains("controller-uid") && !uri.contains("watch") => list(300, &[]),
                _ if method == "GET" && uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                _ => None,
            });
            let known = job("j", json!({"active": u32::from(place == "live list")}));
            let (jobs, pods) = match place {
                "list, before its Job" => (vec![], vec![broken(labelled(pod("p", "j")))]),
                "list" => (vec![known.clone()], vec![broken(pod("p", "j"))]),
                _ => (vec![known.clone()], vec![]),
            };
            let shard = Shard::start(&api, &jobs, pods).await;
            shard.job(&known).await;
            sleep(60 * SOON).await;
            assert_eq!(api.count(CREATION), 0, "{place}");
            gone.store(1, Ordering::Relaxed);
            sleep(400 * SOON).await;
            assert!(api.count(CREATION) > 0, "{place}: it does not exist any more");
            assert_eq!(api.count(&["UnreadablePod"]), 1, "{place}");
        });
    }
}

#[test]
fn a_live_list_that_is_older_than_the_shards_own_does_not_count() {
    run(async {
        let mut version = 20;
        let api = TestApi::new(move |method, uri| {
            if method == "GET" && uri.contains("/jobs/j") {
                return Some((200, job("j", json!({"active": 1}))));
            }
            if !uri.contains("controller-uid") || uri.contains("watch") {
                return None;
            }
            version += 40;
            list(version, &[])
        });
        let _shard = Shard::start(&api, &[job("j", json!({"active": 1}))], vec![]).await;
        sleep(SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0), "60 is older than 100");
        sleep(4 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (2, 1), "100 is not");
    });
}

#[test]
fn reads_of_pods_that_cannot_be_read_are_paced() {
    run(async {
        let api = TestApi::new(|method, uri| match uri.split("/pods/").nth(1) {
            Some(name) if method == "GET" => Some((200, broken(pod(name, "j")))),
            _ => (method == "GET" && uri.contains("/jobs/j")).then(|| (200, job("j", json!({})))),
        });
        let pods = (0..2_000).map(|number| broken(labelled(pod(&format!("p-{number}"), "j")))).collect();
        let _shard = Shard::start(&api, &[job("j", json!({}))], pods).await;
        sleep(Duration::from_secs(60)).await;
        let reads = api.count(&["GET /api/v1/namespaces/n/pods/p-"]);
        assert!((8 * 50..=8 * 60).contains(&reads), "{reads} reads in a minute of one namespace");
    });
}

#[test]
fn a_pod_whose_job_was_there_when_it_was_looked_for_is_released_once_that_is_gone() {
    for vanishes in ["seen", "unseen"] {
        run(async move {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match is_gone.load(Ordering::Relaxed) {
                0 if method == "GET" && uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                _ if method == "GET" && uri.contains("/jobs/j") => refusal(404),
                _ => None,
            });
            let shard = Shard::start(&api, &[], vec![labelled(pod("p", "j"))]).await;
            sleep(SOON).await;
            gone.store(1, Ordering::Relaxed);
            match vanishes {
                "seen" => shard.0.send(JobVanished("j".into())).await.unwrap(),
                _ => shard.0.send(JobsListed).await.unwrap(),
            }
            sleep(SOON).await;
            assert_eq!(api.count(&["PATCH", "/pods/p"]), 1, "{vanishes}");
        });
    }
}

#[test]
fn an_orphan_that_a_finished_job_does_not_adopt_is_released() {
    run(async {
        let mut orphan = labelled(pod("p", "j"));
        orphan["metadata"]["ownerReferences"] = json!([]);
        let found = orphan.clone();
        let api = TestApi::new(move |method, uri| match (method, uri.contains("/pods/p")) {
            ("GET", true) => Some((200, found.clone())),
            ("GET", false) if uri.contains("/jobs/j") => {
                let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
                Some((200, job("j", complete)))
            }
            _ => None,
        });
        let _shard = Shard::start(&api, &[job("j", json!({}))], vec![orphan]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(&["PATCH", "/pods/p"]), 1);
    });
}

/// Its counted pods are wanted again, and of two failed ones the newest is kept while a replacement is due. The
/// shard's other Jobs do not learn of that.
#[test]
fn a_job_whose_options_ask_for_pods_that_were_dropped_is_listed_alone() {
    run(async {
        let counted: Vec<Value> = ["f", "g"]
            .into_iter()
            .map(|name| {
                let mut pod = labelled(pod(name, "j"));
                pod["metadata"]["finalizers"] = json!([]);
                pod["status"] = json!({"phase": "Failed"});
                pod
            })
            .collect();
        let found = counted.clone();
        let api = TestApi::new(move |_, uri| {
            let is_live = uri.contains("controller-uid") && !uri.contains("watch");
            if is_live { list(150, &found) } else { None }
        });
        let mut known = job("j", json!({"failed": 2, "startTime": "1970-01-01T00:00:00Z"}));
        let shard = Shard::start(&api, &[known.clone()], counted).await;
        sleep(4 * SOON).await;
        let (of_shard, deletions) = (&["GET", "yardmaster.dev%2Fshard"], &["DELETE", "/pods/"]);
        let before = api.count(of_shard);
        assert_eq!((api.count(LIVE_LIST), api.count(deletions)), (0, 0));
        known["metadata"]["resourceVersion"] = "160".into();
        known["metadata"]["annotations"] = json!({"yardmaster.dev/failed-pods-limit": "0"});
        shard.job(&known).await;
        sleep(4 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(of_shard), api.count(deletions)), (1, before, 1));
    });
}

/// A fence that has lapsed, and a function that extends it.
fn lapsed() -> (Fence, impl Fn()) {
    let now = tokio::time::Instant::now();
    let fence = Fence::until(now, Arc::new(AwakeClock));
    (fence.clone(), move || fence.extend(now + Duration::from_secs(3_600)))
}

#[test]
fn a_pod_is_adopted_or_released_once_a_fence_that_has_lapsed_is_extended() {
    for adopted in [true, false] {
        run(async move {
            let mut found = labelled(pod("p", "j"));
            match adopted {
                true => found["metadata"]["ownerReferences"] = json!([]),
                // The selector does not select it any more.
                false => {
                    found["metadata"]["labels"] = json!({"batch.kubernetes.io/controller-uid": "other"});
                }
            }
            let mut answer = found.clone();
            let api = TestApi::new(move |method, uri| match (method, uri) {
                ("GET", uri) if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                ("GET", uri) if uri.contains("/pods/p") => Some((200, answer.clone())),
                ("PATCH", uri) if uri.contains("/pods/p") => {
                    let owner = pod("p", "j")["metadata"]["ownerReferences"].clone();
                    answer["metadata"]["ownerReferences"] = if adopted { owner } else { json!([]) };
                    let kept = if adopted { vec!["batch.kubernetes.io/job-tracking"] } else { vec![] };
                    answer["metadata"]["finalizers"] = kept.into();
                    Some((200, answer.clone()))
                }
                _ => None,
            });
            let (fence, extend) = lapsed();
            let cx = replica(&api, BUILT_IN_CONTROLLER);
            let _shard = Shard::start_fenced(cx, fence, &[job("j", json!({}))], vec![found]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(&["PATCH"]), 0, "adopted: {adopted}");
            extend();
            sleep(60 * SOON).await;
            assert_eq!(api.count(&["PATCH", "/pods/p"]), 1, "adopted: {adopted}");
            // A further pod would be a surplus.
            assert_eq!(api.count(CREATION), usize::from(!adopted), "adopted: {adopted}");
        });
    }
}

/// Otherwise its pods would keep their finalizers forever, and its namespace would stay.
#[test]
fn a_pod_that_cannot_be_read_does_not_keep_a_job_that_leaves() {
    for leaves in ["gone", "gone before", "gone, and the pod is not released", "deleted"] {
        run(async move {
            let mut ended = labelled(pod("a", "j"));
            ended["status"] = json!({"phase": "Succeeded"});
            let mut deleted = job("j", json!({}));
            deleted["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            deleted["metadata"]["resourceVersion"] = "20".into();
            let (left, has_left) = switch();
            let found = deleted.clone();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/pods/p") => Some((200, broken(pod("p", "j")))),
                "GET" if uri.contains("/jobs/j") => match has_left.load(Ordering::Relaxed) {
                    0 => Some((200, job("j", json!({})))),
                    _ if leaves == "deleted" => Some((200, found.clone())),
                    _ => refusal(404),
                },
                "PATCH" if uri.contains("/pods/p") && leaves.ends_with("released") => refusal(403),
                "PATCH" => Some((200, json!({"metadata": {"resourceVersion": "30"}}))),
                _ => None,
            });
            let jobs = if leaves == "gone before" { vec![] } else { vec![job("j", json!({}))] };
            left.store(u64::from(jobs.is_empty()), Ordering::Relaxed);
            let pods = vec![ended, broken(labelled(pod("p", "j")))];
            let shard = Shard::start(&api, &jobs, pods).await;
            sleep(4 * SOON).await;
            let known = usize::from(!jobs.is_empty());
            assert_eq!(api.count(&["PATCH", "/pods/a"]), 1 - known, "{leaves}: it is held back");
            left.store(1, Ordering::Relaxed);
            match leaves {
                "deleted" => shard.job(&deleted).await,
                _ => shard.0.send(JobVanished("j".into())).await.unwrap(),
            }
            sleep(400 * SOON).await;
            let untracks = ["PATCH", "/pods/p", "deleteFromPrimitiveList"];
            assert!(api.count(&untracks) >= 1, "{leaves}");
            let goes_on = if leaves == "deleted" { "/jobs/j/status" } else { "/pods/a" };
            assert!(api.count(&["PATCH", goes_on]) >= 1, "{leaves}");
        });
    }
}

#[test]
fn a_list_that_never_succeeds_holds_up_no_other_job_in_doubt() {
    run(async {
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("own+in") => refusal(500),
            "GET" if uri.contains("controller-uid") && !uri.contains("watch") => list(150, &[]),
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({"active": 1})))),
            _ => None,
        });
        let shard = Shard::start(&api, &[manual_job(json!({"active": 1}))], vec![]).await;
        sleep(4 * SOON).await;
        assert!(api.count(&["own+in+%28m%29 "]) > 1, "it is in doubt: {:?}", api.sent());
        shard.job(&job("j", json!({"active": 1}))).await;
        sleep(4 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 1));
    });
}
