//! `webhooks`: admission webhooks that are slow, and one that fails: what the tenants of other namespaces notice.
//!
//! The embedded API server plays webhooks as faults. Another one gets a `ValidatingWebhookConfiguration` that leads to
//! a `server` in this process.

pub(crate) mod server;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use http::Request;
use jiff::SignedDuration;
use serde_json::{Value, json};

use self::server::{REFUSAL_BYTES, Webhooks};
use crate::conclude;
use crate::faults::{FaultKind, TimedFault};
use crate::load::{Load, Wave};
use crate::report::{Report, round};
use crate::stage::{CommonArgs, Stage};

/// How long a webhook of the embedded API server lasts: longer than any load.
const ALWAYS: Duration = Duration::from_secs(24 * 3600);
/// Most writes that a controller has in flight, so most creations that wait for webhooks at once.
const IN_FLIGHT: f64 = 256.0;
/// Time for the last Jobs that are timed alone to end, before the failing webhook is asked.
const ENDING: Duration = Duration::from_secs(3);
/// Time until the first refusals of the failing webhook, beside which Jobs are timed.
const SETTLING: Duration = Duration::from_secs(10);

/// Flags of `webhooks`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WebhooksArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Time that the webhook of all tenants takes for each pod that is created.
    #[arg(long, value_name = "TIME", default_value = "200ms", value_parser = humantime::parse_duration)]
    webhook_delay: Duration,
    /// Time after which the API server gives the failing webhook up, in whole seconds.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    webhook_timeout: Duration,
    /// Pods of the load that measures how fast pods are created.
    #[arg(long, value_name = "N", default_value_t = 4000)]
    pods: u32,
    /// Jobs per second of the tenant whose Jobs are timed.
    #[arg(long, value_name = "R", default_value_t = 10.0)]
    rate: f64,
    /// Time for which they are created alone, and again beside the failing webhook.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Jobs in the namespace with the failing webhook.
    #[arg(long, value_name = "J", default_value_t = 50)]
    failing_jobs: u32,
    /// Pods that each of these wants at once.
    #[arg(long, value_name = "P", default_value_t = 20)]
    failing_parallelism: u32,
}

/// Pods that are created per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Speed {
    /// From the first to the last.
    whole: f64,
    /// After the first quarter, in which the controller adapts its window to the API server.
    steady: f64,
}

impl Speed {
    /// The speed at which `all` pods were created, from their numbers at these times, in seconds. Returns
    /// `None` if they were not created, or too quickly to measure.
    fn of(looks: &[(f64, u64)], all: u64) -> Option<Self> {
        let (end, _) = looks.iter().find(|(_, pods)| *pods >= all)?;
        let open = looks.iter().find(|(_, pods)| *pods >= all / 4)?;
        let last = looks.iter().rfind(|(_, pods)| *pods < all).filter(|last| last.1 > open.1);
        let whole = all as f64 / end;
        let steady = last.map_or(whole, |last| (last.1 - open.1) as f64 / (last.0 - open.0));
        Some(Self { whole, steady })
    }
}

/// A tenant's webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Admits everything, late.
    Slow,
    /// Never answers.
    Failing,
    /// Refuses everything, with a message of [`server::REFUSAL_BYTES`].
    Refusing,
}

/// Webhooks as the API server has them.
enum Admission {
    Embedded { delay: Duration, timeout: Duration },
    Real(Webhooks),
}

impl WebhooksArgs {
    fn tenants(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../../loads/webhooks.yaml"))?;
        let [alone, beside] = &mut *load.waves else { bail!("webhooks.yaml: two waves are expected") };
        for wave in [&mut *alone, &mut *beside] {
            wave.jobs = ((self.rate * self.time.as_secs_f64()) as u32).max(1);
            wave.rate = self.rate;
        }
        beside.start = SignedDuration::try_from(self.time + ENDING + SETTLING)?;
        Ok(load)
    }

    fn bulk(&self) -> Result<Load> {
        let mut load = Load::parse(include_str!("../../loads/large.yaml"))?;
        for wave in &mut load.waves {
            (wave.jobs, wave.pods_per_job) = (4, self.pods.div_ceil(4));
            wave.parallelism = wave.pods_per_job;
        }
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let fast = self.created_per_s(None).await?;
        let slow = self.created_per_s(Some(Kind::Slow)).await?;
        let allowed = fast.steady.max(fast.whole).min(IN_FLIGHT / self.webhook_delay.as_secs_f64());
        let (mut report, [alone, beside]) = self.timed().await?;
        report.findings = json!({
            "webhook_delay_ms": self.webhook_delay.as_millis(),
            "created_per_s": {"without_webhook": round(fast.whole), "with_webhook": round(slow.whole)},
            "created_per_s_after_a_quarter": {"without_webhook": round(fast.steady), "with_webhook": round(slow.steady)},
            "created_per_s_that_the_delay_allows": round(allowed),
            "share_of_that": round(slow.whole / allowed),
            "share_of_that_after_a_quarter": round(slow.steady / allowed),
            "job_p99_ms": {"alone": round(alone), "beside_the_failing_webhook": round(beside)},
            "beside_by_alone": round(beside / alone),
        });
        println!("{:#}", report.findings);
        conclude(&report, self.common.report.as_ref())
    }

    /// Pods that are created per second when many are wanted.
    async fn created_per_s(&self, kind: Option<Kind>) -> Result<Speed> {
        let mut stage = Stage::prepare(&self.common, self.bulk()?).await?;
        let mut admission = Admission::prepare(self, &stage).await?;
        if let Some(kind) = kind {
            let namespace = stage.ground.namespace.clone();
            admission.admit(&mut stage, &namespace, kind).await?;
        }
        stage.scale_up(self.common.replicas()).await?;
        let begun = Instant::now();
        stage.begin().await;
        let (mut looks, mut done) = (Vec::new(), false);
        while !done && !stage.is_late() {
            done = stage.step().await?;
            looks.push((begun.elapsed().as_secs_f64(), stage.ledger.totals().pods));
        }
        admission.end(&stage).await?;
        let report = stage.finish("webhooks").await?.report;
        if !report.exact.holds() {
            bail!("not counted exactly: {}", report.summary());
        }
        Speed::of(&looks, self.pods.into()).context("not all pods were created in time")
    }

    /// Times the Jobs of one tenant, alone and beside another one whose webhook fails: the 99th percentiles in
    /// milliseconds.
    async fn timed(&self) -> Result<(Report, [f64; 2])> {
        let mut stage = Stage::prepare(&self.common, self.tenants()?).await?;
        let mut admission = Admission::prepare(self, &stage).await?;
        let namespace = stage.ground.namespace.clone();
        admission.admit(&mut stage, &namespace, Kind::Slow).await?;
        let failing = format!("{namespace}-failing");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": failing}});
        post(&stage, "/api/v1/namespaces", &body).await?;
        admission.admit(&mut stage, &failing, Kind::Failing).await?;
        stage.scale_up(self.common.replicas()).await?;
        stage.begin().await;
        stage.run_for(self.time + ENDING).await?;
        let jobs = format!("/apis/batch/v1/namespaces/{failing}/jobs");
        let wave = self.failing()?;
        for number in 0..wave.jobs {
            post(&stage, &jobs, &wave.manifest(number, self.common.managed_by().as_deref())).await?;
        }
        stage.play().await?;
        let p99 = |wave: usize| {
            let of = |all: &crate::ledger::Latencies| Some(all.wave_total.get(wave)?.value_at_quantile(0.99));
            stage.ledger.latencies(of).unwrap_or_default() as f64 / 1000.0
        };
        let figures = [p99(0), p99(1)];
        let request = Request::delete(format!("{jobs}?propagationPolicy=Background")).body(Vec::new())?;
        let _deleted: Value = stage.client.request(request).await?;
        admission.end(&stage).await?;
        let request = Request::delete(format!("/api/v1/namespaces/{failing}")).body(Vec::new())?;
        let _deleted: Value = stage.client.request(request).await?;
        Ok((stage.finish("webhooks").await?.report, figures))
    }

    /// The Jobs whose pods no webhook admits.
    fn failing(&self) -> Result<Wave> {
        let mut wave = self.tenants()?.waves.swap_remove(0);
        wave.name = "failing".into();
        wave.jobs = self.failing_jobs;
        (wave.pods_per_job, wave.parallelism) = (self.failing_parallelism, self.failing_parallelism);
        Ok(wave)
    }
}

impl Admission {
    async fn prepare(args: &WebhooksArgs, stage: &Stage) -> Result<Self> {
        let (delay, timeout) = (args.webhook_delay, args.webhook_timeout);
        Ok(match stage.ground.is_embedded() {
            true => Self::Embedded { delay, timeout },
            false => {
                Self::Real(Webhooks::start(&stage.client, &stage.ground.namespace, delay, timeout).await?)
            }
        })
    }

    /// From now on a webhook is asked for the pods that are created in this namespace.
    async fn admit(&mut self, stage: &mut Stage, namespace: &str, kind: Kind) -> Result<()> {
        match self {
            Self::Real(webhooks) => webhooks.admit(&stage.client, namespace, kind).await,
            Self::Embedded { delay, timeout } => {
                let kind = match kind {
                    Kind::Slow => FaultKind::Delay(SignedDuration::try_from(*delay)?),
                    Kind::Failing => FaultKind::FailWebhook(SignedDuration::try_from(*timeout)?),
                    Kind::Refusing => FaultKind::DenyByWebhook(REFUSAL_BYTES),
                };
                stage.ground.inject(&TimedFault::of_webhook(namespace, kind, ALWAYS)).await
            }
        }
    }

    /// Removes the webhooks from another API server. The webhooks of the embedded one end with it.
    async fn end(self, stage: &Stage) -> Result<()> {
        match self {
            Self::Real(webhooks) => webhooks.end(&stage.client).await,
            Self::Embedded { .. } => Ok(()),
        }
    }
}

async fn post(stage: &Stage, path: &str, body: &Value) -> Result<Value> {
    let request = Request::post(path).body(body.to_string().into_bytes())?;
    stage.client.request(request).await.with_context(|| format!("POST {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_speed_leaves_out_the_begin() {
        let looks = [(1.0, 20), (2.0, 100), (3.0, 200), (4.0, 300), (5.0, 400)];
        assert_eq!(Speed::of(&looks, 400), Some(Speed { whole: 80.0, steady: 100.0 }));
        assert_eq!(Speed::of(&looks, 500), None);
        assert_eq!(Speed::of(&[(2.0, 50)], 50), Some(Speed { whole: 25.0, steady: 25.0 }));
    }
}
