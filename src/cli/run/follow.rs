//! Watches the Jobs and pods of a run until all Jobs have ended.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::Context;
use futures::stream::{BoxStream, StreamExt, TryStreamExt as _, select_all};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::time::{Instant, interval_at};

use super::pods::PodObserver;
use super::progress::Progress;
use super::results::Record;
use super::tracker::Tracker;
use super::view::JobView;
use super::wait_notices::{PATIENCE, Waits};
use crate::cli::lists::objects;
use crate::cli::pod_view::PodView;
use crate::cli::readable::{Readable, events};

/// How often what the Jobs have reached is recorded.
const RECORD_PERIOD: Duration = Duration::from_secs(1);

/// Watches Jobs and pods until all Jobs have ended. Records what they have reached.
pub(super) async fn follow(
    client: &kube::Client,
    tracker: &mut Tracker,
    pods: &mut PodObserver,
    record: &mut Option<Record>,
    progress: &Progress,
) {
    let namespaces = namespaces(tracker);
    let job_type = ApiResource::erase::<Job>(&());
    let mut jobs = select_all(namespaces.iter().map(|namespace| {
        let api = Api::<Readable<DynamicObject>>::namespaced_with(client.clone(), namespace, &job_type);
        changes(api).map(|event| (namespace.clone(), event)).boxed()
    }));
    let mut pod_events = select_all(namespaces.iter().map(|namespace| {
        let pod = ApiResource::erase::<Pod>(&());
        changes(Api::<Readable<PodView>>::namespaced_with(client.clone(), namespace, &pod))
    }));
    let mut listed: HashMap<String, HashSet<String>> = HashMap::new();
    let mut waits = Waits::new(client.clone(), progress.clone());
    let mut patience = interval_at(Instant::now() + PATIENCE, PATIENCE);
    let mut recording = interval_at(Instant::now() + RECORD_PERIOD, RECORD_PERIOD);
    while !tracker.is_done() {
        tokio::select! {
            Some((namespace, event)) = jobs.next() => {
                let listed = listed.entry(namespace.clone()).or_default();
                let changed = match event {
                    Event::Init => {
                        listed.clear();
                        None
                    }
                    Event::InitApply(job) => {
                        listed.extend(job.metadata.uid.clone());
                        json(&job).and_then(|job| tracker.update(job))
                    }
                    Event::InitDone => {
                        tracker.retain(&namespace, listed);
                        None
                    }
                    Event::Apply(job) => json(&job).and_then(|job| tracker.update(job)),
                    Event::Delete(job) => json(&job).and_then(|job| tracker.remove(job)),
                };
                if let Some(tracked) = changed {
                    progress.update(&tracked.key(), &JobView::of(&tracked.job));
                    pods.update(tracked);
                }
                tracker.end_stuck();
            }
            _ = patience.tick() => waits.explain(&tracker.jobs).await,
            Some(event) = pod_events.next() => {
                if let Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) = &event {
                    pods.observe(pod);
                    tracker.observe_pod(pod, matches!(event, Event::Delete(_)));
                }
                if let Event::Delete(pod) = &event {
                    pods.remove(pod);
                }
            }
            () = pods.log_ended() => {}
            _ = recording.tick() => {
                progress.refresh();
                if let Some(record) = record {
                    record.update(tracker, progress, |job| pods.whole_logs(job));
                }
            }
        }
        print_ordered(client, pods).await;
    }
}

/// Prints the output whose turn it is.
async fn print_ordered(client: &kube::Client, pods: &mut PodObserver) {
    while let Some(missing) = pods.print_ordered() {
        let some = ListParams::default().labels(&missing.labels);
        if let Err(error) = list(client, &missing.namespace, &some, pods).await {
            // The next change, or the end, asks again.
            tracing::warn!(%error, "pods were not listed");
            return;
        }
        pods.listed(&missing);
    }
}

fn namespaces(tracker: &Tracker) -> BTreeSet<String> {
    tracker.jobs.iter().map(|tracked| tracked.namespace().to_owned()).collect()
}

fn json(job: &DynamicObject) -> Option<Value> {
    serde_json::to_value(job).ok()
}

/// All watch events of a kind. Errors are logged.
fn changes<K>(api: Api<Readable<K>>) -> BoxStream<'static, Event<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    events(api, watcher::Config::default())
        .filter_map(|event| {
            if let Err(error) = &event {
                tracing::warn!(%error, "a watch was interrupted");
            }
            std::future::ready(event.ok())
        })
        .boxed()
}

/// Lists all pods once more.
pub(super) async fn catch_up(
    client: &kube::Client,
    tracker: &Tracker,
    pods: &mut PodObserver,
) -> anyhow::Result<()> {
    for namespace in namespaces(tracker) {
        list(client, &namespace, &ListParams::default(), pods).await?;
    }
    Ok(())
}

async fn list(
    client: &kube::Client,
    namespace: &str,
    some: &ListParams,
    pods: &mut PodObserver,
) -> anyhow::Result<()> {
    let api = Api::<PodView>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
    let mut all = pin!(objects(api, some));
    while let Some(pod) = all.try_next().await.context("cannot list pods")? {
        pods.observe(&pod);
    }
    Ok(())
}
