//! Reading a log, across its files, while it is being written.

use std::collections::VecDeque;
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncSeekExt, BufReader};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::{Log, LogPlace, MAX_LINE, PARTIAL, Progress, Record};
use crate::exchange::query::Query;

/// Size of the chunks in which a log is read and sent, in bytes.
const CHUNK: usize = 64 * 1024;
/// Longer than any record: a line is cut when it has [`MAX_LINE`] bytes, and then has at most as many again.
const MAX_RECORD: usize = 4 * MAX_LINE;

/// Query of a log request (`PodLogOptions`).
#[derive(Debug, Default)]
pub(in crate::kubelet) struct Options {
    pub(in crate::kubelet) follow: bool,
    pub(in crate::kubelet) previous: bool,
    pub(in crate::kubelet) timestamps: bool,
    pub(in crate::kubelet) since_seconds: Option<u64>,
    pub(in crate::kubelet) since_time: Option<Timestamp>,
    pub(in crate::kubelet) tail_lines: Option<usize>,
    pub(in crate::kubelet) limit_bytes: Option<usize>,
}

impl Options {
    /// Reads a query as the API server reads all queries.
    ///
    /// # Errors
    ///
    /// A text that names the parameter that cannot be read.
    pub(in crate::kubelet) fn of(query: &Query) -> Result<Self, String> {
        let since_time = query.get("sinceTime").map(str::parse).transpose();
        Ok(Self {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            since_seconds: count(query, "sinceSeconds")?,
            since_time: since_time.map_err(|_| "sinceTime: must be a time in RFC 3339 format".to_owned())?,
            tail_lines: count(query, "tailLines")?,
            limit_bytes: count(query, "limitBytes")?,
        })
    }
}

fn count<T: TryFrom<i64>>(query: &Query, name: &str) -> Result<Option<T>, String> {
    let given = query.integer(name).map_err(|_| format!("{name}: must be an integer"))?;
    let count = given.map(T::try_from).transpose();
    count.map_err(|_| format!("{name}: must be greater than or equal to 0"))
}

/// Reads a log according to the options.
pub(in crate::kubelet) struct Reader {
    log: Arc<Log>,
    progress: watch::Receiver<Progress>,
    /// The file that is being read.
    file: BufReader<File>,
    /// Its number.
    part: u64,
    /// Number of bytes read from it.
    position: u64,
    /// The beginning of an incomplete record.
    line: Vec<u8>,
    /// Whether the line that the next record continues is sent; `None` if that record begins a line.
    continues: Option<bool>,
    since: Option<Timestamp>,
    /// Number of bytes that may still be sent.
    budget: usize,
    follow: bool,
    timestamps: bool,
}

impl Reader {
    /// Starts to read a log.
    pub(in crate::kubelet) async fn open(log: Arc<Log>, options: Options) -> std::io::Result<Self> {
        let now = Timestamp::now();
        let seconds_ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        let Some((part, file)) = open_from(&log.place, 0).await? else {
            return Err(std::io::ErrorKind::NotFound.into());
        };
        let mut reader = Self {
            file: BufReader::with_capacity(CHUNK, file),
            part,
            progress: log.progress.subscribe(),
            log,
            position: 0,
            line: Vec::new(),
            continues: None,
            since: options.since_time.or(options.since_seconds.map(seconds_ago)),
            budget: options.limit_bytes.unwrap_or(usize::MAX),
            follow: options.follow,
            timestamps: options.timestamps,
        };
        if let Some(lines) = options.tail_lines {
            reader.skip_to_last(lines).await?;
        }
        Ok(reader)
    }

    /// Moves to the start of the last `lines` lines.
    async fn skip_to_last(&mut self, mut lines: usize) -> std::io::Result<()> {
        let place = self.log.place.clone();
        let parts = spawn_blocking(move || place.parts()).await??;
        for part in parts.into_iter().rev() {
            if part != self.part {
                match open_from(&self.log.place, part).await? {
                    Some((opened, file)) if opened == part => self.switch(part, file),
                    // Removed meanwhile: what is left begins behind it.
                    _ => return Ok(()),
                }
            }
            let mut starts = VecDeque::new();
            let mut start = 0;
            let (mut found, mut continues) = (0, false);
            while self.read_record().await? {
                if !continues {
                    found += 1;
                    starts.push_back(start);
                    if starts.len() > lines {
                        starts.pop_front();
                    }
                }
                continues = Record::parse(&self.line).is_some_and(|record| record.tag == PARTIAL);
                start = self.position;
                self.line.clear();
            }
            self.position = if lines == 0 { start } else { starts.front().copied().unwrap_or(0) };
            self.line.clear();
            self.file.seek(SeekFrom::Start(self.position)).await?;
            lines = lines.saturating_sub(found);
            if lines == 0 {
                break;
            }
        }
        Ok(())
    }

    fn switch(&mut self, part: u64, file: File) {
        if part != self.part + 1 {
            // The bytes between them are gone, with the end of the line.
            self.continues = None;
        }
        (self.part, self.position) = (part, 0);
        self.file = BufReader::with_capacity(CHUNK, file);
        self.line.clear();
    }

    /// Reads until `line` contains a whole record; `false` if the file has none (yet).
    async fn read_record(&mut self) -> std::io::Result<bool> {
        let room = (MAX_RECORD - self.line.len().min(MAX_RECORD)) as u64;
        let mut rest = (&mut self.file).take(room);
        self.position += rest.read_until(b'\n', &mut self.line).await? as u64;
        Ok(self.line.last() == Some(&b'\n') || self.line.len() >= MAX_RECORD)
    }

    /// The next chunk to send; `None` at the end.
    pub(in crate::kubelet) async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut chunk = Vec::new();
        let mut promised = None;
        while self.budget > 0 && chunk.len() < CHUNK {
            // Asked before reading: a part that is complete now gets nothing more.
            let complete = self.progress.borrow().part > self.part;
            if self.read_record().await? {
                self.send(&mut chunk);
            } else if complete {
                match open_from(&self.log.place, self.part + 1).await? {
                    Some((part, file)) => self.switch(part, file),
                    None => break,
                }
            } else if promised == Some((self.part, self.position)) {
                // The container has truncated its log: what was written is gone.
                break;
            } else if !chunk.is_empty() || !self.more().await {
                break;
            } else {
                promised = Some((self.part, self.position));
            }
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }

    /// Moves the record in `line` to the chunk, if the options include it.
    fn send(&mut self, chunk: &mut Vec<u8>) {
        let start = chunk.len();
        if let Some(record) = Record::parse(&self.line) {
            // A line is as old as its beginning, however many records it has.
            let is_late = |since: Timestamp| record.time.parse::<Timestamp>().is_ok_and(|time| time >= since);
            let is_sent = self.continues.unwrap_or_else(|| self.since.is_none_or(is_late));
            if is_sent {
                if self.timestamps && self.continues.is_none() {
                    chunk.extend_from_slice(record.time.as_bytes());
                    chunk.push(b' ');
                }
                record.text_into(chunk);
            }
            self.continues = (record.tag == PARTIAL).then_some(is_sent);
        }
        chunk.truncate(start + self.budget.min(chunk.len() - start));
        self.budget -= chunk.len() - start;
        self.line.clear();
    }

    /// Waits until there is more to read; `false` if there will not be, or if the client does not follow.
    async fn more(&mut self) -> bool {
        let read = (self.part, self.position);
        let ahead = |progress: &Progress| (progress.part, progress.written) > read;
        if !self.follow {
            return false;
        }
        // Fails when the pod has been removed meanwhile. The remaining output must still be read.
        let _known = self.progress.wait_for(|progress| ahead(progress) || progress.closed).await.map(drop);
        ahead(&self.progress.borrow())
    }
}

/// The first file with this number or a greater one.
async fn open_from(place: &LogPlace, part: u64) -> std::io::Result<Option<(u64, File)>> {
    let place = place.clone();
    let opened = spawn_blocking(move || {
        for part in place.parts()?.range(part..) {
            match place.open(*part) {
                // Rotated out meanwhile.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                opened => return Ok(Some((*part, opened?.into()))),
            }
        }
        Ok(None)
    });
    opened.await?
}

#[cfg(test)]
pub(in crate::kubelet) mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use std::path::Path;

    use super::*;
    use crate::kubelet::logs::LogWriter;
    use crate::kubelet::pod::PodKey;
    use crate::kubelet::pod_folder::PodFolders;

    /// The log of a run in a folder of pods.
    pub(in crate::kubelet) fn place(pods: &Path, run: u32) -> LogPlace {
        let key = PodKey { namespace: "default".into(), name: "p".into(), uid: "1".into() };
        LogPlace { pod: PodFolders::claim(pods).unwrap().of(&key), container: "main".into(), run }
    }

    async fn read(log: &Arc<Log>, options: Options) -> String {
        let mut reader = Reader::open(Arc::clone(log), options).await.unwrap();
        let mut text = Vec::new();
        while let Some(chunk) = reader.next().await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn options_select_the_lines_to_send() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        writer.write(b"1\n2\n3\nend").await;
        let log = writer.log();
        writer.finish().await;
        assert_eq!(read(&log, Options::default()).await, "1\n2\n3\nend");
        assert_eq!(read(&log, Options { tail_lines: Some(2), ..Options::default() }).await, "3\nend");
        assert_eq!(read(&log, Options { tail_lines: Some(0), ..Options::default() }).await, "");
        assert_eq!(read(&log, Options { tail_lines: Some(9), ..Options::default() }).await, "1\n2\n3\nend");
        assert_eq!(read(&log, Options { limit_bytes: Some(3), ..Options::default() }).await, "1\n2");
        let future = Timestamp::now().checked_add(Duration::from_secs(60)).unwrap();
        assert_eq!(read(&log, Options { since_time: Some(future), ..Options::default() }).await, "");
        assert_eq!(
            read(&log, Options { since_seconds: Some(60), ..Options::default() }).await,
            "1\n2\n3\nend"
        );
        let stamped =
            read(&log, Options { timestamps: true, tail_lines: Some(1), ..Options::default() }).await;
        let (time, text) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok());
        assert_eq!(text, "end");
    }

    #[tokio::test]
    async fn a_line_has_one_time_however_long_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        let long = "x".repeat(5 * MAX_LINE);
        for piece in format!("first\n{long}\nlast").as_bytes().chunks(MAX_LINE / 2) {
            writer.write(piece).await;
        }
        let log = writer.log();
        writer.finish().await;
        let stamped = read(&log, Options { timestamps: true, ..Options::default() }).await;
        let texts: Vec<_> = stamped.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(texts, ["first", &*long, "last"]);
        let tail = Options { tail_lines: Some(2), ..Options::default() };
        assert_eq!(read(&log, tail).await, format!("{long}\nlast"));
    }

    #[test]
    fn options_are_read_as_all_queries() {
        let read = |text: &str| Options::of(&Query::parse(Some(text)));
        for on in ["follow=True", "follow=1", "follow=t", "follow=true", "follow="] {
            assert!(read(on).unwrap().follow, "{on}");
        }
        for off in ["", "follow=False", "follow=false", "follow=0"] {
            assert!(!read(off).unwrap().follow, "{off}");
        }
        let options =
            read("timestamps=True&previous=TRUE&tailLines=3&sinceTime=2026-01-01T00:00:00Z").unwrap();
        assert!(options.timestamps && options.previous && options.since_time.is_some());
        assert_eq!((options.tail_lines, options.limit_bytes), (Some(3), None));
        for (wrong, named) in
            [("tailLines=x", "tailLines"), ("limitBytes=-1", "limitBytes"), ("sinceTime=x", "sinceTime")]
        {
            assert!(read(wrong).unwrap_err().starts_with(named), "{wrong}");
        }
    }

    #[tokio::test]
    async fn following_ends_with_the_container() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        let log = writer.log();
        writer.write(b"early\n").await;
        let reading =
            tokio::spawn(async move { read(&log, Options { follow: true, ..Options::default() }).await });
        tokio::task::yield_now().await;
        writer.write(b"late\nunfinished").await;
        writer.finish().await;
        assert_eq!(reading.await.unwrap(), "early\nlate\nunfinished");
    }

    /// Writes numbered lines until the log has this many files, and returns their number.
    async fn fill(writer: &mut LogWriter, files: u64, mut number: u64) -> u64 {
        while writer.log().progress.borrow().part + 1 < files {
            let lines = (number..number + 200).map(|number| format!("{number:09}{}\n", "x".repeat(4_990)));
            writer.write(lines.collect::<String>().as_bytes()).await;
            number += 200;
        }
        number
    }

    fn numbers(text: &str) -> Vec<u64> {
        text.lines().map(|line| line.get(..9).unwrap().parse().unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn readers_go_on_with_the_next_file() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        let log = writer.log();
        let written = fill(&mut writer, 3, 0).await;
        let all: Vec<u64> = (0..written).collect();
        assert_eq!(numbers(&read(&log, Options::default()).await), all);
        for lines in [0, 1, 2_000, 3_000, usize::MAX] {
            let tail = read(&log, Options { tail_lines: Some(lines), ..Options::default() }).await;
            assert_eq!(numbers(&tail), all.get(all.len().saturating_sub(lines)..).unwrap(), "{lines}");
        }
        let follow = Options { follow: true, tail_lines: Some(1), ..Options::default() };
        let mut reader = Reader::open(Arc::clone(&log), follow).await.unwrap();
        let mut followed = reader.next().await.unwrap().unwrap().to_vec();
        let following = tokio::spawn(async move {
            while let Some(chunk) = reader.next().await.unwrap() {
                followed.extend_from_slice(&chunk);
            }
            String::from_utf8(followed).unwrap()
        });
        // Not so much that the follower's file is rotated out.
        let end = fill(&mut writer, 4, written).await;
        writer.finish().await;
        assert_eq!(numbers(&following.await.unwrap()), (written - 1..end).collect::<Vec<_>>());
        // A log of a previous kubelet is read from its files alone.
        let left = Arc::new(Log::complete(place(directory.path(), 0)));
        let follow = Options { follow: true, ..Options::default() };
        assert_eq!(numbers(&read(&left, follow).await), (0..end).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_rotated_out_is_missing_at_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        let written = fill(&mut writer, 7, 0).await;
        let left = numbers(&read(&writer.log(), Options::default()).await);
        assert!(left.first().is_some_and(|first| *first > 0));
        assert_eq!(left, (left[0]..written).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn following_ends_when_the_container_truncates_its_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        writer.write(b"1\n").await;
        let follow = Options { follow: true, ..Options::default() };
        let mut reader = Reader::open(writer.log(), follow).await.unwrap();
        assert_eq!(reader.next().await.unwrap().unwrap(), "1\n");
        writer.write(b"2\n").await;
        let file = place(directory.path(), 0).pod.path().join("logs/main/0.log");
        std::fs::File::options().write(true).open(file).unwrap().set_len(0).unwrap();
        let end = tokio::time::timeout(Duration::from_secs(60), reader.next()).await.expect("it spins");
        assert_eq!(end.unwrap(), None);
    }

    #[tokio::test]
    async fn what_a_container_put_in_place_of_its_log_ends_the_reading() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(place(directory.path(), 0)).await.unwrap();
        writer.write(b"line\n").await;
        let log = writer.log();
        writer.finish().await;
        let file = place(directory.path(), 0).pod.path().join("logs/main/0.log");
        std::fs::write(&file, vec![b'x'; 10 * MAX_RECORD]).unwrap();
        assert_eq!(read(&log, Options::default()).await, "");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(Reader::open(log, Options::default()).await.is_err());
    }
}
