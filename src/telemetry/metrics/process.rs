//! `process_*`: the metrics of every Prometheus client about its process, read from
//! `/proc`.

use std::fmt;

use procfs::process::{LimitValue, Process};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

pub(super) fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

/// Reads the values whenever the metrics are rendered.
#[derive(Debug)]
struct ProcessCollector;

impl Collector for ProcessCollector {
    /// A value that `/proc` does not show is left out.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Ok(process) = Process::myself() else { return Ok(()) };
        let mut show = |name: &str, help: &str, value: &dyn EncodeMetric| {
            let encoder = encoder.encode_descriptor(name, help, None, value.metric_type())?;
            value.encode(encoder)
        };
        if let Ok(stat) = process.stat() {
            let ticks = procfs::ticks_per_second() as f64;
            show(
                "process_cpu_seconds",
                "Total user and system CPU time spent in seconds",
                &ConstCounter::new((stat.utime + stat.stime) as f64 / ticks),
            )?;
            show(
                "process_resident_memory_bytes",
                "Resident memory size in bytes",
                &ConstGauge::new(stat.rss.saturating_mul(procfs::page_size()) as f64),
            )?;
            show(
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes",
                &ConstGauge::new(stat.vsize as f64),
            )?;
            show(
                "process_threads",
                "Number of operating system threads",
                &ConstGauge::new(stat.num_threads as f64),
            )?;
            if let Ok(boot) = procfs::boot_time_secs() {
                show(
                    "process_start_time_seconds",
                    "Start time of the process since the Unix epoch in seconds",
                    &ConstGauge::new(boot as f64 + stat.starttime as f64 / ticks),
                )?;
            }
        }
        if let Ok(open) = process.fd_count() {
            show("process_open_fds", "Number of open file descriptors", &ConstGauge::new(open as f64))?;
        }
        if let Ok(limits) = process.limits() {
            let most = match limits.max_open_files.soft_limit {
                LimitValue::Unlimited => f64::INFINITY,
                LimitValue::Value(most) => most as f64,
            };
            show("process_max_fds", "Maximum number of open file descriptors", &ConstGauge::new(most))?;
        }
        Ok(())
    }
}
