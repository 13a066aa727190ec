//! A CronJob on a whole cluster: the API server starts its Jobs, the controller runs them, and what is theirs goes with it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod binary;
mod cluster;

use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::CronJob;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use yardmaster::actors::ControllerConfig;

use crate::binary::PATIENCE;
use crate::cluster::{Cluster, REPLACEMENT, has};

async fn until<F: Future<Output = bool>>(what: &str, holds: impl Fn() -> F) {
    let deadline = Instant::now() + PATIENCE;
    while !holds().await {
        assert!(Instant::now() < deadline, "still not so: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cron_job_starts_jobs_that_go_with_it() {
    let cluster = Cluster::start().await;
    let config = ControllerConfig { controller_name: REPLACEMENT.into(), ..ControllerConfig::default() };
    let controller = cluster.controller(config).await;
    let cron_jobs: Api<CronJob> =
        Api::default_namespaced(kube::Client::try_from(cluster.config.clone()).unwrap());
    // A second after its creation, so that the test need not wait for a minute.
    let cron_job = json!({"metadata": {"name": "tick"}, "spec": {"schedule": "@every 1s", "jobTemplate": {"spec": {
        "template": {
            "metadata": {"annotations": {"yardmaster.dev/simulated-run-time": "10ms"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
        },
    }}}});
    let created =
        cron_jobs.create(&PostParams::default(), &serde_json::from_value(cron_job).unwrap()).await.unwrap();
    until("a Job has succeeded", || async {
        let status = cron_jobs.get("tick").await.unwrap().status.unwrap_or_default();
        status.last_successful_time.is_some()
    })
    .await;
    let jobs = cluster.jobs.list(&ListParams::default()).await.unwrap().items;
    let job = jobs.iter().find(|job| has(job, "Complete")).unwrap();
    assert!(job.name_any().starts_with("tick-"));
    assert_eq!(job.owner_references()[0].uid, created.uid().unwrap());
    cron_jobs.delete("tick", &DeleteParams::default()).await.unwrap();
    until("Jobs and pods are gone", || async {
        let jobs = cluster.jobs.list(&ListParams::default()).await.unwrap();
        let pods = cluster.pods.list(&ListParams::default()).await.unwrap();
        jobs.items.is_empty() && pods.items.is_empty()
    })
    .await;
    controller.shutdown().await;
    cluster.end().await;
}
