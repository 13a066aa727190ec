//! `yardmaster run`: runs Job manifests to completion.

#[cfg(feature = "embedded")]
mod check;
mod companion;
mod compose;
mod create;
mod cronjob;
mod follow;
mod hold;
mod kustomize;
mod loader;
mod log_files;
mod manifest;
mod ordered;
mod pace;
mod pods;
#[cfg(feature = "embedded")]
mod preflight;
mod progress;
mod refusal;
mod report;
mod results;
mod tail;
mod target;
mod tracker;
mod view;
mod wait_notices;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::Value;
use tempfile::TempDir;

use self::compose::ComposeArgs;
use self::create::{create, key};
use self::follow::{catch_up, follow};
use self::log_files::LogFiles;
use self::manifest::{Loaded, Manifest, Refused, Selection};
use self::ordered::Ordered;
use self::pods::{LogMode, Outputs, PodObserver};
use self::progress::Progress;
use self::report::Afterwards;
use self::results::Record;
use self::target::TargetCluster;
use self::tracker::{Tracker, Verdict};
use self::view::JobView;
use super::connection::ConnectionArgs;
use super::console::{note, unless_closed};
use super::duration::parse_duration;
use super::namespace::parse_namespace;
use super::output;
use super::pod_runtime::{PodRuntime, RuntimeArgs, RuntimeChoice};
use super::signals::Interrupts;
use super::temporary::private_directory;
use super::{Failure, Telemetry};
use crate::job::index_set::IndexSet;

/// The text below the help.
const EXAMPLES: &str = "\
Examples:
  yardmaster run job.yaml                    run Jobs on an embedded cluster
  yardmaster run job.yaml --context prod     run them on a cluster
  yardmaster run job.yaml --logs --keep      print logs, and keep the cluster for a look
  yardmaster run --array 0-99%8 -- ./step    run a command once for each index";

/// Flags of `run`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
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
    /// How the pods' output goes to standard output: as it comes (live, also without a value); each index whole once it has ended,
    /// in the order of indexes, or of creation for pods that have none (ordered); or not at all (none).
    #[arg(
        long, value_name = "HOW", default_value = "none", default_missing_value = "live", num_args = 0..=1,
        require_equals = true
    )]
    logs: LogChoice,
    /// Write the output of pods into this folder: INDEX.log for each index, POD.log for each pod of a Job without [default:
    /// none].
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Run only the indexes that have not succeeded in an earlier run with the same --log-dir: its yardmaster-results.json has those that have
    /// [default: run all].
    #[arg(long, requires = "log_dir", conflicts_with_all = ["kubeconfig", "context", "dry_run"])]
    resume: bool,
    /// Print the finished Jobs to standard output: json, yaml, name or jsonpath=TEMPLATE [default: off].
    #[arg(short, long, value_name = "FORMAT", value_parser = output::parse)]
    output: Option<output::Format>,
    /// Print no progress: what needs attention, and the summary, stay [default: off].
    #[arg(short, long)]
    quiet: bool,
    /// Stop after this time, such as 2h, with exit code 3, if some Job has not ended [default: wait until all have].
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Keep the embedded cluster running after the Jobs have finished, and print its kubeconfig [default:
    /// off].
    #[arg(long)]
    keep: bool,
    /// Print the trace of each Job as a waterfall after the summary [default: off].
    #[arg(long, conflicts_with_all = ["kubeconfig", "context", "output", "dry_run"])]
    trace: bool,
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
    /// and labels, owners, finalizers [default: refuse such Jobs].
    #[arg(long)]
    exported: bool,
    #[command(flatten)]
    connection: ConnectionArgs,
    #[command(flatten)]
    compose: ComposeArgs,
}

/// How the output of pods is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogChoice {
    None,
    Live,
    Ordered,
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
    /// Whether traces are kept in memory: also with `--keep`, for `yardmaster trace`.
    pub(super) fn needs_traces(&self) -> bool {
        self.trace || self.keep
    }

    /// The objects to load, with the Job of the command line.
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
        let format = args.output.as_ref().unwrap_or(&output::Format::Yaml);
        let name = job["metadata"]["name"].as_str().unwrap_or_default();
        let text = format.text(&job, std::iter::once(name), false)?;
        unless_closed(std::io::stdout().write_all(text.as_bytes()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut _lock = None;
    if let Some(folder) = &args.log_dir {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| Failure::bad_input(format!("--log-dir {}: {error}", folder.display())))?;
        _lock = Some(results::lock(folder).map_err(Failure::bad_input)?);
    }
    let restored = match &args.log_dir {
        Some(folder) if args.resume => {
            results::restore(folder, &loaded.manifests).map_err(Failure::BadInput)?
        }
        _ => vec![IndexSet::new(); loaded.manifests.len()],
    };
    let record = |folder| Record::new(folder, &loaded.manifests, &restored, args.resume);
    let mut record = args.log_dir.clone().map(record);
    let mut interrupts = Interrupts::listen()?;
    let progress = if args.quiet { Progress::quiet() } else { Progress::new() };
    let cluster = tokio::select! {
        cluster = TargetCluster::prepare(&args, &host, &loaded, &telemetry.traces, &progress) => cluster?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    let mut tracker = Tracker::new(cluster.is_shared());
    let run =
        Run { args: &args, cluster: &cluster, loaded: &loaded, restored: &restored, progress: &progress };
    let mut pods = None;
    let outcome = tokio::select! {
        outcome = run.to_completion(&mut tracker, &mut pods, &mut record) => outcome.map(RunEnd::Ended),
        () = interrupts.next() => Ok(RunEnd::Interrupted),
        () = elapsed(args.timeout) => Ok(RunEnd::OutOfTime),
    };
    let is_stopped = matches!(outcome, Ok(RunEnd::Interrupted | RunEnd::OutOfTime));
    if is_stopped && !tracker.jobs.is_empty() {
        let can_resume = args.log_dir.is_some() && !cluster.is_shared();
        progress.conclude(&report::interrupted(&tracker, can_resume));
    }
    if let (Some(record), false) = (&mut record, tracker.jobs.is_empty()) {
        let has_ended = matches!(outcome, Ok(RunEnd::Ended(_)));
        record.update(&tracker, &progress, |job| match &mut pods {
            // No more output comes, not even that of a pod that was never seen.
            _ if has_ended => IndexSet::below(u32::MAX),
            Some(pods) => pods.whole_logs(job),
            None => IndexSet::new(),
        });
    }
    drop(pods);
    if matches!(outcome, Ok(RunEnd::Ended(_)))
        && args.keep
        && let Some(address) = cluster.address()?
    {
        note(format_args!("{address}\nPress Ctrl-C to stop the cluster."));
        interrupts.next().await;
    }
    tokio::select! {
        () = cluster.leave(&tracker, is_stopped) => {}
        // At the second interrupt the remaining parts are dropped, which kills their processes.
        () = interrupts.next() => {}
    }
    match outcome? {
        RunEnd::Ended(code) => Ok(code),
        RunEnd::Interrupted => Err(Failure::Interrupted),
        RunEnd::OutOfTime => Err(anyhow::anyhow!("--timeout: the Jobs have not ended in time").into()),
    }
}

/// How a run ends.
#[derive(Debug)]
enum RunEnd {
    /// All Jobs have ended.
    Ended(ExitCode),
    Interrupted,
    OutOfTime,
}

/// Resolves after this time; never without one.
async fn elapsed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// The Jobs of a run, and its cluster.
struct Run<'a> {
    args: &'a RunArgs,
    cluster: &'a TargetCluster,
    loaded: &'a Loaded,
    /// The indexes of each Job that had succeeded before.
    restored: &'a [IndexSet],
    progress: &'a Progress,
}

impl Run<'_> {
    async fn to_completion(
        &self,
        tracker: &mut Tracker,
        pods: &mut Option<PodObserver>,
        record: &mut Option<Record>,
    ) -> Result<ExitCode, Failure> {
        let Self { args, progress, .. } = self;
        let client = &self.cluster.client;
        companion::apply(client, &self.loaded.companions, self.cluster.is_shared()).await?;
        self.create_all(tracker).await?;
        if let Some(record) = record {
            record.update(tracker, progress, |_| IndexSet::new());
        }
        let mode = match (args.logs, tracker.jobs.as_slice()) {
            (LogChoice::None, _) => LogMode::Off,
            (LogChoice::Ordered, _) => LogMode::Ordered,
            (LogChoice::Live, [only]) if JobView::of(&only.job).is_single() => LogMode::Raw,
            (LogChoice::Live, _) => LogMode::Prefixed,
        };
        let (outputs, _spool) = self.outputs(tracker)?;
        let names = tracker.jobs.iter().map(|tracked| (tracked.uid.clone(), tracked.key())).collect();
        let pods = pods.insert(PodObserver::new(client.clone(), (*progress).clone(), mode, outputs, names));
        follow(client, tracker, pods, record, progress).await;
        let mut has_all_output = true;
        if mode != LogMode::Off || args.log_dir.is_some() || tracker.verdict() != Verdict::Complete {
            // The watch may not have shown pods that ended just before their Job.
            catch_up(client, tracker, pods).await?;
            has_all_output = pods.finish().await;
        }
        for failed in tracker.failed().take(report::EXPLAINED) {
            pods.read_logs(client, failed).await;
        }

        progress.conclude(&report::summary(tracker, pods, &self.afterwards()));
        if let Some(format) = &args.output {
            let text = report::jobs(&tracker.jobs, format)?;
            unless_closed(progress.print(text.as_bytes()))?;
        }
        if args.trace {
            for tracked in &tracker.jobs {
                let trace = self.cluster.trace(tracked).await;
                unless_closed(progress.print(format!("\n{trace}").as_bytes()))?;
            }
        }
        if !has_all_output && tracker.verdict() == Verdict::Complete {
            return Ok(Verdict::Held.into());
        }
        Ok(tracker.verdict().into())
    }

    /// Where pods can be looked at after the run.
    fn afterwards(&self) -> Afterwards {
        match (self.cluster.is_shared(), self.args.keep) {
            (true, _) => Afterwards::Kept { flags: self.args.connection.flags() },
            // The text below the report says how to reach it.
            (false, true) => Afterwards::Kept { flags: String::new() },
            (false, false) => Afterwards::Gone,
        }
    }

    async fn create_all(&self, tracker: &mut Tracker) -> anyhow::Result<()> {
        for (manifest, succeeded) in self.loaded.manifests.iter().zip(self.restored) {
            let job = create(&self.cluster.client, manifest, succeeded).await?;
            if !succeeded.is_empty() {
                let text = format!("{}: {} indexes have succeeded before", key(&job), succeeded.len());
                self.progress.note(&text);
            }
            self.progress.update(&key(&job), &JobView::of(&job));
            tracker.add(job);
        }
        Ok(())
    }

    /// Where the output of pods is kept, and what prints it from there; with the folder of what is not kept longer than that.
    fn outputs(&self, tracker: &Tracker) -> anyhow::Result<(Outputs, Option<TempDir>)> {
        let is_ordered = self.args.logs == LogChoice::Ordered;
        let (folder, spool) = match &self.args.log_dir {
            Some(folder) => (folder.clone(), None),
            None if is_ordered => {
                let spool = private_directory().context("no folder for output that waits for its turn")?;
                (spool.path().to_owned(), Some(spool))
            }
            None => return Ok((Outputs { files: None, ordered: None }, None)),
        };
        let (jobs, client) = (&tracker.jobs, self.cluster.client.clone());
        let files = LogFiles::new(client, self.progress.clone(), folder, jobs.len() > 1);
        let ordered =
            is_ordered.then(|| Ordered::new(self.progress.clone(), jobs, self.restored, spool.is_some()));
        Ok((Outputs { files: Some(files), ordered }, spool))
    }
}
