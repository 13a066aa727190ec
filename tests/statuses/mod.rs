//! Statuses that others than the controller write.

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{Cluster, has};
use crate::refusals::until;
use crate::settings;

/// Every second index of a Job: no interval holds two.
fn every_second(indexes: usize) -> String {
    (0..indexes).step_by(2).map(|index| index.to_string()).collect::<Vec<_>>().join(",")
}

async fn merge(cluster: &Cluster, job: &str, status: Value) {
    let patch = Patch::Merge(json!({"status": status}));
    cluster.jobs.patch_status(job, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_others_survive_and_those_of_the_job_are_each_there_once() {
    let cluster = Cluster::start().await;
    cluster.create("j", json!({"suspend": true}), "4s").await;
    let of = |kind: &str, message: &str| json!({"type": kind, "status": "False", "message": message, "reason": "Theirs"});
    let theirs = json!([
        of("Foreign", "1"),
        of("Suspended", "2"),
        of("Suspended", "3"),
        of("Foreign", &"4".repeat(100_000))
    ]);
    merge(&cluster, "j", json!({"conditions": theirs})).await;
    let controller = cluster.controller(settings()).await;
    cluster.until("j", "suspended", |job| has(job, "Suspended")).await;
    let resume = Patch::Merge(json!({"spec": {"suspend": false}}));
    cluster.jobs.patch("j", &PatchParams::default(), &resume).await.unwrap();
    let job = cluster.completes("j").await;
    let conditions = serde_json::to_value(job.status.unwrap().conditions).unwrap();
    let shown = |key: &str| -> Vec<String> {
        conditions
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[key].as_str().unwrap_or_default().to_owned())
            .collect()
    };
    assert_eq!(shown("type"), ["Suspended", "SuccessCriteriaMet", "Complete", "Foreign", "Foreign"]);
    assert_eq!(shown("status"), ["False", "True", "True", "False", "False"]);
    let kept = [
        "Job resumed",
        "Reached expected number of succeeded pods",
        "Reached expected number of succeeded pods",
        "1",
    ];
    assert_eq!(shown("message")[..4], kept);
    assert_eq!(shown("message")[4].len(), 100_000);
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_beyond_the_share_of_its_namespace_is_left_alone_until_there_is_room() {
    let cluster = Cluster::start().await;
    let controller = cluster.controller(settings()).await;
    let (indexes, count) = (every_second(290_000), 145_000);
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        let spec = json!({"completionMode": "Indexed", "completions": 1_000_000, "parallelism": 0});
        cluster.create(name, spec, "1h").await;
        merge(&cluster, name, json!({"completedIndexes": indexes, "succeeded": count})).await;
    }
    let events: Api<Event> = Api::default_namespaced(cluster.jobs.clone().into_client());
    let left_alone = async || {
        let events = events.list(&ListParams::default().fields("reason=StatusTooLong")).await.unwrap();
        events.items.into_iter().find_map(|event| event.involved_object.name)
    };
    let mut name = None;
    until("one of them is left alone", async || left_alone().await.is_some()).await;
    name.clone_from(&left_alone().await);
    let name = name.unwrap();
    // It wants a pod now, and gets none.
    let wants = Patch::Merge(json!({"spec": {"parallelism": 1}}));
    cluster.jobs.patch(&name, &PatchParams::default(), &wants).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(cluster.pods_of(&name).await.is_empty());
    let other = names.into_iter().find(|other| *other != name).unwrap();
    cluster.jobs.delete(other, &DeleteParams::default()).await.unwrap();
    let job = cluster.until(&name, "active", |job| job.status.as_ref().unwrap().active == Some(1)).await;
    assert_eq!(job.status.unwrap().completed_indexes.as_deref(), Some(&*indexes), "nothing is lost");
    assert_eq!(crate::cluster::index_of(&cluster.pods_of(&name).await[0]), "1");
    controller.shutdown().await;
    cluster.end().await;
}
