//! Pods that have the names of those that a Job wants to create.

use super::*;
use crate::job::pod::Place;
use crate::job::pod_name::pod_name;

/// The time between a request and its answer.
const LATENCY: Duration = Duration::from_millis(5);

fn name_at(index: Option<u32>, number: u32, attempt: u32) -> String {
    pod_name("j", "j", index, Place { number, attempt })
}

/// An ended pod of `j` at a place, created by hand: without our finalizer.
fn made_by_hand(name: &str, place: &str) -> Value {
    let mut pod = labelled(at(90, "Failed", pod(name, "j")));
    pod["metadata"]["annotations"] =
        json!({"yardmaster.dev/place": place, "batch.kubernetes.io/job-completion-index": "0"});
    pod["metadata"]["finalizers"] = json!([]);
    pod
}

fn already_exists() -> Option<(u16, Value)> {
    Some((409, json!({"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "taken"})))
}

#[test]
fn a_place_that_leaves_no_name_stops_no_job() {
    run(async {
        let last = name_at(Some(0), 0, u32::MAX);
        let name = last.clone();
        let by_hand = move || made_by_hand(&name, "0/4294967295");
        let path = format!("/pods/{last}");
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains(&path) => Some((200, by_hand())),
            "GET" if uri.contains("/pods/") => refusal(404),
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
            "POST" if uri.contains("/pods") => already_exists(),
            _ if is_live(uri) => list(200, &[by_hand()]),
            _ => None,
        })
        .after(LATENCY);
        let mut indexed = job("j", json!({}));
        indexed["spec"]["completionMode"] = "Indexed".into();
        let found = vec![made_by_hand(&last, "0/4294967295")];
        let _shard = Shard::start(&api, &[indexed], found).await;
        sleep(Duration::from_secs(60)).await;
        let asked = |name: &str| api.count(&["POST", &format!(r#""name":"{name}""#)]);
        assert_eq!((asked(&name_at(Some(0), 0, 0)) > 0, asked(&last)), (true, 0));
        assert!(api.sent().len() < 50, "{} requests in a minute", api.sent().len());
    });
}

/// An ended pod of the Job has every requested name, and no list shows it.
#[test]
fn an_api_server_that_finds_ended_pods_for_ever_is_asked_with_pauses() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "POST" if uri.contains("/pods") => already_exists(),
            "GET" if uri.contains("/pods/") => {
                let name = uri.split("/pods/").nth(1)?.split('?').next()?;
                let number = (0..100_000).find(|number| name_at(None, *number, 0) == name)?;
                Some((200, made_by_hand(name, &format!("{number}/0"))))
            }
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
            _ if is_live(uri) => list(200, &[]),
            _ => None,
        })
        .after(LATENCY);
        let _shard = Shard::start(&api, &[job("j", json!({}))], Vec::new()).await;
        sleep(Duration::from_secs(60)).await;
        let (creations, all) = (api.count(CREATION), api.sent().len());
        assert!((3..10).contains(&creations), "{creations} creations in a minute");
        assert!(all < 50, "{all} requests in a minute");
    });
}
