//! The figures of a Kubernetes API server in its `/metrics`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http::Request;

use crate::report::{self, ApiServerCost};
use crate::usage::label;

/// The figures of an API server since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    cpu_s: f64,
    /// Resident memory now, in bytes.
    rss_bytes: u64,
    /// Requests of all clients by resource and verb: `jobs/status PATCH`.
    requests: BTreeMap<String, u64>,
    /// Bytes of the bodies of all clients' requests by resource and verb: `events create`.
    body_bytes: BTreeMap<String, u64>,
}

impl Reading {
    /// Asks the API server.
    ///
    /// # Errors
    ///
    /// If it refuses, or if its answer is not in the Prometheus text format.
    pub(crate) async fn of(client: &kube::Client) -> Result<Self> {
        let request = Request::get("/metrics").body(Vec::new())?;
        let text = client.request_text(request).await.context("the API server's /metrics")?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut reading = Self::default();
        for line in text.lines() {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let figure = || {
                let (series, value) = line.rsplit_once(' ')?;
                Some((series, value.parse::<f64>().ok()?))
            };
            match name {
                "process_cpu_seconds_total" => reading.cpu_s = figure().context("no number")?.1,
                "process_resident_memory_bytes" => {
                    reading.rss_bytes = figure().context("no number")?.1 as u64;
                }
                "apiserver_request_total" => {
                    let (series, count) = figure().context("no number")?;
                    *reading.requests.entry(kind(labels(series))).or_default() += count as u64;
                }
                "apiserver_request_body_size_bytes_sum" => {
                    let (series, bytes) = figure().context("no number")?;
                    *reading.body_bytes.entry(kind(labels(series))).or_default() += bytes as u64;
                }
                _ => {}
            }
        }
        Ok(reading)
    }

    /// The cost of what happened between two readings.
    pub(crate) fn since(&self, before: &Self) -> ApiServerCost {
        ApiServerCost {
            cpu_s: report::round(self.cpu_s - before.cpu_s),
            peak_rss_bytes: self.rss_bytes.max(before.rss_bytes),
            requests: growth(&self.requests, &before.requests),
            body_bytes: growth(&self.body_bytes, &before.body_bytes),
        }
    }
}

/// By how much each counter has grown, without those that have not.
fn growth(now: &BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let grown = now
        .iter()
        .map(|(kind, count)| (kind, count.saturating_sub(before.get(kind).copied().unwrap_or_default())));
    grown.filter(|(_, more)| *more > 0).map(|(kind, more)| (kind.clone(), more)).collect()
}

/// The labels of a series, up to its end.
fn labels(series: &str) -> &str {
    series.split_once('{').map_or("", |(_, labels)| labels)
}

/// Resource and verb of these labels of a metric of requests.
fn kind(labels: &str) -> String {
    let (resource, subresource) = (label(labels, "resource"), label(labels, "subresource"));
    let slash = if subresource.is_empty() { "" } else { "/" };
    format!("{resource}{slash}{subresource} {}", label(labels, "verb"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn cost_is_what_lies_between_two_readings() {
        let text = |cpu: f64, patches: u64| {
            format!(
                "# TYPE process_cpu_seconds_total counter\nprocess_cpu_seconds_total {cpu}\n\
                 process_resident_memory_bytes 2.5e+08\n\
                 apiserver_request_total{{code=\"200\",component=\"apiserver\",group=\"batch\",resource=\"jobs\",\
                 scope=\"resource\",subresource=\"status\",verb=\"PATCH\",version=\"v1\"}} {patches}\n\
                 apiserver_request_total{{code=\"409\",resource=\"jobs\",subresource=\"status\",verb=\"PATCH\"}} 1\n\
                 apiserver_request_total{{code=\"200\",resource=\"pods\",subresource=\"\",verb=\"LIST\"}} 4\n\
                 apiserver_request_body_size_bytes_sum{{group=\"\",resource=\"events\",verb=\"create\"}} {patches}00\n"
            )
        };
        let before = Reading::parse(&text(1.5, 10)).unwrap();
        let cost = Reading::parse(&text(4.0, 30)).unwrap().since(&before);
        assert_eq!((cost.cpu_s, cost.peak_rss_bytes), (2.5, 250_000_000));
        assert_eq!(cost.requests, [("jobs/status PATCH".to_owned(), 20)].into());
        assert_eq!(cost.body_bytes, [("events create".to_owned(), 2000)].into());
        assert!(Reading::parse("process_cpu_seconds_total soon").is_err());
    }
}
