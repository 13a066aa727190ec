//! The files of a container's log, which rotate. Their numbers grow, so a reader that has come to the end of one
//! goes on with the next.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};

use super::{MAX_RUNS, Record};
use crate::kubelet::folder::Folder;
use crate::kubelet::pod_folder::PodFolder;

/// Size from which a log goes on in another file, in bytes: the default of the kubelet's
/// `containerLogMaxSize`.
pub(super) const MAX_SIZE: u64 = 10 << 20;
/// Number of files of a log; older ones are removed: the default of the kubelet's `containerLogMaxFiles`.
pub(super) const MAX_FILES: u64 = 5;

/// Where the log of one run of a container is.
#[derive(Clone, Debug)]
pub(in crate::kubelet) struct LogPlace {
    /// The folder of the pod.
    pub(in crate::kubelet) pod: PodFolder,
    /// Name of the container.
    pub(in crate::kubelet) container: String,
    /// Number of the run.
    pub(in crate::kubelet) run: u32,
}

impl LogPlace {
    fn folder(&self) -> std::io::Result<Folder> {
        self.pod.logs()?.enter(&self.container)
    }

    /// The numbers of the files that exist.
    pub(super) fn parts(&self) -> std::io::Result<BTreeSet<u64>> {
        let all = self.folder()?.names()?;
        let ours = all.iter().filter_map(|name| parse(name)).filter(|(run, _)| *run == self.run);
        Ok(ours.map(|(_, part)| part).collect())
    }

    /// Opens one file for reading.
    pub(super) fn open(&self, part: u64) -> std::io::Result<File> {
        self.folder()?.open_file(&file_name(self.run, part))
    }

    /// The end of the log as text, for termination messages: at most `lines` lines and `bytes` bytes.
    pub(in crate::kubelet) fn tail(&self, lines: usize, bytes: usize) -> std::io::Result<String> {
        // Time and tag take less than half of any record of useful length; longer lines are cut anyway.
        let window = (bytes as u64).saturating_mul(2).saturating_add((lines as u64).saturating_mul(64));
        let mut content = Vec::new();
        let mut is_cut = false;
        for part in self.parts()?.into_iter().rev() {
            let wanted = window - content.len() as u64;
            let mut file = match self.open(part) {
                // Rotation has removed it, and all that came before it.
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                file => file?,
            };
            let skipped = file.metadata()?.len().saturating_sub(wanted);
            file.seek(SeekFrom::Start(skipped))?;
            let mut start = Vec::new();
            file.take(wanted).read_to_end(&mut start)?;
            start.append(&mut content);
            content = start;
            is_cut = skipped > 0;
            if is_cut {
                break;
            }
        }
        let records: Vec<_> = content.split_inclusive(|byte| *byte == b'\n').collect();
        let first = records.len().saturating_sub(lines);
        let mut text = Vec::new();
        for (index, record) in records.iter().enumerate().skip(first) {
            match Record::parse(record) {
                // A window in the middle of a file begins inside a record: a long one, or one too many.
                _ if is_cut && index == 0 => text.extend_from_slice(record),
                Some(record) => record.text_into(&mut text),
                None => {}
            }
        }
        let start = text.len().saturating_sub(bytes);
        Ok(String::from_utf8_lossy(&text[start..]).into_owned())
    }
}

/// The runs of a container whose logs are in this folder, in order.
pub(in crate::kubelet) fn runs(folder: &Folder) -> BTreeSet<u32> {
    folder.names().unwrap_or_default().iter().filter_map(|name| Some(parse(name)?.0)).collect()
}

fn file_name(run: u32, part: u64) -> String {
    if part == 0 { format!("{run}.log") } else { format!("{run}.log.{part}") }
}

/// The run and the part of a file.
fn parse(name: &str) -> Option<(u32, u64)> {
    let (run, part) = name.split_once(".log")?;
    let part = if part.is_empty() { Some(0) } else { part.strip_prefix('.')?.parse().ok() };
    Some((run.parse().ok()?, part?))
}

/// The files of a log that is being written. Methods access the disk.
#[derive(Debug)]
pub(super) struct LogFiles {
    folder: Folder,
    run: u32,
    part: u64,
    file: File,
    size: u64,
}

impl LogFiles {
    /// Starts a log, and removes the logs of runs that cannot be asked for any more.
    pub(super) fn create(place: &LogPlace) -> std::io::Result<Self> {
        let folder = place.pod.create_logs(&place.container)?;
        if place.run as usize >= MAX_RUNS {
            let kept = place.run + 1 - MAX_RUNS as u32;
            for name in folder.names()?.iter().filter(|name| parse(name).is_some_and(|(run, _)| run < kept)) {
                folder.remove(name)?;
            }
        }
        let file = create_file(&folder, place.run, 0)?;
        Ok(Self { folder, run: place.run, part: 0, file, size: 0 })
    }

    /// Appends whole records. Returns the part that they are in, and its size.
    pub(super) fn append(&mut self, records: &[u8]) -> std::io::Result<(u64, u64)> {
        let added = records.len() as u64;
        if self.size > 0 && self.size + added > MAX_SIZE {
            self.file = create_file(&self.folder, self.run, self.part + 1)?;
            (self.part, self.size) = (self.part + 1, 0);
            if let Some(old) = self.part.checked_sub(MAX_FILES) {
                self.folder.remove(&file_name(self.run, old))?;
            }
        }
        if let Err(error) = self.file.write_all(records) {
            // The part that was written must not become the start of the next record.
            self.file.set_len(self.size)?;
            self.file.seek(SeekFrom::Start(self.size))?;
            return Err(error);
        }
        self.size += added;
        Ok((self.part, self.size))
    }
}

fn create_file(folder: &Folder, run: u32, part: u64) -> std::io::Result<File> {
    let name = file_name(run, part);
    // Only the container itself can have put something here.
    folder.remove(&name)?;
    folder.create_file(&name)
}
