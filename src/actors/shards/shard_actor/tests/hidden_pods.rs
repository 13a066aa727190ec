//! Pods that the shard's watch does not show, or not in a form that can be read, and Jobs that cannot be understood.

use super::*;

/// The removal of our finalizer.
const RELEASE: &[&str] = &["PATCH", "/pods/p", "deleteFromPrimitiveList"];

/// The pod `p` without owner, and with only the label of the shard, as a Job with a
/// selector of its own leaves it behind.
fn left_behind() -> Value {
    let mut pod = pod("p", "j");
    pod["metadata"]["ownerReferences"] = json!([]);
    pod["metadata"]["labels"] = json!({});
    labelled(pod)
}

/// The Job, in an unknown completion mode.
fn odd(mut job: Value) -> Value {
    job["spec"]["completionMode"] = "Odd".into();
    job
}

/// It may become readable without a change of its own, so no watch event comes.
#[test]
fn a_pod_that_names_no_job_and_cannot_be_read_is_released_once_it_can_be() {
    run(async {
        let (readable, is_readable) = switch();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if of_pod(method, uri, "p") => match is_readable.load(Ordering::Relaxed) {
                0 => Some((200, broken(left_behind()))),
                _ => Some((200, left_behind())),
            },
            _ => None,
        });
        let _shard = Shard::start(&api, &[], vec![broken(left_behind())]).await;
        sleep(60 * SOON).await;
        assert_eq!(api.count(RELEASE), 0);
        readable.store(1, Ordering::Relaxed);
        sleep(400 * SOON).await;
        assert!(api.count(RELEASE) > 0, "{:?}", api.sent());
    });
}

/// Its finalizer holds it: only its labels may have changed.
#[test]
fn a_pod_that_leaves_the_watch_before_it_can_be_gone_is_read() {
    for (phase, deleting, reads) in
        [("Running", true, true), ("Running", false, true), ("Failed", true, false), ("Failed", false, true)]
    {
        run(async move {
            let api = TestApi::new(|method, uri| match method {
                "GET" if of_pod(method, uri, "p") => refusal(404),
                _ => None,
            });
            let mut leaving = labelled(at(110, phase, pod("p", "j")));
            if deleting {
                leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            }
            let shard = Shard::start(&api, &[job("j", up_to_date(0))], vec![leaving.clone()]).await;
            sleep(4 * SOON).await;
            let before = api.count(&["GET", "/pods/p"]);
            shard.watched(vec![Change::Deleted(observed_pod(&leaving))]).await;
            sleep(4 * SOON).await;
            let is_read = api.count(&["GET", "/pods/p"]) > before;
            assert_eq!(is_read, reads, "{phase} {deleting}: {:?}", api.sent());
        });
    }
}

/// The pod has lost the labels by which a watch finds it and its Job selects it.
#[test]
fn a_pod_that_is_still_there_without_its_labels_is_let_go() {
    run(async {
        let mut stripped = at(120, "Running", pod("p", "j"));
        stripped["metadata"]["labels"] = json!({});
        let api = TestApi::new(move |method, uri| match method {
            "GET" if of_pod(method, uri, "p") => Some((200, stripped.clone())),
            _ => None,
        });
        let known = labelled(at(110, "Running", pod("p", "j")));
        let shard = Shard::start(&api, &[job("j", up_to_date(0))], vec![known.clone()]).await;
        shard.watched(vec![Change::Deleted(observed_pod(&at(120, "Running", known)))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(&["PATCH", "/pods/p", "ownerReferences"]), 1, "{:?}", api.sent());
    });
}

/// Its pods keep their finalizers: it has not left.
#[test]
fn a_job_that_a_live_read_shows_in_an_unknown_mode_neither_adopts_nor_lets_go() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/jobs/j") => Some((200, odd(job("j", up_to_date(0))))),
            "GET" if of_pod(method, uri, "q") => {
                let mut orphan = labelled(at(110, "Running", pod("q", "j")));
                orphan["metadata"]["ownerReferences"] = json!([]);
                Some((200, orphan))
            }
            _ => None,
        });
        let mut orphan = labelled(at(110, "Running", pod("q", "j")));
        orphan["metadata"]["ownerReferences"] = json!([]);
        let pods = vec![labelled(at(90, "Running", pod("p", "j"))), orphan];
        let _shard = Shard::start(&api, &[job("j", up_to_date(0))], pods).await;
        sleep(20 * SOON).await;
        assert!(api.count(&["GET", "/jobs/j"]) > 1, "it is read again: {:?}", api.sent());
        assert_eq!(api.count(&["PATCH", "/pods/"]), 0, "{:?}", api.sent());
    });
}

/// Another writer has counted a pod. The Job's known status is older than that.
#[test]
fn a_live_read_that_shows_an_unknown_mode_settles_no_doubt() {
    run(async {
        let (reads, read) = switch();
        let mut known = job("j", up_to_date(0));
        known["spec"]["completions"] = 3.into();
        let mut counted = known.clone();
        counted["metadata"]["resourceVersion"] = "202".into();
        counted["status"]["succeeded"] = 1.into();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/j") => match read.fetch_add(1, Ordering::Relaxed) {
                0 => Some((200, odd(counted.clone()))),
                _ => Some((200, counted.clone())),
            },
            "GET" if is_live(uri) => list(210, &[]),
            _ => None,
        });
        let pods = vec![labelled(at(90, "Running", pod("p", "j")))];
        let shard = Shard::start(&api, &[known], pods).await;
        sleep(SOON).await;
        let mut released = labelled(at(150, "Succeeded", pod("p", "j")));
        released["metadata"]["finalizers"] = json!([]);
        shard.watched(vec![applied(&released)]).await;
        while reads.load(Ordering::Relaxed) < 2 {
            assert_eq!(api.count(CREATION), 0, "{:?}", api.sent());
            sleep(SOON / 10).await;
        }
        sleep(4 * SOON).await;
        assert_eq!(api.count(CREATION), 1, "{:?}", api.sent());
    });
}

/// Live lists go by labels, and the pod has lost them.
#[test]
fn a_job_that_is_deleted_releases_a_pod_that_it_no_longer_selects_whatever_live_lists_show() {
    run(async {
        let (allowed, is_allowed) = switch();
        let mut unselected = labelled(at(90, "Failed", pod("p", "j")));
        unselected["metadata"]["labels"] = json!({"yardmaster.dev/shard": "0"});
        let mut owner = job("j", json!({"active": 2}));
        owner["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
        owner["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        let (shown, found) = (owner.clone(), unselected.clone());
        let mut recorded = owner.clone();
        recorded["metadata"]["resourceVersion"] = "11".into();
        recorded["status"] = json!({"uncountedTerminatedPods": {"failed": ["p"]}});
        let api = TestApi::new(move |method, uri| match method {
            "PATCH" if uri.contains("/pods/p") && is_allowed.load(Ordering::Relaxed) == 0 => refusal(422),
            "GET" if of_pod(method, uri, "p") => Some((200, found.clone())),
            "GET" if uri.contains("/jobs/j") => Some((200, shown.clone())),
            "GET" if is_live(uri) => list(200, &[]),
            "PATCH" if uri.contains("/jobs/j/status") => Some((200, recorded.clone())),
            _ => None,
        });
        let _shard = Shard::start(&api, &[owner], vec![unselected]).await;
        sleep(20 * SOON).await;
        assert!(api.count(LIVE_LIST) > 0, "{:?}", api.sent());
        let before = api.count(RELEASE);
        allowed.store(1, Ordering::Relaxed);
        sleep(200 * SOON).await;
        assert!(api.count(RELEASE) > before, "{:?}", api.sent());
    });
}

/// The Job that waited for it must not wait any longer, unless the reading that shows
/// that is older.
#[test]
fn a_hidden_pod_that_becomes_another_jobs_no_longer_holds_the_first_one_back() {
    let of = |version, job: &str| labelled(at(version, "Running", pod("p", job)));
    for (what, shown, goes_on) in [
        ("then it cannot be read", change(&broken(of(8, "k"))), true),
        ("it can be read", applied(&of(8, "k")), true),
        ("that was before", change(&broken(of(6, "k"))), false),
    ] {
        run(async move {
            let api = TestApi::new(move |method, uri| match method {
                "GET" if of_pod(method, uri, "p") => Some((200, broken(of(8, "k")))),
                "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({})))),
                "GET" if uri.contains("/jobs/k") => Some((200, job("k", json!({})))),
                _ => None,
            });
            let creations = || api.count(&["POST /api/v1/namespaces/n/pods", r#""name":"j""#]);
            let jobs = [job("j", json!({})), job("k", json!({}))];
            let shard = Shard::start(&api, &jobs, vec![broken(of(7, "j"))]).await;
            sleep(SOON).await;
            assert_eq!(creations(), 0, "{what}: {:?}", api.sent());
            shard.watched(vec![shown]).await;
            sleep(4 * SOON).await;
            assert_eq!(creations(), usize::from(goes_on), "{what}: {:?}", api.sent());
        });
    }
}
