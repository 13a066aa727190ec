//! `yardmaster run`: runs Job manifests to completion.

#[cfg(feature = "embedded")]
mod check;
mod companion;
mod compose;
mod cronjob;
mod export;
mod hold;
mod kustomize;
mod loader;
mod log_files;
mod manifest;
mod pods;
#[cfg(feature = "embedded")]
mod preflight;
mod progress;
mod refusal;
mod report;
mod tail;
mod target;
mod tracker;
mod view;
mod waits;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::Write as _;
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use futures::stream::{BoxStream, StreamExt, TryStreamExt as _, select_all};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use serde_json::Value;
use tokio::time::{Instant, interval_at};

use self::compose::ComposeArgs;
use self::log_files::LogFiles;
use self::manifest::{Loaded, Manifest, Refused, Selection};
use self::pods::{LogMode, PodObserver};
use self::progress::Progress;
use self::target::TargetCluster;
use self::tracker::{Tracker, Verdict};
use self::view::JobView;
use self::waits::{PATIENCE, Waits};
use super::connection::ConnectionArgs;
use super::console::{note, unless_closed};
use super::lists::objects;
use super::namespace::parse_namespace;
use super::pod_runtime::{PodRuntime, RuntimeArgs, RuntimeChoice};
use super::pod_view::PodView;
use super::signals::Interrupts;
use super::{Failure, Telemetry};

/// Flags of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// YAML or JSON files with Jobs and the objects that they need; `-` is standard input.
    #[arg(required_unless_present_any = ["kustomize", "command"], value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Run the Jobs that `kubectl kustomize DIR` prints [default: none].
    #[arg(short = 'k', long, value_name = "DIR")]
    kustomize: Vec<PathBuf>,
    /// Run the CronJob of this name once, now [default: refuse CronJobs].
    #[arg(long, value_name = "NAME")]
    cronjob: Vec<String>,
    /// Leave out objects that no Job needs, such as Deployments, and name them [default: refuse them].
    #[arg(long)]
    ignore_others: bool,
    /// Stream the pods' logs to standard output [default: off].
    #[arg(long)]
    logs: bool,
    /// Write the output of pods into this folder: INDEX.log for each index, POD.log for each pod of a Job without [default:
    /// none].
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Print the finished Jobs to standard output, as json or yaml [default: off].
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<report::Format>,
    /// Keep the embedded cluster running after the Jobs have finished, and print its kubeconfig [default:
    /// off].
    #[arg(long)]
    keep: bool,
    /// Run pods of the embedded cluster in the current directory, with your HOME and TMPDIR [default: in folders
    /// of their own].
    #[arg(long, conflicts_with_all = ["kubeconfig", "context"])]
    here: bool,
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Namespace of Jobs without metadata.namespace [default: default].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Leave out what a cluster has written into Jobs that were read from it: uid, resourceVersion, status, generated selector
    /// and labels, owners [default: refuse such Jobs].
    #[arg(long)]
    exported: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    compose: ComposeArgs,
}

/// Where pods run.
#[derive(Debug)]
enum Host {
    /// On this machine.
    ThisMachine(PodRuntime),
    /// On the nodes of a cluster.
    Cluster,
}

impl RunArgs {
    /// What to load, with the Job of the command line.
    fn selection<'a>(&'a self, composed: Option<&'a Value>) -> Selection<'a> {
        Selection {
            files: &self.files,
            kustomizations: &self.kustomize,
            composed,
            namespace: self.namespace.as_deref(),
            exported: self.exported,
            ignore_others: self.ignore_others,
            cronjobs: &self.cronjob,
        }
    }

    /// Where a Job runs that is only printed: on any cluster.
    fn anywhere(&self) -> Result<Host, Failure> {
        if self.connection.is_given() && self.compose.is_local() {
            return Err(Failure::bad_input("a command for a cluster needs the --image that has it"));
        }
        Ok(Host::Cluster)
    }

    async fn host(&self) -> Result<Host, Failure> {
        if self.connection.is_given() {
            return self.anywhere();
        }
        let is_local = self.compose.is_local();
        let mut runtime = self.runtime.clone();
        if self.compose.image.is_some() {
            // A command that is meant for a container never runs outside of one.
            match runtime.runtime {
                _ if self.here => {
                    return Err(Failure::bad_input("--here: an --image runs in a container: use --mount"));
                }
                RuntimeChoice::Processes => {
                    return Err(Failure::bad_input("--runtime processes: an --image runs in a container"));
                }
                RuntimeChoice::Auto | RuntimeChoice::Containers => {
                    runtime.runtime = RuntimeChoice::Containers
                }
            }
        }
        if is_local && runtime.runtime == RuntimeChoice::Containers {
            return Err(Failure::bad_input(
                "--runtime containers: the command needs the --image that has it",
            ));
        }
        PodRuntime::choose(&runtime, self.here || is_local).await.map(Host::ThisMachine)
    }
}

/// Runs the Jobs. The exit code is 0 if all are Complete, 1 if one failed or was deleted, 3 if none did but
/// some wait for what nobody does here.
pub(super) async fn run(args: RunArgs, telemetry: Telemetry) -> Result<ExitCode, Failure> {
    let composed = (!args.compose.command.is_empty()).then(|| args.compose.job());
    let host = if args.compose.dry_run { args.anywhere()? } else { args.host().await? };
    let loaded = match manifest::load(args.selection(composed.as_ref()), &host) {
        Ok(loaded) => {
            loaded.notes.iter().for_each(note);
            loaded
        }
        Err(Refused { problems, notes }) => {
            notes.iter().for_each(note);
            return Err(Failure::BadInput(problems));
        }
    };
    if let (true, Some(Manifest { job, .. })) = (args.compose.dry_run, loaded.manifests.first()) {
        let mut job = job.clone();
        if let (None, Some(metadata)) = (&args.namespace, job["metadata"].as_object_mut()) {
            metadata.remove("namespace");
        }
        let text = report::object(&job, args.output.unwrap_or(report::Format::Yaml))?;
        unless_closed(std::io::stdout().write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = &args.log_dir {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| Failure::bad_input(format!("--log-dir {}: {error}", folder.display())))?;
    }
    let mut interrupts = Interrupts::listen()?;
    let cluster = tokio::select! {
        cluster = TargetCluster::prepare(&args, &host, &loaded, &telemetry.traces) => cluster?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    let mut tracker = Tracker::new(cluster.is_shared());
    let outcome = tokio::select! {
        outcome = run_to_completion(&args, &cluster, &loaded, &mut tracker) => outcome,
        () = interrupts.next() => Err(Failure::Interrupted),
    };
    if outcome.is_ok()
        && args.keep
        && let Some(address) = cluster.address()?
    {
        note(format_args!("{address}\nPress Ctrl-C to stop the cluster."));
        interrupts.next().await;
    }
    tokio::select! {
        () = cluster.leave(&tracker, matches!(outcome, Err(Failure::Interrupted))) => {}
        // At the second interrupt the remaining parts are dropped, which kills their processes.
        () = interrupts.next() => {}
    }
    outcome
}

async fn run_to_completion(
    args: &RunArgs,
    cluster: &TargetCluster,
    loaded: &Loaded,
    tracker: &mut Tracker,
) -> Result<ExitCode, Failure> {
    let progress = Progress::new();
    companion::apply(&cluster.client, &loaded.companions, cluster.is_shared()).await?;
    for manifest in &loaded.manifests {
        let job = create(&cluster.client, manifest).await?;
        progress.update(&key(&job), &JobView::of(&job));
        tracker.add(job);
    }
    let mode = match (args.logs, tracker.jobs.as_slice()) {
        (false, _) => LogMode::Off,
        (true, [only]) if JobView::of(&only.job).is_single() => LogMode::Raw,
        (true, _) => LogMode::Prefixed,
    };
    let names = tracker.jobs.iter().map(|tracked| (tracked.uid.clone(), tracked.key())).collect();
    let files = args.log_dir.clone().map(|folder| {
        LogFiles::new(cluster.client.clone(), progress.clone(), folder, tracker.jobs.len() > 1)
    });
    let mut pods = PodObserver::new(cluster.client.clone(), progress.clone(), mode, files, names);
    follow(&cluster.client, tracker, &mut pods, &progress).await;
    let mut all_kept = true;
    if mode != LogMode::Off || args.log_dir.is_some() || tracker.verdict() != Verdict::Complete {
        // The watch may not have shown pods that ended just before their Job.
        catch_up(&cluster.client, tracker, &mut pods).await?;
        all_kept = pods.finish().await;
    }

    progress.conclude(&report::summary(&tracker.jobs, &pods));
    if let Some(format) = args.output {
        let text = report::jobs(&tracker.jobs, format)?;
        unless_closed(progress.print(text.as_bytes()))?;
    }
    if !all_kept && tracker.verdict() == Verdict::Complete {
        return Ok(Verdict::Held.into());
    }
    Ok(tracker.verdict().into())
}

fn key(job: &Value) -> String {
    let field = |name: &str| job["metadata"][name].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", field("namespace"), field("name"))
}

/// Creates a Job from the unchanged manifest: the server validates every field.
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
    let mut waits = Waits::new(client.clone(), progress.clone());
    let mut patience = interval_at(Instant::now() + PATIENCE, PATIENCE);
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
            _ = patience.tick() => waits.explain(&tracker.jobs).await,
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

/// All watch events of a kind; the watcher reconnects by itself.
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

/// Lists all pods once more.
async fn catch_up(client: &kube::Client, tracker: &Tracker, pods: &mut PodObserver) -> anyhow::Result<()> {
    for namespace in namespaces(tracker) {
        let api =
            Api::<PodView>::namespaced_with(client.clone(), &namespace, &ApiResource::erase::<Pod>(&()));
        let mut all = pin!(objects(api, &ListParams::default()));
        while let Some(pod) = all.try_next().await.context("cannot list pods")? {
            pods.observe(&pod);
        }
    }
    Ok(())
}
