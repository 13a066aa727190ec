//! Jobs that are left alone since their status is too long.

use super::*;
use crate::cluster::gate::Priority;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::QueueLabels;

/// Longer than the first pauses between two releases.
const PAUSE: Duration = Duration::from_secs(10);
/// A release of a pod.
const RELEASE: &[&str] = &["PATCH", "/pods/", "deleteFromPrimitiveList"];

fn job_at(version: u64) -> Value {
    let mut job = job("j", up_to_date(0));
    job["metadata"]["resourceVersion"] = version.to_string().into();
    job
}

fn deleting(mut job: Value) -> Value {
    job["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
    job
}

fn left_alone(job: &Value) -> JobSeen {
    JobSeen { job: observed_job(job).left_alone(9 << 20).into(), arrived: Instant::now() }
}

fn running(name: &str) -> Value {
    labelled(at(110, "Running", pod(name, "j")))
}

/// The number of requests, without those of watches.
fn requests(api: &TestApi) -> usize {
    api.sent().len() - api.count(&["watch=true"])
}

/// The first work of a new actor rests for no earlier one.
#[test]
fn a_job_that_is_left_alone_again_and_again_is_rebuilt_after_pauses() {
    run(async {
        let api = TestApi::new(|_, uri| if is_live(uri) { list(150, &[running("p")]) } else { None });
        let shard = Shard::start(&api, &[job_at(100)], vec![running("p")]).await;
        for round in 0..600 {
            shard.0.send(left_alone(&job_at(200 + 2 * round))).await.unwrap();
            sleep(Duration::from_millis(50)).await;
            shard.job(&job_at(201 + 2 * round)).await;
            sleep(Duration::from_millis(50)).await;
        }
        let rebuilt = api.count(LIVE_LIST);
        assert!((4..=8).contains(&rebuilt), "{rebuilt} new actors in a minute");
        sleep(Duration::from_secs(60)).await;
        shard.watched(vec![applied(&at(230, "Succeeded", running("p")))]).await;
        sleep(4 * SOON).await;
        assert!(api.count(COUNTS) > 0, "it goes on: {:?}", api.sent());
    });
}

#[test]
fn a_job_that_is_left_alone_is_not_touched_and_counts_its_pods_once_it_is_served_again() {
    // The pod ends before the Job is left alone, or meanwhile; the Job is served again before its actor has ended, or later.
    for (ends_before, at_once) in [(false, false), (false, true), (true, false), (true, true)] {
        run(async move {
            let ended = at(130, "Succeeded", running("p"));
            let found = ended.clone();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if is_live(uri) => list(150, std::slice::from_ref(&found)),
                "GET" if uri.contains("/jobs/j") => Some((200, job_at(140))),
                "PATCH" if uri.contains("/jobs/j") => refusal(409),
                _ => None,
            });
            let shard = Shard::start(&api, &[job_at(100)], vec![running("p")]).await;
            sleep(SOON).await;
            if ends_before {
                shard.0.do_send(Pods {
                    from: SubscriptionId(0),
                    arrived: Instant::now(),
                    changes: vec![applied(&ended)],
                });
            }
            shard.0.do_send(left_alone(&job_at(120)));
            if !at_once {
                sleep(4 * SOON).await;
                shard.0.send(left_alone(&job_at(125))).await.unwrap();
                shard.watched(vec![applied(&ended)]).await;
                let before = requests(&api);
                sleep(400 * SOON).await;
                assert_eq!(requests(&api), before, "nobody does anything for it: {:?}", api.sent());
            }
            let counted = api.count(COUNTS);
            shard.job(&job_at(140)).await;
            sleep(4 * SOON).await;
            assert_eq!((api.count(CREATION), api.count(RELEASE)), (0, 0));
            assert!(api.count(COUNTS) > counted, "{ends_before}, {at_once}: the pod is recorded");
            assert_eq!(api.count(LIVE_LIST), 1, "its actor begins with a live list");
        });
    }
}

#[test]
fn the_pods_of_a_job_that_is_left_alone_are_released_when_it_is_deleted() {
    // The Job had an actor, or was never served. It is gone, or waits until its pods are. Its actor has ended, or not yet.
    for (was_served, is_gone, at_once) in [
        (true, true, false),
        (true, true, true),
        (true, false, false),
        (true, false, true),
        (false, true, false),
        (false, false, false),
    ] {
        let case = format!("served: {was_served}, gone: {is_gone}, at once: {at_once}");
        run(async move {
            let answer = move |method: &str, uri: &str| match method {
                "GET" if is_live(uri) => list(150, &[running("p"), running("q")]),
                "GET" if uri.contains("/jobs/j") && is_gone => refusal(404),
                "GET" if uri.contains("/jobs/j") => Some((200, deleting(job_at(140)))),
                "PATCH" if uri.contains("/pods/") => refusal(404),
                _ => None,
            };
            let api = TestApi::new(answer);
            let jobs = if was_served { vec![job_at(100)] } else { vec![] };
            let shard = Shard::start(&api, &jobs, vec![running("p")]).await;
            if !was_served {
                shard.0.send(left_alone(&job_at(105))).await.unwrap();
            }
            sleep(SOON).await;
            shard.0.do_send(left_alone(&job_at(120)));
            if !at_once {
                sleep(4 * SOON).await;
            }
            match is_gone {
                true => shard.0.do_send(JobVanished("j".into())),
                false => shard.0.do_send(left_alone(&deleting(job_at(140)))),
            }
            sleep(4 * SOON).await;
            assert!(api.count(&["PATCH", "/pods/p"]) > 0 && api.count(&["PATCH", "/pods/q"]) > 0, "{case}");
            assert_eq!(api.count(RELEASE), api.count(&["PATCH"]), "{case}");
            if !is_gone {
                // It may be served again: pods that were released uncounted stay so. A
                // pod that is shown late is released after a pause.
                shard.job(&deleting(job_at(160))).await;
                sleep(8 * SOON).await;
                let released = api.count(RELEASE);
                shard.watched(vec![applied(&at(170, "Running", running("q")))]).await;
                sleep(PAUSE).await;
                assert_eq!((api.count(&["PATCH", "/jobs/j"]), api.count(CREATION)), (0, 0), "{case}");
                assert!(api.count(RELEASE) > released, "{case}");
                shard.0.do_send(JobVanished("j".into()));
                sleep(4 * SOON).await;
            }
            let report = shard.0.send(Describe).await.unwrap();
            assert_eq!(report.jobs, 0, "{case}");
        });
    }
}

/// The writes that wait in the gate.
fn waiting(metrics: &Metrics) -> i64 {
    let depth = |priority: Priority| {
        let labels = QueueLabels { priority: priority.as_str() };
        metrics.write_queue_depth.get_or_create_owned(&labels).get()
    };
    Priority::ALL.into_iter().map(depth).sum()
}

/// A webhook holds up the removal of its pods, and a tenant writes its status so that it
/// is left alone and served in turns.
#[test]
fn what_a_halted_actor_has_asked_for_waits_no_longer() {
    run(async {
        let suspended = |version| {
            let mut job = job_at(version);
            (job["spec"]["suspend"], job["spec"]["parallelism"]) = (true.into(), 900.into());
            job
        };
        let pods: Vec<Value> = (0..900).map(|number| running(&format!("p{number}"))).collect();
        let found = pods.clone();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if is_live(uri) => list(150, &found),
            _ => None,
        });
        let cx = replica(&api, BUILT_IN_CONTROLLER);
        let metrics = cx.metrics.clone();
        let shard = Shard::start_fenced(cx, Fence::unlimited(), &[suspended(100)], pods).await;
        sleep(SOON).await;
        let first = waiting(&metrics);
        assert!(first > 50, "{first} wait");
        for turn in 1..10 {
            shard.0.send(left_alone(&suspended(100 + 20 * turn))).await.unwrap();
            sleep(SOON).await;
            shard.job(&suspended(110 + 20 * turn)).await;
            sleep(4 * SOON).await;
        }
        let last = waiting(&metrics);
        assert!(last <= 2 * first, "{last} wait, after {first} at first");
    });
}
