//! Follows the pods of the Jobs: their output, why they do not start, and how they fail.

use std::collections::{HashMap, HashSet};
use std::io;

use super::log_files::LogFiles;
use super::ordered::{Missing, Ordered};
use super::progress::Progress;
use super::tail::Tails;
use super::tracker::Tracked;
use crate::cli::console::unless_closed;
use crate::cli::failures::Failures;
use crate::cli::logs::{Decoration, Extent, Followers, LogSink, prefix};
use crate::cli::pod_cause::{Cause, causes};
use crate::cli::pod_view::{ContainerStatus, PodView, controller_uid, index};
use crate::cli::untrusted::Untrusted;
use crate::job::index_set::IndexSet;
use crate::telemetry::printable::OneLine;

/// How the output of pods is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogMode {
    /// Not at all.
    Off,
    /// Unchanged: there is only one pod at a time.
    Raw,
    /// Each line prefixed with the pod's name.
    Prefixed,
    /// Unchanged, in the order of indexes.
    Ordered,
}

/// The targets of the output of pods beside the terminal.
pub(super) struct Outputs {
    /// Where it is kept.
    pub(super) files: Option<LogFiles>,
    /// The printer of its files in order.
    pub(super) ordered: Option<Ordered>,
}

/// Observes the pods of all Jobs.
pub(super) struct PodObserver {
    progress: Progress,
    mode: LogMode,
    /// Keys of the Jobs by uid.
    jobs: HashMap<String, String>,
    followers: Followers<Progress>,
    outputs: Outputs,
    tails: Tails,
    /// Reported reasons why pods do not start, and causes of their failures: Job uid, reason.
    reported: HashSet<(String, Untrusted)>,
    /// Why pods failed, by Job uid.
    failures: HashMap<String, Failures>,
    /// UIDs of the failed pods.
    failed: HashSet<String>,
}

impl PodObserver {
    /// An observer for the pods of these Jobs (uid and name).
    pub(super) fn new(
        client: kube::Client,
        progress: Progress,
        mode: LogMode,
        outputs: Outputs,
        jobs: HashMap<String, String>,
    ) -> Self {
        Self {
            // The pods that run at once are as many as the Jobs want.
            followers: Followers::new(client.clone(), usize::MAX),
            outputs,
            tails: Tails::new(client, progress.clone()),
            progress,
            mode,
            jobs,
            reported: HashSet::new(),
            failures: HashMap::new(),
            failed: HashSet::new(),
        }
    }

    /// Processes the newest state of a pod.
    pub(super) fn observe(&mut self, pod: &PodView) {
        let Some(job) = controller_uid(pod) else { return };
        let Some((uid, job_name)) = self.jobs.get_key_value(job).map(|(k, v)| (k.clone(), v.clone())) else {
            return;
        };
        self.follow(pod);
        self.keep(&uid, &job_name, pod);
        self.report_waiting(&uid, &job_name, pod);
        let causes = causes(pod);
        // A pod that is being deleted was stopped.
        for cause in causes.iter().filter(|_| pod.metadata.deletion_timestamp.is_none()) {
            self.explain(&uid, &job_name, pod, cause);
        }
        let has_failed = pod.status.as_ref().is_some_and(|status| status.phase == "Failed");
        if has_failed && self.failed.insert(pod.metadata.uid.clone().unwrap_or_default()) {
            self.failures.entry(uid).or_default().record(pod);
        }
    }

    /// Why pods of this Job failed.
    pub(super) fn failures(&self, job_uid: &str) -> Option<&Failures> {
        self.failures.get(job_uid)
    }

    /// Reads the ends of the logs of pods of this Job that failed.
    pub(super) async fn read_logs(&mut self, client: &kube::Client, job: &Tracked) {
        if let Some(failures) = self.failures.get_mut(&job.uid) {
            failures.read_logs(client, job.namespace()).await;
        }
    }

    /// Waits until all output has been shown. Returns whether all of it is where it should be. If standard output was
    /// closed by its reader, the rest of the output is not missing.
    pub(super) async fn finish(&mut self) -> bool {
        self.tails.finish().await;
        let mut shown = self.followers.finish().await;
        let all_kept = match &mut self.outputs.files {
            Some(files) => files.finish().await,
            None => true,
        };
        if let Some(ordered) = &mut self.outputs.ordered {
            shown = ordered.finish();
        }
        if let Err(error) = unless_closed(shown) {
            self.progress.note(&format!("cannot write output to standard output: {error}"));
            return false;
        }
        all_kept
    }

    /// The indexes of a Job that have succeeded, and whose output is in its files as a whole.
    pub(super) fn whole_logs(&mut self, job_uid: &str) -> IndexSet {
        self.outputs.files.as_mut().map(|files| files.whole(job_uid)).unwrap_or_default()
    }

    /// Records that a pod is gone.
    pub(super) fn remove(&mut self, pod: &PodView) {
        if let Some(ordered) = &mut self.outputs.ordered {
            ordered.remove(pod);
        }
    }

    /// Records the newest state of a Job.
    pub(super) fn update(&mut self, job: &Tracked) {
        if let Some(ordered) = &mut self.outputs.ordered {
            ordered.update(job);
        }
    }

    /// Waits until more of the output may be printed in order; for ever if none is.
    pub(super) async fn log_ended(&mut self) {
        match &mut self.outputs {
            Outputs { files: Some(files), ordered: Some(_) } => files.next_end().await,
            _ => std::future::pending().await,
        }
    }

    /// Prints the output whose turn it is. Returns the pods that have to be listed before more is printed.
    pub(super) fn print_ordered(&mut self) -> Option<Missing> {
        let Outputs { files: Some(files), ordered: Some(ordered) } = &mut self.outputs else { return None };
        ordered.print(|path| files.is_written(path));
        ordered.missing()
    }

    /// Records that these pods were listed, and observed.
    pub(super) fn listed(&mut self, missing: &Missing) {
        if let Some(ordered) = &mut self.outputs.ordered {
            ordered.listed(missing);
        }
    }

    fn keep(&mut self, uid: &str, job: &str, pod: &PodView) {
        let Outputs { files: Some(files), ordered } = &mut self.outputs else { return };
        let containers = || pod.status.iter().flat_map(|status| status.containers());
        let is_only = containers().count() == 1;
        let paths: Vec<_> =
            containers().filter_map(|container| files.follow(job, pod, container, is_only)).collect();
        let has_succeeded = pod.status.as_ref().is_some_and(|status| status.phase == "Succeeded");
        if let Some(index) = index(pod).filter(|_| has_succeeded) {
            files.record_success(uid, index, paths.clone());
        }
        if let Some(ordered) = ordered {
            ordered.observe(uid, pod, paths);
        }
    }

    fn follow(&mut self, pod: &PodView) {
        if matches!(self.mode, LogMode::Off | LogMode::Ordered) {
            return;
        }
        let Some(status) = &pod.status else { return };
        let extent = Extent { follow: true, ..Extent::default() };
        for container in status.containers() {
            let decoration = Decoration { prefix: self.prefix(pod, container), timestamps: false };
            self.followers.follow(pod, container, extent, &decoration, &self.progress);
        }
    }

    fn prefix(&self, pod: &PodView, container: &ContainerStatus) -> Option<String> {
        let several = pod.status.as_ref().is_some_and(|status| status.containers().count() > 1);
        // The same as `logs` prints, where the name of the Job says nothing.
        if self.mode == LogMode::Prefixed && self.jobs.len() == 1 {
            return Some(format!("{}: ", OneLine(&prefix(pod, container.name.raw()))));
        }
        let name = OneLine(pod.metadata.name.as_deref().unwrap_or_default());
        match (self.mode, several) {
            (LogMode::Prefixed, false) => Some(format!("{name}: ")),
            (LogMode::Prefixed, true) => Some(format!("{name} {}: ", container.name)),
            (_, true) => Some(format!("{}: ", container.name)),
            (_, false) => None,
        }
    }

    /// Says why pods fail, once per Job and cause, with the end of the log unless all of that is shown.
    fn explain(&mut self, job_uid: &str, job: &str, pod: &PodView, cause: &Cause) {
        if !self.reported.insert((job_uid.to_owned(), cause.kind.clone().into())) {
            return;
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let text = format!("{job}: pod {name}: {}", cause.text);
        match &cause.run {
            Some(run) if self.mode == LogMode::Off => self.tails.show(text, pod, run.clone()),
            _ => self.progress.note(&text),
        }
    }

    /// Reports why a pod does not start, once per Job and reason: it may wait forever.
    fn report_waiting(&mut self, job_uid: &str, job: &str, pod: &PodView) {
        let Some(status) = &pod.status else { return };
        let waiting = status.containers().filter_map(|container| container.state.get("waiting"));
        let waiting = waiting.filter_map(|state| Some((state.reason.as_ref()?, state.message.as_ref()?)));
        for (reason, message) in status.unschedulable().into_iter().chain(waiting) {
            if self.reported.insert((job_uid.to_owned(), reason.clone())) {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                self.progress.note(&format!("{job}: pod {name} is waiting: {reason}: {message}"));
            }
        }
    }
}

impl LogSink for Progress {
    fn write(&self, lines: &[u8]) -> io::Result<()> {
        self.print(lines)
    }

    fn note(&self, text: &str) {
        Self::note(self, text);
    }
}
