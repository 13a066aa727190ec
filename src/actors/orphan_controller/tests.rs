#![allow(clippy::unwrap_used)]

use actix::Addr;
use serde_json::{Value, json};

use super::*;
use crate::actors::subscription::SubscriptionId;
use crate::actors::test_api::{TestApi, job, list, observed_pod, pod, refusal, replica, run};
use crate::job::names::BUILT_IN_CONTROLLER;

const SOON: Duration = Duration::from_secs(1);
/// The watch of pods that carry the label of a Job, and the one of all.
const OF_JOBS: &[&str] = &[
    "labelSelector=batch.kubernetes.io%2Fcontroller-uid%2Cyardmaster.dev%2Fshard+notin+%280%29",
    "resourceVersion=9",
];
const ALL: &[&str] = &["labelSelector=yardmaster.dev%2Fshard+notin+%280%29&", "resourceVersion=9"];
/// The list of pods that carry neither label: nothing else is asked for.
const STRIPPED: &[&str] =
    &["labelSelector=%21batch.kubernetes.io%2Fcontroller-uid%2Cyardmaster.dev%2Fshard+notin+%280%29 "];

async fn elected(cx: &ReplicaContext) -> Addr<OrphanController> {
    let leader = OrphanController::new(cx.clone()).start();
    leader.send(LeadershipChanged(true)).await.unwrap();
    sleep(SOON).await;
    leader
}

#[test]
fn pods_that_have_nothing_to_do_with_jobs_are_watched_once_a_job_may_choose_its_pods() {
    run(async {
        let api = TestApi::new(|method, uri| match (method, uri.contains("watch=true")) {
            ("GET", true) if uri.contains("sendInitialEvents") => refusal(422),
            ("GET", false) => list(9, &[]),
            _ => None,
        });
        let cx = replica(&api, BUILT_IN_CONTROLLER);
        let _leader = elected(&cx).await;
        assert_eq!([OF_JOBS, ALL, STRIPPED].map(|texts| api.count(texts)), [1, 0, 1]);
        cx.pods_may_be_chosen();
        sleep(SOON).await;
        assert_eq!([OF_JOBS, ALL, STRIPPED].map(|texts| api.count(texts)), [1, 1, 1]);
        let _next = elected(&cx).await;
        assert_eq!([OF_JOBS, ALL, STRIPPED].map(|texts| api.count(texts)), [1, 2, 1]);
    });
}

#[test]
fn a_pod_that_has_lost_all_labels_is_released_once_its_job_is_gone() {
    run(async {
        let api = TestApi::new(|method, uri| {
            let mut stripped = pod("p", "j");
            stripped["metadata"]["labels"] = json!({});
            match (method, uri.contains("watch=true")) {
                ("GET", true) if uri.contains("sendInitialEvents") => refusal(422),
                ("GET", false) if uri.contains("%21batch.kubernetes.io") => list(7, &[stripped]),
                ("GET", false) if uri.contains("/jobs/j") => refusal(404),
                ("GET", false) => list(9, &[]),
                _ => None,
            }
        });
        let _leader = elected(&replica(&api, BUILT_IN_CONTROLLER)).await;
        assert_eq!(api.count(&["PATCH", "/pods/p"]), 1);
    });
}

#[derive(Message)]
#[rtype(result = "[usize; 2]")]
struct Held;

impl Handler<Held> for OrphanController {
    type Result = actix::MessageResult<Held>;

    fn handle(&mut self, _: Held, _: &mut Self::Context) -> Self::Result {
        actix::MessageResult(self.leader.as_ref().unwrap().orphan_pods.held())
    }
}

/// No watch shows its end.
#[test]
fn a_pod_without_labels_is_kept_until_the_next_list_of_such_pods() {
    run(async {
        let mut lists = 0;
        let api = TestApi::new(move |method, uri| {
            let mut stripped = pod("p", "j");
            stripped["metadata"]["labels"] = json!({});
            match (method, uri.contains("watch=true")) {
                ("GET", true) if uri.contains("sendInitialEvents") => refusal(422),
                ("GET", false) if uri.contains("%21batch.kubernetes.io") => {
                    lists += 1;
                    if lists == 1 { list(7, &[stripped]) } else { list(8, &[]) }
                }
                ("GET", false) if uri.contains("/jobs/j") => refusal(500),
                ("GET", false) => list(9, &[]),
                _ => None,
            }
        });
        let cx = replica(&api, BUILT_IN_CONTROLLER);
        let leader = elected(&cx).await;
        assert_eq!(leader.send(Held).await.unwrap(), [1, 0]);
        sleep(super::STRIPPED_LIMITS.1 + SOON).await;
        assert_eq!(leader.send(Held).await.unwrap(), [0, 0]);
    });
}

#[derive(Message)]
#[rtype(result = "usize")]
struct KnownJobs;

impl Handler<KnownJobs> for OrphanController {
    type Result = usize;

    fn handle(&mut self, _: KnownJobs, _: &mut Self::Context) -> usize {
        self.leader.as_ref().unwrap().known.len()
    }
}

#[test]
fn a_pod_and_a_job_that_cannot_be_read_when_they_are_deleted_are_forgotten() {
    run(async {
        let api = TestApi::new(|method, uri| match (method, uri.contains("watch=true")) {
            ("GET", true) if uri.contains("sendInitialEvents") => refusal(422),
            ("GET", false) if uri.contains("/jobs/x") => None,
            ("GET", false) if uri.contains("/jobs") => list(9, &[job("j", json!({}))]),
            ("GET", false) => list(9, &[]),
            _ => None,
        });
        let leader = elected(&replica(&api, BUILT_IN_CONTROLLER)).await;
        let [pods, jobs] = [0, 1].map(SubscriptionId);
        let show = async |change| {
            let arrived = std::time::Instant::now();
            leader.send(Pods { from: pods, arrived, changes: vec![change] }).await.unwrap();
            sleep(SOON).await;
            leader.send(Held).await.unwrap()
        };
        let left = |object: Value| {
            let object = Unreadable::in_list(object.to_string().as_bytes(), &std::fmt::Error).unwrap();
            Unreadable { has_left: true, ..object }
        };
        assert_eq!(show(Change::Applied(observed_pod(&pod("p", "x")))).await, [1, 0]);
        assert_eq!(show(Change::Unreadable(left(pod("p", "x")))).await, [0, 0]);
        assert_eq!(leader.send(KnownJobs).await.unwrap(), 1);
        let changes = vec![Change::Unreadable(left(job("j", json!({}))))];
        leader.send(Outlines { from: jobs, changes }).await.unwrap();
        assert_eq!(leader.send(KnownJobs).await.unwrap(), 0);
    });
}
