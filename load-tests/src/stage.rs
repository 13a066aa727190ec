//! Plays one load from start to end, for all commands that put load on a controller.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tokio::task::JoinSet;

use crate::audit::{self, Writes};
use crate::exact;
use crate::fleet::Fleet;
use crate::ground::{Ground, Reading, Record, Storage};
use crate::jobs;
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::load::Load;
use crate::pods::Simulator;
use crate::recovery;
use crate::replicas::{Cost, Recipe};
use crate::report::{self, Controller, Env, Point, Report};

/// Time between two measurements.
const TICK: Duration = Duration::from_millis(250);
/// User-Agent of the simulator.
const KUBELET: &str = "load-tests-kubelet";
/// Controller name in replacement mode.
pub(crate) const BUILT_IN: &str = "kubernetes.io/job-controller";
/// Controller name beside the built-in controller.
pub(crate) const EXTERNAL: &str = "yardmaster.dev/job-controller";

/// Flags of all commands that put load on a controller.
#[derive(Clone, Debug, Args)]
pub(crate) struct CommonArgs {
    /// Kubeconfig of the cluster [default: an embedded one in its own process].
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// File for the report; a page with plots is written beside it.
    #[arg(long, value_name = "FILE.json")]
    pub(crate) report: Option<PathBuf>,
    /// Number of controller replicas [default: 1; soak: 3].
    #[arg(long, value_name = "R")]
    pub(crate) replicas: Option<usize>,
    /// Limit of requests per second of each replica; 0: no limit.
    #[arg(long, value_name = "Q", default_value_t = 0)]
    pub(crate) kube_api_qps: u32,
    /// Number of shards.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) shards: u32,
    /// Name of the controllers, which selects their Jobs [default: the built-in's on the embedded cluster,
    /// else Yardmaster's own].
    #[arg(long, value_name = "NAME")]
    pub(crate) controller_name: Option<String>,
    /// Another yardmaster program [default: the one in this program].
    #[arg(long, value_name = "FILE")]
    pub(crate) controller: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) limits: Limits,
    /// Additional flag for the controllers; may be repeated.
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true)]
    pub(crate) controller_flag: Vec<String>,
    /// Time limit for the load.
    #[arg(long, value_name = "TIME", default_value = "30m", value_parser = humantime::parse_duration)]
    pub(crate) timeout: Duration,
}

impl CommonArgs {
    /// Name of the controllers.
    pub(crate) fn controller_name(&self) -> &str {
        match &self.controller_name {
            Some(name) => name,
            None if self.kubeconfig.is_some() => EXTERNAL,
            None => BUILT_IN,
        }
    }

    /// Number of controller replicas.
    pub(crate) fn replicas(&self) -> usize {
        self.replicas.unwrap_or(1)
    }

    /// `spec.managedBy` of the load's Jobs.
    pub(crate) fn managed_by(&self) -> Option<String> {
        Some(self.controller_name()).filter(|name| *name != BUILT_IN).map(Into::into)
    }

    pub(crate) fn recipe(&self, ground: &Ground, setup: Setup) -> Result<Recipe> {
        let mut flags = vec!["--shards".to_owned(), self.shards.to_string()];
        if self.kube_api_qps > 0 {
            flags.extend(["--kube-api-qps".to_owned(), self.kube_api_qps.to_string()]);
        }
        flags.extend(self.controller_flag.iter().cloned());
        Ok(Recipe {
            program: self.controller.clone(),
            kubeconfig: ground.kubeconfig.clone(),
            controller_name: self.controller_name().to_owned(),
            lease_namespace: ground.namespace.clone(),
            flags,
            limits: self.limits,
            // The loads ask for less back-off than authors of Jobs get.
            least_backoff: "0s",
            upstream: setup.proxies.then(|| ground.address()).transpose()?,
            directory: ground.directory.path().to_owned(),
        })
    }
}

/// The needs of a load besides the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    /// Where the embedded API server keeps its objects.
    pub(crate) storage: Storage,
    /// Whether replicas reach the API server through a proxy each.
    pub(crate) proxies: bool,
}

/// Objects in memory, no proxies.
impl Default for Setup {
    fn default() -> Self {
        Self { storage: Storage::Memory, proxies: false }
    }
}

/// A load under way.
pub(crate) struct Stage {
    pub(crate) ground: Ground,
    pub(crate) client: kube::Client,
    pub(crate) fleet: Fleet,
    pub(crate) ledger: Ledger,
    load: Load,
    managed_by: Option<String>,
    deadline: Instant,
    started: Instant,
    /// The simulator and the watch of Jobs.
    watching: JoinSet<()>,
    creating: JoinSet<Result<()>>,
    /// Pending faults, the next one last.
    faults: Vec<crate::faults::TimedFault>,
    /// Whether faults are skipped when they are due.
    skips_faults: bool,
    faults_played: u64,
    series: Vec<Point>,
    next_look: Instant,
    /// The figures of a Kubernetes API server when the load began.
    before: Option<Reading>,
    bar: ProgressBar,
    env: Env,
}

/// The result of a load, with the record of writes for further analysis.
pub(crate) struct Outcome {
    pub(crate) report: Report,
    pub(crate) record: Option<Record>,
}

impl Stage {
    /// Prepares everything except the controllers.
    pub(crate) async fn prepare(args: &CommonArgs, load: Load) -> Result<Self> {
        Self::prepare_with(args, load, Setup::default()).await
    }

    /// Prepares everything except the controllers.
    pub(crate) async fn prepare_with(args: &CommonArgs, load: Load, setup: Setup) -> Result<Self> {
        let ground = Ground::prepare(args.kubeconfig.as_deref(), setup.storage).await?;
        if !load.faults.is_empty() && !ground.is_embedded() {
            bail!("the load has faults, and only the embedded API server has them");
        }
        let client = ground.client("load-tests").await?;
        let ledger = Ledger::new(load.waves.len());
        let mut watching = JoinSet::new();
        let simulator = Simulator::new(ground.client(KUBELET).await?, load.places(), ledger.clone());
        let (pods, jobs) = (ground.path("/api/v1", "pods"), ground.path("/apis/batch/v1", "jobs"));
        let watcher = ground.client(KUBELET).await?;
        watching.spawn(async move { simulator.run(watcher, &pods).await });
        watching.spawn(jobs::observe(client.clone(), jobs, ledger.clone()));
        let server = args.kubeconfig.as_ref().map_or("embedded".into(), |file| file.display().to_string());
        let mut faults = load.faults.clone();
        faults.sort_by_key(|fault| std::cmp::Reverse(fault.at));
        let now = Instant::now();
        Ok(Self {
            fleet: Fleet::new(args.recipe(&ground, setup)?),
            bar: bar(load.completions()),
            env: Env::here(server),
            managed_by: args.managed_by(),
            deadline: now + args.timeout,
            started: now,
            next_look: now,
            before: None,
            series: Vec::new(),
            creating: JoinSet::new(),
            ground,
            client,
            ledger,
            load,
            watching,
            faults,
            skips_faults: false,
            faults_played: 0,
        })
    }

    /// Starts replicas until `replicas` run, and waits until all are ready.
    pub(crate) async fn scale_up(&mut self, replicas: usize) -> Result<()> {
        self.fleet.grow(replicas)?;
        self.fleet.ready().await
    }

    /// Starts the creation of Jobs.
    pub(crate) async fn begin(&mut self) {
        if !self.ground.is_embedded() {
            let reading = Reading::of(&self.client).await;
            self.before = reading.inspect_err(|error| eprintln!("without its cost: {error:#}")).ok();
        }
        self.started = Instant::now();
        let (client, ledger, load) = (self.client.clone(), self.ledger.clone(), self.load.clone());
        let (path, managed_by) = (self.ground.path("/apis/batch/v1", "jobs"), self.managed_by.clone());
        let start = self.started;
        self.creating.spawn(async move {
            jobs::create(&client, &path, &load, managed_by.as_deref(), &ledger, start).await
        });
    }

    /// Seconds since the start of the load.
    pub(crate) fn elapsed(&self) -> f64 {
        report::round(self.started.elapsed().as_secs_f64())
    }

    /// From now on, faults of the API server are skipped when they are due, or played again.
    pub(crate) fn skip_faults(&mut self, skips: bool) {
        self.skips_faults = skips;
    }

    /// Number of faults of the API server that were played.
    pub(crate) fn faults_played(&self) -> u64 {
        self.faults_played
    }

    /// Whether time is up.
    pub(crate) fn is_late(&self) -> bool {
        Instant::now() > self.deadline
    }

    /// Runs until the next measurement. Returns `true` once all Jobs have ended.
    pub(crate) async fn step(&mut self) -> Result<bool> {
        tokio::time::sleep_until(self.next_look.into()).await;
        self.next_look = Instant::now() + TICK;
        while let Some(created) = self.creating.try_join_next() {
            created??;
        }
        let elapsed = self.started.elapsed();
        // Faults wait for an API server that is down.
        while self.ground.is_up()
            && self.faults.last().is_some_and(|fault| fault.at.unsigned_abs() <= elapsed)
        {
            if let Some(fault) = self.faults.pop().filter(|_| !self.skips_faults) {
                self.ground.inject(&fault).await?;
                self.faults_played += 1;
            }
        }
        let totals = self.ledger.totals();
        let usage = self.fleet.measure();
        self.series.push(Point::new(report::round(elapsed.as_secs_f64()), totals, usage));
        self.bar.set_position(totals.ended);
        self.bar.set_message(format!(
            "{} active, {} of {} Jobs done",
            totals.active,
            totals.jobs_finished,
            self.load.jobs()
        ));
        self.fleet.check()?;
        self.ground.check()?;
        Ok(totals.jobs_finished == self.load.jobs())
    }

    /// Runs until all Jobs have ended or time is up.
    pub(crate) async fn play(&mut self) -> Result<()> {
        while !self.step().await? {
            if self.is_late() {
                // The report shows the progress so far.
                eprintln!("time is up");
                break;
            }
        }
        Ok(())
    }

    /// Runs for `time` or until all Jobs have ended. Returns whether they have.
    pub(crate) async fn play_for(&mut self, time: Duration) -> Result<bool> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.step().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Runs for all of `time`, also after the end of all Jobs.
    pub(crate) async fn run_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.step().await?;
        }
        Ok(())
    }

    /// Checks the final state, ends all processes, and reports.
    pub(crate) async fn finish(mut self, command: &str) -> Result<Outcome> {
        self.bar.finish_and_clear();
        let now = match &self.before {
            Some(_) => {
                // A controller may still send Events about Jobs that have ended, and they are part of its cost.
                let at_rest = self.ground.events_at_rest(&self.client).await;
                at_rest.unwrap_or_else(|error| eprintln!("not all Events may be counted: {error:#}"));
                Reading::of(&self.client).await.ok()
            }
            None => None,
        };
        let exact = exact::check(&self.ground.namespace, &self.client, &self.ledger);
        let exact = exact.await.context("final state")?;
        let costs = self.fleet.end().await;
        let api_server = match self.ground.usage() {
            Some(usage) => Some(usage.into()),
            None => now.zip(self.before).map(|(now, before)| now.since(&before)),
        };
        self.watching.shutdown().await;
        let record = self.ground.end().await?;
        let controller = controllers(costs, record.as_ref())?;
        let waves: Vec<String> = self.load.waves.iter().map(|wave| wave.name.clone()).collect();
        let mut load = serde_json::to_value(&self.load)?;
        load["command"] = json!(command);
        let report = Report {
            load,
            env: self.env,
            wall_s: report::round(self.ledger.wall()),
            pods_per_s: 0.0,
            jobs_per_s: 0.0,
            controller,
            writes_per_pod: 0.0,
            cpu_ms_per_pod: 0.0,
            api_server,
            latency_ms: self.ledger.latencies(|all| report::latencies(all, &waves)),
            exact,
            findings: recovery::findings(&self.load.faults, &self.series),
            series: thinned(self.series),
        };
        Ok(Outcome { report: report.summed(), record })
    }
}

/// At most 500 points, since a plot has hardly more pixels.
fn thinned(series: Vec<Point>) -> Vec<Point> {
    let step = series.len().div_ceil(500).max(1);
    series.into_iter().step_by(step).collect()
}

/// Figures of all replicas, with their writes from the API server's record if there is one.
pub(crate) fn controllers(costs: Vec<Cost>, record: Option<&Record>) -> Result<Vec<Controller>> {
    let Some(record) = record else {
        return Ok(costs.into_iter().map(|cost| Controller::new(cost, None)).collect());
    };
    let clients = audit::by_client(&record.file)?;
    let of = |identity: &str| {
        let mark = format!("({identity})");
        let own = |agent: &str| match identity {
            // The reference's User-Agent is unknown: any client but the load tests.
            "reference" => !agent.starts_with("load-tests"),
            _ => agent.contains(&mark),
        };
        let mut sum = Writes::default();
        for writes in clients.iter().filter(|(agent, _)| own(agent)).map(|(_, writes)| writes) {
            writes
                .by_kind
                .iter()
                .for_each(|(kind, count)| *sum.by_kind.entry(kind.clone()).or_default() += count);
            writes.by_code.iter().for_each(|(code, count)| *sum.by_code.entry(*code).or_default() += count);
        }
        sum
    };
    Ok(costs
        .into_iter()
        .map(|cost| {
            let writes = of(&cost.identity);
            Controller::new(cost, Some(writes))
        })
        .collect())
}

fn bar(pods: u64) -> ProgressBar {
    let bar = ProgressBar::new(pods);
    // The template is valid. If not, the default style is good enough.
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} pods {msg}") {
        bar.set_style(style);
    }
    bar
}
