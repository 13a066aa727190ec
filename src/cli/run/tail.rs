//! The last lines of a container's log, below what is said of its failure.

use std::time::Duration;

use futures::io::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::progress::Progress;
use crate::cli::pod_cause::FailedRun;
use crate::cli::pod_view::PodView;
use crate::telemetry::printable::AllLines;

/// Lines that are shown.
const LINES: i64 = 10;
/// Characters of a line that are shown.
const WIDTH: usize = 200;
/// Bytes of a log that are read.
const BYTES: i64 = 256 << 10;
/// How long a log may take.
const PATIENCE: Duration = Duration::from_secs(5);

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
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        let (name, progress) = (pod.metadata.name.clone().unwrap_or_default(), self.progress.clone());
        self.tasks.spawn(async move {
            // Without the right to read logs, or with a pod that is gone, the text has to do.
            let log = timeout(PATIENCE, read(&pods, &name, &run)).await;
            let lines = log.ok().flatten().map(|log| indented(&log)).unwrap_or_default();
            progress.note(&format!("{text}{lines}"));
        });
    }

    /// Waits until all have been shown.
    pub(super) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn read(pods: &Api<Pod>, name: &str, run: &FailedRun) -> Option<String> {
    let params = LogParams {
        container: Some(run.container.clone()),
        previous: run.previous,
        tail_lines: Some(LINES),
        limit_bytes: Some(BYTES),
        ..LogParams::default()
    };
    let mut bytes = Vec::new();
    pods.log_stream(name, &params).await.ok()?.read_to_end(&mut bytes).await.ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a log, each marked as such.
fn indented(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let shown = lines.iter().skip(lines.len().saturating_sub(LINES as usize)).map(|line| {
        let cut: String = line.chars().take(WIDTH).collect();
        let more = if cut.len() < line.len() { " ..." } else { "" };
        format!("\n  | {}{more}", AllLines(&cut))
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_and_none_can_pass_for_one_of_the_program() {
        assert_eq!(indented(""), "");
        assert_eq!(indented("one\ntwo\x1b[2J"), "\n  | one\n  | two\\u{1b}[2J");
        let many: String = (0..30).map(|n| format!("{n}\n")).collect();
        assert!(indented(&many).starts_with("\n  | 20\n") && indented(&many).ends_with("\n  | 29"));
        assert!(indented(&"x".repeat(1_000)).ends_with("x ..."));
    }
}
