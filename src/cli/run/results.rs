//! The progress of a run, in a file beside its logs: `--resume` goes on from there.

use std::fs::{File, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::manifest::Manifest;
use super::progress::Progress;
use super::tracker::Tracker;
use crate::job::index_set::IndexSet;

/// The name of the file.
const FILE: &str = "yardmaster-results.json";
/// The name of the file of an earlier run that was not resumed.
const OLD_FILE: &str = "yardmaster-results.old.json";
/// The name of the file that a run has locked as long as it writes into the folder.
const LOCK: &str = ".yardmaster-lock";
/// The longest file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// The contents of the file: the Jobs of a run, in the order of their manifests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Results {
    jobs: Vec<JobResult>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct JobResult {
    namespace: String,
    /// The name, or the beginning of one that is generated.
    name: String,
    /// The indexes that have succeeded.
    succeeded: String,
}

impl JobResult {
    fn is_of(&self, manifest: &Manifest) -> bool {
        (self.namespace.as_str(), self.name.as_str()) == (&manifest.namespace, name(manifest))
    }
}

fn name(manifest: &Manifest) -> &str {
    let metadata = &manifest.job["metadata"];
    metadata["name"].as_str().or_else(|| metadata["generateName"].as_str()).unwrap_or_default()
}

/// The indexes of each Job that have succeeded in an earlier run, whose file is in this folder.
///
/// # Errors
/// If the run cannot go on from there: a line for each reason.
pub(super) fn restore(folder: &Path, manifests: &[Manifest]) -> Result<Vec<IndexSet>, Vec<String>> {
    let is_indexed = |manifest: &&Manifest| manifest.job["spec"]["completionMode"] == "Indexed";
    let unfit = manifests.iter().filter(|manifest| !is_indexed(manifest));
    let unfit: Vec<_> = unfit
        .map(|manifest| {
            format!(
                "--resume: Job {}/{} is not Indexed, so nothing tells which of its pods are still to run",
                manifest.namespace,
                name(manifest)
            )
        })
        .collect();
    if !unfit.is_empty() {
        return Err(unfit);
    }
    let path = folder.join(FILE);
    let problem = |text: String| vec![format!("--resume: {}: {text}", path.display())];
    let Some(results) = read(&path).map_err(|error| problem(error.to_string()))? else {
        return Ok(vec![IndexSet::new(); manifests.len()]);
    };
    let is_same = results.jobs.len() == manifests.len()
        && results.jobs.iter().zip(manifests).all(|(result, manifest)| result.is_of(manifest));
    if !is_same {
        let names: Vec<_> =
            results.jobs.iter().map(|job| format!("{}/{}", job.namespace, job.name)).collect();
        return Err(problem(format!("these are the results of other Jobs: {}", names.join(", "))));
    }
    let restored = results.jobs.iter().zip(manifests).map(|(result, manifest)| {
        let mut indexes = match result.succeeded.as_str() {
            "" => IndexSet::new(),
            some => IndexSet::parse_strict(some)
                .ok_or_else(|| problem(format!("{some:?} is no list of indexes")))?,
        };
        let completions = manifest.job["spec"]["completions"].as_u64().unwrap_or_default();
        indexes.truncate(u32::try_from(completions).unwrap_or(u32::MAX));
        Ok(indexes)
    });
    restored.collect()
}

/// Keeps other runs out of the folder until the file is dropped: their logs would be mixed.
///
/// # Errors
/// One line, if another run has the folder.
pub(super) fn lock(folder: &Path) -> Result<File, String> {
    let problem = |error: io::Error| format!("--log-dir {}: {error}", folder.display());
    let file = File::create(folder.join(LOCK)).map_err(problem)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            Err(format!("--log-dir {}: another run writes there: choose another folder", folder.display()))
        }
        // Some file systems know no locks.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// The contents of a file; `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<Results>> {
    let length = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?.len(),
    };
    if length > MAX_BYTES {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(Some(serde_json::from_slice(&std::fs::read(path)?)?))
}

/// Keeps the file of a run up to date.
#[derive(Debug)]
pub(super) struct Record {
    folder: PathBuf,
    results: Results,
    /// The indexes of each Job that had succeeded before the run.
    restored: Vec<IndexSet>,
    /// Whether the run goes on from the file. Otherwise, an earlier file is kept under another name.
    resumes: bool,
    /// Whether the file has these results.
    is_written: bool,
    is_noted: bool,
}

impl Record {
    /// The record of a run of these Jobs, some indexes of which had succeeded before.
    pub(super) fn new(folder: PathBuf, manifests: &[Manifest], restored: &[IndexSet], resumes: bool) -> Self {
        let jobs = manifests.iter().enumerate().map(|(number, manifest)| JobResult {
            namespace: manifest.namespace.clone(),
            name: name(manifest).to_owned(),
            succeeded: restored.get(number).map(IndexSet::to_string).unwrap_or_default(),
        });
        let (results, restored) = (Results { jobs: jobs.collect() }, restored.to_vec());
        Self { folder, results, restored, resumes, is_written: false, is_noted: false }
    }

    /// Writes what the Jobs have reached, if it is new. `whole_logs` has the indexes of a Job, by its UID, whose logs are whole.
    /// The others do not count yet: a run that goes on from here would not complete their logs.
    pub(super) fn update(
        &mut self,
        tracker: &Tracker,
        progress: &Progress,
        mut whole_logs: impl FnMut(&str) -> IndexSet,
    ) {
        let jobs = self.results.jobs.iter_mut().zip(&self.restored);
        for ((result, restored), tracked) in jobs.zip(&tracker.jobs) {
            let mut recordable = whole_logs(&tracked.uid);
            recordable.insert_all(restored);
            let succeeded = succeeded(&tracked.job).intersection(&recordable).to_string();
            self.is_written &= result.succeeded == succeeded;
            result.succeeded = succeeded;
        }
        if self.is_written {
            return;
        }
        match self.write() {
            Ok(()) => self.is_written = true,
            Err(error) if !self.is_noted => {
                self.is_noted = true;
                let path = self.folder.join(FILE);
                progress.note(&format!("--log-dir: cannot write {}: {error}", path.display()));
            }
            Err(_) => {}
        }
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.resumes && self.folder.join(FILE).exists() {
            std::fs::rename(self.folder.join(FILE), self.folder.join(OLD_FILE))?;
        }
        self.resumes = true;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer_pretty(&mut file, &self.results)?;
        file.write_all(b"\n")?;
        // A crash of the machine leaves the old file or the new one.
        file.as_file().sync_data()?;
        file.persist(self.folder.join(FILE))?;
        Ok(())
    }
}

/// The indexes of a Job that have succeeded.
fn succeeded(job: &Value) -> IndexSet {
    let text = job["status"]["completedIndexes"].as_str().unwrap_or_default();
    IndexSet::parse_lenient(text, u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn manifest(metadata: Value, completions: u32) -> Manifest {
        let spec = json!({"completionMode": "Indexed", "completions": completions});
        Manifest { job: json!({"metadata": metadata, "spec": spec}), namespace: "n".into() }
    }

    fn all() -> IndexSet {
        IndexSet::below(u32::MAX)
    }

    #[test]
    fn an_index_is_recorded_once_its_log_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = [manifest(json!({"name": "a"}), 10)];
        let mut tracker = Tracker::new(false);
        tracker.add(json!({"metadata": {"uid": "1"}, "status": {"completedIndexes": "0-4"}}));
        // Index 0 had succeeded in an earlier run; its log is there.
        let mut record = Record::new(folder.path().to_owned(), &jobs, &[IndexSet::below(1)], true);
        for (whole, expected) in [(&[][..], "0"), (&[2, 3, 9], "0,2,3"), (&[1, 2, 3, 4, 9], "0-4")] {
            record.update(&tracker, &Progress::quiet(), |job| {
                assert_eq!(job, "1");
                whole.iter().copied().collect()
            });
            let expected = IndexSet::parse_strict(expected).unwrap();
            assert_eq!(restore(folder.path(), &jobs).unwrap(), [expected]);
        }
    }

    #[test]
    fn a_run_goes_on_from_what_was_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = [manifest(json!({"name": "a"}), 10), manifest(json!({"generateName": "b-"}), 10)];
        assert_eq!(restore(folder.path(), &jobs).unwrap(), vec![IndexSet::new(); 2]);
        let mut tracker = Tracker::new(false);
        tracker.add(json!({"metadata": {"uid": "1"}, "status": {"completedIndexes": "0,3-5"}}));
        let restored = [IndexSet::new(), IndexSet::below(2)];
        let mut record = Record::new(folder.path().to_owned(), &jobs, &restored, false);
        record.update(&tracker, &Progress::new(), |_| all());
        let indexes = |text| IndexSet::parse_strict(text).unwrap();
        assert_eq!(restore(folder.path(), &jobs).unwrap(), [indexes("0,3-5"), indexes("0,1")]);

        let fewer = [manifest(json!({"name": "a"}), 4), jobs[1].clone()];
        assert_eq!(restore(folder.path(), &fewer).unwrap()[0], indexes("0,3"));
        let other = restore(folder.path(), &jobs[..1]).unwrap_err();
        assert!(other[0].ends_with("these are the results of other Jobs: n/a, n/b-"), "{other:?}");
        std::fs::write(
            folder.path().join(FILE),
            r#"{"jobs": [{"namespace": "n", "name": "a", "succeeded": "x"}]}"#,
        )
        .unwrap();
        let broken = restore(folder.path(), &jobs[..1]).unwrap_err();
        assert!(broken[0].ends_with(r#""x" is no list of indexes"#), "{broken:?}");
    }

    /// A run may end before any index has succeeded.
    #[test]
    fn a_run_goes_on_from_nothing_and_an_earlier_record_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let jobs = [manifest(json!({"name": "a"}), 10)];
        let write = |status: Value, resumes| {
            let mut tracker = Tracker::new(false);
            tracker.add(json!({"metadata": {"uid": "1"}, "status": status}));
            let none = [IndexSet::new()];
            Record::new(folder.path().to_owned(), &jobs, &none, resumes).update(
                &tracker,
                &Progress::new(),
                |_| all(),
            );
        };
        write(json!({}), false);
        assert_eq!(restore(folder.path(), &jobs).unwrap(), [IndexSet::new()]);
        write(json!({"completedIndexes": "0-4"}), true);
        write(json!({}), false);
        let old = read(&folder.path().join(OLD_FILE)).unwrap().unwrap();
        assert_eq!(old.jobs[0].succeeded, "0-4");
    }

    #[test]
    fn two_runs_do_not_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = lock(folder.path()).unwrap();
        let second = lock(folder.path()).unwrap_err();
        assert!(second.ends_with("another run writes there: choose another folder"), "{second}");
        drop(first);
        assert!(lock(folder.path()).is_ok());
    }

    #[test]
    fn a_job_without_indexes_cannot_go_on() {
        let folder = tempfile::tempdir().unwrap();
        let job = Manifest { job: json!({"metadata": {"name": "a"}, "spec": {}}), namespace: "n".into() };
        let problems = restore(folder.path(), &[job]).unwrap_err();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("--resume: Job n/a is not Indexed"), "{problems:?}");
    }
}
