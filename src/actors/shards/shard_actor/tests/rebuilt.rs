//! Jobs whose actors have panicked: the new ones know no pod until they are shown all of them.

use super::*;
use crate::actors::test_hooks::ReconcileHook;
use crate::job::spec::Job;

/// A replica in which the next reconciliation panics once the switch is set to 1.
fn shaky(api: &TestApi) -> (ReplicaContext, Arc<AtomicU64>) {
    let (panics, is_due) = switch();
    let hook = move |_: &Job| assert_ne!(is_due.swap(0, Ordering::Relaxed), 1, "as planned");
    let hook = ReconcileHook(Arc::new(hook));
    let cx = replica_with(api, BUILT_IN_CONTROLLER, |config| config.test_hooks.before_reconcile = Some(hook));
    (cx, panics)
}

/// The Job `j` with one active pod.
fn with_a_pod() -> Value {
    job("j", up_to_date(0))
}

/// The Job `j` panics.
async fn panic_at(panics: &AtomicU64, shard: &Shard) {
    panics.store(1, Ordering::Relaxed);
    let mut seen = with_a_pod();
    seen["metadata"]["resourceVersion"] = "130".into();
    shard.job(&seen).await;
    while panics.load(Ordering::Relaxed) == 1 {
        sleep(Duration::from_millis(1)).await;
    }
}

/// The pod has lost its label and gets no other, or cannot be read any more: before the panic, or while the Job is broken.
#[test]
fn a_pod_that_is_not_seen_holds_its_job_back_although_the_actor_before_knew_it() {
    for (lost, before) in [("label", true), ("label", false), ("form", true), ("form", false)] {
        run(async move {
            let running = labelled(at(110, "Running", pod("p", "j")));
            let hidden = match lost {
                "label" => at(120, "Running", pod("p", "j")),
                _ => broken(running.clone()),
            };
            let (mended, is_mended) = switch();
            let (found, whole) = (hidden.clone(), at(140, "Running", running.clone()));
            let api = TestApi::new(move |method, uri| match is_mended.load(Ordering::Relaxed) {
                0 if method == "PATCH" && uri.contains("/pods/p") => refusal(403),
                0 if of_pod(method, uri, "p") => Some((200, found.clone())),
                _ if of_pod(method, uri, "p") => Some((200, whole.clone())),
                _ if is_live(uri) => list(150, std::slice::from_ref(&found)),
                _ if method == "GET" && uri.contains("/jobs/j") => Some((200, with_a_pod())),
                _ => None,
            });
            let (cx, panics) = shaky(&api);
            let pods = vec![running.clone()];
            let shard = Shard::start_fenced(cx, Fence::unlimited(), &[with_a_pod()], pods).await;
            sleep(SOON).await;
            if !before {
                panic_at(&panics, &shard).await;
            }
            let hides = match unreadable(&hidden) {
                Some(unreadable) => Change::Unreadable(unreadable),
                None => Change::Deleted(observed_pod(&at(120, "Running", running.clone()))),
            };
            shard.watched(vec![hides]).await;
            if before {
                panic_at(&panics, &shard).await;
            }
            sleep(60 * SOON).await;
            assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0), "{lost}, {before}");
            mended.store(1, Ordering::Relaxed);
            sleep(400 * SOON).await;
            assert_eq!(api.count(CREATION), 0, "{lost}, {before}: it is the one pod that the Job wants");
            shard.watched(vec![applied(&at(200, "Succeeded", running.clone()))]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(COUNTS), 1, "{lost}, {before}: the Job goes on");
        });
    }
}

/// It has lost the label by which live lists select, and the watch has not shown that.
#[test]
fn a_pod_that_the_list_for_a_rebuilt_job_does_not_show_is_looked_for_in_its_namespace() {
    for exists in [true, false] {
        run(async move {
            let running = labelled(at(90, "Running", pod("p", "j")));
            let mut stripped = at(120, "Running", running.clone());
            stripped["metadata"]["labels"] = json!({});
            let found = stripped.clone();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if uri.contains("/namespaces/n/pods?") && !is_live(uri) => {
                    list(160, if exists { std::slice::from_ref(&found) } else { &[] })
                }
                "GET" if of_pod(method, uri, "p") => Some((200, found.clone())),
                _ if is_live(uri) => list(150, &[]),
                "GET" if uri.contains("/jobs/j") => Some((200, with_a_pod())),
                _ => None,
            });
            let (cx, panics) = shaky(&api);
            let shard = Shard::start_fenced(cx, Fence::unlimited(), &[with_a_pod()], vec![running]).await;
            sleep(SOON).await;
            panic_at(&panics, &shard).await;
            sleep(8 * SOON).await;
            let lists = api.count(&["GET /api/v1/namespaces/n/pods? "]);
            let watches = api.count(&["GET /api/v1/pods?"]);
            assert_eq!((lists, watches), (1, 1), "{exists}: the shard lists nothing: {:?}", api.sent());
            let releases = api.count(&["PATCH", "/pods/p", "ownerReferences"]);
            assert_eq!(releases, usize::from(exists), "{exists}: {:?}", api.sent());
        });
    }
}

#[test]
fn a_pod_that_only_the_actor_before_was_shown_is_shown_again() {
    run(async {
        let running = labelled(at(120, "Running", pod("p", "j")));
        let (found, mut lists) = (running.clone(), 0);
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("own+in") => {
                // The first is for pods to adopt. The next one never ends.
                lists += 1;
                if lists == 1 { list(100, &[]) } else { None }
            }
            _ if is_live(uri) => list(150, std::slice::from_ref(&found)),
            _ => None,
        });
        let (cx, panics) = shaky(&api);
        let pods = vec![labelled(at(90, "Pending", pod("p", "j")))];
        let jobs = [with_a_pod(), manual_job(json!({"active": 1}))];
        let shard = Shard::start_fenced(cx, Fence::unlimited(), &jobs, pods).await;
        sleep(4 * SOON).await;
        shard.watched(vec![applied(&running)]).await;
        panic_at(&panics, &shard).await;
        sleep(60 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0));
    });
}

#[test]
fn a_rebuilt_job_that_doubts_a_deletion_meanwhile_is_shown_its_pods_all_the_same() {
    // If a pod still runs, it is read live, since it may have lost only its label.
    for phase in ["Failed", "Running"] {
        run(async move {
            let running = labelled(at(110, "Running", pod("p", "j")));
            // A pod that has our finalizer ends while the list is in progress, which shows it as it was before.
            let mut leaving = labelled(at(120, "Running", pod("q", "j")));
            leaving["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            let (pod_of_j, mut lists) = (running.clone(), [vec![running.clone()], vec![running.clone()]]);
            lists[0].push(leaving.clone());
            let mut lists = lists.into_iter();
            let answer = move |method: &str, uri: &str| match method {
                "GET" if is_live(uri) => lists.next().and_then(|pods| list(150, &pods)),
                "GET" if uri.contains("/jobs/j") => Some((200, with_a_pod())),
                _ if of_pod(method, uri, "q") => refusal(404),
                _ => None,
            };
            let api = TestApi::new(answer).after(Duration::from_millis(100));
            let (cx, panics) = shaky(&api);
            let jobs = [with_a_pod()];
            let shard = Shard::start_fenced(cx, Fence::unlimited(), &jobs, vec![running]).await;
            sleep(SOON).await;
            panic_at(&panics, &shard).await;
            while api.count(LIVE_LIST) == 0 {
                sleep(Duration::from_millis(1)).await;
            }
            let gone = observed_pod(&at(151, phase, leaving.clone()));
            shard.watched(vec![applied(&leaving), Change::Deleted(gone)]).await;
            sleep(60 * SOON).await;
            assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (2, 0), "{phase}");
            if phase == "Failed" {
                shard.watched(vec![applied(&at(200, "Succeeded", pod_of_j))]).await;
                sleep(4 * SOON).await;
                assert_eq!(api.count(COUNTS), 1, "the Job goes on");
            }
        });
    }
}

/// The actor before was about to adopt it, or to find out that the Job is gone.
#[test]
fn a_pod_without_owner_that_only_the_actor_before_was_shown_is_adopted_or_released() {
    for gone in [false, true] {
        run(async move {
            let mut orphan = labelled(at(110, "Running", pod("p", "j")));
            orphan["metadata"]["ownerReferences"] = json!([]);
            let (found, mut reads) = (orphan.clone(), 0);
            let api = TestApi::new(move |method, uri| match method {
                "GET" if is_live(uri) => list(150, std::slice::from_ref(&found)),
                "GET" if uri.contains("/jobs/j") => {
                    reads += 1;
                    match (reads, gone) {
                        // The panic is sooner than the answer.
                        (1, _) => None,
                        (_, false) => Some((200, with_a_pod())),
                        (_, true) => refusal(404),
                    }
                }
                "PATCH" => Some((200, labelled(at(160, "Running", pod("p", "j"))))),
                _ => None,
            });
            let (cx, panics) = shaky(&api);
            let jobs = [with_a_pod()];
            let shard = Shard::start_fenced(cx, Fence::unlimited(), &jobs, vec![orphan]).await;
            sleep(SOON).await;
            panic_at(&panics, &shard).await;
            if gone {
                shard.0.send(JobVanished("j".into())).await.unwrap();
            }
            assert_eq!(api.count(&["PATCH", "/pods/p"]), 0, "gone: {gone}");
            sleep(60 * SOON).await;
            let releases = api.count(&["PATCH", "/pods/p", "deleteFromPrimitiveList"]);
            assert_eq!((api.count(&["PATCH", "/pods/p"]), releases), (1, usize::from(gone)), "gone: {gone}");
            assert_eq!(api.count(CREATION), 0, "gone: {gone}");
        });
    }
}

/// The cause of the panic may persist, and its status may exceed its share again and again.
#[test]
fn a_job_whose_actor_panics_when_it_is_left_alone_is_rebuilt_after_a_pause() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if is_live(uri) => list(150, &[labelled(at(110, "Running", pod("p", "j")))]),
            "GET" if uri.contains("/jobs/j") => Some((200, with_a_pod())),
            _ => None,
        });
        let (cx, panics) = shaky(&api);
        let pods = vec![labelled(at(110, "Running", pod("p", "j")))];
        let shard = Shard::start_fenced(cx, Fence::unlimited(), &[with_a_pod()], pods).await;
        sleep(SOON).await;
        panics.store(1, Ordering::Relaxed);
        for version in [130, 131, 140] {
            let mut seen = with_a_pod();
            seen["metadata"]["resourceVersion"] = version.to_string().into();
            let job = match version {
                131 => observed_job(&seen).left_alone(9 << 20).into(),
                _ => observed_job(&seen),
            };
            shard.0.do_send(JobSeen { job, arrived: Instant::now() });
        }
        sleep(SOON / 5).await;
        assert_eq!((panics.load(Ordering::Relaxed), api.count(LIVE_LIST)), (0, 0), "{:?}", api.sent());
        sleep(20 * SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1, "{:?}", api.sent());
    });
}

/// Live lists of others are in progress all the time, so that the shard remembers the pods that the watch
/// has shown.
#[test]
fn pods_that_were_shown_long_ago_are_shown_again_although_others_keep_lists_in_progress() {
    run(async {
        let failed = ["f", "g"].map(|name| {
            let mut failed = labelled(at(110, "Failed", pod(name, "j")));
            failed["metadata"]["finalizers"] = json!([]);
            failed
        });
        let (found, mut lists) = (failed.clone(), 0);
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("own+in") => {
                // The first is for pods to adopt. The next one never ends.
                lists += 1;
                if lists == 1 { list(100, &[]) } else { None }
            }
            _ if is_live(uri) => list(150, &found),
            _ => None,
        });
        let mut known = job("j", json!({"failed": 2, "startTime": "1970-01-01T00:00:00Z"}));
        let jobs = [known.clone(), manual_job(json!({"active": 1}))];
        let shard = Shard::start(&api, &jobs, vec![]).await;
        sleep(4 * SOON).await;
        shard.watched(failed.iter().map(applied).collect()).await;
        sleep(4 * SOON).await;
        known["metadata"]["resourceVersion"] = "160".into();
        known["metadata"]["annotations"] = json!({"yardmaster.dev/failed-pods-limit": "0"});
        shard.job(&known).await;
        sleep(4 * SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(&["DELETE", "/pods/"])), (1, 1), "{:?}", api.sent());
    });
}
