//! Jobs whose status another writer has changed: they are shown their pods as they are now, and no
//! other Job notices.

use super::*;

/// The lists and watches of the shard.
const OF_SHARD: &[&str] = &["GET /api/v1/pods?labelSelector=batch.kubernetes.io%2Fcontroller-uid&watch=true"];

/// The Job `j`, as another writer has left it: it wants three pods, one at a time, and this many have
/// succeeded.
fn written(version: u64, succeeded: u64) -> Value {
    let mut job = job("j", up_to_date(succeeded));
    job["spec"]["completions"] = 3.into();
    job["metadata"]["resourceVersion"] = version.to_string().into();
    job
}

fn running(name: &str, version: u64) -> Value {
    labelled(at(version, "Running", pod(name, "j")))
}

#[test]
fn foreign_statuses_of_one_job_take_no_pods_from_another() {
    for listing in [false, true] {
        run(async move {
            let api = TestApi::new(|_, uri| match is_live(uri) {
                true => list(400, &[running("p", 90)]),
                false => None,
            });
            let jobs = [written(10, 0)];
            let shard = Shard::start(&api, &jobs, vec![running("p", 90)]).await;
            sleep(SOON).await;
            let before = api.count(OF_SHARD);
            if listing {
                shard.watched(vec![Change::Restarted]).await;
            }
            for count in 0..6 {
                shard.job(&written(200 + count, count % 2)).await;
                sleep(Duration::from_millis(2)).await;
            }
            // The list of the shard goes on, and so does its watch.
            shard.job(&job("k", json!({}))).await;
            if listing {
                shard.watched(vec![change(&running("p", 90)), synced(300)]).await;
            }
            sleep(SOON).await;
            assert_eq!(api.count(CREATION), 1, "listing: {listing}");
            sleep(4 * SOON).await;
            let lists = api.count(LIVE_LIST);
            assert!((1..=3).contains(&lists), "{lists} lists for 5 statuses, listing: {listing}");
            assert_eq!(api.count(OF_SHARD), before, "listing: {listing}");
            shard.watched(vec![applied(&at(410, "Succeeded", running("p", 0)))]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(COUNTS), 1, "listing: {listing}");
        });
    }
}

/// The watch has not shown that it has ended, as a change or in a list.
#[test]
fn a_pod_that_somebody_else_has_counted_is_not_counted_from_an_older_view() {
    for late in ["change", "list"] {
        run(async move {
            let ended = at(150, "Succeeded", running("p", 0));
            let mut counted = at(201, "Succeeded", running("p", 0));
            counted["metadata"]["finalizers"] = json!([]);
            let api = TestApi::new(move |_, uri| match is_live(uri) {
                true => list(210, &[counted.clone(), running("q", 205)]),
                false => None,
            });
            let jobs = [written(10, 0)];
            let shard = Shard::start(&api, &jobs, vec![running("p", 90)]).await;
            sleep(SOON).await;
            shard.job(&written(202, 1)).await;
            sleep(SOON).await;
            assert_eq!(api.count(LIVE_LIST), 1);
            match late {
                "change" => shard.watched(vec![applied(&ended)]).await,
                _ => shard.listed(180, vec![ended]).await,
            }
            sleep(4 * SOON).await;
            assert_eq!(api.count(LIVE_LIST), if late == "change" { 1 } else { 2 }, "{late}");
            assert_eq!((api.count(COUNTS), api.count(CREATION)), (0, 0), "{late}: {:?}", api.sent());
            shard.watched(vec![applied(&at(220, "Succeeded", running("q", 0)))]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(COUNTS), 1, "{late}: what is new counts");
        });
    }
}

/// It becomes known late, and the watch of pods has not shown that the pods are counted which its
/// status counts.
#[test]
fn a_job_that_somebody_else_has_managed_unseen_counts_no_pods_from_an_older_view() {
    for (listing, version, doubted) in [(false, 202, true), (true, 202, true), (false, 95, false)] {
        run(async move {
            let known = written(version, 1);
            let ended = at(150, "Succeeded", running("p", 0));
            let mut counted = at(201, "Succeeded", running("p", 0));
            counted["metadata"]["finalizers"] = json!([]);
            let found = known.clone();
            let api = TestApi::new(move |method, uri| match method {
                _ if is_live(uri) => list(210, &[counted.clone(), running("q", 205)]),
                "GET" if uri.contains("/jobs/j") => Some((200, found.clone())),
                _ => None,
            });
            let first = if doubted { running("p", 90) } else { running("q", 90) };
            let shard = Shard::start(&api, &[], vec![first]).await;
            if listing {
                shard.watched(vec![Change::Restarted]).await;
                shard.job(&known).await;
                shard.watched(vec![change(&ended), synced(180)]).await;
            } else {
                if doubted {
                    shard.watched(vec![applied(&ended)]).await;
                }
                shard.job(&known).await;
            }
            sleep(4 * SOON).await;
            let case = format!("listing: {listing}, version: {version}: {:?}", api.sent());
            assert_eq!(api.count(LIVE_LIST), usize::from(doubted), "{case}");
            assert_eq!((api.count(COUNTS), api.count(CREATION)), (0, 0), "{case}");
            shard.watched(vec![applied(&at(220, "Succeeded", running("q", 0)))]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(COUNTS), 1, "{case}: what is new counts");
        });
    }
}

/// While the shard's watch was cut, the pod's label was changed, and its owner was taken off.
#[test]
fn a_pod_with_another_label_and_without_controller_is_adopted_if_its_job_exists() {
    for (own, exists) in [(false, true), (false, false), (true, true), (true, false)] {
        run(async move {
            let (cut, is_cut) = switch();
            let known = if own { manual_job(up_to_date(0)) } else { job("j", up_to_date(0)) };
            let name = known["metadata"]["name"].as_str().unwrap().to_owned();
            let mut pod = at(90, "Running", pod("p", &name));
            pod["metadata"]["labels"]["yardmaster.dev/shard"] = "1".into();
            if own {
                pod["metadata"]["labels"]["own"] = "m".into();
            }
            let mut orphan = at(150, "Running", pod.clone());
            orphan["metadata"]["ownerReferences"] = json!([]);
            orphan["metadata"]["labels"]["yardmaster.dev/shard"] = "0".into();
            let adopted = at(160, "Running", pod.clone());
            let (listed, found) = (pod.clone(), known.clone());
            let api = TestApi::new(move |method, uri| match (method, is_cut.load(Ordering::Relaxed)) {
                ("GET", 0) if uri.contains("own+in") && !uri.contains("watch") => {
                    list(100, std::slice::from_ref(&listed))
                }
                ("GET", _) if (uri.contains("own+in") || is_live(uri)) && !uri.contains("watch") => {
                    list(200, std::slice::from_ref(&orphan))
                }
                ("GET", _) if uri.contains("/jobs/") && exists => Some((200, found.clone())),
                ("GET", _) if uri.contains("/jobs/") => refusal(404),
                ("GET", _) if uri.contains("/pods/p") => Some((200, orphan.clone())),
                ("PATCH", _) if uri.contains("/pods/p") => Some((200, adopted.clone())),
                _ => None,
            });
            // The shard of these Jobs.
            let shard = strangers::of_two(ShardId(1), &api, &[known], vec![pod]).await;
            sleep(SOON).await;
            cut.store(1, Ordering::Relaxed);
            shard.listed(190, vec![]).await;
            sleep(4 * SOON).await;
            let [adoptions, releases] = ["ownerReferences", "deleteFromPrimitiveList"]
                .map(|what| api.count(&["PATCH", "/pods/p", what]));
            // The shard of its label releases it.
            let expected = (usize::from(exists), 0);
            assert_eq!((adoptions, releases), expected, "own: {own}, exists: {exists}: {:?}", api.sent());
            assert_eq!(api.count(CREATION), 0, "own: {own}, exists: {exists}");
        });
    }
}

/// Its Job becomes known during that list or after it.
#[test]
fn a_pod_that_waits_for_its_job_is_forgotten_when_a_list_does_not_show_it() {
    for (during, shown) in [(true, false), (false, false), (true, true), (false, true)] {
        run(async move {
            let api = TestApi::new(|method, uri| {
                (method == "GET" && uri.contains("/jobs/j")).then(|| (200, job("j", json!({}))))
            });
            let p = running("p", 90);
            let shard = Shard::start(&api, &[], vec![p.clone()]).await;
            sleep(SOON).await;
            shard.watched(vec![Change::Restarted]).await;
            if during {
                shard.job(&job("j", json!({}))).await;
            }
            let mut rest: Vec<_> = shown.then(|| change(&p)).into_iter().collect();
            rest.push(synced(200));
            shard.watched(rest).await;
            if !during {
                shard.job(&job("j", json!({}))).await;
            }
            sleep(SOON).await;
            assert_eq!(api.count(CREATION), usize::from(!shown), "during: {during}, shown: {shown}");
            assert_eq!(api.count(&["GET", "/jobs/j"]), 1, "the Job is looked for once");
        });
    }
}

/// The watch has not shown that it has lost its label, and that it has ended.
#[test]
fn a_pod_with_another_label_that_somebody_else_has_counted_is_not_counted_from_an_older_view() {
    run(async {
        let mut counted = at(201, "Succeeded", pod("p", "j"));
        counted["metadata"]["finalizers"] = json!([]);
        counted["metadata"]["labels"]["yardmaster.dev/shard"] = "999".into();
        let labelled_again = labelled(at(211, "Succeeded", counted.clone()));
        let api = TestApi::new(move |method, uri| match method {
            _ if is_live(uri) => list(210, &[counted.clone(), running("q", 205)]),
            "PATCH" if uri.contains("/pods/p") => Some((200, labelled_again.clone())),
            _ => None,
        });
        let ended = at(150, "Succeeded", running("p", 0));
        let shard = Shard::start(&api, &[written(10, 0)], vec![running("p", 90)]).await;
        sleep(SOON).await;
        shard.watched(vec![applied(&ended)]).await;
        shard.job(&written(202, 1)).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1);
        shard.watched(vec![applied(&at(160, "Succeeded", running("p", 0)))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(COUNTS), 0, "{:?}", api.sent());
    });
}

/// The label of a failed pod was changed and put back. A list for its Job shows the pod as it is,
/// before or after the late watch shows that it had left.
#[test]
fn a_pod_that_a_list_shows_with_its_label_again_is_not_forgotten_for_what_the_watch_shows_later() {
    for list_is_first in [true, false] {
        run(async move {
            let failed = |name: &str, version: u64, finished: u64| {
                let mut pod = labelled(at(version, "Failed", pod(name, "j")));
                let since = format!("1970-01-01T00:00:0{finished}Z");
                let ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": since});
                pod["metadata"]["finalizers"] = json!([]);
                pod["status"]["conditions"] = json!([ready]);
                pod
            };
            let found = [failed("old", 90, 1), failed("new", 150, 2)];
            let api = TestApi::new(move |_, uri| if is_live(uri) { list(180, &found) } else { None });
            let mut known = job("j", json!({"failed": 2, "startTime": "1970-01-01T00:00:00Z"}));
            known["metadata"]["resourceVersion"] = "95".into();
            let before = vec![failed("old", 90, 1), failed("new", 91, 2)];
            let shard = Shard::start(&api, &[known.clone()], before).await;
            sleep(4 * SOON).await;
            known["metadata"]["resourceVersion"] = "160".into();
            known["metadata"]["annotations"] = json!({"yardmaster.dev/failed-pods-limit": "1"});
            shard.job(&known).await;
            if list_is_first {
                sleep(4 * SOON).await;
            }
            let left = Change::Deleted(observed_pod(&failed("new", 140, 2)));
            shard.watched(vec![left, applied(&failed("new", 150, 2))]).await;
            sleep(4 * SOON).await;
            shard.watched(vec![applied(&failed("newer", 190, 3))]).await;
            sleep(4 * SOON).await;
            let deleted = ["old", "new"].map(|name| api.count(&["DELETE", &format!("/pods/{name} ")]));
            assert_eq!(deleted, [1, 1], "list first: {list_is_first}: {:?}", api.sent());
        });
    }
}

/// Its finalizer was taken off, and its label was changed and put back. The list shows it before the
/// watch, which is behind, shows that it had left. Then another controller takes it.
#[test]
fn a_running_pod_that_a_list_shows_with_its_label_again_stays_with_its_job_until_that_loses_it() {
    run(async {
        let at = |version| {
            let mut pod = running("p", version);
            pod["metadata"]["finalizers"] = json!([]);
            pod
        };
        let api = TestApi::new(move |_, uri| if is_live(uri) { list(180, &[at(150)]) } else { None });
        let shard = Shard::start(&api, &[written(10, 0)], vec![at(90)]).await;
        sleep(SOON).await;
        shard.job(&written(160, 1)).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(LIVE_LIST), 1);
        shard.watched(vec![Change::Deleted(observed_pod(&at(140))), applied(&at(150))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(CREATION), 0, "{:?}", api.sent());
        let mut taken = at(200);
        taken["metadata"]["ownerReferences"][0]["uid"] = "other".into();
        shard.watched(vec![applied(&taken)]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(CREATION), 1, "{:?}", api.sent());
    });
}

/// All Jobs of the shard would wait for its new list, and a tenant can create a pod just before each live list.
#[test]
fn a_pod_that_a_live_list_shows_before_the_watch_makes_no_shard_list_its_pods_again() {
    for shown in [true, false] {
        run(async move {
            let new = at(190, "Running", running("q", 0));
            let found = new.clone();
            let api = TestApi::new(move |method, uri| match method {
                _ if is_live(uri) => list(200, std::slice::from_ref(&found)),
                "GET" if uri.contains("/jobs/j") => Some((200, job("j", json!({"active": 1})))),
                _ => None,
            });
            let shard = Shard::start(&api, &[job("j", json!({"active": 1}))], vec![]).await;
            sleep(2 * SOON).await;
            assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0), "shown: {shown}");
            let before = api.count(OF_SHARD);
            if shown {
                shard.watched(vec![applied(&new)]).await;
            }
            sleep(10 * SOON).await;
            assert_eq!(api.count(OF_SHARD) > before, !shown, "shown: {shown}: {:#?}", api.sent());
            assert_eq!(api.count(CREATION), 0, "shown: {shown}");
        });
    }
}
