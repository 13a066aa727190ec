//! The first failures of each cause, shown while the Job runs, with the end of the log.

use tokio::task::JoinSet;

use super::progress::Progress;
use crate::cli::log_tail::{last_lines, marked};
use crate::cli::pod_cause::FailedRun;
use crate::cli::pod_view::PodView;

/// Shows ends of logs in the background.
pub(super) struct Tails {
    client: kube::Client,
    progress: Progress,
    tasks: JoinSet<()>,
}

impl Tails {
    pub(super) fn new(client: kube::Client, progress: Progress) -> Self {
        Self { client, progress, tasks: JoinSet::new() }
    }

    /// Shows a text, and below it the end of the run's log, if that can be read.
    pub(super) fn show(&mut self, text: String, pod: &PodView, run: FailedRun) {
        let (client, progress) = (self.client.clone(), self.progress.clone());
        let namespace = pod.metadata.namespace.clone().unwrap_or_default();
        let name = pod.metadata.name.clone().unwrap_or_default();
        self.tasks.spawn(async move {
            let lines = last_lines(&client, &namespace, &name, &run).await;
            let lines: String = marked(&lines).map(|line| format!("\n{line}")).collect();
            progress.note(&format!("{text}{lines}"));
        });
    }

    /// Waits until all have been shown.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}
