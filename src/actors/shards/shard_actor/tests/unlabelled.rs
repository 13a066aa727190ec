//! Jobs with a selector of their own, whose pods lack the label of a Job's UID.

use super::*;

const UNLABELLED: SubscriptionId = SubscriptionId(1);
/// The statuses of `m` that count a pod.
const COUNTS_OF_M: &[&str] = &["PATCH", "/jobs/m/status", r#""uncountedTerminatedPods":{"succeeded":["#];

/// A pod of `m`, which a selector of the Job's own selects.
fn chosen(name: &str, version: u64, phase: &str) -> Value {
    let mut chosen = at(version, phase, pod(name, "m"));
    chosen["metadata"]["labels"] = json!({"own": "m", "yardmaster.dev/shard": "0"});
    chosen
}

/// A list of all unlabelled pods of a cluster may take long.
#[test]
fn only_jobs_with_a_selector_of_their_own_wait_for_the_list_of_unlabelled_pods() {
    run(async {
        let api = TestApi::new(|_, uri| uri.contains("own+in").then(|| list(150, &[])).flatten());
        let shard = Shard::new(ShardId(0), replica(&api, BUILT_IN_CONTROLLER), Fence::unlimited(), &[]).await;
        shard.caught_up().await;
        shard.job(&job("j", json!({}))).await;
        shard.job(&manual_job(json!({}))).await;
        shard.0.send(JobsListed).await.unwrap();
        shard.watched(vec![Change::Restarted, synced(100)]).await;
        sleep(20 * SOON).await;
        let created = |of: &str| api.count(&["POST", "/pods", &format!(r#""name":"{of}","uid""#)]);
        assert_eq!((created("j"), created("m")), (1, 0), "{:?}", api.sent());
        shard.brought(UNLABELLED, vec![Change::Restarted, synced(120)]).await;
        sleep(4 * SOON).await;
        assert_eq!((created("j"), created("m")), (1, 1), "{:?}", api.sent());
        assert_eq!(api.count(&["own+in"]), 1, "one list is enough");
    });
}

#[test]
fn a_shard_without_such_jobs_does_not_watch_unlabelled_pods() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let shard = Shard::start(&api, &[job("j", json!({}))], vec![]).await;
        sleep(20 * SOON).await;
        let watches = ["GET /api/v1/pods?labelSelector=%21batch", "watch=true"];
        assert_eq!(api.count(&watches), 0);
        shard.job(&manual_job(json!({}))).await;
        sleep(20 * SOON).await;
        assert_eq!(api.count(&watches), 1);
    });
}

/// The first watch has come as far as the Job's own list, the other has not.
#[test]
fn a_pod_that_is_counted_is_not_counted_again_from_a_watch_that_is_behind() {
    for anew in [false, true] {
        run(async move {
            let mut counted = chosen("p", 201, "Succeeded");
            counted["metadata"]["finalizers"] = json!([]);
            let running = chosen("p", 90, "Running");
            let (later, is_later) = switch();
            let first = running.clone();
            let api = TestApi::new(move |_, uri| match uri.contains("own+in") {
                true if is_later.load(Ordering::Relaxed) == 0 => list(150, std::slice::from_ref(&first)),
                true => list(210, &[counted.clone(), chosen("q", 205, "Running")]),
                false => None,
            });
            let known = |version: u64, succeeded| {
                let mut known = manual_job(up_to_date(succeeded));
                known["metadata"]["resourceVersion"] = version.to_string().into();
                known["spec"]["completions"] = 3.into();
                known
            };
            let shard = Shard::start(&api, &[known(10, 0)], vec![]).await;
            shard.brought(UNLABELLED, vec![applied(&running)]).await;
            sleep(4 * SOON).await;
            later.store(1, Ordering::Relaxed);
            // Another writer has counted it.
            shard.job(&known(202, 1)).await;
            sleep(4 * SOON).await;
            let lists = api.count(&["own+in"]);
            shard.watched(vec![applied(&at(300, "Running", pod("x", "other")))]).await;
            let ended = chosen("p", 150, "Succeeded");
            match anew {
                false => shard.brought(UNLABELLED, vec![applied(&ended)]).await,
                true => {
                    let again = vec![Change::Restarted, change(&ended), synced(180)];
                    shard.brought(UNLABELLED, again).await;
                }
            }
            sleep(4 * SOON).await;
            assert_eq!(api.count(&["own+in"]), lists + usize::from(anew), "anew: {anew}");
            assert_eq!((api.count(COUNTS_OF_M), api.count(CREATION)), (0, 0), "{anew}: {:?}", api.sent());
            shard.brought(UNLABELLED, vec![applied(&chosen("q", 220, "Succeeded"))]).await;
            sleep(4 * SOON).await;
            assert_eq!(api.count(COUNTS_OF_M), 1, "{anew}: what is new counts");
        });
    }
}

#[test]
fn the_pods_of_a_job_with_a_selector_of_its_own_outlive_a_list_that_does_not_select_them() {
    run(async {
        let running = chosen("p", 90, "Running");
        let found = running.clone();
        let api = TestApi::new(move |_, uri| match uri.contains("own+in") {
            true => list(400, std::slice::from_ref(&found)),
            false => None,
        });
        let shard = Shard::start(&api, &[manual_job(up_to_date(0))], vec![]).await;
        shard.brought(UNLABELLED, vec![applied(&running)]).await;
        sleep(4 * SOON).await;
        shard.watched(vec![Change::Restarted, synced(300)]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(CREATION), 0, "{:?}", api.sent());
        shard.brought(UNLABELLED, vec![applied(&chosen("p", 420, "Succeeded"))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(COUNTS_OF_M), 1, "{:?}", api.sent());
    });
}

/// It has got a label by which the other watch shows it, and that one is ahead.
#[test]
fn a_pod_that_one_watch_has_shown_as_counted_is_not_counted_as_the_other_still_shows_it() {
    run(async {
        let api = TestApi::new(|_, uri| match uri.contains("own+in") {
            true => list(150, &[chosen("q", 140, "Running")]),
            false => None,
        });
        let mut known = manual_job(up_to_date(1));
        known["spec"]["completions"] = 3.into();
        let shard = Shard::start(&api, &[known], vec![]).await;
        shard.brought(UNLABELLED, vec![applied(&chosen("q", 140, "Running"))]).await;
        sleep(4 * SOON).await;
        let mut counted = chosen("p", 230, "Succeeded");
        counted["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "x".into();
        counted["metadata"]["finalizers"] = json!([]);
        shard.watched(vec![applied(&counted)]).await;
        sleep(4 * SOON).await;
        shard.brought(UNLABELLED, vec![applied(&chosen("p", 210, "Succeeded"))]).await;
        sleep(4 * SOON).await;
        assert_eq!((api.count(COUNTS_OF_M), api.count(CREATION)), (0, 0), "{:?}", api.sent());
        shard.brought(UNLABELLED, vec![applied(&chosen("q", 240, "Succeeded"))]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(COUNTS_OF_M), 1, "{:?}", api.sent());
    });
}

#[test]
fn unlabelled_pods_are_watched_no_longer_once_no_job_needs_that() {
    run(async {
        let api = TestApi::new(|_, uri| uri.contains("own+in").then(|| list(150, &[])).flatten());
        let shard = Shard::start(&api, &[finished_manual_job("a"), finished_manual_job("b")], vec![]).await;
        let is_watched = || async { shard.0.send(State).await.unwrap().0 };
        for (gone, watched) in [("a", true), ("b", false)] {
            shard.0.send(JobVanished(gone.into())).await.unwrap();
            sleep(Duration::from_secs(60)).await;
            assert!(is_watched().await, "others may follow");
            sleep(Duration::from_hours(1)).await;
            assert_eq!(is_watched().await, watched);
        }
        shard.job(&finished_manual_job("c")).await;
        assert!(is_watched().await);
    });
}

fn finished_manual_job(name: &str) -> Value {
    let mut over = foreign_jobs::finished(10, None);
    over["metadata"]["name"] = name.into();
    over["metadata"]["uid"] = name.into();
    over["spec"]["manualSelector"] = true.into();
    over["spec"]["selector"] = json!({"matchLabels": {"own": "m"}});
    over
}

/// Whether unlabelled pods are watched, and how many pods are remembered as done.
#[derive(Message)]
#[rtype(result = "(bool, usize)")]
struct State;

impl Handler<State> for ShardActor {
    type Result = actix::MessageResult<State>;

    fn handle(&mut self, _: State, _: &mut Self::Context) -> Self::Result {
        actix::MessageResult((self.watches_unlabelled(), self.answers.len()))
    }
}

/// The shard has no other events for a long time.
#[test]
fn pods_that_are_done_are_not_remembered_for_good() {
    run(async {
        let api = TestApi::new(|_, uri| uri.contains("own+in").then(|| list(150, &[])).flatten());
        let shard = Shard::start(&api, &[finished_manual_job("m")], vec![]).await;
        for number in 0..3_000 {
            let mut over = chosen(&format!("p{number}"), 200 + number, "Succeeded");
            over["metadata"]["finalizers"] = json!([]);
            shard.brought(UNLABELLED, vec![applied(&over)]).await;
            sleep(Duration::from_secs(1)).await;
        }
        let most = shard.0.send(State).await.unwrap().1;
        assert!((1..=2_400).contains(&most), "{most}");
        sleep(Duration::from_secs(1_300)).await;
        assert_eq!(shard.0.send(State).await.unwrap().1, 0);
    });
}

/// It may have pods that keep their finalizer, or that it is to delete.
#[test]
fn a_finished_job_with_a_selector_of_its_own_has_its_pods_watched() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let _shard = Shard::start(&api, &[finished_manual_job("m")], vec![]).await;
        sleep(4 * SOON).await;
        assert_eq!(api.count(&["GET /api/v1/pods?labelSelector=%21batch", "watch=true"]), 1);
    });
}

/// Their lists take turns: the last of them begins long after it was asked for.
#[test]
fn each_of_many_jobs_with_a_selector_of_its_own_gets_its_list() {
    const JOBS: usize = 900;
    run(async {
        let api = TestApi::new(|_, uri| uri.contains("own+in").then(|| list(150, &[])).flatten());
        let api = api.after(2 * SOON);
        let jobs: Vec<Value> = (0..JOBS)
            .map(|number| {
                let mut job = manual_job(json!({}));
                job["metadata"]["name"] = format!("m{number}").into();
                job["metadata"]["uid"] = format!("m{number}").into();
                job
            })
            .collect();
        let _shard = Shard::start(&api, &jobs, vec![]).await;
        sleep(Duration::from_secs(1_800)).await;
        assert_eq!(api.count(&["own+in"]), JOBS);
    });
}
