//! A shard is claimed, and the watch of Jobs is behind.

use super::*;

/// The live reads of `j`.
const READS: &[&str] = &["GET", "/jobs/j"];

/// An API server whose `j` has this status, in a later version than the watch has shown.
fn api(status: Value) -> TestApi {
    let mut job = job("j", status);
    job["metadata"]["resourceVersion"] = "20".into();
    TestApi::new(move |method, uri| match method {
        "GET" if uri.contains("/jobs/j") => Some((200, job.clone())),
        _ => None,
    })
}

#[test]
fn a_pod_that_the_last_owner_has_counted_does_not_run_again() {
    run(async {
        let api = api(json!({
            "active": 0, "ready": 0, "terminating": 0, "succeeded": 1, "uncountedTerminatedPods": {},
            "startTime": "1970-01-01T00:00:00Z", "completionTime": "1970-01-01T00:00:01Z",
            "conditions": [{"type": "Complete", "status": "True"}],
        }));
        let _shard = Shard::start_behind(&api, &[job("j", json!({}))], Vec::new()).await;
        sleep(SOON).await;
        assert_eq!((api.count(READS), api.count(CREATION)), (1, 0));
    });
}

#[test]
fn a_job_is_read_once_before_it_gets_pods() {
    run(async {
        let api = api(json!({}));
        let _shard = Shard::start_behind(&api, &[job("j", json!({}))], Vec::new()).await;
        sleep(SOON).await;
        assert_eq!((api.count(READS), api.count(CREATION)), (1, 1));
    });
}

#[test]
fn a_job_whose_pods_run_is_not_read() {
    run(async {
        let api = api(json!({}));
        let running = labelled(at(90, "Running", pod("p", "j")));
        let _shard = Shard::start_behind(&api, &[job("j", up_to_date(0))], vec![running]).await;
        sleep(SOON).await;
        assert_eq!((api.count(READS), api.count(CREATION)), (0, 0));
    });
}

#[test]
fn a_job_is_not_read_once_the_watch_has_come_as_far_as_the_claim() {
    run(async {
        let api = api(json!({}));
        let shard = Shard::start_behind(&api, &[], Vec::new()).await;
        shard.caught_up().await;
        shard.job(&job("j", json!({}))).await;
        sleep(SOON).await;
        assert_eq!((api.count(READS), api.count(CREATION)), (0, 1));
    });
}
