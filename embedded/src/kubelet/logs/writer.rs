//! Writing a log.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::files::{LogFiles, LogPlace};
use super::{FULL, Log, MAX_LINE, PARTIAL};

/// Bytes that a log grows by in a second at most. A container that writes faster waits, as with any slow
/// reader of its output: no container may keep a core of this process busy.
const RATE: u64 = 16 << 20;
/// Bytes that a log grows by at once before [`RATE`] counts.
const BURST: u64 = 16 << 20;

/// Appends the output of a container to its log, line by line: `TIME F TEXT`.
#[derive(Debug)]
pub(in crate::kubelet) struct LogWriter {
    /// Absent after a panic.
    files: Option<LogFiles>,
    log: Arc<Log>,
    line: Vec<u8>,
    records: Vec<u8>,
    /// Bytes that could not be written since the last success.
    lost: usize,
    pace: Pace,
}

impl LogWriter {
    /// Starts a log.
    pub(in crate::kubelet) async fn create(place: LogPlace) -> std::io::Result<Self> {
        let of = place.clone();
        let files = spawn_blocking(move || LogFiles::create(&of)).await??;
        let log = Arc::new(Log { place, progress: watch::Sender::default() });
        let pace = Pace { budget: BURST, since: Instant::now() };
        Ok(Self { files: Some(files), log, line: Vec::new(), records: Vec::new(), lost: 0, pace })
    }

    /// The log that is being written.
    pub(in crate::kubelet) fn log(&self) -> Arc<Log> {
        Arc::clone(&self.log)
    }

    /// Appends output.
    pub(in crate::kubelet) async fn write(&mut self, output: &[u8]) {
        let now = time();
        for piece in output.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
                self.record(&now, FULL);
            } else if self.line.len() >= MAX_LINE {
                self.record(&now, PARTIAL);
            }
        }
        let delay = self.pace.take(self.records.len() as u64);
        self.flush().await;
        tokio::time::sleep(delay).await;
    }

    /// Ends the log, with the rest of a line that has no end.
    pub(in crate::kubelet) async fn finish(mut self) {
        if !self.line.is_empty() {
            self.record(&time(), PARTIAL);
            self.flush().await;
        }
    }

    fn record(&mut self, now: &str, tag: u8) {
        self.records.extend_from_slice(now.as_bytes());
        self.records.extend_from_slice(&[b' ', tag, b' ']);
        self.records.append(&mut self.line);
        self.records.push(b'\n');
    }

    async fn flush(&mut self) {
        if self.records.is_empty() {
            return;
        }
        let records = std::mem::take(&mut self.records);
        let Some(mut files) = self.files.take() else { return };
        let written = spawn_blocking(move || {
            let written = files.append(&records);
            (files, records, written)
        });
        let place = &self.log.place;
        match written.await {
            Ok((files, mut records, written)) => {
                match written {
                    Ok((part, written)) => {
                        self.report_lost();
                        self.log.progress.send_modify(|progress| {
                            (progress.part, progress.written) = (part, written);
                        });
                    }
                    Err(problem) => {
                        if self.lost == 0 {
                            tracing::warn!(?place, %problem, "cannot write a container's log");
                        }
                        self.lost += records.len();
                    }
                }
                records.clear();
                (self.files, self.records) = (Some(files), records);
            }
            Err(panic) => tracing::error!(?place, %panic, "writing a container's log ends"),
        }
    }

    fn report_lost(&mut self) {
        let bytes = std::mem::take(&mut self.lost);
        if bytes > 0 {
            tracing::warn!(place = ?self.log.place, bytes, "a part of a container's log is lost");
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        self.report_lost();
        self.log.progress.send_modify(|progress| progress.closed = true);
    }
}

fn time() -> String {
    format!("{:.9}", Timestamp::now())
}

/// How fast a log may grow.
#[derive(Debug)]
struct Pace {
    budget: u64,
    since: Instant,
}

impl Pace {
    /// Takes bytes from the budget. Returns how long to wait before the next ones.
    fn take(&mut self, bytes: u64) -> Duration {
        let earned =
            u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX).saturating_mul(RATE) / 1000;
        if earned > 0 {
            self.budget = self.budget.saturating_add(earned).min(BURST);
            self.since = Instant::now();
        }
        let missing = bytes.saturating_sub(self.budget);
        self.budget -= bytes - missing;
        let delay = Duration::from_millis(missing * 1000 / RATE);
        // The gain of the wait is spent already.
        self.since += delay;
        delay
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubelet::logs::files::{MAX_FILES, MAX_SIZE};
    use crate::kubelet::logs::reader::tests::place;
    use crate::kubelet::test_mounts;

    #[tokio::test(start_paused = true)]
    async fn lines_are_preserved_byte_by_byte() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), 0);
        let mut writer = LogWriter::create(place.clone()).await.unwrap();
        let long = "x".repeat(MAX_LINE + 5);
        for output in ["on", "e\ntw", "o\n\n", long.as_str(), "\nend"] {
            writer.write(output.as_bytes()).await;
        }
        let log = writer.log();
        writer.finish().await;
        assert!(log.progress.borrow().closed);
        assert_eq!(log.progress.borrow().written, place.open(0).unwrap().metadata().unwrap().len());
        assert_eq!(place.tail(usize::MAX, usize::MAX).unwrap(), format!("one\ntwo\n\n{long}\nend"));
        assert_eq!(place.tail(1, usize::MAX).unwrap(), "end");
        assert_eq!(place.tail(usize::MAX, 2).unwrap(), "nd");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_bounded_and_its_end_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(directory.path(), 0);
        let mut writer = LogWriter::create(place.clone()).await.unwrap();
        let start = Instant::now();
        let line = format!("{}\n", "x".repeat(9_999));
        for _ in 0..70 {
            writer.write(line.repeat(100).as_bytes()).await;
        }
        writer.write(b"the end\n").await;
        assert!(start.elapsed() >= Duration::from_secs(3), "70 MB took {:?}", start.elapsed());
        let parts = place.parts().unwrap();
        assert_eq!(parts.len() as u64, MAX_FILES);
        for part in &parts {
            assert!(place.open(*part).unwrap().metadata().unwrap().len() <= MAX_SIZE);
        }
        assert_eq!(place.tail(2, 17).unwrap(), "xxxxxxxx\nthe end\n");
    }

    #[tokio::test]
    async fn only_the_last_runs_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        for run in 0..5 {
            let mut writer = LogWriter::create(place(directory.path(), run)).await.unwrap();
            writer.write(b"line\n").await;
            writer.finish().await;
        }
        let kept = |run| !place(directory.path(), run).parts().unwrap().is_empty();
        assert_eq!([0, 1, 2, 3, 4].map(kept), [false, false, false, true, true]);
    }

    #[test]
    fn a_full_disk_costs_whole_records_and_the_log_goes_on() {
        if !test_mounts::are_own(concat!(
            module_path!(),
            "::a_full_disk_costs_whole_records_and_the_log_goes_on"
        )) {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        test_mounts::mount(["-t", "tmpfs", "-o", "size=256k", "none"], directory.path());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = place(directory.path(), 0);
            let mut writer = LogWriter::create(place.clone()).await.unwrap();
            let log = writer.log();
            writer.write(b"one\n").await;
            let before = *log.progress.borrow();
            let filler = directory.path().join("filler");
            std::fs::write(&filler, vec![0; 200 << 10]).unwrap();
            // A part of this fits: it must not stay, since the next record would go on in it.
            let long = format!("{}\n", "x".repeat(9_999)).repeat(10);
            for _ in 0..3 {
                writer.write(long.as_bytes()).await;
            }
            assert!(writer.lost > 3 * long.len(), "{} bytes", writer.lost);
            assert_eq!(*log.progress.borrow(), before, "readers are shown whole records only");
            std::fs::remove_file(filler).unwrap();
            writer.write(b"two\n").await;
            assert_eq!(writer.lost, 0, "it is reported");
            writer.finish().await;
            assert_eq!(place.tail(usize::MAX, 9_999).unwrap(), "one\ntwo\n");
            let progress = *log.progress.borrow();
            assert_eq!(progress.written, place.open(progress.part).unwrap().metadata().unwrap().len());
        });
    }

    #[tokio::test]
    async fn a_log_that_cannot_be_written_stops_nobody() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        let log = writer.log();
        // As after a panic of the thread that writes.
        writer.files = None;
        writer.write(b"line\n").await;
        writer.finish().await;
        assert!(log.progress.borrow().closed && log.progress.borrow().written == 0);
    }
}
