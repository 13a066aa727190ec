//! The output of pods in files: one for each index of a Job, or for each pod of one that has none.

use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::progress::Progress;
use crate::cli::logs::{Decoration, Extent, Followers, LogSink};
use crate::cli::pod_view::{ContainerStatus, PodView, RunState, index};
use crate::cli::untrusted::Untrusted;
use crate::job::index_set::IndexSet;
use crate::job::job_id::is_subdomain;
use crate::telemetry::printable::OneLine;

/// A file that gets the output of a container, and of those that run in its place after a failure. It is open only while something is
/// written, since there may be more than a process can open.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    path: Arc<Path>,
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

/// The files that were begun; `None` for those that could not be. A writer of a file shares its path.
type Begun = HashMap<PathBuf, Option<Arc<Path>>>;

/// The logs of the indexes of a Job that have succeeded.
#[derive(Debug, Default)]
struct SucceededLogs {
    /// The indexes whose logs are whole.
    whole: IndexSet,
    /// The files of the other indexes.
    open: BTreeMap<u32, Vec<PathBuf>>,
}

/// The files below a folder.
pub(super) struct LogFiles {
    folder: PathBuf,
    /// Whether each Job has a folder of its own.
    by_job: bool,
    progress: Progress,
    begun: Begun,
    /// By the UIDs of the Jobs.
    succeeded: HashMap<String, SucceededLogs>,
    followers: Followers<LogFile>,
    /// Why output is missing.
    errors: Vec<io::Error>,
    /// Whether a name was refused.
    has_refused: bool,
}

impl LogFiles {
    pub(super) fn new(client: kube::Client, progress: Progress, folder: PathBuf, by_job: bool) -> Self {
        let followers = Followers::new(client, usize::MAX);
        let (begun, succeeded) = (Begun::new(), HashMap::new());
        Self { folder, by_job, progress, begun, succeeded, followers, errors: Vec::new(), has_refused: false }
    }

    /// Writes the output of a container of this Job, unless that is or was done. Returns the file, if there is one.
    pub(super) fn follow(
        &mut self,
        job: &str,
        pod: &PodView,
        container: &ContainerStatus,
        is_only: bool,
    ) -> Option<PathBuf> {
        if container.run_state() == RunState::NotStarted {
            return None;
        }
        let Some((folder, path)) = self.place(job, pod, container.name.raw(), is_only) else {
            let pod = Untrusted::from(pod.metadata.name.as_deref().unwrap_or_default());
            if !std::mem::replace(&mut self.has_refused, true) {
                let what = format!("container {} of pod {pod}, Job {}", container.name, OneLine(job));
                self.progress
                    .note(&format!("no file gets the output of {what}: Kubernetes allows no such name"));
            }
            return None;
        };
        let progress = &self.progress;
        let begun = self.begun.entry(path.clone()).or_insert_with(|| {
            // A file of an earlier command is not continued.
            let begun = std::fs::create_dir_all(&folder).and_then(|()| File::create(&path));
            if let Err(error) = &begun {
                progress.note(&format!("cannot write output into {}: {error}", path.display()));
            }
            begun.is_ok().then(|| Arc::from(path.as_path()))
        });
        let file = LogFile { path: Arc::clone(begun.as_ref()?), progress: self.progress.clone() };
        let extent = Extent { follow: true, ..Extent::default() };
        let plain = Decoration { prefix: None, timestamps: false };
        self.followers.follow(pod, container, extent, &plain, &file);
        Some(path)
    }

    /// The file of a container, and its folder. If a name would lead out of the folder, there is neither.
    fn place(&self, job: &str, pod: &PodView, container: &str, is_only: bool) -> Option<(PathBuf, PathBuf)> {
        let mut folder = self.folder.clone();
        if self.by_job {
            for part in job.split('/') {
                folder.push(file_name(part)?);
            }
        }
        let path = folder.join(name(pod, container, is_only)?);
        Some((folder, path))
    }

    /// Whether all output of the containers that were followed into this file is there.
    pub(super) fn is_written(&self, path: &Path) -> bool {
        is_written(&self.begun, path)
    }

    /// Records that an index of a Job has succeeded, and the files that its output goes to.
    pub(super) fn record_success(&mut self, job_uid: &str, index: u32, files: Vec<PathBuf>) {
        let logs = self.succeeded.entry(job_uid.to_owned()).or_default();
        if !logs.whole.contains(index) {
            logs.open.insert(index, files);
        }
    }

    /// The indexes of a Job that have succeeded, and whose logs are whole.
    pub(super) fn whole(&mut self, job_uid: &str) -> IndexSet {
        let Some(SucceededLogs { whole, open }) = self.succeeded.get_mut(job_uid) else {
            return IndexSet::new();
        };
        let begun = &self.begun;
        whole.extend(
            open.extract_if(.., |_, files| files.iter().all(|file| is_written(begun, file)))
                .map(|(index, _)| index),
        );
        whole.clone()
    }

    /// Waits until the output of a container has been written; for ever if none is.
    pub(super) async fn next_end(&mut self) {
        self.errors.extend(self.followers.next_end().await.err());
    }

    /// Waits until all output has been written. Returns whether all could be.
    pub(super) async fn finish(&mut self) -> bool {
        self.errors.extend(self.followers.finish_each().await);
        if let Some(error) = self.errors.first() {
            self.progress.note(&format!("cannot write output into {}: {error}", self.folder.display()));
        }
        self.errors.is_empty() && !self.has_refused && self.begun.values().all(Option::is_some)
    }
}

fn is_written(begun: &Begun, path: &Path) -> bool {
    let begun = begun.get(path).and_then(Option::as_ref);
    begun.is_none_or(|path| Arc::strong_count(path) == 1)
}

/// A text of the API server as a part of a path, if it is a name that an object can have. A server that is not Kubernetes, or
/// a proxy before it, may send any text.
fn file_name(text: &str) -> Option<&str> {
    is_subdomain(text).then_some(text)
}

/// The name of the file of a container.
fn name(pod: &PodView, container: &str, is_only: bool) -> Option<String> {
    let whose = match index(pod) {
        Some(index) => index.to_string(),
        None => file_name(pod.metadata.name.as_deref()?)?.to_owned(),
    };
    Some(if is_only { format!("{whose}.log") } else { format!("{whose}.{}.log", file_name(container)?) })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use bytes::Bytes;
    use futures::stream;
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::cli::lists::tests::answering;

    #[tokio::test]
    async fn a_log_is_whole_once_its_last_line_is_in_the_file() {
        let (sender, receiver) = mpsc::unbounded_channel::<Bytes>();
        let log = stream::unfold(receiver, |mut log| async move { Some((log.recv().await?, log)) });
        let folder = tempfile::tempdir().unwrap();
        let mut files = LogFiles::new(answering(log), Progress::quiet(), folder.path().to_owned(), false);
        let pod: PodView = serde_json::from_value(json!({
            "metadata": {
                "namespace": "n", "name": "j-7", "uid": "p",
                "annotations": {"batch.kubernetes.io/job-completion-index": "7"},
            },
            "spec": {"restartPolicy": "Never"},
            "status": {
                "phase": "Succeeded",
                "containerStatuses": [{
                    "name": "main",
                    "state": {"terminated": {"exitCode": 0, "startedAt": "2026-01-01T00:00:00Z"}},
                }],
            },
        }))
        .unwrap();
        let container = pod.status.as_ref().unwrap().containers().next().unwrap();
        let path = files.follow("n/j", &pod, container, true).unwrap();
        files.record_success("uid", 7, vec![path.clone()]);
        sender.send("2026-01-01T00:00:00Z begin\n".into()).unwrap();
        assert_eq!(files.whole("uid"), IndexSet::new());
        sender.send("2026-01-01T00:00:01Z end\n".into()).unwrap();
        drop(sender);
        files.next_end().await;
        assert_eq!(std::fs::read_to_string(path).unwrap(), "begin\nend\n");
        assert_eq!(files.whole("uid"), IndexSet::from_iter([7]));
        assert_eq!(files.whole("other"), IndexSet::new());
    }

    #[test]
    fn a_file_is_named_after_the_index_or_the_pod() {
        let pod = |annotations: serde_json::Value| -> PodView {
            let metadata = json!({"name": "job-x", "annotations": annotations});
            serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": {}})).unwrap()
        };
        let indexed = pod(json!({"batch.kubernetes.io/job-completion-index": "7"}));
        assert_eq!(name(&indexed, "main", true).unwrap(), "7.log");
        assert_eq!(name(&indexed, "main", false).unwrap(), "7.main.log");
        assert_eq!(name(&pod(json!({})), "main", true).unwrap(), "job-x.log");
    }

    #[tokio::test]
    async fn no_name_of_an_api_server_leads_out_of_the_folder() {
        let around = tempfile::tempdir().unwrap();
        let outside = around.path().join("outside");
        let folder = around.path().join("logs");
        let absolute = outside.to_str().unwrap();
        for (job, pod, container) in [
            ("n/j", absolute, "main"),
            ("n/j", "../../../outside", "main"),
            ("n/j", "p", "/../../../../outside"),
            (absolute, "p", "main"),
            ("n/../../outside", "p", "main"),
            ("", "p", "main"),
        ] {
            let mut files =
                LogFiles::new(answering(stream::empty()), Progress::quiet(), folder.clone(), true);
            let running = json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}});
            let containers = [json!({"name": container, "state": running}), json!({"name": "b"})];
            let view: PodView = serde_json::from_value(json!({
                "metadata": {"namespace": "n", "name": pod, "uid": "p"}, "spec": {},
                "status": {"phase": "Running", "containerStatuses": containers},
            }))
            .unwrap();
            let container = view.status.as_ref().unwrap().containers().next().unwrap();
            assert_eq!(files.follow(job, &view, container, false), None, "{job} {pod}");
            assert!(!files.finish().await, "output is missing");
        }
        assert_eq!(std::fs::read_dir(around.path()).unwrap().count(), 0);
    }
}
