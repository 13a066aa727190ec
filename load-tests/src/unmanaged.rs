//! The cost of a load on an API server without a controller: users create the Jobs, and kubelets write the
//! statuses of their pods. A Job controller causes the rest, or a little less. The events of creations and
//! releases in the load's own watches count for the controller, too.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Request;
use serde_json::{Value, json};

use crate::ground::{Ground, Reading, Storage};
use crate::jobs;
use crate::ledger::Ledger;
use crate::load::{Load, Wave};
use crate::pods::{Observer, Simulator};

/// `spec.managedBy` of Jobs that no controller looks after.
const NOBODY: &str = "load-tests.yardmaster.dev/nobody";
/// Concurrent creations of pods, which are not measured.
const AT_ONCE: usize = 64;
/// Time between two looks at the progress of the pods.
const LOOK: Duration = Duration::from_millis(50);

/// Counts the pods whose end was accepted.
struct Ends(Arc<AtomicU64>);

impl Observer for Ends {
    fn ended(&mut self, _: &str, _: bool) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The seconds of CPU that an API server needs for the load's Jobs and what kubelets write of their pods. The pods are
/// created in between, as a controller would, which does not count.
pub(crate) async fn api_server_cpu_s(kubeconfig: &Path, load: &Load, timeout: Duration) -> Result<f64> {
    let ground = Ground::prepare(Some(kubeconfig), Storage::Memory).await?;
    let cost = measure(&ground, load, timeout).await;
    ground.end().await?;
    cost
}

async fn measure(ground: &Ground, load: &Load, timeout: Duration) -> Result<f64> {
    let client = ground.client("load-tests").await?;
    let cpu_between = |before: Reading, after: Reading| after.since(&before).cpu_s;
    let before = Reading::of(&client).await?;
    let path = ground.path("/apis/batch/v1", "jobs");
    let ledger = Ledger::new(load.waves.len());
    jobs::create(&client, &path, load, Some(NOBODY), &ledger, Instant::now()).await?;
    let of_jobs = cpu_between(before, Reading::of(&client).await?);
    create_pods(ground, &client, load).await?;
    let before = Reading::of(&client).await?;
    let ended = Arc::new(AtomicU64::new(0));
    let simulator = Simulator::new(client.clone(), load.places(), Ends(ended.clone()));
    let (pods, watcher) = (ground.path("/api/v1", "pods"), client.clone());
    let kubelet = tokio::spawn(async move { simulator.run(watcher, &pods).await });
    let all_ended = async {
        while ended.load(Ordering::Relaxed) < load.completions() {
            tokio::time::sleep(LOOK).await;
        }
    };
    let in_time = tokio::time::timeout(timeout, all_ended).await;
    let of_pods = cpu_between(before, Reading::of(&client).await?);
    kubelet.abort();
    in_time.context("not all pods ended in time")?;
    Ok(of_jobs + of_pods)
}

/// Creates the pods of all Jobs, as large as a controller makes them.
async fn create_pods(ground: &Ground, client: &kube::Client, load: &Load) -> Result<()> {
    let request = Request::get(ground.path("/apis/batch/v1", "jobs")).body(Vec::new())?;
    let jobs: Value = client.request(request).await?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let uid_of = |job: &Value| (text(&job["metadata"]["name"]), text(&job["metadata"]["uid"]));
    let uids: HashMap<String, String> = jobs["items"].as_array().into_iter().flatten().map(uid_of).collect();
    let path = ground.path("/api/v1", "pods");
    let pods = load.waves.iter().flat_map(|wave| {
        (0..wave.jobs).flat_map(move |job| (0..wave.pods_per_job).map(move |pod| (wave, job, pod)))
    });
    let create = |(wave, job, pod): (&Wave, u32, u32)| {
        let name = wave.job_name(job);
        let body = self::pod(wave, job, pod, uids.get(&name).map_or("", |uid| uid));
        let (client, path) = (client.clone(), path.clone());
        async move {
            let request = Request::post(&path).body(body.to_string().into_bytes())?;
            let _created: Value = client.request(request).await.with_context(|| name)?;
            anyhow::Ok(())
        }
    };
    stream::iter(pods).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

/// A pod of a Job, without a finalizer, which no controller would remove.
fn pod(wave: &Wave, job: u32, number: u32, uid: &str) -> Value {
    let name = wave.job_name(job);
    let mut pod = wave.manifest(job, None)["spec"]["template"].take();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    let metadata = &mut pod["metadata"];
    metadata["name"] = format!("{name}-{number}").into();
    metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = number.to_string().into();
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", uid),
        ("job-name", &name),
    ] {
        metadata["labels"][label] = value.into();
    }
    metadata["ownerReferences"] = json!([{
        "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid,
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod
}
