//! The last lines of a container's log, below what is said of its failure.

use std::time::Duration;

use futures::io::AsyncReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};
use tokio::time::timeout;

use super::pod_cause::FailedRun;
use super::untrusted::Untrusted;

/// Lines that are shown.
const LINES: i64 = 10;
/// Characters of a line that are shown.
const WIDTH: usize = 200;
/// Bytes of a log that are read.
const BYTES: i64 = 256 << 10;
/// How long a log may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Reads the last lines of a run's log. Without the right to read logs, or if the pod is gone, there are none.
pub(super) async fn last_lines(
    client: &kube::Client,
    namespace: &str,
    pod: &str,
    run: &FailedRun,
) -> Vec<Untrusted> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let log = timeout(PATIENCE, read(&pods, pod, run)).await;
    log.ok().flatten().map(|log| lines(&log)).unwrap_or_default()
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

fn lines(log: &str) -> Vec<Untrusted> {
    let lines: Vec<&str> = log.lines().collect();
    let last = lines.iter().skip(lines.len().saturating_sub(LINES as usize)).map(|line| {
        let cut: String = line.chars().take(WIDTH).collect();
        let more = if cut.len() < line.len() { " ..." } else { "" };
        Untrusted::from(cut + more)
    });
    last.collect()
}

/// The lines with a mark before each, so that none can pass for a line of the program.
pub(super) fn marked(lines: &[Untrusted]) -> impl Iterator<Item = String> {
    lines.iter().map(|line| format!("  | {}", line.indented()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_shown_and_none_can_pass_for_one_of_the_program() {
        let shown = |log: &str| marked(&lines(log)).collect::<Vec<_>>();
        assert_eq!(shown(""), [""; 0]);
        assert_eq!(shown("one\n  two\x1b[2J"), ["  | one", "  |   two\\u{1b}[2J"]);
        let many: String = (0..30).map(|n| format!("{n}\n")).collect();
        assert_eq!(shown(&many).first().map(String::as_str), Some("  | 20"));
        assert_eq!(shown(&many).last().map(String::as_str), Some("  | 29"));
        assert!(shown(&"x".repeat(1_000))[0].ends_with("x ..."));
    }
}
