//! Files of a previous kubelet that was stopped or killed: a directory per pod, with a log for every run of a
//! container.
//!
//! A log is created before its process starts. If there is no log, nothing ran.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The logs of a pod, by container, oldest run first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Leftovers(BTreeMap<String, Vec<PathBuf>>);

/// Subdirectory of the logs in a pod's directory.
const LOGS: &str = "logs";

/// The log file of one run of a container, in the directory of its pod.
pub(super) fn log_file(pod: &Path, container: &str, run: u32) -> PathBuf {
    pod.join(LOGS).join(container).join(format!("{run}.log"))
}

impl Leftovers {
    /// Reads the directory of a pod; empty if it does not exist.
    pub(super) fn of(pod: &Path) -> Self {
        let containers = entries(&pod.join(LOGS)).map(|directory| {
            let name = directory.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = |log: &PathBuf| log.file_stem()?.to_str()?.parse::<u32>().ok();
            let mut logs: Vec<_> = entries(&directory).filter_map(|log| Some((number(&log)?, log))).collect();
            logs.sort();
            (name, logs.into_iter().map(|(_, log)| log).collect())
        });
        Self(containers.collect())
    }

    /// Number of starts of a container, including one that may not have completed.
    pub(super) fn starts(&self, container: &str) -> usize {
        self.0.get(container).map_or(0, Vec::len)
    }

    /// Every log with its container, in the order of runs.
    pub(super) fn logs(&self) -> impl Iterator<Item = (&str, &PathBuf)> {
        self.0.iter().flat_map(|(container, logs)| logs.iter().map(move |log| (container.as_str(), log)))
    }
}

/// The uids and directories of pods below this directory.
pub(super) fn pods(directory: &Path) -> Vec<(String, PathBuf)> {
    let uid = |path: &PathBuf| Some(path.file_name()?.to_str()?.rsplit_once('_')?.1.to_owned());
    entries(directory).filter_map(|path| Some((uid(&path)?, path))).collect()
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn runs_are_found_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let pod = directory.path().join("default_a_some-uid");
        assert_eq!(Leftovers::of(&pod), Leftovers::default());
        for (container, run) in [("b", 0), ("a", 10), ("a", 9)] {
            let log = log_file(&pod, container, run);
            std::fs::create_dir_all(log.parent().unwrap()).unwrap();
            std::fs::write(log, "").unwrap();
        }
        let left = Leftovers::of(&pod);
        assert_eq!((left.starts("a"), left.starts("b"), left.starts("c")), (2, 1, 0));
        let logs: Vec<_> = left.logs().map(|(_, log)| log.clone()).collect();
        assert_eq!(logs, [log_file(&pod, "a", 9), log_file(&pod, "a", 10), log_file(&pod, "b", 0)]);
        assert_eq!(pods(directory.path()), [("some-uid".to_owned(), pod)]);
    }
}
