//! Logs that a previous kubelet has left of a pod: it was stopped or killed.
//!
//! A log is created before its process starts. If there is no log, nothing ran.

use std::collections::BTreeMap;

use super::logs::{self, LogPlace};
use super::pod_folder::PodFolder;

/// The logs of a pod, by container, oldest run first.
#[derive(Debug, Default)]
pub(super) struct Leftovers(BTreeMap<String, Vec<LogPlace>>);

impl Leftovers {
    /// Reads the folder of a pod; empty if it does not exist.
    pub(super) async fn of(pod: PodFolder) -> Self {
        let read = tokio::task::spawn_blocking(move || Self::read(&pod)).await;
        read.unwrap_or_default()
    }

    fn read(pod: &PodFolder) -> Self {
        let Ok(folder) = pod.logs() else { return Self::default() };
        let containers = folder.names().unwrap_or_default().into_iter().filter_map(|container| {
            let runs = logs::runs(&folder.enter(&container).ok()?);
            let place = |run| LogPlace { pod: pod.clone(), container: container.clone(), run };
            let places: Vec<_> = runs.into_iter().map(place).collect();
            Some((container, places))
        });
        Self(containers.collect())
    }

    /// Number of starts of a container, including one that may not have completed.
    pub(super) fn starts(&self, container: &str) -> u32 {
        self.0.get(container).and_then(|runs| runs.last()).map_or(0, |last| last.run.saturating_add(1))
    }

    /// Every log with its container, in the order of runs.
    pub(super) fn logs(&self) -> impl Iterator<Item = (&str, &LogPlace)> {
        self.0.iter().flat_map(|(container, logs)| logs.iter().map(move |log| (container.as_str(), log)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubelet::pod::PodKey;
    use crate::kubelet::pod_folder::PodFolders;

    #[test]
    fn runs_are_found_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let key = PodKey { namespace: "default".into(), name: "a".into(), uid: "some-uid".into() };
        let pod = PodFolders::claim(directory.path()).unwrap().of(&key);
        assert_eq!(Leftovers::read(&pod).logs().count(), 0);
        for (container, file) in
            [("b", "0.log"), ("a", "10.log.7"), ("a", "9.log"), ("a", "10.log.6"), ("a", "x.log")]
        {
            pod.create_logs(container).unwrap().create_file(file).unwrap();
        }
        let left = Leftovers::read(&pod);
        assert_eq!((left.starts("a"), left.starts("b"), left.starts("c")), (11, 1, 0));
        let logs: Vec<_> = left.logs().map(|(container, log)| (container, log.run)).collect();
        assert_eq!(logs, [("a", 9), ("a", 10), ("b", 0)]);
    }
}
