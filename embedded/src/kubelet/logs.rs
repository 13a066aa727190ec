//! Container logs: files of time-stamped lines, kept until their pod is removed.

mod files;
pub(super) mod reader;
mod writer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use tokio::sync::watch;

pub(super) use self::files::{LogPlace, runs};
pub(super) use self::writer::LogWriter;
use super::leftovers::Leftovers;
use super::pod::PodKey;

/// Marks a whole line, as in the log format of container runtimes.
const FULL: u8 = b'F';
/// Marks a piece of a line that continues in the next record.
const PARTIAL: u8 = b'P';

/// Length from which a line is written in pieces, in bytes.
const MAX_LINE: usize = 16 * 1024;
/// Number of runs of a container whose logs are kept: the newest, and the one before it.
const MAX_RUNS: usize = 2;

/// The log of one run of a container.
#[derive(Debug)]
pub(super) struct Log {
    /// The files with the records.
    place: LogPlace,
    /// The log until now, and whether more may follow.
    progress: watch::Sender<Progress>,
}

impl Log {
    /// A complete log, written under a previous kubelet.
    fn complete(place: LogPlace) -> Self {
        // Greater than any part that is on disk.
        let progress = Progress { part: u64::MAX, written: 0, closed: true };
        Self { place, progress: watch::Sender::new(progress) }
    }
}

/// The progress of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    /// The part that is being written; all parts before it are complete.
    part: u64,
    /// Number of bytes written to it.
    written: u64,
    /// Whether the container has ended, so that no more output follows.
    closed: bool,
}

/// A parsed line of a log file.
#[derive(Debug, PartialEq, Eq)]
struct Record<'a> {
    /// Time of the write (RFC 3339, nanoseconds).
    time: &'a str,
    tag: u8,
    text: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a line of a log file, with or without its line feed.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let blank = line.iter().position(|byte| *byte == b' ')?;
        let (tag, text) = line.get(blank + 1..)?.split_first()?;
        Some(Self {
            time: std::str::from_utf8(&line[..blank]).ok()?,
            tag: *tag,
            text: text.strip_prefix(b" ")?,
        })
    }

    /// Appends the text as the container wrote it, without line feeds between pieces of a line.
    fn text_into(&self, target: &mut Vec<u8>) {
        target.extend_from_slice(self.text);
        if self.tag == FULL {
            target.push(b'\n');
        }
    }
}

/// The logs of all pods.
#[derive(Debug, Default)]
pub(super) struct LogIndex(DashMap<(String, String), PodLogs>);

/// The logs of one pod by container: the last runs, oldest first.
#[derive(Debug)]
struct PodLogs {
    uid: String,
    containers: Mutex<HashMap<String, Vec<Arc<Log>>>>,
}

/// The result of a search for a log.
#[derive(Debug)]
pub(super) enum Found {
    /// The log.
    Log(Arc<Log>),
    /// The pod is known, but the container has no such run (yet).
    NotStarted,
    /// The pod is unknown.
    NoPod,
}

impl LogIndex {
    /// Adds a pod, with the logs of a previous kubelet.
    pub(super) fn add_pod(&self, key: &PodKey, left: &Leftovers) {
        let logs = PodLogs { uid: key.uid.clone(), containers: Mutex::default() };
        self.0.insert((key.namespace.clone(), key.name.clone()), logs);
        for (container, log) in left.logs() {
            self.add(key, container, Arc::new(Log::complete(log.clone())));
        }
    }

    /// Removes a pod, unless its name belongs to another pod by now.
    pub(super) fn remove_pod(&self, key: &PodKey) {
        self.0.remove_if(&(key.namespace.clone(), key.name.clone()), |_, logs| logs.uid == key.uid);
    }

    /// Adds the log of the newest run of a container.
    pub(super) fn add(&self, key: &PodKey, container: &str, log: Arc<Log>) {
        if let Some(pod) = self.0.get(&(key.namespace.clone(), key.name.clone()))
            && pod.uid == key.uid
        {
            let mut containers = pod.containers.lock().unwrap_or_else(PoisonError::into_inner);
            let runs = containers.entry(container.into()).or_default();
            runs.push(log);
            if runs.len() > MAX_RUNS {
                runs.remove(0);
            }
        }
    }

    /// The log of the newest run of a container, or of the one before it.
    pub(super) fn find(&self, namespace: &str, pod: &str, container: &str, previous: bool) -> Found {
        let Some(pod) = self.0.get(&(namespace.into(), pod.into())) else { return Found::NoPod };
        let containers = pod.containers.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = containers.get(container).map(Vec::as_slice).unwrap_or_default();
        let log = runs.iter().rev().nth(usize::from(previous));
        log.map_or(Found::NotStarted, |log| Found::Log(Arc::clone(log)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn records_are_parsed() {
        let record = Record::parse(b"2026-01-01T00:00:00.000000000Z F a b\n").unwrap();
        assert_eq!(record.time, "2026-01-01T00:00:00.000000000Z");
        let mut text = Vec::new();
        record.text_into(&mut text);
        assert_eq!(text, b"a b\n");
        assert_eq!(Record::parse(b"garbage"), None);
    }
}
