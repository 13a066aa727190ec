//! The results of a load: a JSON file for programs, and a page with plots beside it for people.

pub(crate) mod page;
pub(crate) mod plots;
mod quiet;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::audit::Writes;
use crate::exact::Exact;
use crate::ledger::{Latencies, Totals};
use crate::replicas::Cost;
use crate::usage::Usage;

/// A report.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// The command and its load.
    pub(crate) load: Value,
    /// Where it ran.
    pub(crate) env: Env,
    /// From the first Job's creation to the last Job's end, in seconds.
    pub(crate) wall_s: f64,
    /// Completions per second.
    pub(crate) pods_per_s: f64,
    /// Jobs per second.
    pub(crate) jobs_per_s: f64,
    /// Cost of each controller replica, in the order of their start.
    pub(crate) controller: Vec<Controller>,
    /// Writes of all replicas per created pod.
    pub(crate) writes_per_pod: f64,
    /// CPU time of all replicas per completion, in milliseconds.
    pub(crate) cpu_ms_per_pod: f64,
    /// Cost of the API server. A Kubernetes API server reports the cost of all its clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_server: Option<ApiServerCost>,
    /// Percentiles in milliseconds.
    pub(crate) latency_ms: BTreeMap<String, Percentiles>,
    /// Whether everything was counted exactly once.
    pub(crate) exact: Exact,
    /// Findings specific to the command.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(crate) findings: Value,
    /// The figures over time.
    pub(crate) series: Vec<Point>,
}

/// The environment of a load.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Env {
    pub(crate) version: String,
    pub(crate) api_server: String,
    /// `release` or `debug`.
    pub(crate) build: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
    /// Load average of the machine over the last minute.
    pub(crate) load_average: f32,
    pub(crate) started: String,
}

/// The cost of a replica.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Controller {
    pub(crate) identity: String,
    pub(crate) cpu_s: f64,
    pub(crate) peak_rss_bytes: u64,
    /// Its requested writes by resource and method.
    pub(crate) writes: BTreeMap<String, u64>,
    /// Writes by HTTP status.
    pub(crate) answers: BTreeMap<u16, u64>,
    /// Writes per pod that it created.
    pub(crate) writes_per_pod: f64,
    /// Bytes of lists and watches that it received.
    pub(crate) watch_bytes: u64,
    /// Its requests of all kinds, as it says.
    #[serde(default)]
    pub(crate) requests: u64,
    /// Most open files at once.
    #[serde(default)]
    pub(crate) open_files: u64,
    /// Peak address space, in bytes.
    #[serde(default)]
    pub(crate) peak_virtual_bytes: u64,
}

/// Cost of the API server.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct ApiServerCost {
    pub(crate) cpu_s: f64,
    /// Peak resident memory of the embedded API server, else the resident memory at begin or end of the load.
    pub(crate) peak_rss_bytes: u64,
    /// Requests by resource and verb; empty for the embedded API server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) requests: BTreeMap<String, u64>,
    /// Bytes of request bodies by resource and verb; empty for the embedded API server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) body_bytes: BTreeMap<String, u64>,
}

impl From<Usage> for ApiServerCost {
    fn from(usage: Usage) -> Self {
        let Usage { cpu_s, peak_rss_bytes, .. } = usage;
        Self { cpu_s: round(cpu_s), peak_rss_bytes, ..Self::default() }
    }
}

/// A distribution in milliseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// Number of measurements.
    pub(crate) count: u64,
    /// More percentiles for plots: percentile and milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) curve: Vec<(f64, f64)>,
}

/// The figures at one time of a load.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Point {
    /// Seconds since the start.
    pub(crate) t: f64,
    pub(crate) active: u64,
    pub(crate) pods: u64,
    pub(crate) ended: u64,
    pub(crate) jobs_finished: u64,
    /// CPU seconds and resident bytes of each replica.
    pub(crate) replicas: BTreeMap<String, (f64, u64)>,
}

impl Point {
    /// The figures `t` seconds after the start.
    pub(crate) fn new(t: f64, totals: Totals, replicas: Vec<(String, Usage)>) -> Self {
        let replicas = replicas.into_iter().map(|(name, usage)| (name, (usage.cpu_s, usage.rss_bytes)));
        Self {
            t,
            active: totals.active,
            pods: totals.pods,
            ended: totals.ended,
            jobs_finished: totals.jobs_finished,
            replicas: replicas.collect(),
        }
    }
}

impl Env {
    /// This machine, now.
    pub(crate) fn here(api_server: String) -> Self {
        use procfs::Current;
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            api_server,
            build: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: procfs::sys::kernel::Version::current()
                .map(|version| format!("{}.{}.{}", version.major, version.minor, version.patch))
                .unwrap_or_default(),
            load_average: procfs::LoadAverage::current().map(|load| load.one).unwrap_or_default(),
            started: jiff::Timestamp::now().to_string(),
        }
    }
}

impl Env {
    /// An error if figures from here and now would mislead readers.
    pub(crate) fn is_fit_to_publish(&self) -> Result<()> {
        ensure!(self.build == "release", "a debug build measures itself; use --profile dist");
        quiet::ensure_quiet()
    }
}

impl Controller {
    /// A replica's figures. `writes` are from the API server's record. Without a record, the replica's own
    /// count is used.
    pub(crate) fn new(cost: Cost, writes: Option<Writes>) -> Self {
        let writes = writes.unwrap_or(cost.counters.writes);
        Self {
            identity: cost.identity,
            cpu_s: round(cost.usage.cpu_s),
            peak_rss_bytes: cost.usage.peak_rss_bytes,
            writes_per_pod: per(writes.total(), writes.of("pods POST")),
            writes: writes.by_kind,
            answers: writes.by_code,
            watch_bytes: cost.counters.watch_bytes,
            requests: cost.counters.requests,
            open_files: cost.usage.open_files,
            peak_virtual_bytes: cost.usage.peak_virtual_bytes,
        }
    }

    fn total_writes(&self) -> u64 {
        self.writes.values().sum()
    }
}

impl Percentiles {
    /// The percentiles of a histogram in microseconds.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        const CURVE: [f64; 12] = [0.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 98.0, 99.0, 99.5, 99.9, 100.0];
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |percentile| round(histogram.value_at_percentile(percentile) as f64 / 1000.0);
        Self {
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            max: round(histogram.max() as f64 / 1000.0),
            count: histogram.len(),
            curve: CURVE.iter().map(|percentile| (*percentile, at(*percentile))).collect(),
        }
    }
}

/// Writes a file, with its name in the error.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| file.display().to_string())
}

/// Replaces a file as a whole: a reader sees the old text or the new one.
pub(crate) fn replace_text(file: &Path, text: &str) -> Result<()> {
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    write_text(Path::new(&beside), text)?;
    std::fs::rename(&beside, file).with_context(|| file.display().to_string())
}

/// All latencies. With several waves, those of each as `job_total/NAME`.
pub(crate) fn latencies(all: &Latencies, waves: &[String]) -> BTreeMap<String, Percentiles> {
    let named = [
        ("create_to_first_pod", &all.create_to_first_pod),
        ("finish_to_replacement", &all.finish_to_replacement),
        ("finish_to_status", &all.finish_to_status),
        ("last_finish_to_end", &all.last_finish_to_end),
        ("job_total", &all.job_total),
        ("create_to_start", &all.create_to_start),
        ("start_to_complete", &all.start_to_complete),
    ];
    let named = named.map(|(name, histogram)| (name.to_owned(), Percentiles::of(histogram)));
    let waves = waves.iter().zip(&all.wave_total).filter(|_| waves.len() > 1);
    named
        .into_iter()
        .chain(waves.map(|(name, histogram)| (format!("job_total/{name}"), Percentiles::of(histogram))))
        .collect()
}

/// The quotient, 0 if `of` is 0.
pub(crate) fn per(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { (count as f64 / of as f64 * 10_000.0).round() / 10_000.0 }
}

/// The middle value, or the mean of both middle ones; 0 without any.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle.saturating_sub(1)), values.get(middle)) {
        (1, _, Some(middle)) => *middle,
        (0, Some(one), Some(other)) => (one + other) / 2.0,
        _ => 0.0,
    }
}

/// Rounds to three decimal places.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Report {
    /// Fills in the figures that are derived from others.
    pub(crate) fn summed(mut self) -> Self {
        let jobs = self.latency_ms.get("job_total").map_or(0, |total| total.count);
        if self.wall_s > 0.0 {
            self.pods_per_s = round(self.exact.counted as f64 / self.wall_s);
            self.jobs_per_s = round(jobs as f64 / self.wall_s);
        }
        let writes: u64 = self.controller.iter().map(Controller::total_writes).sum();
        self.writes_per_pod = per(writes, self.exact.counted + self.exact.failed);
        let cpu: f64 = self.controller.iter().map(|replica| replica.cpu_s).sum();
        self.cpu_ms_per_pod = round(cpu * 1000.0 / self.exact.counted.max(1) as f64);
        self
    }

    /// Writes FILE.json, and beside it the page with all plots and the plot of pods as SVG.
    pub(crate) fn write(&self, file: &Path) -> Result<()> {
        write_text(file, &(serde_json::to_string_pretty(self)? + "\n"))?;
        write_text(&file.with_extension("html"), &page::render(self)?)?;
        write_text(&file.with_extension("svg"), &plots::pods(self)?)
    }

    /// The main figures, one per line.
    pub(crate) fn summary(&self) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let exact = &self.exact;
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:.1} s, {:.1} pods/s, {:.1} Jobs/s; {} writes and {} ms of controller CPU per pod",
            self.wall_s, self.pods_per_s, self.jobs_per_s, self.writes_per_pod, self.cpu_ms_per_pod
        );
        for replica in &self.controller {
            let _ = writeln!(
                text,
                "{}: {:.2} s CPU, {:.1} MB peak, {} writes, {:.1} MB watched",
                replica.identity,
                replica.cpu_s,
                replica.peak_rss_bytes as f64 / 1e6,
                replica.total_writes(),
                replica.watch_bytes as f64 / 1e6
            );
        }
        for (name, latency) in self.latency_ms.iter().filter(|(_, latency)| latency.count > 0) {
            let Percentiles { p50, p90, p99, max, count, .. } = latency;
            let _ = writeln!(text, "{name}: p50 {p50} ms, p90 {p90}, p99 {p99}, max {max} ({count})");
        }
        let verdict = if exact.holds() { "exact" } else { "NOT EXACT" };
        let _ = writeln!(
            text,
            "{verdict}: {} of {} counted, {} duplicates, {} orphans, at most {} active, {} of {} failures counted, \
             {} Jobs miscounted, {} unfinished, {} beyond parallelism",
            exact.counted,
            exact.expected,
            exact.duplicates,
            exact.orphans,
            exact.max_active,
            exact.failed_counted,
            exact.failed,
            exact.miscounted,
            exact.unfinished,
            exact.beyond_parallelism
        );
        text
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    /// A report of two replicas with figures of every kind.
    pub(crate) fn sample() -> Report {
        let mut histogram = Histogram::new(3).unwrap();
        (1..=1000_u64).for_each(|ms| histogram.record(ms * 1000).unwrap());
        let replica = |number: usize| Controller {
            identity: format!("replica-{number}"),
            cpu_s: 1.5,
            peak_rss_bytes: 20_000_000,
            writes: [("pods POST".to_owned(), 10), ("pods PATCH".to_owned(), 10)].into(),
            answers: [(200, 10), (201, 10)].into(),
            writes_per_pod: 2.0,
            watch_bytes: 1000,
            requests: 30,
            open_files: 40,
            peak_virtual_bytes: 200_000_000,
        };
        let point = |t: f64| Point {
            t,
            active: 5,
            pods: 10,
            ended: 5,
            jobs_finished: 0,
            replicas: [("replica-0".to_owned(), (t / 2.0, 20_000_000))].into(),
        };
        let exact = Exact { expected: 20, counted: 20, max_active: 10, ..Exact::default() };
        let report = Report {
            load: json!({"command": "large"}),
            env: Env::here("embedded".into()),
            wall_s: 4.0,
            pods_per_s: 0.0,
            jobs_per_s: 0.0,
            controller: vec![replica(0), replica(1)],
            writes_per_pod: 0.0,
            cpu_ms_per_pod: 0.0,
            api_server: Some(ApiServerCost { cpu_s: 2.0, peak_rss_bytes: 1, ..ApiServerCost::default() }),
            latency_ms: [("job_total".to_owned(), Percentiles::of(&histogram))].into(),
            exact,
            findings: Value::Null,
            series: vec![point(0.0), point(1.0), point(2.0)],
        };
        report.summed()
    }

    #[test]
    fn the_json_has_the_fields_that_others_rely_on() {
        let value = serde_json::to_value(sample()).unwrap();
        let numbers =
            ["/wall_s", "/pods_per_s", "/jobs_per_s", "/controller/0/cpu_s", "/controller/1/peak_rss_bytes"];
        let more =
            ["/controller/0/writes/pods POST", "/controller/0/writes_per_pod", "/controller/0/watch_bytes"];
        let latencies = ["p50", "p90", "p99", "max"].map(|name| format!("/latency_ms/job_total/{name}"));
        let exact = ["expected", "counted", "duplicates", "orphans", "max_active"]
            .map(|name| format!("/exact/{name}"));
        let paths = numbers.into_iter().chain(more).map(String::from).chain(latencies).chain(exact);
        for path in paths {
            assert!(value.pointer(&path).is_some_and(Value::is_number), "{path}: {value}");
        }
        assert!(value["load"].is_object() && value["env"].is_object());
        assert_eq!((value["pods_per_s"].as_f64(), value["writes_per_pod"].as_f64()), (Some(5.0), Some(2.0)));
    }

    #[test]
    fn the_page_has_its_plots_and_no_external_resources() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("report.json");
        sample().write(&file).unwrap();
        let page = std::fs::read_to_string(directory.path().join("report.html")).unwrap();
        assert_eq!(page.matches("<svg").count(), 4);
        assert!(!page.contains("<script") && !page.contains("src="), "nothing from elsewhere");
        let read: Report = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(read.exact, sample().exact);
    }
}
