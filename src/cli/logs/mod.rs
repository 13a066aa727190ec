//! `yardmaster logs`: prints the logs of all pods of a Job, and follows them.

mod container_run;
mod followers;
mod lines;
mod output;
mod selection;

use std::collections::HashMap;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, ListParams};
use kube::runtime::watcher;

use self::container_run::Progress;
pub(super) use self::container_run::{Extent, LogSink};
pub(super) use self::followers::Followers;
use self::followers::run as newest_run;
pub(super) use self::lines::{Decoration, Lines, Position};
use self::output::Output;
pub(super) use self::selection::prefix;
use self::selection::{Selection, container_names};
use super::connection::ConnectionArgs;
use super::job_name::{JobName, not_found};
use super::job_phase::JobPhase;
use super::lists::views;
use super::namespace::parse_namespace;
use super::pod_cause::{causes, failure};
use super::pod_view::{ContainerStatus, PodView, RunState, index};
use super::readable::{Readable, events};
use super::signals::Interrupts;
use super::{Failure, INTERRUPTED};
use crate::cluster::transport::client;
use crate::job::duration_text::parse_duration;
use crate::job::index_set::IndexSet;
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::telemetry::printable::OneLine;

/// The text below the help.
const EXAMPLES: &str = "\
Examples:
  yardmaster logs train -f                   follow all pods until the Job has ended
  yardmaster logs train --failed --tail 20   the last lines of failed pods
  yardmaster logs train --index 3,5-7        of some indexes";

/// Flags of `logs`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct LogsArgs {
    /// The Job: NAME, NAMESPACE/NAME or job/NAME.
    #[arg(value_name = "JOB")]
    job: JobName,
    /// Namespace of the Job [default: that of the kubeconfig context].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Follow the logs, also of new pods, until the Job has ended [default: off].
    #[arg(short, long)]
    follow: bool,
    /// Begin with the last N lines of each log that there is [default: all lines].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(0..))]
    tail: Option<i64>,
    /// Begin with lines that are no older than this duration, such as 10m [default: all lines].
    #[arg(long, value_name = "DURATION", value_parser = since)]
    since: Option<Duration>,
    /// Print the time before each line [default: off].
    #[arg(long)]
    timestamps: bool,
    /// Print the log of this container only [default: all containers].
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Print logs of these completion indexes only, such as 3,5-7 [default: all].
    #[arg(long, value_name = "INDEXES", value_parser = indexes)]
    index: Option<IndexSet>,
    /// Print logs of failed pods only, and why those without a log have none [default: off].
    #[arg(long)]
    failed: bool,
    /// Print the run of each container before its last restart [default: off].
    #[arg(long, conflicts_with = "follow")]
    previous: bool,
    /// Print lines without pod and container before them [default: off].
    #[arg(long)]
    no_prefix: bool,
    /// Maximum number of logs that are read at once.
    #[arg(long, value_name = "N", default_value = "50", value_parser = clap::value_parser!(u32).range(1..))]
    max_log_requests: u32,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Reads `--since`.
fn since(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if duration < Duration::from_secs(1) { Err("must be at least 1s".to_owned()) } else { Ok(duration) }
}

/// Reads `--index`.
fn indexes(text: &str) -> Result<IndexSet, String> {
    IndexSet::parse_strict(text).ok_or_else(|| "expected numbers and ranges, such as 3,5-7".to_owned())
}

/// Prints the logs. The exit code is 0 whatever became of the Job.
pub(super) async fn run(args: LogsArgs) -> Result<ExitCode, Failure> {
    let config = args.connection.config().await?;
    let namespace = args.job.namespace(args.namespace.as_deref(), &config.default_namespace)?;
    let client = client(config, "logs")?;
    let mut interrupts = Interrupts::listen()?;
    let shown = tokio::select! {
        shown = show(args, client, &namespace) => shown,
        () = interrupts.next() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    match shown {
        // The reader has closed standard output, as `| head` does.
        Err(Failure::CouldNotRun(error)) if is_closed_output(&error) => Ok(ExitCode::SUCCESS),
        shown => shown.map(|()| ExitCode::SUCCESS),
    }
}

fn is_closed_output(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

async fn show(args: LogsArgs, client: kube::Client, namespace: &str) -> Result<(), Failure> {
    let jobs: Api<Readable<Job>> = Api::namespaced(client.clone(), namespace);
    let name = args.job.name();
    let Some(Readable(job)) = jobs.get_opt(name).await? else {
        return Err(not_found(&client, namespace, name).await.into());
    };
    if let Some(container) = &args.container {
        let names = container_names(&job);
        if !names.contains(container.as_str()) {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::bad_input(format!(
                "--container {container}: the Job has only the containers {names}"
            )));
        }
    }
    let selection = Selection {
        job_uid: job.metadata.uid.clone().unwrap_or_default(),
        indexes: args.index.clone(),
        container: args.container.clone(),
        failed: args.failed,
    };
    check_indexes(&job, args.index.as_ref())?;
    let pod = ApiResource::erase::<Pod>(&());
    let pods = Api::namespaced_with(client.clone(), namespace, &pod);
    let printer =
        Printer { client, jobs, pods, selection, output: Output::new(), numbers: HashMap::new(), args };
    if printer.args.follow { printer.follow().await } else { printer.print().await }
}

/// Checks that the Job has indexes, and those of `--index` among them.
fn check_indexes(job: &Job, wanted: Option<&IndexSet>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    let spec = job.spec.as_ref();
    if spec.and_then(|spec| spec.completion_mode.as_deref()) != Some("Indexed") {
        return Err(Failure::bad_input("--index: the pods of the Job have no indexes"));
    }
    let completions = spec.and_then(|spec| spec.completions).and_then(|all| u32::try_from(all).ok());
    match completions.and_then(|all| all.checked_sub(1)) {
        Some(last) if wanted.iter().next().is_some_and(|first| first > last) => {
            Err(Failure::bad_input(format!("--index {wanted}: the Job has the indexes 0-{last}")))
        }
        _ => Ok(()),
    }
}

struct Printer {
    client: kube::Client,
    jobs: Api<Readable<Job>>,
    pods: Api<Readable<PodView>>,
    selection: Selection,
    output: Output,
    /// A number for each pod, by its UID, which gives it a colour.
    numbers: HashMap<String, usize>,
    args: LogsArgs,
}

impl Printer {
    /// Prints the logs that there are, one after the other: by index, then by age.
    async fn print(mut self) -> Result<(), Failure> {
        let mut pods = self.list().await?;
        pods.sort_by_cached_key(|pod| {
            (index(pod), pod.metadata.creation_timestamp.clone(), pod.metadata.name.clone())
        });
        let mut any = false;
        for pod in &pods {
            let mut printed = false;
            for container in self.selection.clone().containers(pod) {
                let state = match (self.args.previous, container.run_state()) {
                    (true, _) if container.restart_count > 0 => Progress::Previous,
                    (true, _) | (false, RunState::NotStarted) => continue,
                    (false, RunState::Running) => Progress::Running,
                    (false, RunState::Ended) => Progress::Ended,
                };
                let extent = self.extent(true);
                if let Some(run) = newest_run(&self.client, pod, container, extent, state) {
                    run.show(self.decoration(pod, container), self.output).await?;
                    printed = true;
                }
            }
            any |= printed;
            // A pod whose program was never found has no log, and its status says why.
            let is_asked = !printed && !self.args.previous && self.selection.is_meant(pod);
            let explained = failure(pod, &causes(pod)).filter(|_| is_asked);
            if let Some(cause) = explained {
                let name = OneLine(pod.metadata.name.as_deref().unwrap_or_default());
                self.output.note(&format!("{name} has no log: {cause}"));
                any = true;
            }
        }
        if !any {
            self.output.note("No container of the Job has a log to print.");
        }
        Ok(())
    }

    /// Prints logs as they come until the Job has ended or is deleted, and all logs are complete.
    async fn follow(mut self) -> Result<(), Failure> {
        let limit = self.args.max_log_requests as usize;
        let mut followers = Followers::new(self.client.clone(), limit);
        let this = watcher::Config::default().fields(&format!("metadata.name={}", self.args.job.name()));
        let mut jobs = events(self.jobs.clone(), this);
        let mut pods = events(self.pods.clone(), watcher::Config::default().labels(&self.label()));
        // Pods that come later are shown from their beginning.
        let (mut listed, mut ended) = (false, false);
        while !(listed && ended) {
            tokio::select! {
                Some(event) = jobs.next() => match event {
                    Ok(event) => ended = ended || self.is_end(&event),
                    Err(error) => tracing::warn!(%error, "the watch of the Job was interrupted"),
                },
                Some(event) = pods.next() => match event {
                    Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                        self.observe(&mut followers, &pod, !listed);
                    }
                    Ok(watcher::Event::InitDone) => listed = true,
                    // The log of a pod that is gone cannot be read.
                    Ok(watcher::Event::Init | watcher::Event::Delete(_)) => {}
                    Err(error) if !listed => return Err(error.into()),
                    Err(error) => tracing::warn!(%error, "the watch of pods was interrupted"),
                },
                end = followers.next_end() => end?,
            }
        }
        // The watch may not have shown pods that ended just before their Job.
        for pod in self.list().await? {
            self.observe(&mut followers, &pod, false);
        }
        Ok(followers.finish().await?)
    }

    fn observe(&mut self, followers: &mut Followers<Output>, pod: &PodView, first: bool) {
        for container in self.selection.clone().containers(pod) {
            let decoration = self.decoration(pod, container);
            followers.follow(pod, container, self.extent(first), &decoration, &self.output);
        }
    }

    /// Whether the Job has ended, or is gone.
    fn is_end(&self, event: &watcher::Event<Job>) -> bool {
        let is_it = |job: &Job| job.metadata.uid.as_ref() == Some(&self.selection.job_uid);
        match event {
            watcher::Event::Apply(job) | watcher::Event::InitApply(job) => {
                // A Job of the same name that came later says that this one is gone.
                !is_it(job) || JobPhase::of(job).is_finished()
            }
            watcher::Event::Delete(job) => is_it(job),
            watcher::Event::Init | watcher::Event::InitDone => false,
        }
    }

    /// The part of a log that is read. `tail` is meant for logs that there are at first.
    fn extent(&self, first: bool) -> Extent {
        Extent {
            follow: self.args.follow,
            tail: self.args.tail.filter(|_| first),
            since_seconds: self.args.since.map(|since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX)),
        }
    }

    fn decoration(&mut self, pod: &PodView, container: &ContainerStatus) -> Decoration {
        if self.args.no_prefix {
            return Decoration { prefix: Some(String::new()), timestamps: self.args.timestamps };
        }
        let next = self.numbers.len();
        let number = *self.numbers.entry(pod.metadata.uid.clone().unwrap_or_default()).or_insert(next);
        self.output.decoration(&prefix(pod, container.name.raw()), number, self.args.timestamps)
    }

    fn label(&self) -> String {
        format!("{CONTROLLER_UID_LABEL}={}", self.selection.job_uid)
    }

    async fn list(&self) -> anyhow::Result<Vec<PodView>> {
        let params = ListParams::default().labels(&self.label());
        Ok(views::<_, PodView>(self.pods.clone(), &params).try_collect().await?)
    }
}
