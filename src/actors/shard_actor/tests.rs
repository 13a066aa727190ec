#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};

use actix::Addr;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::actors::subscription::SubscriptionId;
use crate::actors::test_api::{TestApi, job, list, observed_job, observed_pod, pod, refusal, replica, run};
use crate::job::names::BUILT_IN_CONTROLLER;

/// Time in which everything happens that does not wait for something.
const SOON: Duration = Duration::from_millis(500);
/// The requests that create pods.
const CREATION: &[&str] = &["POST /api/v1/namespaces/n/pods"];
/// The live lists of pods of Jobs in doubt.
const LIVE_LIST: &[&str] = &["GET", "controller-uid+in+%28"];

/// A shard whose Jobs, census and first list of pods are known.
struct Shard(Addr<ShardActor>);

impl Shard {
    async fn start(api: &TestApi, jobs: &[Value], census: CensusTaken, pods: Vec<Value>) -> Self {
        let cx = replica(api, BUILT_IN_CONTROLLER);
        let waits = Waits::new(&cx.metrics);
        let unit = Unit::new(cx.runtime.clone(), || {});
        let in_flight = TaskTracker::new();
        let owned = Owned { id: ShardId(0), epoch: 1, fence: Fence::unlimited(), waits, in_flight, unit };
        let index = Arc::new(JobIndex::default());
        for job in jobs {
            index.insert(observed_job(job).job.as_ref().unwrap());
        }
        let shard = Self(ShardActor::new(owned, cx, index, ProgressSender::channel().0).start());
        for job in jobs {
            shard.job(job).await;
        }
        shard.0.send(JobsListed).await.unwrap();
        shard.0.send(census).await.unwrap();
        shard.listed(100, pods).await;
        shard
    }

    async fn job(&self, job: &Value) {
        self.0.send(JobSeen { job: observed_job(job), arrived: Instant::now() }).await.unwrap();
    }

    /// The watch lists these pods.
    async fn listed(&self, version: u64, pods: Vec<Value>) {
        let mut changes = vec![Change::Restarted];
        changes.extend(pods.iter().map(change));
        changes.push(Change::Synced { version: version.to_string().into() });
        let pods = Pods { from: SubscriptionId(0), arrived: Instant::now(), changes };
        self.0.send(pods).await.unwrap();
    }
}

fn change(pod: &Value) -> Change<Box<ObservedPod>> {
    match unreadable(pod) {
        Some(unreadable) => Change::Unreadable(unreadable),
        None => Change::Listed(observed_pod(pod)),
    }
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

fn no_census() -> CensusTaken {
    CensusTaken::default()
}

/// A read of a pod, or a patch of one.
fn of_pod(method: &str, uri: &str, name: &str) -> bool {
    matches!(method, "GET" | "PATCH") && uri.contains(&format!("/pods/{name}"))
}

/// A clock of the test's own: what an answer depends on.
fn switch() -> (Arc<AtomicU64>, Arc<AtomicU64>) {
    let switch = Arc::new(AtomicU64::new(0));
    (switch.clone(), switch)
}

#[test]
fn a_job_without_unknown_pods_creates_one() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let _shard = Shard::start(&api, &[job("j", json!({}))], no_census(), vec![]).await;
        sleep(SOON).await;
        assert_eq!(api.count(CREATION), 1);
    });
}

/// In the list of the shard before the Job is known, in the census, and in a live list.
#[test]
fn a_pod_that_cannot_be_read_holds_its_job_back_wherever_it_is_found() {
    for place in ["list", "census", "census, before its Job", "live list"] {
        run(async {
            let (gone, is_gone) = switch();
            let api = TestApi::new(move |method, uri| match is_gone.load(Ordering::Relaxed) {
                0 if of_pod(method, uri, "p") => Some((200, broken(pod("p", "j")))),
                _ if of_pod(method, uri, "p") => refusal(404),
                0 if uri.contains("controller-uid") && !uri.contains("watch") => {
                    list(200, &[broken(pod("p", "j"))])
                }
                _ if uri.contains("controller-uid") && !uri.contains("watch") => list(300, &[]),
                _ => None,
            });
            let known = job("j", json!({"active": u32::from(place == "live list")}));
            let in_census = unreadable(&broken(pod("p", "j"))).filter(|_| place.starts_with("census"));
            let census = CensusTaken { unreadable: in_census.into_iter().collect(), ..no_census() };
            let (jobs, pods) = match place {
                "list" => (vec![], vec![broken(labelled(pod("p", "j")))]),
                "census, before its Job" => (vec![], vec![]),
                _ => (vec![known.clone()], vec![]),
            };
            let shard = Shard::start(&api, &jobs, census, pods).await;
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
fn a_refused_label_is_told_once_and_does_not_matter_for_a_pod_that_is_done() {
    for (phase, goes_on) in [("Running", false), ("Succeeded", false), ("Failed", true)] {
        run(async move {
            let api = TestApi::new(move |method, uri| {
                let mut found = pod(uri.split('/').next_back()?.split('?').next()?, "j");
                found["status"] = json!({"phase": phase});
                if phase == "Failed" {
                    found["metadata"]["finalizers"] = json!([]);
                }
                match (method, uri.contains("/pods/")) {
                    ("PATCH", true) => refusal(403),
                    ("GET", true) => Some((200, found)),
                    ("GET", false) if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                    _ => None,
                }
            });
            let pods = ["a", "b"].map(|name| observed_pod(&pod(name, "j"))).into();
            let census = CensusTaken { pods, ..no_census() };
            let _shard = Shard::start(&api, &[job("j", json!({}))], census, vec![]).await;
            sleep(240 * SOON).await;
            assert_eq!(api.count(CREATION) > 0, goes_on, "{phase}");
            assert_eq!(api.count(&["POST", "UnlabelledPod"]), usize::from(!goes_on), "{phase}");
        });
    }
}

#[test]
fn a_live_list_that_is_older_than_the_shards_own_does_not_count() {
    run(async {
        let mut version = 20;
        let api = TestApi::new(move |_, uri| {
            if !uri.contains("controller-uid") || uri.contains("watch") {
                return None;
            }
            version += 40;
            list(version, &[])
        });
        let _shard = Shard::start(&api, &[job("j", json!({"active": 1}))], no_census(), vec![]).await;
        sleep(SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0), "60 is older than 100");
        sleep(4 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (2, 1), "100 is not");
    });
}

#[test]
fn a_live_list_that_waits_for_labels_is_forgotten_when_the_shard_lists_again() {
    run(async {
        let (labels, may_label) = switch();
        let api = TestApi::new(move |method, uri| match may_label.load(Ordering::Relaxed) {
            0 if method == "PATCH" && uri.contains("/pods/p") => refusal(500),
            _ if of_pod(method, uri, "p") => Some((200, labelled(pod("p", "j")))),
            _ if uri.contains("controller-uid") && !uri.contains("watch") => list(150, &[pod("p", "j")]),
            _ => None,
        });
        // Its status tells of a second pod.
        let known = job("j", json!({"active": 2}));
        let shard = Shard::start(&api, &[known], no_census(), vec![]).await;
        sleep(SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1);
        shard.listed(300, vec![]).await;
        labels.store(1, Ordering::Relaxed);
        sleep(240 * SOON).await;
        assert!(api.count(LIVE_LIST) > 1, "the Job is in doubt again");
    });
}

#[test]
fn reads_of_pods_that_cannot_be_read_are_paced() {
    run(async {
        let api = TestApi::new(|method, uri| {
            let name = uri.split("/pods/").nth(1).filter(|_| method == "GET")?;
            Some((200, broken(pod(name, "j"))))
        });
        let pods = (0..2_000).map(|number| broken(labelled(pod(&format!("p-{number}"), "j")))).collect();
        let _shard = Shard::start(&api, &[job("j", json!({}))], no_census(), pods).await;
        sleep(Duration::from_secs(60)).await;
        let reads = api.count(&["GET /api/v1/namespaces/n/pods/p-"]);
        assert!((16 * 50..=16 * 60).contains(&reads), "{reads} reads in a minute");
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
            let shard = Shard::start(&api, &[], no_census(), vec![labelled(pod("p", "j"))]).await;
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
        let _shard = Shard::start(&api, &[job("j", json!({}))], no_census(), vec![orphan]).await;
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
        let shard = Shard::start(&api, &[known.clone()], no_census(), counted).await;
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
