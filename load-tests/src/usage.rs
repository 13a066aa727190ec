//! Resource usage of processes from `/proc`, and a controller's own figures from `/metrics`.

use std::collections::HashSet;

use anyhow::{Context, Result};
use procfs::process::{FDTarget, Process};

use crate::audit::Writes;

/// CPU time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Usage {
    /// Seconds of CPU, in user and system mode.
    pub(crate) cpu_s: f64,
    /// Resident memory now, in bytes.
    pub(crate) rss_bytes: u64,
    /// Peak resident memory, in bytes.
    pub(crate) peak_rss_bytes: u64,
    /// Peak address space, in bytes.
    pub(crate) peak_virtual_bytes: u64,
    /// Open files now.
    pub(crate) open_files: u64,
}

impl Usage {
    /// Usage of this process. Returns `None` once it has ended.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let process = Process::new(pid).ok()?;
        let (stat, status) = (process.stat().ok()?, process.status().ok()?);
        Some(Self {
            cpu_s: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
            rss_bytes: status.vmrss? * 1024,
            peak_rss_bytes: status.vmhwm? * 1024,
            peak_virtual_bytes: status.vmpeak? * 1024,
            open_files: process.fd_count().ok()? as u64,
        })
    }

    /// Usage of all processes of a process group together.
    pub(crate) fn of_group(group: i32) -> Option<Self> {
        let members = procfs::process::all_processes().ok()?.filter_map(Result::ok);
        let members = members.filter(|process| process.stat().is_ok_and(|stat| stat.pgrp == group));
        members.filter_map(|process| Self::of(process.pid)).reduce(|all, one| Self {
            cpu_s: all.cpu_s + one.cpu_s,
            rss_bytes: all.rss_bytes + one.rss_bytes,
            peak_rss_bytes: all.peak_rss_bytes + one.peak_rss_bytes,
            peak_virtual_bytes: all.peak_virtual_bytes + one.peak_virtual_bytes,
            open_files: all.open_files + one.open_files,
        })
    }

    /// Usage of a process and its successor together: CPU time is added, of peaks the higher one counts.
    pub(crate) fn then(self, next: Self) -> Self {
        Self {
            cpu_s: self.cpu_s + next.cpu_s,
            rss_bytes: next.rss_bytes,
            peak_rss_bytes: self.peak_rss_bytes.max(next.peak_rss_bytes),
            peak_virtual_bytes: self.peak_virtual_bytes.max(next.peak_virtual_bytes),
            open_files: next.open_files,
        }
    }
}

/// The ports on which this process listens. Returns `None` once it has ended.
pub(crate) fn listening_ports(pid: i32) -> Option<Vec<u16>> {
    let process = Process::new(pid).ok()?;
    let sockets: HashSet<u64> = process
        .fd()
        .ok()?
        .filter_map(Result::ok)
        .filter_map(|fd| match fd.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let listens = |entry: &procfs::net::TcpNetEntry| {
        entry.state == procfs::net::TcpState::Listen && sockets.contains(&entry.inode)
    };
    let listening = process.tcp().ok()?.into_iter().filter(listens);
    Some(listening.map(|entry| entry.local_address.port()).collect())
}

/// Figures from a controller's metrics.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    /// Bytes of lists and watches that it received.
    pub(crate) watch_bytes: u64,
    /// Writes that it made.
    pub(crate) writes: Writes,
    /// Requests of all kinds that it made.
    pub(crate) requests: u64,
    /// Shards that it owns.
    pub(crate) owned_shards: u64,
}

impl Counters {
    /// Parses the Prometheus text format.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let mut counters = Self::default();
        for line in text.lines().filter(|line| line.starts_with("yardmaster_")) {
            let (series, value) = line.rsplit_once(' ').with_context(|| line.to_owned())?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let value = value.parse::<f64>().with_context(|| line.to_owned())? as u64;
            match name {
                "yardmaster_watch_bytes_total" => counters.watch_bytes += value,
                "yardmaster_owned_shards" => counters.owned_shards = value,
                "yardmaster_api_requests_total" => {
                    counters.requests += value;
                    let (verb, resource) = (label(labels, "verb"), label(labels, "resource"));
                    let Some(method) = method(verb) else { continue };
                    let code = label(labels, "code").parse().unwrap_or_default();
                    counters.writes.add(format!("{resource} {method}"), code, value);
                }
                _ => {}
            }
        }
        Ok(counters)
    }
}

impl Counters {
    /// Requests and watched bytes since an earlier reading. Writes count from the start.
    pub(crate) fn since(self, before: &Self) -> Self {
        Self {
            watch_bytes: self.watch_bytes.saturating_sub(before.watch_bytes),
            requests: self.requests.saturating_sub(before.requests),
            ..self
        }
    }
}

/// The value of a label; empty if there is none of this name.
pub(crate) fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut pairs = labels.trim_end_matches('}').split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim_matches('"'))
}

/// The HTTP method of a writing verb. Returns `None` for other verbs.
fn method(verb: &str) -> Option<&'static str> {
    match verb {
        "create" => Some("POST"),
        "update" => Some("PUT"),
        "patch" | "apply" => Some("PATCH"),
        "delete" | "deletecollection" => Some("DELETE"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn metrics_are_parsed() {
        let text = "# HELP yardmaster_owned_shards Shards\nyardmaster_owned_shards 7\n\
                    yardmaster_watch_bytes_total{resource=\"pods\"} 100\n\
                    yardmaster_watch_bytes_total{resource=\"jobs\"} 20\n\
                    yardmaster_api_requests_total{verb=\"create\",resource=\"pods\",code=\"201\"} 5\n\
                    yardmaster_api_requests_total{verb=\"create\",resource=\"pods\",code=\"429\"} 2\n\
                    yardmaster_api_requests_total{verb=\"list\",resource=\"pods\",code=\"200\"} 9\n";
        let counters = Counters::parse(text).unwrap();
        assert_eq!((counters.owned_shards, counters.watch_bytes), (7, 120));
        assert_eq!((counters.writes.of("pods POST"), counters.writes.total()), (7, 7));
        assert_eq!((counters.writes.by_code[&429], counters.requests), (2, 16));
    }

    #[test]
    fn usage_and_port_of_this_process_are_read() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pid = i32::try_from(std::process::id()).unwrap();
        let usage = Usage::of(pid).unwrap();
        assert!(usage.peak_rss_bytes >= usage.rss_bytes && usage.rss_bytes > 0);
        assert!(usage.peak_virtual_bytes > usage.rss_bytes && usage.open_files > 3, "{usage:?}");
        let both = usage.then(Usage { cpu_s: 1.0, rss_bytes: 1, ..Usage::default() });
        assert_eq!((both.cpu_s, both.rss_bytes), (usage.cpu_s + 1.0, 1));
        assert_eq!(both.peak_rss_bytes, usage.peak_rss_bytes);
        let port = listener.local_addr().unwrap().port();
        assert!(listening_ports(pid).unwrap().contains(&port));
    }
}
