//! `take-over`: replicas start where the controller built into Kubernetes has just been switched off. All its
//! pods are there, and none carries a mark of Yardmaster. Replicas must neither create nor delete a pod, and
//! all counts must be exact.

mod past;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::{Request, header};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use self::past::{Past, Stage};
use crate::conclude;
use crate::exact::Exact;
use crate::fleet::Fleet;
use crate::ground::{Ground, Storage};
use crate::report::{self, ApiServerCost, Env, Report};
use crate::stage::{BUILT_IN, CommonArgs, Setup, controllers};
use crate::views::{Job, Pod};
use crate::watch::Collection;

/// Requests under way at once while the past is made.
const AT_ONCE: usize = 32;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(250);
/// How long everything must stay as it is after the replicas have caught up.
const REST: Duration = Duration::from_secs(5);

/// Flags of `take-over`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TakeOverArgs {
    #[command(flatten)]
    common: CommonArgs,
    /// Number of Jobs, of all kinds in turn.
    #[arg(long, value_name = "N", default_value_t = 50)]
    jobs: u32,
    /// Pods that run.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    running: u32,
    /// Pods that have ended and are counted.
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    finished: u32,
    /// Pods that have ended and are not counted: half of them are recorded.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    uncounted: u32,
}

/// A take-over under way.
struct TakeOver {
    ground: Ground,
    client: Client,
    jobs: Vec<Past>,
    /// The pods of the past by UID, with their names, and whether they run.
    pods: BTreeMap<String, (String, bool)>,
    deadline: Instant,
}

impl TakeOverArgs {
    pub(crate) async fn run(mut self) -> Result<ExitCode> {
        let name = self.common.controller_name.get_or_insert_with(|| BUILT_IN.to_owned());
        ensure!(*name == BUILT_IN, "only a controller named {BUILT_IN} takes over");
        ensure!(self.jobs > 0, "--jobs: there must be Jobs");
        let ground = Ground::prepare(self.common.kubeconfig.as_deref(), Storage::Memory).await?;
        let server =
            self.common.kubeconfig.as_ref().map_or("embedded".into(), |file| file.display().to_string());
        let env = Env::here(server);
        let mut over = TakeOver {
            client: ground.client("load-tests").await?,
            jobs: Past::of(self.jobs, [self.running, self.finished, self.uncounted]),
            pods: BTreeMap::new(),
            deadline: Instant::now() + self.common.timeout,
            ground,
        };
        over.make_past().await.context("making the past")?;
        println!("{} pods of {} Jobs are there", over.pods.len(), over.jobs.len());

        let began = Instant::now();
        let mut fleet = Fleet::new(self.common.recipe(&over.ground, Setup::default())?);
        fleet.grow(self.common.replicas())?;
        fleet.ready().await?;
        let ready = began.elapsed();
        over.until("all pods are counted", async |over| over.is_counted().await).await?;
        let counted = began.elapsed();
        sleep(REST).await;
        fleet.check()?;
        fleet.measure();
        let caught_up = over.audit(false).await?;
        let ended = Instant::now();
        over.end_pods().await?;
        over.until("all Jobs are finished", async |over| over.is_finished().await).await?;
        let finished = ended.elapsed();
        let exact = over.audit(true).await?;

        let costs = fleet.end().await;
        let api_server = over.ground.usage();
        let (jobs, pods) = (over.jobs.len(), over.pods.len());
        let record = over.ground.end().await?;
        let seconds = |time: Duration| report::round(time.as_secs_f64());
        let report = Report {
            load: json!({
                "command": "take-over", "jobs": jobs, "pods": pods, "running": self.running,
                "finished": self.finished, "uncounted": self.uncounted,
            }),
            env,
            wall_s: seconds(counted),
            pods_per_s: 0.0,
            jobs_per_s: 0.0,
            controller: controllers(costs, record.as_ref())?,
            writes_per_pod: 0.0,
            cpu_ms_per_pod: 0.0,
            api_server: api_server.map(ApiServerCost::from),
            latency_ms: BTreeMap::new(),
            findings: json!({
                "ready_s": seconds(ready), "counted_s": seconds(counted), "finished_s": seconds(finished),
                "caught_up": caught_up,
            }),
            exact,
            series: Vec::new(),
        };
        println!("{}", report.findings);
        for replica in &report.controller {
            println!("{}: {} requests; writes {}", replica.identity, replica.requests, json!(replica.writes));
        }
        conclude(&report, self.common.report.as_ref())
    }
}

impl TakeOver {
    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let patch = "application/merge-patch+json";
        let kind = if method == "PATCH" { patch } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
        let request = request.body(body.to_string().into_bytes())?;
        self.client.request(request).await.with_context(|| format!("{method} {path}"))
    }

    /// Creates the Jobs, their pods, and the statuses of both.
    async fn make_past(&mut self) -> Result<()> {
        let (pods_path, jobs_path) =
            (self.ground.path("/api/v1", "pods"), self.ground.path("/apis/batch/v1", "jobs"));
        for job in self.jobs.clone() {
            let made = self.send("POST", &jobs_path, &job.job()).await?;
            let uid = made["metadata"]["uid"].as_str().context("a Job without UID")?.to_owned();
            let this = &*self;
            let pods: Vec<(u32, String, String)> = stream::iter(0..job.pods())
                .map(|number| {
                    let (uid, pods_path) = (&uid, &pods_path);
                    async move {
                        let made = this.send("POST", pods_path, &job.pod(number, uid)).await?;
                        let text =
                            |field: &str| made["metadata"][field].as_str().unwrap_or_default().to_owned();
                        let (pod, name) = (text("uid"), text("name"));
                        let phase = if job.stage(number) == Stage::Running { "Running" } else { "Succeeded" };
                        let status = json!({"status": {"phase": phase}});
                        this.send("PATCH", &format!("{pods_path}/{name}/status"), &status).await?;
                        anyhow::Ok((number, pod, name))
                    }
                })
                .buffer_unordered(AT_ONCE)
                .try_collect()
                .await?;
            let recorded = pods.iter().filter(|(number, ..)| job.stage(*number) == Stage::Recorded);
            let recorded: Vec<String> = recorded.map(|(_, uid, _)| uid.clone()).collect();
            self.send("PATCH", &format!("{jobs_path}/{}/status", job.name()), &job.status(&recorded)).await?;
            let of = |(number, uid, name)| (uid, (name, job.stage(number) == Stage::Running));
            self.pods.extend(pods.into_iter().map(of));
        }
        Ok(())
    }

    /// Lets all pods that run succeed.
    async fn end_pods(&self) -> Result<()> {
        let pods = self.ground.path("/api/v1", "pods");
        let body = json!({"status": {"phase": "Succeeded"}});
        let (body, pods) = (&body, &pods);
        stream::iter(self.pods.values().filter(|(_, runs)| *runs))
            .map(|(name, _)| async move { self.send("PATCH", &format!("{pods}/{name}/status"), body).await })
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await
    }

    async fn until(&self, what: &str, holds: impl AsyncFn(&Self) -> Result<bool>) -> Result<()> {
        while !holds(self).await? {
            if Instant::now() > self.deadline {
                let exact = self.audit(false).await?;
                bail!("not in time: {what}; {exact:?}");
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    async fn job_objects(&self) -> Result<BTreeMap<String, Value>> {
        let listed: Value =
            self.send("GET", &self.ground.path("/apis/batch/v1", "jobs"), &Value::Null).await?;
        let items = listed["items"].as_array().cloned().unwrap_or_default();
        let name = |job: &Value| job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        Ok(items.into_iter().map(|job| (name(&job), job)).collect())
    }

    /// Whether all pods that have ended are counted, and nothing waits to be.
    async fn is_counted(&self) -> Result<bool> {
        let jobs = self.job_objects().await?;
        Ok(self.jobs.iter().all(|past| {
            let status = &jobs.get(&past.name()).unwrap_or(&Value::Null)["status"];
            let uncounted = status["uncountedTerminatedPods"].as_object();
            status["succeeded"].as_u64() >= Some(past.succeeded().into())
                && status["active"].as_u64() == Some(past.running.into())
                && uncounted.is_none_or(serde_json::Map::is_empty)
        }))
    }

    async fn is_finished(&self) -> Result<bool> {
        let mut finished = 0;
        let count = |job: Job| finished += usize::from(job.status.is_finished());
        Collection::new(self.ground.path("/apis/batch/v1", "jobs")).list(&self.client, count).await?;
        Ok(finished == self.jobs.len())
    }

    /// Compares pods and counts with the past. At the end all pods have succeeded, and none has a finalizer.
    async fn audit(&self, at_end: bool) -> Result<Exact> {
        let mut exact = Exact::default();
        let mut left = self.pods.len() as u64;
        let look = |pod: Pod| {
            if self.pods.contains_key(&pod.metadata.uid) && pod.metadata.deletion_timestamp.is_none() {
                left -= 1;
            } else {
                exact.duplicates += 1;
            }
            exact.orphans += u64::from(at_end && !pod.metadata.finalizers.is_empty());
        };
        Collection::new(self.ground.path("/api/v1", "pods")).list(&self.client, look).await?;
        // A pod that is gone counts like one that is surplus: both are wrong.
        exact.duplicates += left;
        let jobs = self.job_objects().await?;
        for past in &self.jobs {
            let status = &jobs.get(&past.name()).unwrap_or(&Value::Null)["status"];
            let count = |field: &str| status[field].as_u64().unwrap_or_default();
            let expected = u64::from(if at_end { past.pods() } else { past.succeeded() });
            exact.expected += expected;
            exact.counted += count("succeeded");
            exact.failed_counted += count("failed");
            exact.max_active += count("active");
            exact.miscounted += u64::from(count("succeeded") != expected || count("failed") != 0);
        }
        Ok(exact)
    }
}
