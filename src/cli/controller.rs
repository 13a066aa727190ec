//! `yardmaster controller`: runs one replica of the controller.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum, value_parser};
use humantime::format_duration;
use tokio::sync::oneshot;

use super::connection::ConnectionArgs;
use super::duration::parse_duration;
use super::http_args::PagesArgs;
use super::namespace::parse_namespace;
use super::signals::Interrupts;
use super::{Failure, Telemetry};
use crate::actors::{Controller, ControllerConfig, ControllerError, FeatureGates, Incompatibility};
use crate::cluster::answer_time::AnswerTime;
use crate::job::options::DefaultOption;
use crate::sharding::ShardCount;
use crate::sharding::lease::LONGEST_LEASE;
use crate::telemetry::traces::MOST_TRACE_MEMORY;

/// Flags of `controller`. Durations are numbers with a unit, such as `15s` or `500ms`.
#[derive(Debug, Args)]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Reconcile Jobs with this spec.managedBy; kubernetes.io/job-controller replaces the built-in
    /// controller.
    #[arg(long, value_name = "NAME", default_value = "yardmaster.dev/job-controller")]
    controller_name: String,
    /// Namespace of the Leases [default: the pod's namespace, else default].
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    /// Unique name of this replica [default: the pod's name, else the host name with a random suffix].
    #[arg(long, value_name = "NAME")]
    pub(super) identity: Option<String>,
    /// Number of shards, a power of two up to 4096; the same for all replicas of a cluster.
    #[arg(long, value_name = "N", default_value = "64")]
    shards: ShardCount,
    /// Time without a lease renewal after which other replicas take over this replica's shards.
    #[arg(long, value_name = "TIME", default_value = "15s", value_parser = parse_duration)]
    lease_duration: Duration,
    /// Time without a lease renewal after which this replica stops writing; less than --lease-duration.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    renew_deadline: Duration,
    /// Time between lease renewals; less than --renew-deadline.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    retry_period: Duration,
    /// Address of the HTTP pages: metrics, health checks, / and /debug. 0.0.0.0 is all addresses, those
    /// of IPv6 included; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:8080")]
    listen: SocketAddr,
    #[command(flatten)]
    pages: PagesArgs,
    /// Maximum writes per second to the API server, without those of Leases; 0 is no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kube_api_qps: u32,
    /// Maximum burst of writes above --kube-api-qps.
    #[arg(long, value_name = "N", default_value_t = 100)]
    kube_api_burst: u32,
    /// Maximum time that status updates are batched under load; up to 7 s if progress would take over 1% of
    /// --kube-api-qps, and longer if it would take over 25%.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    batch_period: Duration,
    /// Initial back-off before a failed pod is replaced; doubles with every failure.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pod_failure_backoff: Duration,
    /// Maximum back-off before a failed pod is replaced.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pod_failure_backoff_max: Duration,
    /// Minimum back-off that a Job may ask for by annotation, unless --pod-failure-backoff is less.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pod_failure_backoff_min: Duration,
    /// Initial back-off after a failed request to the API server; doubles with every failure.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    api_backoff: Duration,
    /// Maximum back-off after failed requests to the API server.
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = parse_duration)]
    api_backoff_max: Duration,
    /// Maximum number of finished pods that one status update counts.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u32).range(1..=5000))]
    max_uncounted_pods: u32,
    /// Maximum number of pod creations of one Job in flight, and as many other requests for its pods.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = value_parser!(u32).range(1..))]
    max_pods_per_sync: u32,
    /// Keep metadata.managedFields of ended pods when their finalizer is removed [default: reset, which saves the API
    /// server time and room].
    #[arg(long)]
    keep_managed_fields: bool,
    /// Whether to delete finished Jobs after ttlSecondsAfterFinished; auto is on only for `cluster` and
    /// `run`.
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    ttl_controller: Switch,
    /// Options of Jobs that do not set the annotation themselves, such as start-deadline=10m.
    #[arg(long, value_name = "NAME=VALUE;...", value_delimiter = ';')]
    default_options: Vec<DefaultOption>,
    /// Feature gates, such as WorkloadWithJob=true.
    #[arg(long, value_name = "NAME=BOOL,...", value_delimiter = ',', value_parser = super::feature_gate)]
    feature_gates: Vec<(String, bool)>,
    /// OTLP endpoint for traces: gRPC, or as OTEL_EXPORTER_OTLP_PROTOCOL says [default: OTEL_EXPORTER_OTLP_ENDPOINT, else no
    /// traces].
    #[arg(long, value_name = "URL")]
    pub(super) otlp_endpoint: Option<String>,
    /// Memory for the latest traces of Jobs, which `yardmaster trace` reads, in MiB, up to 1024; 0 keeps none.
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = value_parser!(u32).range(..=i64::from(MOST_TRACE_MEMORY)))]
    pub(super) trace_memory: u32,
    /// End when standard input closes: the parent process may be killed.
    #[arg(long, hide = true)]
    exit_with_stdin: bool,
    /// Print the address of the HTTP pages on standard output.
    #[arg(long, hide = true)]
    print_address: bool,
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Switch {
    On,
    Off,
    Auto,
}

impl ControllerArgs {
    fn settings(&self, telemetry: Telemetry) -> Result<ControllerConfig, Failure> {
        for (flag, time, limit_flag, limit) in [
            ("--renew-deadline", self.renew_deadline, "--lease-duration", self.lease_duration),
            ("--retry-period", self.retry_period, "--renew-deadline", self.renew_deadline),
        ] {
            if time >= limit {
                let (time, limit) = (format_duration(time), format_duration(limit));
                return Err(Failure::bad_input(format!(
                    "{flag} {time}: must be less than {limit_flag} {limit}"
                )));
            }
        }
        if self.lease_duration > LONGEST_LEASE {
            let (time, limit) = (format_duration(self.lease_duration), format_duration(LONGEST_LEASE));
            return Err(Failure::bad_input(format!("--lease-duration {time}: must be at most {limit}")));
        }
        Ok(ControllerConfig {
            controller_name: self.controller_name.clone(),
            identity: telemetry.identity,
            shards: self.shards,
            lease_namespace: lease_namespace(self.lease_namespace.as_deref()),
            lease_duration: self.lease_duration,
            renew_deadline: self.renew_deadline,
            retry_period: self.retry_period,
            listen: Some(self.listen),
            tls: self.pages.tls(),
            metrics_access: self.pages.metrics_access(),
            debug_access: self.pages.debug_access()?,
            kube_api_qps: self.kube_api_qps,
            kube_api_burst: self.kube_api_burst,
            batch_period: self.batch_period,
            pod_failure_backoff: self.pod_failure_backoff,
            pod_failure_backoff_max: self.pod_failure_backoff_max,
            pod_failure_backoff_min: self.pod_failure_backoff_min,
            api_backoff: self.api_backoff,
            api_backoff_max: self.api_backoff_max,
            max_uncounted_pods: self.max_uncounted_pods as usize,
            max_pods_per_sync: self.max_pods_per_sync as usize,
            keep_managed_fields: self.keep_managed_fields,
            ttl_controller: self.ttl_controller == Switch::On,
            default_options: self.default_options.iter().cloned().collect(),
            feature_gates: feature_gates(&self.feature_gates)?,
            seed: rand::random(),
            traces: telemetry.traces,
            ..ControllerConfig::default()
        })
    }
}

/// The feature gates that the controller knows; the embedded API server knows more.
pub(super) fn feature_gates(given: &[(String, bool)]) -> Result<FeatureGates, Failure> {
    let mut gates = FeatureGates::default();
    for (name, on) in given {
        match name.as_str() {
            "WorkloadWithJob" => gates.workload_with_job = *on,
            _ => return Err(Failure::bad_input(format!("--feature-gates {name}: unknown feature gate"))),
        }
    }
    Ok(gates)
}

/// The namespace of the Leases: the given one, else the namespace of the pod that this process runs in, else
/// `default`.
pub(super) fn lease_namespace(given: Option<&str>) -> String {
    given.map(str::to_owned).or_else(pod_namespace).unwrap_or_else(|| "default".into())
}

/// The namespace of the pod that this process runs in.
pub(super) fn pod_namespace() -> Option<String> {
    const FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
    let given = std::env::var("POD_NAMESPACE").ok();
    let mounted = || std::fs::read_to_string(FILE).ok().map(|text| text.trim().to_owned());
    given.or_else(mounted).filter(|name| !name.is_empty())
}

/// Runs a replica until SIGTERM, and then releases its shards. Its threads go by the time of answers.
pub(super) async fn run(
    args: ControllerArgs,
    telemetry: Telemetry,
    answer_time: AnswerTime,
) -> Result<ExitCode, Failure> {
    let settings = args.settings(telemetry)?;
    let mut interrupts = Interrupts::listen()?;
    let connection = args.connection.in_cluster_first().await?;
    let live = args.pages.live(&connection)?;
    let settings = ControllerConfig { answer_time, live, ..settings };
    let controller = match Controller::start(settings, connection).await {
        Err(ControllerError::Tls(error)) => {
            return Err(Failure::bad_input(format!("--tls-cert-file: {error}")));
        }
        started => started?,
    };
    match controller.address() {
        // The output may have no reader.
        Some(address) if args.print_address => _ = writeln!(std::io::stdout(), "{address}"),
        Some(address) => tracing::info!(%address, "serving the HTTP pages"),
        None => {}
    }
    tokio::select! {
        () = interrupts.next() => {}
        () = end_of_stdin(), if args.exit_with_stdin => {}
        error = controller.ended() => {
            match error {
                // The actors that would hand the shards over are gone.
                ControllerError::Fatal(_) => controller.abort().await,
                _ => controller.shutdown().await,
            }
            return Err(match error {
                ControllerError::Incompatible(
                    error @ (Incompatibility::OtherCount { .. } | Incompatibility::Resharding { .. }),
                ) => Failure::bad_input(error.to_string()),
                error => error.into(),
            });
        }
    }
    tokio::select! {
        () = controller.shutdown() => {}
        () = interrupts.next() => return Err(Failure::Interrupted),
    }
    Ok(ExitCode::SUCCESS)
}

/// Resolves when standard input closes.
async fn end_of_stdin() {
    let (closed, waiting) = oneshot::channel();
    // Not a thread of the runtime: on shutdown the runtime would wait for the blocking read.
    std::thread::spawn(move || {
        let _ended = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _sent = closed.send(());
    });
    let _ended = waiting.await;
}
