//! The output of pods in files: one for each index of a Job, or for each pod of one that has none.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::PathBuf;

use super::progress::Progress;
use crate::cli::logs::{Decoration, Extent, Followers, LogSink};
use crate::cli::pod_view::{ContainerStatus, PodView, RunState, index};

/// A file that gets the output of a container, and of those that run in its place after a failure. It is open only while something is
/// written, since there may be more than a process can open.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    progress: Progress,
}

impl LogSink for LogFile {
    fn write(&self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        OpenOptions::new().append(true).create(true).open(&self.path)?.write_all(lines)
    }

    fn note(&self, text: &str) {
        self.progress.note(text);
    }
}

/// The files below a folder.
pub(super) struct LogFiles {
    folder: PathBuf,
    /// Whether each Job has a folder of its own.
    by_job: bool,
    progress: Progress,
    /// The files that were begun, and whether that succeeded.
    begun: HashMap<PathBuf, bool>,
    followers: Followers<LogFile>,
}

impl LogFiles {
    pub(super) fn new(client: kube::Client, progress: Progress, folder: PathBuf, by_job: bool) -> Self {
        let followers = Followers::new(client, usize::MAX);
        Self { folder, by_job, progress, begun: HashMap::new(), followers }
    }

    /// Writes the output of a container of this Job, unless that is or was done.
    pub(super) fn follow(&mut self, job: &str, pod: &PodView, container: &ContainerStatus, is_only: bool) {
        if container.run_state() == RunState::NotStarted {
            return;
        }
        let folder = if self.by_job { self.folder.join(job) } else { self.folder.clone() };
        let path = folder.join(name(pod, container.name.raw(), is_only));
        let progress = &self.progress;
        let is_begun = *self.begun.entry(path.clone()).or_insert_with(|| {
            // What an earlier command has left is not continued.
            let begun = std::fs::create_dir_all(&folder).and_then(|()| File::create(&path));
            if let Err(error) = &begun {
                progress.note(&format!("--log-dir: cannot write {}: {error}", path.display()));
            }
            begun.is_ok()
        });
        if is_begun {
            let extent = Extent { follow: true, ..Extent::default() };
            let plain = Decoration { prefix: None, timestamps: false };
            let file = LogFile { path, progress: self.progress.clone() };
            self.followers.follow(pod, container, extent, &plain, &file);
        }
    }

    /// Waits until all output has been written. Returns whether all could be.
    pub(super) async fn finish(&mut self) -> bool {
        let errors = self.followers.finish_each().await;
        if let Some(error) = errors.first() {
            self.progress.note(&format!("--log-dir {}: {error}", self.folder.display()));
        }
        errors.is_empty() && self.begun.values().all(|is_begun| *is_begun)
    }
}

/// The name of the file of a container.
fn name(pod: &PodView, container: &str, is_only: bool) -> String {
    // Names of pods and containers are parts of paths: an API server takes no others.
    let whose =
        index(pod).map_or_else(|| pod.metadata.name.clone().unwrap_or_default(), |index| index.to_string());
    if is_only { format!("{whose}.log") } else { format!("{whose}.{container}.log") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn a_file_is_named_after_the_index_or_the_pod() {
        let pod = |annotations: serde_json::Value| -> PodView {
            let metadata = json!({"name": "job-x", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {}})).unwrap()
        };
        let indexed = pod(json!({"batch.kubernetes.io/job-completion-index": "7"}));
        assert_eq!(name(&indexed, "main", true), "7.log");
        assert_eq!(name(&indexed, "main", false), "7.main.log");
        assert_eq!(name(&pod(json!({})), "main", true), "job-x.log");
    }
}
