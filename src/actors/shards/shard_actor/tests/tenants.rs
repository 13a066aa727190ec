//! The claims of a pod's author about Jobs of others, and about Jobs that cannot exist.

use super::*;

/// The pod `p` of the namespace `evil`, which names the Job `j` of the namespace `n`, or another name with its UID.
fn foreign(name: &str, phase: &str) -> Value {
    let mut foreign = labelled(at(50, phase, pod("p", "j")));
    foreign["metadata"]["namespace"] = "evil".into();
    foreign["metadata"]["ownerReferences"][0]["name"] = name.into();
    foreign
}

/// An API server that has the Job `j` and creates its pods, and knows no other Job.
fn api() -> TestApi {
    TestApi::new(|method, uri| match method {
        "GET" if uri.contains("/namespaces/evil/jobs/") => refusal(404),
        "PATCH" if uri.contains("/namespaces/evil/pods/p") => Some((200, pod("p", "j"))),
        _ => None,
    })
}

const RELEASE: &[&str] = &["PATCH /api/v1/namespaces/evil/pods/p", "finalizers"];
/// The looks for Jobs.
const LOOK: &[&str] = &["GET /apis/batch/v1/"];
const STATUS: &[&str] = &["PATCH", "/jobs/j/status"];

#[test]
fn a_pod_of_another_namespace_does_nothing_to_the_job_whose_uid_it_names() {
    for name in ["j", "other"] {
        for phase in ["Succeeded", "Failed", "Running", "Pending"] {
            run(async move {
                let api = api();
                let jobs = [job("j", up_to_date(0))];
                let own = labelled(at(60, "Running", pod("own", "j")));
                let shard = Shard::start(&api, &jobs, vec![own, foreign(name, phase)]).await;
                shard.watched(vec![applied(&at(120, phase, foreign(name, phase)))]).await;
                sleep(SOON).await;
                let case = format!("{name} {phase} {:?}", api.sent());
                assert_eq!(
                    (api.count(CREATION), api.count(STATUS), api.count(&["DELETE"])),
                    (0, 0, 0),
                    "{case}"
                );
                assert_eq!(api.count(RELEASE), 1, "{case}");
            });
        }
    }
}

#[test]
fn a_pod_with_the_jobs_uid_and_another_name_is_not_its() {
    run(async {
        let mut misnamed = foreign("other", "Succeeded");
        misnamed["metadata"]["namespace"] = "n".into();
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/jobs/other") => refusal(404),
            _ => None,
        });
        let _shard = Shard::start(&api, &[job("j", json!({}))], vec![misnamed]).await;
        sleep(SOON).await;
        assert_eq!((api.count(CREATION), api.count(COUNTS)), (1, 0), "{:?}", api.sent());
    });
}

#[test]
fn a_pod_of_another_namespace_that_cannot_be_read_holds_no_job_back() {
    for with_controller in [true, false] {
        run(async move {
            let mut foreign = foreign("j", "Running");
            if !with_controller {
                foreign["metadata"]["ownerReferences"] = json!([]);
                foreign["metadata"]["labels"]["batch.kubernetes.io/job-name"] = "j".into();
                foreign["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "j".into();
            }
            foreign["metadata"]["creationTimestamp"] = Value::Null;
            let api = api();
            let _shard = Shard::start(&api, &[job("j", json!({}))], vec![foreign]).await;
            sleep(SOON).await;
            assert_eq!(api.count(CREATION), 1, "{:?}", api.sent());
        });
    }
}

/// It is shown since it has the label of no shard.
#[test]
fn a_pod_of_another_namespace_without_the_label_of_a_shard_is_given_to_no_job() {
    run(async {
        let api = api();
        let mut unlabelled = foreign("j", "Succeeded");
        unlabelled["metadata"]["labels"].as_object_mut().unwrap().remove("yardmaster.dev/shard");
        let _shard = Shard::start(&api, &[job("j", json!({}))], vec![unlabelled]).await;
        sleep(SOON).await;
        assert_eq!((api.count(CREATION), api.count(COUNTS)), (1, 0), "{:?}", api.sent());
        assert_eq!(api.count(RELEASE), 1, "{:?}", api.sent());
    });
}

/// No request is sent for a Job that cannot exist.
#[test]
fn a_job_that_cannot_exist_is_not_looked_for() {
    for name in ["?watch=1&n=1", "?n=1", "../pods/own", "%2e%2e", &*"a".repeat(1_300_000)] {
        run(async {
            let api = api();
            let _shard = Shard::start(&api, &[], vec![foreign(name, "Pending")]).await;
            sleep(SOON).await;
            assert_eq!(api.count(LOOK), 0, "{:?}", api.sent());
            assert_eq!(api.count(RELEASE), 1, "{:?}", api.sent());
        });
    }
}

/// The API server does not answer the reads of the Job.
#[test]
fn the_job_of_a_pod_is_no_longer_looked_for_once_the_pod_is_gone() {
    run(async {
        let api = TestApi::new(|method, uri| match method {
            "GET" if uri.contains("/namespaces/evil/jobs/") => refusal(500),
            _ => None,
        });
        let shard = Shard::start(&api, &[], vec![foreign("j", "Pending")]).await;
        sleep(SOON).await;
        let before = api.count(LOOK);
        assert!(before >= 1);
        let mut gone = at(130, "Pending", foreign("j", "Pending"));
        gone["metadata"]["finalizers"] = json!([]);
        shard.watched(vec![Change::Deleted(observed_pod(&gone))]).await;
        sleep(Duration::from_secs(600)).await;
        assert_eq!(api.count(LOOK), before);
    });
}

/// A Deployment was made from a copied pod: its controller wants the label that we would take off.
#[test]
fn a_pod_of_another_controller_keeps_the_label_of_a_shard() {
    run(async {
        let api = TestApi::new(|_, _| None);
        let mut of_other = labelled(at(50, "Running", pod("p", "j")));
        of_other["metadata"]["finalizers"] = json!([]);
        of_other["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet".into();
        of_other["metadata"]["ownerReferences"][0]["apiVersion"] = "apps/v1".into();
        let shard = Shard::start(&api, &[], vec![of_other.clone()]).await;
        shard.watched(vec![applied(&at(120, "Running", of_other))]).await;
        sleep(SOON).await;
        assert_eq!(api.count(&["PATCH"]), 0, "{:?}", api.sent());
    });
}
