//! Pods whose label names another shard than their Job's.

use super::*;
use crate::sharding::ShardCount;

/// The label that a pod gets.
const LABEL: &[&str] = &["PATCH", "/pods/p", r#""yardmaster.dev/shard":"1""#];
const RELEASE: &[&str] = &["PATCH", "/pods/p", "deleteFromPrimitiveList"];

fn two() -> ShardCount {
    ShardCount::new(2).unwrap()
}

/// The name and the UID of a Job of this shard.
pub(super) fn job_of(shard: u32) -> String {
    (0..).map(|number| format!("j{number}")).find(|uid| two().shard_of(uid) == ShardId(shard)).unwrap()
}

/// Starts this shard, of two.
pub(super) async fn of_two(id: ShardId, api: &TestApi, jobs: &[Value], pods: Vec<Value>) -> Shard {
    let cx = replica_with(api, BUILT_IN_CONTROLLER, |config| config.shards = two());
    Shard::start_as(id, cx, Fence::unlimited(), jobs, pods).await
}

async fn first_of_two(api: &TestApi, jobs: &[Value], pods: Vec<Value>) -> Shard {
    of_two(ShardId(0), api, jobs, pods).await
}

/// A pod of this Job with the label of this shard.
fn pod_at(version: u64, phase: &str, job: &str, shard: u32) -> Value {
    let mut found = at(version, phase, pod("p", job));
    found["metadata"]["labels"]["yardmaster.dev/shard"] = shard.to_string().into();
    found
}

/// An API server with this Job of ours, where the pod is so once it is labelled.
fn labelling_api(owner: &str, labelled: Value) -> TestApi {
    let owner = job(owner, json!({}));
    TestApi::new(move |method, uri| match method {
        "PATCH" if uri.contains("/pods/p") => Some((200, labelled.clone())),
        "GET" if uri.contains("/jobs/") => Some((200, owner.clone())),
        _ => None,
    })
}

/// A counted one is to be seen by its Job, too, which may have to delete it.
#[test]
fn a_pod_of_another_shards_job_gets_the_label_of_that_shard() {
    for tracked in [true, false] {
        run(async move {
            let theirs = job_of(1);
            let api = labelling_api(&theirs, pod_at(120, "Failed", &theirs, 1));
            let mut stranger = pod_at(110, "Failed", &theirs, 0);
            if !tracked {
                stranger["metadata"]["finalizers"] = json!([]);
            }
            let _shard = first_of_two(&api, &[], vec![stranger]).await;
            sleep(60 * SOON).await;
            assert_eq!((api.count(LABEL), api.count(&["GET", "/jobs/"])), (1, 1), "{:?}", api.sent());
        });
    }
}

/// Another installation, which has another number of shards, labels its own pods.
#[test]
fn a_pod_of_another_controllers_job_keeps_its_label() {
    run(async {
        let theirs = job_of(1);
        let mut owner = job(&theirs, json!({}));
        owner["spec"]["managedBy"] = "example.com/other".into();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/") => Some((200, owner.clone())),
            _ => None,
        });
        let shard = first_of_two(&api, &[], vec![pod_at(110, "Pending", &theirs, 0)]).await;
        for version in 120..140 {
            shard.watched(vec![applied(&pod_at(version, "Running", &theirs, 0))]).await;
            sleep(SOON).await;
        }
        assert_eq!((api.count(LABEL), api.count(&["GET", "/jobs/"])), (0, 1), "{:?}", api.sent());
    });
}

/// The label keeps it from its home.
#[test]
fn a_pod_whose_job_was_another_controllers_is_released_when_that_is_gone() {
    run(async {
        let theirs = job_of(1);
        let (gone, is_gone) = switch();
        let name = theirs.clone();
        let api = TestApi::new(move |method, uri| match method {
            "GET" if uri.contains("/jobs/") && is_gone.load(Ordering::Relaxed) == 1 => refusal(404),
            "GET" if uri.contains("/jobs/") => {
                let mut owner = job(&name, json!({}));
                owner["spec"]["managedBy"] = "example.com/other".into();
                Some((200, owner))
            }
            _ => None,
        });
        let shard = first_of_two(&api, &[], vec![pod_at(110, "Running", &theirs, 0)]).await;
        sleep(20 * SOON).await;
        assert_eq!(api.count(&["PATCH"]), 0, "{:?}", api.sent());
        gone.store(1, Ordering::Relaxed);
        let job = JobId::new("n".into(), (&*theirs).into(), (&*theirs).into());
        shard.0.send(ForeignJobVanished(job)).await.unwrap();
        sleep(4 * SOON).await;
        assert_eq!((api.count(RELEASE), api.count(LABEL)), (1, 0), "{:?}", api.sent());
    });
}

/// No watch of this shard shows its end.
#[test]
fn a_pod_that_its_label_hides_is_read_until_it_is_gone_however_its_job_came_to_know_it() {
    for known_by in ["watch", "live list"] {
        run(async move {
            let ours = job_of(0);
            let hidden = pod_at(150, "Running", &ours, 1);
            let (gone, is_gone) = switch();
            let (listed, owner) = (hidden.clone(), job(&ours, up_to_date(0)));
            let found = hidden.clone();
            let api = TestApi::new(move |method, uri| match method {
                "GET" if of_pod(method, uri, "p") && is_gone.load(Ordering::Relaxed) == 1 => refusal(404),
                "GET" if of_pod(method, uri, "p") => Some((200, found.clone())),
                "GET" if is_live(uri) => list(150, std::slice::from_ref(&listed)),
                "GET" if uri.contains("/jobs/") => Some((200, owner.clone())),
                _ => None,
            });
            let shown = if known_by == "watch" { vec![pod_at(90, "Running", &ours, 0)] } else { vec![] };
            let shard = first_of_two(&api, &[job(&ours, up_to_date(0))], shown).await;
            if known_by == "watch" {
                shard.watched(vec![applied(&hidden)]).await;
            }
            shard.0.send(JobReport::Relist((&*ours).into())).await.unwrap();
            sleep(20 * SOON).await;
            assert_eq!(api.count(CREATION), 0, "{known_by}: {:?}", api.sent());
            gone.store(1, Ordering::Relaxed);
            sleep(400 * SOON).await;
            assert!(api.count(&["GET", "/pods/p"]) > 1, "{known_by}: {:?}", api.sent());
            assert!(api.count(CREATION) > 0, "{known_by}: it is gone: {:?}", api.sent());
        });
    }
}

#[test]
fn a_pod_whose_label_names_no_shard_or_its_jobs_keeps_it() {
    for (of, label) in [(0, 0), (0, 7), (1, 7)] {
        run(async move {
            let api = TestApi::new(|_, _| None);
            let owner = job_of(of);
            let jobs: Vec<Value> = (of == 0).then(|| job(&owner, up_to_date(0))).into_iter().collect();
            let _shard = first_of_two(&api, &jobs, vec![pod_at(90, "Running", &owner, label)]).await;
            sleep(60 * SOON).await;
            assert_eq!((api.count(&["PATCH", "/pods/"]), api.count(CREATION)), (0, 0), "{:?}", api.sent());
        });
    }
}

/// A webhook changes it back, forever.
#[test]
fn a_pod_that_comes_back_is_labelled_with_pauses() {
    run(async {
        let theirs = job_of(1);
        let api = labelling_api(&theirs, pod_at(120, "Running", &theirs, 1));
        let shard = first_of_two(&api, &[], vec![]).await;
        for version in 0..300 {
            shard.watched(vec![applied(&pod_at(130 + version, "Running", &theirs, 0))]).await;
            sleep(Duration::from_millis(100)).await;
        }
        let patches = api.count(LABEL);
        assert!((3..=9).contains(&patches), "{patches} patches");
    });
}

#[test]
fn a_refused_label_is_tried_with_pauses_until_the_pod_is_another_jobs_or_gone() {
    for ends in ["never", "gone", "another's"] {
        run(async move {
            let theirs = job_of(1);
            let mut of_other = pod_at(130, "Running", &job_of(0), 0);
            of_other["metadata"]["resourceVersion"] = "130".into();
            let still = pod_at(110, "Running", &theirs, 0);
            let (over, is_over) = switch();
            let (shown, owner) = (still.clone(), theirs.clone());
            let api = TestApi::new(move |method, uri| match (method, is_over.load(Ordering::Relaxed)) {
                ("PATCH", _) if uri.contains("/pods/p") => refusal(403),
                ("GET", 1) if uri.contains("/pods/p") && ends == "gone" => refusal(404),
                ("GET", 1) if uri.contains("/pods/p") && ends == "another's" => Some((200, of_other.clone())),
                ("GET", _) if uri.contains("/pods/p") => Some((200, shown.clone())),
                ("GET", _) if uri.contains("/jobs/") => Some((200, job(&owner, json!({})))),
                _ => None,
            });
            let _shard = first_of_two(&api, &[], vec![still]).await;
            sleep(120 * SOON).await;
            assert!((4..=12).contains(&api.count(LABEL)), "{} patches", api.count(LABEL));
            over.store(1, Ordering::Relaxed);
            sleep(400 * SOON).await;
            let before = api.count(LABEL);
            sleep(1_200 * SOON).await;
            assert_eq!(api.count(LABEL) > before, ends == "never", "{ends}: {:?}", api.sent());
        });
    }
}

/// Its Job's shard may not see it, and it could not be deleted.
#[test]
fn a_pod_that_is_refused_its_label_is_released_with_its_job() {
    for deleting in [false, true] {
        run(async move {
            let theirs = job_of(1);
            let mut owner = job(&theirs, json!({}));
            if deleting {
                owner["metadata"]["deletionTimestamp"] = "1970-01-01T00:00:00Z".into();
            }
            let stranger = pod_at(110, "Running", &theirs, 0);
            let shown = stranger.clone();
            let api = TestApi::new(move |method, uri| match method {
                "PATCH" if uri.contains("/pods/") => refusal(403),
                "GET" if uri.contains("/pods/p") => Some((200, shown.clone())),
                "GET" if uri.contains("/jobs/") => Some((200, owner.clone())),
                _ => None,
            });
            let _shard = first_of_two(&api, &[], vec![stranger]).await;
            sleep(20 * SOON).await;
            assert_eq!(api.count(RELEASE) > 0, deleting, "{:?}", api.sent());
        });
    }
}

/// Its label keeps it from this shard's watch: the replica of that label mends it.
#[test]
fn a_pod_in_a_live_list_that_its_label_hides_is_read_for_its_job() {
    run(async {
        let ours = job_of(0);
        let hidden = pod_at(150, "Running", &ours, 1);
        let (readable, is_readable) = switch();
        let (listed, owner) = (hidden.clone(), job(&ours, json!({"active": 2})));
        let api = TestApi::new(move |method, uri| match method {
            "GET" if of_pod(method, uri, "p") && is_readable.load(Ordering::Relaxed) == 0 => refusal(500),
            "GET" if of_pod(method, uri, "p") => Some((200, hidden.clone())),
            "GET" if is_live(uri) => list(150, std::slice::from_ref(&listed)),
            "GET" if uri.contains("/jobs/") => Some((200, owner.clone())),
            _ => None,
        });
        // Its status counts a second pod.
        let mut known = job(&ours, json!({"active": 2}));
        known["spec"]["parallelism"] = 2.into();
        known["spec"]["completions"] = 2.into();
        let shard = first_of_two(&api, &[known], vec![]).await;
        sleep(SOON).await;
        assert_eq!((api.count(LIVE_LIST), api.count(CREATION)), (1, 0));
        shard.listed(300, vec![]).await;
        readable.store(1, Ordering::Relaxed);
        sleep(240 * SOON).await;
        assert!(api.count(LIVE_LIST) > 1, "the list of the shard is newer, and lacks the pod");
        assert_eq!(api.count(&["PATCH", "/pods/p"]), 0, "{:?}", api.sent());
    });
}
