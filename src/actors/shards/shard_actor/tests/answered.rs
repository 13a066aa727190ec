//! Answers that show a pod before the watch does.

use super::*;
use crate::job::pod::Place;
use crate::job::pod_name::pod_name;

/// Reads of the pod `p`.
const READS: &[&str] = &["GET", "/pods/p"];

/// The pod `p` of `j`, which has succeeded and is counted.
fn released(version: u64) -> Value {
    let mut done = at(version, "Succeeded", pod("p", "j"));
    done["metadata"]["finalizers"] = json!([]);
    done
}

/// A watch that is late shows the pod as it was before its label was changed, changed back, and counted.
#[test]
fn a_pod_that_an_answer_has_shown_counted_is_not_counted_again_from_an_older_view() {
    for late in ["change", "list", "end"] {
        run(async move {
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/pods/p") => Some((200, labelled(released(130)))),
                "GET" if uri.contains("/jobs/j") => Some((200, job("j", up_to_date(1)))),
                _ => None,
            });
            let jobs = [job("j", up_to_date(0))];
            let before = labelled(at(90, "Running", pod("p", "j")));
            let shard = Shard::start(&api, &jobs, vec![before]).await;
            // A user has given it another label, it has succeeded, and has its label again.
            let deselected = Change::Deleted(observed_pod(&at(110, "Running", pod("p", "j"))));
            shard.watched(vec![deselected]).await;
            sleep(SOON).await;
            assert_eq!(api.count(READS), 1, "{late}");
            let older = labelled(at(120, "Succeeded", pod("p", "j")));
            match late {
                "change" => shard.watched(vec![applied(&older)]).await,
                "list" => shard.listed(120, vec![older]).await,
                _ => {
                    shard
                        .watched(vec![Change::Deleted(observed_pod(&at(120, "Succeeded", pod("p", "j"))))])
                        .await
                }
            }
            sleep(4 * SOON).await;
            assert_eq!((api.count(COUNTS), api.count(&["PATCH", "/pods/p"])), (0, 0), "{late}");
        });
    }
}

/// The watch has shown none of the pods of a Job without completions. The answers to their creations
/// were lost, or another owner has created them. A success would be enough if it were the only pod.
#[test]
fn a_pod_that_has_ended_before_the_watch_has_shown_it_does_not_end_its_job_alone() {
    for (phase, lists) in [("Succeeded", 1), ("Running", 0)] {
        run(async move {
            let placed = |phase, name, place: &str| {
                let mut pod = labelled(at(150, phase, pod(name, "j")));
                let number = if name == "p" { 0 } else { 1 };
                pod["metadata"]["name"] = pod_name("j", "j", None, Place { number, attempt: 0 }).into();
                pod["metadata"]["annotations"] = json!({"yardmaster.dev/place": place});
                pod
            };
            let taken = json!({"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "taken"});
            let api = TestApi::new(move |method, uri| match method {
                "POST" if uri.contains("/pods") => Some((409, taken.clone())),
                "GET" if uri.contains("/pods/") => Some((200, placed(phase, "p", "0/0"))),
                _ if is_live(uri) => list(200, &[placed(phase, "p", "0/0"), placed("Running", "q", "1/0")]),
                _ => None,
            });
            let mut queue = job("j", json!({}));
            queue["spec"]["completions"] = Value::Null;
            let _shard = Shard::start(&api, &[queue], Vec::new()).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(LIVE_LIST), lists, "{phase}: {:?}", api.sent());
            assert_eq!((api.count(CREATION), api.count(COUNTS)), (1, lists), "{phase}: {:?}", api.sent());
            assert_eq!(api.count(&["SuccessCriteriaMet"]), 0, "{phase}: another runs");
        });
    }
}

/// A client that saw the pod end may have applied it since, and the watch is about to show that.
#[test]
fn the_managers_of_a_pod_that_has_changed_since_it_was_seen_are_kept() {
    for (managers, expected) in [
        (json!([{"manager": "kubelet", "operation": "Update"}]), (1, 1)),
        (json!([{"manager": "sweeper", "operation": "Apply"}]), (0, 1)),
    ] {
        run(async move {
            let conflict = json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "changed"});
            let mut answers = vec![(200, released(130)), (409, conflict)];
            if expected.0 == 0 {
                answers.pop();
            }
            let api = TestApi::new(move |method, uri| match method {
                "PATCH" if uri.contains("/pods/p") => answers.pop(),
                "PATCH" if uri.contains("/jobs/j/status") => {
                    let mut recorded = job("j", up_to_date(0));
                    recorded["metadata"]["resourceVersion"] = "125".into();
                    recorded["status"]["uncountedTerminatedPods"] = json!({"succeeded": ["p"]});
                    Some((200, recorded))
                }
                _ => None,
            });
            let jobs = [job("j", up_to_date(0))];
            let mut ended = labelled(at(120, "Succeeded", pod("p", "j")));
            ended["metadata"]["managedFields"] = managers;
            let _shard = Shard::start(&api, &jobs, vec![ended]).await;
            sleep(4 * SOON).await;
            let resets =
                api.count(&["PATCH", "/pods/p", r#""managedFields":[{}]"#, r#""resourceVersion":"120""#]);
            let plain = api.count(&["PATCH", "/pods/p", r#""$deleteFromPrimitiveList/finalizers""#]) - resets;
            assert_eq!((resets, plain), expected, "{:?}", api.sent());
        });
    }
}

/// The Job becomes known late, and as it was before it had counted the pod.
#[test]
fn a_pod_that_was_counted_before_its_job_is_known_casts_doubt_on_its_status() {
    run(async {
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", up_to_date(1)))),
            _ => None,
        });
        let shard = Shard::start(&api, &[], vec![labelled(released(90))]).await;
        sleep(SOON).await;
        shard.job(&job("j", json!({}))).await;
        sleep(SOON).await;
        assert_eq!(api.count(&["GET", "/jobs/j"]), 1, "its status is read");
    });
}

/// The name of the first pod of the Job `j`.
const MADE: &str = "j-csqgtpg4dn";

/// A pod loses its controller while it is being counted.
#[test]
fn a_recorded_pod_that_loses_its_controller_is_counted_once() {
    run(async {
        let mut recorded = job("j", up_to_date(0));
        recorded["spec"]["completions"] = 2.into();
        recorded["status"]["uncountedTerminatedPods"] = json!({"succeeded": [MADE]});
        let (release, is_released) = switch();
        let ended = |version| {
            let mut ended = at(version, "Succeeded", pod(MADE, "j"));
            ended["metadata"]["annotations"] = json!({"yardmaster.dev/place": "0/0"});
            ended
        };
        let free = |version: u64, finalizers: &[&str]| {
            let mut free = ended(version);
            free["metadata"]["ownerReferences"] = json!([]);
            free["metadata"]["finalizers"] = json!(finalizers);
            free
        };
        let mut counted = recorded.clone();
        counted["metadata"]["resourceVersion"] = "140".into();
        counted["status"] = up_to_date(1);
        let mut live = recorded.clone();
        let api = TestApi::new(move |method, uri| {
            let is_released = is_released.load(Ordering::Relaxed) == 1;
            match method {
                "PATCH" if uri.contains(MADE) && !is_released => refusal(500),
                "PATCH" if uri.ends_with("/jobs/j/status") => {
                    live = if is_released { counted.clone() } else { live.clone() };
                    live["metadata"]["resourceVersion"] = if is_released { "140" } else { "115" }.into();
                    Some((200, live.clone()))
                }
                "GET" if uri.ends_with("/jobs/j") => Some((200, live.clone())),
                _ => None,
            }
        });
        let shard = Shard::start(&api, &[recorded], vec![ended(110)]).await;
        sleep(SOON).await;
        let tracking = "batch.kubernetes.io/job-tracking";
        shard.watched(vec![applied(&free(120, &[tracking]))]).await;
        sleep(20 * SOON).await;
        assert_eq!(api.count(&["PATCH", "/jobs/j/status", r#""succeeded":1"#]), 0, "{:?}", api.sent());
        release.store(1, Ordering::Relaxed);
        shard.watched(vec![applied(&free(130, &[]))]).await;
        sleep(20 * SOON).await;
        assert_eq!(api.count(&["PATCH", "/jobs/j/status", r#""succeeded":1"#]), 1, "{:?}", api.sent());
        // Its label of a shard is taken off, for example.
        shard.watched(vec![applied(&free(150, &[]))]).await;
        shard.listed(160, vec![free(150, &[])]).await;
        sleep(20 * SOON).await;
        assert_eq!(api.count(COUNTS), 0, "{:?}", api.sent());
        let adoptions = ["PATCH", MADE, "ownerReferences"];
        assert!(api.count(&adoptions) > 0);
        let again = [&adoptions[..], &[r#""finalizers":["#]].concat();
        assert_eq!(api.count(&again), 0, "{:?}", api.sent());
    });
}

/// The Job that the pod had before takes its finalizer off while this one adopts it.
#[test]
fn a_pod_that_another_job_releases_meanwhile_is_adopted_with_its_finalizer() {
    run(async {
        let free = |version: u64, finalizers: &[&str]| {
            let mut free = at(version, "Succeeded", pod(MADE, "j"));
            free["metadata"]["ownerReferences"] = json!([]);
            free["metadata"]["finalizers"] = json!(finalizers);
            free
        };
        let released = free(130, &[]);
        let mut adoptions = 0;
        let api = TestApi::new(move |method, uri| match method {
            "PATCH" if uri.contains(MADE) => {
                adoptions += 1;
                if adoptions == 1 { refusal(409) } else { None }
            }
            "GET" if uri.contains(MADE) => Some((200, released.clone())),
            "GET" if uri.ends_with("/jobs/j") => Some((200, job("j", up_to_date(0)))),
            _ => None,
        });
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], Vec::new()).await;
        sleep(SOON).await;
        shard.watched(vec![applied(&free(120, &["batch.kubernetes.io/job-tracking"]))]).await;
        sleep(4 * SOON).await;
        let adoption = |version| {
            api.count(&[
                "PATCH",
                MADE,
                "ownerReferences",
                r#""finalizers":["#,
                &format!(r#""resourceVersion":"{version}""#),
            ])
        };
        assert_eq!((adoption(120), adoption(130)), (1, 1), "{:?}", api.sent());
    });
}
