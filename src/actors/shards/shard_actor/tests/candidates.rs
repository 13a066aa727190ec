//! Pods that a Job may adopt: the search for them, and readings that are older than their last change.

use super::*;

#[test]
fn a_search_for_pods_that_a_job_may_adopt_ends_with_its_shard() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("own+in") => refusal(500),
            _ => None,
        });
        let shard = Shard::start(&api, &[manual_job(json!({}))], vec![]).await;
        sleep(20 * SOON).await;
        let before = api.count(&["own+in"]);
        assert!(before > 1, "it goes on: {:?}", api.sent());
        shard.0.send(End).await.unwrap();
        sleep(600 * SOON).await;
        assert_eq!(api.count(&["own+in"]), before);
    });
}

/// The selector is too long for a URL, or the pods of the namespace may not be listed.
#[test]
fn a_job_that_is_gone_waits_for_no_search() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("own+in") => refusal(403),
            "GET" if uri.contains("/jobs/m") => refusal(404),
            _ => None,
        });
        let shard = Shard::start(&api, &[manual_job(json!({}))], vec![]).await;
        sleep(20 * SOON).await;
        shard.0.send(JobVanished("m".into())).await.unwrap();
        sleep(2 * SOON).await;
        let before = api.count(&["own+in"]);
        sleep(600 * SOON).await;
        assert_eq!(api.count(&["own+in"]), before);
        assert_eq!(shard.0.send(Describe).await.unwrap().jobs, 0);
    });
}

/// Its own selector selects them, so that they lack the label of the Job's UID.
#[test]
fn a_job_that_is_deleted_before_it_is_known_counts_its_pods_with_the_label_of_no_shard() {
    run(async {
        let mut known = manual_job(json!({"startTime": "1970-01-01T00:00:00Z"}));
        known["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
        known["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
        let mut mislabelled = at(95, "Succeeded", pod("p", "m"));
        mislabelled["metadata"]["labels"] = json!({"own": "m", "yardmaster.dev/shard": "999"});
        let found = mislabelled.clone();
        let api = TestApi::new(move |_, uri| match uri.contains("own+in") {
            true => list(110, std::slice::from_ref(&found)),
            false => None,
        });
        let _shard = Shard::start(&api, &[known], vec![mislabelled]).await;
        sleep(4 * SOON).await;
        let counts = &["PATCH", "/jobs/m/status", r#""uncountedTerminatedPods":{"succeeded":["p"]"#];
        assert_eq!(api.count(counts), 1, "{:?}", api.sent());
    });
}

#[test]
fn a_reading_from_before_its_adoption_takes_no_pod_from_its_job() {
    run(async {
        let adopted = labelled(at(120, "Running", pod("p", "j")));
        let orphan = |version| {
            let mut orphan = labelled(at(version, "Running", pod("p", "j")));
            orphan["metadata"]["ownerReferences"] = json!([]);
            orphan
        };
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/j") => Some((200, job("j", up_to_date(0)))),
            "PATCH" if uri.contains("/pods/p") => Some((200, adopted.clone())),
            _ => None,
        });
        let jobs = [job("j", json!({}))];
        let shard = Shard::start(&api, &jobs, vec![orphan(110)]).await;
        sleep(SOON).await;
        assert_eq!(api.count(&["PATCH", "/pods/p"]), 1);
        shard.watched(vec![applied(&orphan(115))]).await;
        sleep(4 * SOON).await;
        assert_eq!((api.count(&["PATCH", "/pods/p"]), api.count(CREATION)), (1, 0));
    });
}

/// A live list may have begun before the pod was adopted, or show changes that the watch has not shown.
#[test]
fn a_list_takes_no_pod_from_the_job_that_has_it_unless_a_later_one_shows_the_same() {
    for lost in [false, true] {
        run(async move {
            let mut other = job("z", up_to_date(0));
            other["spec"]["manualSelector"] = true.into();
            other["spec"]["selector"] = json!({"matchLabels": {"also": "j"}});
            other["spec"]["template"]["metadata"]["labels"] = json!({"also": "j"});
            let mut held = at(90, "Running", pod("p", "z"));
            held["metadata"]["labels"] = json!({"own": "m", "also": "j"});
            let held = labelled(held);
            let mut free = at(if lost { 95 } else { 80 }, "Running", held.clone());
            free["metadata"]["ownerReferences"] = json!([]);
            let (first, later) = (free.clone(), if lost { free } else { held.clone() });
            let (lists, asked) = switch();
            let api = TestApi::new(move |_, uri| match uri.contains("own+in") {
                false => uri.ends_with("/jobs/m").then(|| (200, manual_job(json!({})))),
                // Until the list of the shard is complete.
                true => match asked.fetch_add(1, Ordering::Relaxed) {
                    0 => refusal(500),
                    1 => list(185, std::slice::from_ref(&first)),
                    _ => list(199, std::slice::from_ref(&later)),
                },
            });
            let jobs = [manual_job(json!({})), other];
            let _shard = Shard::start(&api, &jobs, vec![held]).await;
            let adopts = ["PATCH", "/pods/p", "ownerReferences"];
            while lists.load(Ordering::Relaxed) < 3 {
                assert_eq!((api.count(&adopts), api.count(CREATION)), (0, 0), "{:?}", api.sent());
                sleep(SOON / 10).await;
            }
            sleep(SOON).await;
            let then = (api.count(&adopts), api.count(CREATION));
            assert_eq!(then, if lost { (1, 0) } else { (0, 1) }, "{lost}: {:?}", api.sent());
        });
    }
}
