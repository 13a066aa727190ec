//! `yardmaster run`: Job manifests to the end.

#[cfg(feature = "embedded")]
mod check;
mod ground;
mod located;
mod manifest;
mod pods;
mod progress;
mod report;
mod tracker;
mod view;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::Args;
use futures::stream::{BoxStream, StreamExt, select_all};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use serde_json::Value;

use self::ground::Ground;
use self::manifest::Manifest;
use self::pods::{LogMode, PodObserver};
use self::progress::Progress;
use self::tracker::{Tracker, Verdict};
use self::view::{JobView, PodView};
use super::connection::ConnectionArgs;
use super::signals::Interrupts;
use super::{Failure, Telling};

/// Flags of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Job manifests, YAML or JSON, several per file; `-` is standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print the pods' logs on standard output as they come [default: off].
    #[arg(long)]
    logs: bool,
    /// Print the final Jobs on standard output, as json or yaml [default: not].
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<report::Format>,
    /// Keep the embedded cluster up at the end, and tell how to reach it [default: off].
    #[arg(long)]
    keep: bool,
    /// Namespace of Jobs that name none [default: default].
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Runs the Jobs. Exit code 0 if all are Complete, 1 if one is not, 3 if that is only for being suspended.
pub(super) async fn run(args: RunArgs, telling: Telling) -> Result<ExitCode, Failure> {
    let manifests = manifest::load(&args.files, args.namespace.as_deref()).map_err(Failure::BadInput)?;
    let mut interrupts = Interrupts::listen()?;
    let ground = tokio::select! {
        ground = Ground::prepare(&args.connection, &manifests, &telling.traces) => ground?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    let mut tracker = Tracker::new(ground.is_shared());
    let outcome = tokio::select! {
        outcome = to_the_end(&args, &ground, &manifests, &mut tracker) => outcome,
        () = interrupts.next() => Err(Failure::Interrupted),
    };
    if outcome.is_ok()
        && args.keep
        && let Some(address) = ground.address()?
    {
        eprintln!("{address}\nCtrl-C ends the cluster.");
        interrupts.next().await;
    }
    tokio::select! {
        () = ground.leave(&tracker, matches!(outcome, Err(Failure::Interrupted))) => {}
        // A second time: whoever is still there is dropped, which kills its processes.
        () = interrupts.next() => {}
    }
    outcome
}

async fn to_the_end(
    args: &RunArgs,
    ground: &Ground,
    manifests: &[Manifest],
    tracker: &mut Tracker,
) -> Result<ExitCode, Failure> {
    let progress = Progress::new();
    for manifest in manifests {
        let job = create(&ground.client, manifest).await?;
        progress.update(&key(&job), &JobView::of(&job));
        tracker.add(job);
    }
    let mode = match (args.logs, tracker.jobs.as_slice()) {
        (false, _) => LogMode::Off,
        (true, [only]) if JobView::of(&only.job).is_single() => LogMode::Raw,
        (true, _) => LogMode::Prefixed,
    };
    let names = tracker.jobs.iter().map(|tracked| (tracked.uid.clone(), tracked.key())).collect();
    let mut pods = PodObserver::new(ground.client.clone(), progress.clone(), mode, names);
    follow(&ground.client, tracker, &mut pods, &progress).await;
    if mode != LogMode::Off || tracker.verdict() != Verdict::Complete {
        // Pods that ended just before their Job may not have been seen.
        catch_up(&ground.client, tracker, &mut pods).await?;
        pods.finish().await;
    }

    progress.conclude(&report::summary(&tracker.jobs, &pods));
    if let Some(format) = args.output {
        let text = report::jobs(&tracker.jobs, format)?;
        match progress.print(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => {}
        }
    }
    Ok(tracker.verdict().into())
}

fn key(job: &Value) -> String {
    let field = |name: &str| job["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", field("namespace"), field("name"))
}

/// Creates a Job, as it is: the server checks every field.
async fn create(client: &kube::Client, manifest: &Manifest) -> anyhow::Result<Value> {
    let uri = format!("/apis/batch/v1/namespaces/{}/jobs?fieldValidation=Strict", manifest.namespace);
    let request = http::Request::post(uri)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&manifest.job)?)?;
    let job = client.request(request).await;
    job.with_context(|| format!("cannot create Job {}", key(&manifest.job)))
}

/// Watches Jobs and pods until all Jobs have ended.
async fn follow(client: &kube::Client, tracker: &mut Tracker, pods: &mut PodObserver, progress: &Progress) {
    let namespaces = namespaces(tracker);
    let job_type = ApiResource::erase::<Job>(&());
    let mut jobs = select_all(namespaces.iter().map(|namespace| {
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &job_type);
        events(api).map(|event| (namespace.clone(), event)).boxed()
    }));
    let mut pod_events = select_all(namespaces.iter().map(|namespace| {
        let api = Api::<PodView>::namespaced_with(client.clone(), namespace, &ApiResource::erase::<Pod>(&()));
        events(api)
    }));
    let mut listed: HashMap<String, HashSet<String>> = HashMap::new();
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
                }
            }
            Some(event) = pod_events.next() => {
                if let Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod) = event {
                    pods.observe(&pod);
                }
            }
        }
    }
}

fn namespaces(tracker: &Tracker) -> BTreeSet<String> {
    tracker.jobs.iter().map(|tracked| tracked.namespace().to_owned()).collect()
}

fn json(job: &DynamicObject) -> Option<Value> {
    serde_json::to_value(job).ok()
}

/// All changes of a kind; interruptions are mended by themselves.
fn events<K>(api: Api<K>) -> BoxStream<'static, Event<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watch(api, watcher::Config::default())
        .default_backoff()
        .filter_map(|event| {
            if let Err(error) = &event {
                tracing::warn!(%error, "a watch was interrupted");
            }
            std::future::ready(event.ok())
        })
        .boxed()
}

/// Looks at all pods once more.
async fn catch_up(client: &kube::Client, tracker: &Tracker, pods: &mut PodObserver) -> anyhow::Result<()> {
    for namespace in namespaces(tracker) {
        let api =
            Api::<PodView>::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&()));
        let mut params = ListParams::default().limit(500);
        loop {
            let page = api.list(&params).await.map_err(|error| anyhow!(error).context("cannot list pods"))?;
            page.items.iter().for_each(|pod| pods.observe(pod));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => break,
            }
        }
    }
    Ok(())
}
