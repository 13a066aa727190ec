//! `yardmaster status`: who owns which shard, the progress of Jobs, and why Jobs create no pods.

mod waits;

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use comfy_table::Table;
use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp, Unit};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};
use serde::Serialize;

use self::waits::{Inquiry, Waiting};
use super::Failure;
use super::connection::ConnectionArgs;
use super::ownership::Ownership;
use super::signals::Interrupts;
use super::table::plain_table;
use crate::sharding::lease::LEASE_LABEL;

/// Interval of `--watch`.
const PERIOD: Duration = Duration::from_secs(2);
/// Jobs that are examined concurrently.
const AT_ONCE: usize = 8;

/// Flags of `status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Repeat every 2 s until Ctrl-C [default: off].
    #[arg(long)]
    watch: bool,
    /// Output format: json [default: a table].
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Namespace of the replicas' Leases [default: all namespaces].
    #[arg(long, value_name = "NAME")]
    lease_namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Json,
}

/// The progress of a Job.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct JobProgress {
    namespace: String,
    name: String,
    state: &'static str,
    completions: Option<i32>,
    active: i32,
    succeeded: i32,
    failed: i32,
    /// Successes per second since the start.
    rate: Option<f64>,
    /// Seconds until the completions are reached at this rate.
    seconds_left: Option<f64>,
    /// Why no pod is created although the Job has not finished.
    waiting: Option<Waiting>,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(skip)]
    at: Timestamp,
    #[serde(flatten)]
    ownership: Ownership,
    jobs: Vec<JobProgress>,
}

/// Prints the state of the cluster, once or repeatedly.
pub(super) async fn run(args: StatusArgs) -> Result<ExitCode, Failure> {
    let client = kube::Client::try_from(args.connection.config().await?)?;
    let mut interrupts = Interrupts::listen()?;
    loop {
        let report = read(&client, args.lease_namespace.as_deref()).await?;
        match args.output {
            Some(Format::Json) => println!("{}", serde_json::to_string(&report)?),
            None => println!("{}{}", report.ownership, table(&report)),
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = interrupts.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

async fn read(client: &kube::Client, lease_namespace: Option<&str>) -> anyhow::Result<Report> {
    let api: Api<Job> = Api::all(client.clone());
    let now = Timestamp::now();
    let ownership = Ownership::read(client, lease_namespace, LEASE_LABEL, now).await?;
    let inquiry = Inquiry::new(client.clone(), now);
    let mut jobs = Vec::new();
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await?;
        let lines = page.items.iter().map(async |job| {
            let waiting = inquiry.why(job).await.unwrap_or_else(|error| {
                tracing::warn!(job = ?job.metadata.name, %error, "cannot find out what the Job waits for");
                None
            });
            JobProgress { waiting, ..progress(job, now) }
        });
        jobs.extend(stream::iter(lines).buffered(AT_ONCE).collect::<Vec<_>>().await);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(Report { at: now, ownership, jobs }),
        }
    }
}

fn progress(job: &Job, now: Timestamp) -> JobProgress {
    let spec = job.spec.clone().unwrap_or_default();
    let status = job.status.clone().unwrap_or_default();
    let succeeded = status.succeeded.unwrap_or_default();
    let state = state(&spec, &status);
    let seconds = status.start_time.map(|start| now.duration_since(start.0).as_secs_f64());
    let running = matches!(state, "Running");
    let rate = seconds
        .filter(|seconds| running && *seconds > 0.0 && succeeded > 0)
        .map(|seconds| f64::from(succeeded) / seconds);
    let left = spec.completions.map(|completions| f64::from((completions - succeeded).max(0)));
    JobProgress {
        namespace: job.metadata.namespace.clone().unwrap_or_default(),
        name: job.metadata.name.clone().unwrap_or_default(),
        state,
        completions: spec.completions,
        active: status.active.unwrap_or_default(),
        succeeded,
        failed: status.failed.unwrap_or_default(),
        rate,
        seconds_left: rate.zip(left).map(|(rate, left)| left / rate),
        waiting: None,
    }
}

fn state(
    spec: &k8s_openapi::api::batch::v1::JobSpec,
    status: &k8s_openapi::api::batch::v1::JobStatus,
) -> &'static str {
    let has = |type_: &str| {
        let mut conditions = status.conditions.iter().flatten();
        conditions.any(|condition| condition.type_ == type_ && condition.status == "True")
    };
    // In kubectl's order.
    [("Complete", "Complete"), ("Failed", "Failed"), ("Suspended", "Suspended")]
        .into_iter()
        .chain([("FailureTarget", "FailureTarget"), ("SuccessCriteriaMet", "SuccessCriteriaMet")])
        .find_map(|(type_, state)| has(type_).then_some(state))
        .unwrap_or(if spec.suspend == Some(true) { "Suspended" } else { "Running" })
}

fn table(report: &Report) -> Table {
    let mut table = plain_table();
    table.set_header([
        "NAMESPACE",
        "JOB",
        "STATE",
        "SUCCEEDED",
        "ACTIVE",
        "FAILED",
        "PODS/S",
        "TIME LEFT",
        "WAITING",
    ]);
    for job in &report.jobs {
        let completions = job.completions.map(|completions| format!("/{completions}")).unwrap_or_default();
        table.add_row([
            job.namespace.clone(),
            job.name.clone(),
            job.state.to_owned(),
            format!("{}{completions}", job.succeeded),
            job.active.to_string(),
            job.failed.to_string(),
            job.rate.map(|rate| format!("{rate:.2}")).unwrap_or_default(),
            job.seconds_left.map(time_left).unwrap_or_default(),
            job.waiting.as_ref().map(|waiting| describe(waiting, report.at)).unwrap_or_default(),
        ]);
    }
    table
}

/// The reason, the time left, and the message.
fn describe(waiting: &Waiting, now: Timestamp) -> String {
    let Waiting { reason, until, message } = waiting;
    let left = until.map(|until| format!(", {} left", time_left(until.duration_since(now).as_secs_f64())));
    let message = message.as_ref().map(|message| format!(": {message}"));
    [Some((*reason).to_owned()), left, message].into_iter().flatten().collect()
}

fn time_left(seconds: f64) -> String {
    let duration = SignedDuration::try_from_secs_f64(seconds).ok();
    let rounded = duration.and_then(|duration| duration.round(Unit::Second).ok());
    rounded.map_or_else(String::new, |duration| format!("{duration:#}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn rate_and_time_left_follow_from_successes_since_the_start() {
        let job: Job = serde_json::from_value(serde_json::json!({
            "metadata": {"namespace": "n", "name": "j"},
            "spec": {"completions": 30, "template": {}},
            "status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": 10, "active": 2},
        }))
        .unwrap();
        let now: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let progress = progress(&job, now);
        assert_eq!((progress.rate, progress.seconds_left), (Some(0.5), Some(40.0)));
        assert_eq!(progress.state, "Running");
        assert_eq!(time_left(100.4), "1m 40s");
    }

    #[test]
    fn a_wait_shows_its_reason_and_the_time_left() {
        let now: Timestamp = "2026-01-01T00:00:20Z".parse().unwrap();
        let until = Some("2026-01-01T00:01:30Z".parse().unwrap());
        let waiting = |reason, until, message: Option<&str>| {
            describe(&Waiting { reason, until, message: message.map(Into::into) }, now)
        };
        assert_eq!(waiting("PodBackoff", until, None), "PodBackoff, 1m 10s left");
        assert_eq!(waiting("Suspended", None, None), "Suspended");
        assert_eq!(waiting("Refused", None, Some("exceeded quota")), "Refused: exceeded quota");
    }
}
