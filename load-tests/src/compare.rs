//! `compare`: the same load under Yardmaster and another controller, alternately.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::load::Load;
use crate::replicas::Replica;
use crate::report::{Report, median, plots, round, write_text};
use crate::stage::{BUILT_IN, CommonArgs, Stage};
use crate::unmanaged::api_server_cpu_s;

/// Flags of `compare`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    /// Command that starts the other controller. It must read KUBECONFIG and manage Jobs without managedBy.
    #[arg(long, value_name = "CMD")]
    pub(crate) reference: String,
    /// Name of the other controller in plots [default: that of its program].
    #[arg(long, value_name = "NAME")]
    reference_name: Option<String>,
    /// The load: large, small, churn, batch, or a file.
    #[arg(long, value_name = "NAME|FILE", default_value = "large")]
    pub(crate) load: String,
    /// Completions of each Job [default: from the load].
    #[arg(long, value_name = "N")]
    pub(crate) pods: Option<u32>,
    /// Parallelism of each Job [default: from the load].
    #[arg(long, value_name = "P")]
    pub(crate) parallelism: Option<u32>,
    /// Number of Jobs [default: from the load].
    #[arg(long, value_name = "J")]
    pub(crate) jobs: Option<u32>,
    /// Number of runs of each controller.
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) rounds: u32,
    /// Who has turns in each round, and in which order. Each second round is in reverse: an API server gets slower with all that
    /// it holds, so take an even number of rounds.
    #[arg(long, value_name = "WHO", value_delimiter = ',', default_value = "yardmaster,reference")]
    turns: Vec<Side>,
    /// Also measure, once in each round, what the load costs the API server without a controller: then the findings
    /// tell what each controller causes. Needs --kubeconfig.
    #[arg(long, requires = "kubeconfig")]
    pub(crate) unmanaged: bool,
    /// Time for a controller to start, and for the API server to come to rest after the load before.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) start_time: Duration,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// Yardmaster.
    Yardmaster,
    /// The other controller.
    Reference,
}

/// A turn of a round.
enum Turn<'a> {
    /// The load without a controller, on the API server of this kubeconfig.
    Alone(&'a Path),
    /// The load with this controller.
    Of(Side),
}

impl CompareArgs {
    fn load(&self) -> Result<Load> {
        let mut load = match &*self.load {
            "large" => Load::parse(include_str!("../loads/large.yaml"))?,
            "small" => Load::parse(include_str!("../loads/small.yaml"))?,
            "churn" => Load::parse(include_str!("../loads/churn.yaml"))?,
            "batch" => Load::parse(include_str!("../loads/batch.yaml"))?,
            file => Load::read(file.as_ref())?,
        };
        let wave = load.waves.first_mut().context("waves: none")?;
        wave.pods_per_job = self.pods.unwrap_or(wave.pods_per_job);
        // Parallelism follows the number of pods, so that there are neither idle places nor a queue.
        let all = wave.parallelism == wave.pods_per_job || self.load == "large";
        let default = if all { wave.pods_per_job } else { wave.parallelism };
        wave.parallelism = self.parallelism.unwrap_or(default);
        wave.jobs = self.jobs.unwrap_or(wave.jobs);
        Ok(load)
    }

    pub(crate) async fn run(self) -> Result<ExitCode> {
        let (mut reports, mut unmanaged): (Vec<(Side, Report)>, _) = (Vec::new(), Vec::new());
        let alone = self.common.kubeconfig.as_ref().filter(|_| self.unmanaged);
        let of_sides = self.turns.iter().copied().map(Turn::Of);
        let mut turns: Vec<Turn<'_>> =
            alone.map(|file| Turn::Alone(file)).into_iter().chain(of_sides).collect();
        for _ in 0..self.rounds {
            for turn in &turns {
                match *turn {
                    Turn::Alone(kubeconfig) => {
                        let load = self.load()?;
                        unmanaged.push(api_server_cpu_s(kubeconfig, &load, self.common.timeout).await?);
                    }
                    Turn::Of(side) => {
                        let report = self.turn(side).await?;
                        println!("{side:?}\n{}", report.summary());
                        reports.push((side, report));
                    }
                }
            }
            turns.reverse();
        }
        let exact = reports.iter().all(|(_, report)| report.exact.holds());
        let findings = findings(&reports, unmanaged);
        for line in summary(&findings) {
            println!("{line}");
        }
        if let Some(file) = &self.common.report {
            let last =
                |side| reports.iter().rfind(move |(whose, _)| *whose == side).map(|(_, report)| report);
            let [ours, theirs] = [Side::Yardmaster, Side::Reference].map(last);
            let mut report = Report { findings, ..ours.or(theirs).context("no turns")?.clone() };
            report.load["reference"] = json!(self.reference);
            report.write(file)?;
            let both: Vec<_> = [("Yardmaster", ours), (self.reference_name(), theirs)]
                .into_iter()
                .filter_map(|(name, report)| Some((name, report?)))
                .collect();
            write_text(&file.with_extension("svg"), &plots::ended_pods(&both)?)?;
        }
        Ok(if exact { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The name of the other controller in plots.
    fn reference_name(&self) -> &str {
        let program = || Path::new(self.reference.split_whitespace().next()?).file_name()?.to_str();
        self.reference_name.as_deref().or_else(program).unwrap_or("the other controller")
    }

    /// Plays the load once, on a new API server or in a new namespace of the given one.
    async fn turn(&self, side: Side) -> Result<Report> {
        let name = self.common.controller_name.clone().or_else(|| Some(BUILT_IN.to_owned()));
        let common = CommonArgs { controller_name: name, ..self.common.clone() };
        let mut stage = Stage::prepare(&common, self.load()?).await?;
        match side {
            Side::Yardmaster => stage.scale_up(common.replicas()).await?,
            Side::Reference => {
                let log = stage.ground.directory.path().join("reference.log");
                stage.fleet.adopt(Replica::foreign(&self.reference, &stage.ground.kubeconfig, &log)?);
            }
        }
        tokio::time::sleep(self.start_time).await;
        stage.fleet.begin_counting().await;
        stage.begin().await;
        stage.play().await?;
        Ok(stage.finish("compare").await?.report)
    }
}

/// The compared figures. Less is better, except for `pods_per_s` and `jobs_per_s`.
fn figures(report: &Report) -> Vec<(String, f64)> {
    let peak: u64 = report.controller.iter().map(|replica| replica.peak_rss_bytes).sum();
    let own = [
        ("wall_s", report.wall_s),
        ("pods_per_s", report.pods_per_s),
        ("jobs_per_s", report.jobs_per_s),
        ("cpu_ms_per_pod", report.cpu_ms_per_pod),
        ("peak_rss_bytes", peak as f64),
        ("writes_per_pod", report.writes_per_pod),
    ];
    let api_server = report.api_server.iter().flat_map(|cost| {
        let requests: u64 = cost.requests.values().sum();
        let figures = [
            ("api_server_cpu_s", cost.cpu_s),
            ("api_server_peak_rss_bytes", cost.peak_rss_bytes as f64),
            ("api_server_requests", requests as f64),
        ];
        figures.into_iter().filter(|(_, value)| *value > 0.0)
    });
    let latencies = report.latency_ms.iter().filter(|(_, latency)| latency.count > 0);
    let latencies = latencies.flat_map(|(name, latency)| {
        [(format!("{name}_p50_ms"), latency.p50), (format!("{name}_p99_ms"), latency.p99)]
    });
    own.into_iter().chain(api_server).map(|(name, value)| (name.to_owned(), value)).chain(latencies).collect()
}

/// The figures of each round and their ratios. `unmanaged`: the API server's seconds of CPU for the load without a
/// controller.
fn findings(reports: &[(Side, Report)], unmanaged: Vec<f64>) -> Value {
    let of = |side: Side| reports.iter().filter(move |(whose, _)| *whose == side).map(|(_, report)| report);
    let medians = |side: Side| -> BTreeMap<String, f64> {
        let all: Vec<(String, f64)> = of(side).flat_map(figures).collect();
        let names: BTreeSet<&String> = all.iter().map(|(name, _)| name).collect();
        let of_name = |name| all.iter().filter(|(other, _)| other == name).map(|(_, value)| *value).collect();
        names.into_iter().map(|name| (name.clone(), median(of_name(name)))).collect()
    };
    let [ours, theirs] = [Side::Yardmaster, Side::Reference].map(medians);
    let mut ratios: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in &ours {
        if let Some(reference) = theirs.get(name).filter(|reference| **reference > 0.0) {
            ratios.insert(name.clone(), round(value / reference));
        }
    }
    if !unmanaged.is_empty() {
        let alone = median(unmanaged.clone());
        let caused = [&ours, &theirs].map(|medians| medians.get("api_server_cpu_s").map(|cpu| cpu - alone));
        if let [Some(ours), Some(theirs)] = caused
            && ours > 0.0
            && theirs > 0.0
        {
            ratios.insert("api_server_cpu_s_caused".into(), round(ours / theirs));
        }
    }
    let rounds = |side| {
        of(side).map(|report| {
            let figures = figures(report).into_iter().map(|(name, value)| (name, json!(value)));
            let api_server = report.api_server.iter().map(|cost| ("api_server".to_owned(), json!(cost)));
            figures.chain(api_server).collect()
        })
    };
    let rounds = |side| rounds(side).collect::<Vec<serde_json::Map<String, Value>>>();
    json!({
        // Yardmaster's median divided by that of the reference.
        "ratios": ratios,
        "medians": {"yardmaster": rounded(ours), "reference": rounded(theirs)},
        "yardmaster": rounds(Side::Yardmaster),
        "reference": rounds(Side::Reference),
        "unmanaged": {"api_server_cpu_s": unmanaged},
    })
}

fn rounded(figures: BTreeMap<String, f64>) -> BTreeMap<String, f64> {
    figures.into_iter().map(|(name, value)| (name, round(value))).collect()
}

/// A line for each figure: the medians of both, and Yardmaster's divided by the other.
fn summary(findings: &Value) -> Vec<String> {
    let line = |name: &str, [ours, theirs, ratio]: [&Value; 3]| {
        let figures = [ours, theirs, ratio].map(|value| value.as_f64().map_or("-".into(), |v| v.to_string()));
        let [ours, theirs, ratio] = figures;
        format!("{name:28} {ours:>16} {theirs:>16} {ratio:>8}")
    };
    let head = format!("{:28} {:>16} {:>16} {:>8}", "median", "Yardmaster", "other", "ratio");
    let (medians, ratios) = (&findings["medians"], &findings["ratios"]);
    let names: BTreeSet<&String> = [&medians["yardmaster"], &medians["reference"], ratios]
        .into_iter()
        .filter_map(Value::as_object)
        .flat_map(|all| all.keys())
        .collect();
    let lines = names
        .into_iter()
        .map(|name| line(name, [&medians["yardmaster"][name], &medians["reference"][name], &ratios[name]]));
    std::iter::once(head).chain(lines).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn ratios_compare_medians() {
        let with = |wall_s: f64| Report { wall_s, ..sample() };
        let reports = [
            (Side::Yardmaster, with(1.0)),
            (Side::Reference, with(8.0)),
            (Side::Yardmaster, with(2.0)),
            (Side::Reference, with(80.0)),
            (Side::Yardmaster, with(30.0)),
            (Side::Reference, with(4.0)),
        ];
        let findings = findings(&reports, vec![2.0, 1.0, 3.0]);
        assert_eq!(findings["ratios"]["wall_s"], json!(0.25));
        assert_eq!(findings["medians"]["reference"]["wall_s"], json!(8.0));
        let lines = summary(&findings);
        let wall: Vec<&str> =
            lines.iter().find(|line| line.starts_with("wall_s")).unwrap().split_whitespace().collect();
        assert_eq!(wall, ["wall_s", "2", "8", "0.25"]);
        assert_eq!(findings["reference"].as_array().map(Vec::len), Some(3));
    }
}
