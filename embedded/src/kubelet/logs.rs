//! Container logs: files of time-stamped lines, kept until their pod is removed.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use jiff::Timestamp;
use tokio::sync::watch;

use super::leftovers::Leftovers;
use super::pod::PodKey;

/// Marks a whole line, as in the log format of container runtimes.
pub(super) const FULL: u8 = b'F';
/// Marks a piece of a line that continues in the next record.
pub(super) const PARTIAL: u8 = b'P';

/// Maximum length of the piece of a line in one record, in bytes.
const MAX_LINE: usize = 16 * 1024;

/// The log of one run of a container.
#[derive(Debug)]
pub(super) struct Log {
    /// The file with the records.
    pub(super) path: PathBuf,
    /// Number of bytes written, and whether more may follow.
    pub(super) progress: watch::Sender<Progress>,
}

impl Log {
    /// A complete log, written under a previous kubelet.
    pub(super) fn complete(path: PathBuf) -> Self {
        let written = path.metadata().map_or(0, |metadata| metadata.len());
        Self { path, progress: watch::Sender::new(Progress { written, closed: true }) }
    }
}

/// The progress of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// Number of bytes written.
    pub(super) written: u64,
    /// Whether the container has ended, so that no more output follows.
    pub(super) closed: bool,
}

/// Appends the output of a container to its log, line by line: `TIME F TEXT`.
#[derive(Debug)]
pub(super) struct LogWriter {
    file: File,
    log: Arc<Log>,
    line: Vec<u8>,
    records: Vec<u8>,
}

impl LogWriter {
    /// Starts a log at this path.
    pub(super) fn create(path: PathBuf) -> std::io::Result<Self> {
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let file = File::create(&path)?;
        let log = Arc::new(Log { path, progress: watch::Sender::default() });
        Ok(Self { file, log, line: Vec::new(), records: Vec::new() })
    }

    /// The log that is being written.
    pub(super) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// Appends output.
    pub(super) fn write(&mut self, output: &[u8]) {
        let now = Timestamp::now();
        for piece in output.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                self.record(now, FULL);
            } else if self.line.len() >= MAX_LINE {
                self.record(now, PARTIAL);
            }
        }
        self.flush();
    }

    fn record(&mut self, now: Timestamp, tag: u8) {
        self.records.extend_from_slice(format!("{now:.9} ").as_bytes());
        self.records.extend_from_slice(&[tag, b' ']);
        self.records.append(&mut self.line);
        self.records.push(b'\n');
    }

    /// Writes to the page cache, which is fast enough for an async task.
    fn flush(&mut self) {
        if let Err(error) = self.file.write_all(&self.records) {
            tracing::warn!(path = %self.log.path.display(), %error, "cannot write a container's log");
        }
        let length = self.records.len() as u64;
        self.records.clear();
        self.log.progress.send_modify(|progress| progress.written += length);
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            self.record(Timestamp::now(), PARTIAL);
            self.flush();
        }
        self.log.progress.send_modify(|progress| progress.closed = true);
    }
}

/// The end of a log as text, for termination messages: at most `lines` lines and `bytes` bytes.
pub(super) fn tail(path: &Path, lines: usize, bytes: usize) -> std::io::Result<String> {
    // Time and tag take less than half of any record of useful length; longer lines are cut anyway.
    let window = (bytes as u64).saturating_mul(2).saturating_add((lines as u64).saturating_mul(64));
    let mut file = File::open(path)?;
    let skipped = file.metadata()?.len().saturating_sub(window);
    file.seek(SeekFrom::Start(skipped))?;
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let records: Vec<_> = content.split_inclusive(|byte| *byte == b'\n').collect();
    // A window in the middle of the file begins inside a record.
    let whole = &records[usize::from(skipped > 0).min(records.len())..];
    let mut text = Vec::new();
    for record in &whole[whole.len().saturating_sub(lines)..] {
        if let Some(record) = Record::parse(record) {
            record.text_into(&mut text);
        }
    }
    let start = text.len().saturating_sub(bytes);
    Ok(String::from_utf8_lossy(&text[start..]).into_owned())
}

/// One parsed line of a log file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Time of the write (RFC 3339, nanoseconds).
    pub(super) time: &'a str,
    tag: u8,
    text: &'a [u8],
}

impl<'a> Record<'a> {
    /// Parses a line of a log file, with or without its line feed.
    pub(super) fn parse(line: &'a [u8]) -> Option<Self> {
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
    pub(super) fn text_into(&self, target: &mut Vec<u8>) {
        target.extend_from_slice(self.text);
        if self.tag == FULL {
            target.push(b'\n');
        }
    }
}

/// The logs of all pods.
#[derive(Debug, Default)]
pub(super) struct LogIndex(DashMap<(String, String), PodLogs>);

/// The logs of one pod by container, oldest run first.
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
            containers.entry(container.into()).or_default().push(log);
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
    fn lines_are_preserved_byte_by_byte() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b.log");
        let mut writer = LogWriter::create(path.clone()).unwrap();
        let long = "x".repeat(MAX_LINE + 5);
        for output in ["one\ntw", "o\n\n", long.as_str(), "\nend"] {
            writer.write(output.as_bytes());
        }
        let log = writer.log();
        drop(writer);
        assert!(log.progress.borrow().closed);
        assert_eq!(log.progress.borrow().written, std::fs::metadata(&path).unwrap().len());
        assert_eq!(tail(&path, usize::MAX, usize::MAX).unwrap(), format!("one\ntwo\n\n{long}\nend"));
        assert_eq!(tail(&path, 1, usize::MAX).unwrap(), "end");
        assert_eq!(tail(&path, usize::MAX, 2).unwrap(), "nd");
    }

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
