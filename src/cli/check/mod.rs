//! `yardmaster check`: examines a cluster before or after the installation. Each check is a line, and a
//! second line says what to do where it is not well.
//!
//! Every file has one check, or a few that share their reads: first the reading, then a pure function that
//! judges what was read.

mod apis;
mod clock;
mod context;
mod flow_control;
mod installation;
mod leases;
mod leaving;
mod pods;
mod probe;
mod report;
mod rights;
mod second_controller;
mod shards;
mod version;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use self::context::{Context, ServiceAccount};
use self::report::{CheckId, Finding, Report};
use super::Failure;
use super::connection::ConnectionArgs;
use super::console;
use super::controller::{Switch, feature_gates, lease_namespace, pod_namespace};
use super::duration::parse_duration;
use super::http_args::{WhoDebug, WhoMetrics};
use super::namespace::parse_namespace;
use super::signals::Interrupts;
use crate::actors::{ControllerConfig, DebugAccess};
use crate::job::names;
use crate::sharding::ShardCount;

/// Flags of `check`. Durations are numbers with a unit, such as `15s` or `500ms`.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Check what an installation needs, before it: versions, APIs, and the rights of the installer
    /// [default: off].
    #[arg(long, conflicts_with = "leaving")]
    pre: bool,
    /// Check only that no unfinished Job is managed by this controller, and that no pod waits for it to remove
    /// its finalizer, before it is removed [default: off].
    #[arg(long)]
    leaving: bool,
    /// Output format: json [default: a line for each check].
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// The --controller-name of the replicas [default: yardmaster.dev/job-controller, or that of the only replicas
    /// that run].
    #[arg(long, value_name = "NAME")]
    controller_name: Option<String>,
    /// Namespace of the replicas' Leases [default: the pod's namespace, else where there are such Leases,
    /// else default]. The probe Job is created there, or in the pod's namespace.
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    /// The --shards of the replicas, compared with the number that the cluster has [default: not compared].
    #[arg(long, value_name = "N")]
    shards: Option<ShardCount>,
    /// The --ttl-controller of the replicas: with on, they need the right to delete Jobs.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    ttl_controller: Switch,
    /// The --feature-gates of the replicas, such as WorkloadWithJob=true.
    #[arg(long, value_name = "NAME=BOOL,...", value_delimiter = ',', value_parser = super::feature_gate)]
    feature_gates: Vec<(String, bool)>,
    /// The --metrics-access of the replicas: with authorized, they need the rights to create TokenReviews and
    /// SubjectAccessReviews.
    #[arg(long, value_name = "WHO", default_value = "everyone")]
    metrics_access: WhoMetrics,
    /// The --debug-access of the replicas: with authorized, they need the same rights.
    #[arg(long, value_name = "WHO", default_value = "loopback")]
    debug_access: WhoDebug,
    /// Check the rights of this service account [default: the rights of the own account].
    #[arg(long, value_name = "NAMESPACE/NAME")]
    service_account: Option<ServiceAccount>,
    /// Image of a pod that the probe Job runs [default: a Job without pods, which needs no image].
    #[arg(long, value_name = "IMAGE")]
    probe_image: Option<String>,
    /// Command of the probe pod, split at spaces [default: the image's].
    #[arg(long, value_name = "COMMAND", requires = "probe_image")]
    probe_command: Option<String>,
    /// Maximum time for the probe Job to complete, and for all shards to be owned.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    wait: Duration,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Json,
}

impl CheckArgs {
    async fn context(&self) -> Result<Context, Failure> {
        let controller = ControllerConfig {
            controller_name: self.controller_name.as_deref().unwrap_or(names::EXTERNAL_CONTROLLER).to_owned(),
            lease_namespace: lease_namespace(self.lease_namespace.as_deref()),
            ttl_controller: self.ttl_controller == Switch::On,
            feature_gates: feature_gates(&self.feature_gates)?,
            metrics_access: self.metrics_access.into(),
            debug_access: match self.debug_access {
                WhoDebug::Authorized => DebugAccess::Authorized,
                WhoDebug::Loopback | WhoDebug::Token | WhoDebug::Off => DebugAccess::Off,
            },
            ..ControllerConfig::default()
        };
        let config = self.connection.config().await?;
        let mut cx = Context::connect(config, controller, self.service_account.clone(), self.wait)?;
        if !self.pre && !self.leaving {
            self.find_installation(&mut cx).await?;
        }
        Ok(cx)
    }

    /// Finds out which controller is meant, and where its Leases are.
    async fn find_installation(&self, cx: &mut Context) -> Result<(), Failure> {
        let namespace = self.lease_namespace.clone().or_else(pod_namespace);
        let found = installation::find(&cx.client, namespace.as_deref()).await;
        let selected = installation::select(&found, self.controller_name.as_deref());
        let selected = selected.map_err(Failure::bad_input)?;
        cx.controller.controller_name = selected.controller;
        cx.others = selected.others;
        if let (None, Some(found)) = (namespace, selected.namespace) {
            cx.controller.lease_namespace.clone_from(&found);
            cx.probe_namespace = found;
        }
        Ok(())
    }

    fn probe(&self) -> probe::Workload {
        match &self.probe_image {
            None => probe::Workload::NoPods,
            Some(image) => {
                let words = self.probe_command.iter().flat_map(|command| command.split_whitespace());
                probe::Workload::Pod { image: image.clone(), command: words.map(str::to_owned).collect() }
            }
        }
    }
}

/// Checks the cluster. Exit code 1 if a check failed.
pub(super) async fn run(args: CheckArgs) -> Result<ExitCode, Failure> {
    let cx = args.context().await?;
    let mut interrupts = Interrupts::listen()?;
    let mut report = match args.output {
        Some(Format::Json) => Report::silent(),
        None => Report::printing(std::io::stdout().is_terminal()),
    };
    {
        let checks = checks(&args, &cx, &mut report);
        tokio::pin!(checks);
        tokio::select! {
            () = &mut checks => {}
            () = interrupts.next() => {
                // The checks end early, and delete what they have created.
                cx.stop();
                tokio::select! {
                    () = &mut checks => {}
                    () = interrupts.next() => {}
                }
                return Err(Failure::Interrupted);
            }
        }
    }
    match args.output {
        Some(Format::Json) => console::print(report.json()?)?,
        None => console::print(report.summary())?,
    }
    Ok(if report.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn checks(args: &CheckArgs, cx: &Context, report: &mut Report) {
    if args.leaving {
        for (id, finding) in leaving::check(cx).await {
            report.add(id, finding);
        }
        return;
    }
    let read = version::read(cx).await;
    let is_reachable = read.is_ok();
    report.add(version::REACHABLE, version::reachable(&read));
    if !is_reachable {
        return;
    }
    report.add(version::VERSION, version::evaluate(&read, cx.controller.replaces_built_in()));
    report.add(clock::CHECK, clock::evaluate(&read));
    if args.pre {
        report.add(apis::CHECK, apis::check(cx).await);
        report.add(rights::INSTALLER, rights::installer(cx).await);
        return;
    }
    report.add(rights::CONTROLLER, rights::controller(cx).await);
    report.add(flow_control::CHECK, flow_control::check(cx).await);
    report.add(leases::CHECK, leases::check(cx).await);
    if cx.is_stopped() {
        return;
    }
    if !cx.others.is_empty() {
        let (id, finding) = installation::misnamed(&cx.controller.controller_name, &cx.others);
        report.add(id, finding);
        for id in [shards::OWNERS, probe::CHECK, second_controller::CHECK] {
            report.add(id, Finding::skipped("no replica runs under this name"));
        }
        report.add(pods::CHECK, pods::check(cx).await);
        return;
    }
    let workload = args.probe();
    // Both may have to wait.
    let (ownership, probe) = tokio::join!(shards::read(cx), probe::run(cx, &workload));
    for (id, finding) in shards::evaluate(cx, &ownership, args.shards) {
        report.add(id, finding);
    }
    report.add(probe::CHECK, probe::evaluate(&probe, &cx.controller));
    report.add(second_controller::CHECK, second_controller::check(cx, &probe).await);
    if cx.is_stopped() {
        return;
    }
    report.add(pods::CHECK, pods::check(cx).await);
}
