//! `yardmaster release`: takes off the finalizers that an uninstalled controller would leave for ever.
//!
//! Pods that can be counted are counted first: each Job's own rules run once more, but create and delete nothing. Every
//! request is one that a replica would send, and names the UID and version that it is about. So the command can
//! be interrupted at any time, and repeated.

mod cluster;
mod counting;
mod found;
mod report;

use std::process::ExitCode;

use clap::Args;
use futures::stream::{self, StreamExt as _};
use indicatif::{ProgressBar, ProgressStyle};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;

use self::cluster::Cluster;
use self::counting::Counting;
use self::found::{Found, Scope};
use self::report::Report;
use super::Failure;
use super::connection::ConnectionArgs;
use super::console;
use super::namespace::parse_namespace;
use super::signals::Interrupts;
use crate::actors::ControllerConfig;
use crate::cluster::fair_semaphore::FairSemaphore;
use crate::job::names;

/// Pods without Job of one namespace that are released at a time.
const SHARE: usize = 64;

/// Tells a report what has become of a Job or a pod.
type Outcome = Box<dyn FnOnce(&mut Report)>;

/// Flags of `release`.
#[derive(Debug, Args)]
pub(super) struct ReleaseArgs {
    /// Release the pods of this Job alone [default: those of all Jobs in the namespace].
    #[arg(value_name = "JOB", conflicts_with = "all_namespaces")]
    job: Option<String>,
    /// Namespace of the pods [default: that of the kubeconfig context].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Release the pods of all namespaces [default: off].
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Say what would be released, and change nothing [default: off].
    #[arg(long)]
    dry_run: bool,
    /// The --controller-name of the replicas that are gone.
    #[arg(long, value_name = "NAME", default_value = names::EXTERNAL_CONTROLLER)]
    controller_name: String,
    /// Namespace of the replicas' Leases: only there is it checked that no replica runs [default: all namespaces].
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Releases pods. Exit code 1 if some could not be released.
pub(super) async fn run(args: ReleaseArgs) -> Result<ExitCode, Failure> {
    let controller =
        ControllerConfig { controller_name: args.controller_name, ..ControllerConfig::default() };
    if controller.replaces_built_in() {
        return Err(Failure::bad_input(format!(
            "--controller-name {}: the built-in controller has the same finalizer, and takes these pods over",
            names::BUILT_IN_CONTROLLER
        )));
    }
    let config = args.connection.config().await?;
    let namespace = args.namespace.unwrap_or_else(|| config.default_namespace.clone());
    let scope = match (args.job, args.all_namespaces) {
        (Some(job), _) => Scope::Job { namespace, job },
        (None, true) => Scope::Cluster,
        (None, false) => Scope::Namespace(namespace),
    };
    let mut interrupts = Interrupts::listen()?;
    let cluster = Cluster::connect(config, controller, args.lease_namespace.as_deref())?;
    let found = tokio::select! {
        found = find(&cluster, &scope, args.dry_run) => found?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    release(&cluster, found, args.dry_run, &mut interrupts).await
}

async fn find(cluster: &Cluster, scope: &Scope, dry_run: bool) -> Result<Found, Failure> {
    scope.must_exist(cluster).await?;
    if !dry_run {
        cluster.must_have_no_replica().await?;
    }
    Ok(found::find(&cluster.reads, &cluster.controller, scope).await?)
}

/// Releases what was found, and reports it. An interruption leaves the rest, and reports what was done.
async fn release(
    cluster: &Cluster,
    Found { jobs, orphans, problems }: Found,
    dry_run: bool,
    interrupts: &mut Interrupts,
) -> Result<ExitCode, Failure> {
    let mut report = Report::of(problems);
    if dry_run {
        jobs.into_iter().for_each(|job| report.would_release(&Counting::new(cluster, job)));
        report.orphans = orphans.len();
        console::print(report.dry_run())?;
        return Ok(report.exit_code());
    }
    let mut left = jobs.len() + orphans.len();
    let progress = progress(left as u64);
    let at_once = jobs.len().max(orphans.len()).max(1);
    let counted = stream::iter(jobs).map(|job| async {
        let counting = Counting::new(cluster, job);
        let name = counting.name();
        let outcome = counting.finish().await;
        Box::new(move |report: &mut Report| report.job(&name, outcome)) as Outcome
    });
    let turns = FairSemaphore::of_each_namespace(SHARE);
    let released = stream::iter(orphans).map(|pod| async {
        let name = pod.name();
        let _turn = turns.acquire(Some(&pod.pod.namespace), None).await;
        // There may be very many that wait for theirs.
        let outcome = Box::pin(cluster.release_orphan(pod)).await;
        Box::new(move |report: &mut Report| report.orphan(&name, outcome)) as Outcome
    });
    // All at once: the write gate takes turns by namespace, and has few writes under way of one that is slow.
    let mut all = stream::select(counted.buffer_unordered(at_once), released.buffer_unordered(at_once));
    loop {
        let next = tokio::select! {
            next = all.next() => next,
            () = interrupts.next() => None,
        };
        let Some(tell) = next else { break };
        tell(&mut report);
        progress.inc(1);
        left -= 1;
    }
    progress.finish_and_clear();
    console::print(report.summary())?;
    match left {
        0 => Ok(report.exit_code()),
        _ => {
            console::note(format_args!(
                "{left} Jobs and pods are left, some of them in part: repeat the command"
            ));
            Err(Failure::Interrupted)
        }
    }
}

/// A bar on standard error, if that is a terminal.
fn progress(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    match ProgressStyle::with_template("{wide_bar} {pos}/{len} Jobs {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

impl Scope {
    /// Fails if the user has named something that does not exist. A Job that is gone may have left pods.
    async fn must_exist(&self, cluster: &Cluster) -> Result<(), Failure> {
        let (Self::Namespace(namespace) | Self::Job { namespace, .. }) = self else { return Ok(()) };
        let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
        if namespaces.get_metadata_opt(namespace).await?.is_none() {
            return Err(Failure::bad_input(format!("--namespace {namespace}: there is no such namespace")));
        }
        let Self::Job { job, .. } = self else { return Ok(()) };
        let jobs: Api<Job> = Api::namespaced(cluster.client.clone(), namespace);
        let managed_by = jobs.get_opt(job).await?.and_then(|job| job.spec).map(|spec| spec.managed_by);
        match managed_by {
            Some(other) if !cluster.controller.manages(other.as_deref()) => Err(Failure::bad_input(format!(
                "job {namespace}/{job}: {} manages it",
                other.as_deref().unwrap_or("the built-in controller")
            ))),
            _ => Ok(()),
        }
    }
}
