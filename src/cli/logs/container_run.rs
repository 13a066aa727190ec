//! The log of one run of a container, to its end: it is opened again where a connection broke off.

use std::io;
use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::io::AsyncBufReadExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ApiResource, LogParams};

use super::lines::{Decoration, Lines};
use crate::cli::pod_view::{ContainerStatus, PodView, RunState};

/// First and longest pause before a log is opened again.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// How often the log of a run that has ended is asked for in vain.
const ATTEMPTS: usize = 5;

/// Where logs are shown.
pub(in crate::cli) trait LogSink: Clone + Send + Sync + 'static {
    /// Writes whole lines.
    fn write(&self, lines: &[u8]) -> io::Result<()>;
    /// Says something that is no part of a log.
    fn note(&self, text: &str);
}

/// The part of a log that is read.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::cli) struct Extent {
    /// Read on until the run ends.
    pub(in crate::cli) follow: bool,
    /// Begin with at most this many lines before the end.
    pub(in crate::cli) tail: Option<i64>,
    /// Begin this many seconds ago.
    pub(in crate::cli) since_seconds: Option<i64>,
}

/// A run of a container: it has a number for each start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RunKey {
    pub(super) pod_uid: String,
    pub(super) container: String,
    pub(super) restart_count: u32,
}

/// The log of a run.
#[derive(Clone)]
pub(super) struct ContainerRun {
    pub(super) client: kube::Client,
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) key: RunKey,
    pub(super) extent: Extent,
    pub(super) state: Progress,
    /// Another run may follow, whose log the same request would read.
    pub(super) may_restart: bool,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Running,
    Ended,
    /// It has ended, and the next has begun.
    Previous,
    /// Its log cannot be read any longer.
    Gone,
}

/// How a log that could be read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    /// Nothing was read: the next run has begun.
    Superseded,
}

/// Why a log was not read to its end.
#[derive(Debug)]
enum ReadError {
    Request(kube::Error),
    Connection(io::Error),
    /// The reader of the output has gone, so no more is shown.
    Output(io::Error),
}

impl ReadError {
    /// Whether the same request cannot succeed later.
    fn is_final(&self, run_has_ended: bool) -> bool {
        let Self::Request(kube::Error::Api(status)) = self else { return false };
        match status.code {
            401 | 403 => true,
            408 | 429 => false,
            // A container that has just started may not be known to its kubelet yet.
            400..500 => run_has_ended,
            _ => false,
        }
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Request(kube::Error::Api(status)) => status.message.fmt(f),
            Self::Request(error) => error.fmt(f),
            Self::Connection(error) | Self::Output(error) => error.fmt(f),
        }
    }
}

impl ContainerRun {
    /// Shows the log. An error means that nothing more can be shown anywhere.
    pub(super) async fn show(mut self, decoration: Decoration, sink: impl LogSink) -> io::Result<()> {
        let mut lines = Lines::new(decoration);
        let pauses = ExponentialBuilder::default()
            .with_min_delay(PAUSE.0)
            .with_max_delay(PAUSE.1)
            .without_max_times()
            .with_jitter();
        let (mut pause, mut failures, mut noted) = (pauses.build(), 0, false);
        while self.state != Progress::Gone {
            let to_the_end = !self.extent.follow || self.state != Progress::Running;
            let before = lines.position();
            let outcome = self.read(&mut lines, !to_the_end, &sink).await;
            if lines.position() != before {
                (pause, failures, noted) = (pauses.build(), 0, false);
            }
            match outcome {
                Ok(End::Complete) if to_the_end => return sink.write(&lines.finish()),
                Ok(_) => {}
                Err(ReadError::Output(error)) => return Err(error),
                Err(error) => {
                    failures += 1;
                    let last = error.is_final(to_the_end) || to_the_end && failures == ATTEMPTS;
                    if !noted && (last || failures == ATTEMPTS) {
                        let RunKey { container, .. } = &self.key;
                        sink.note(&format!("logs of pod {} container {container}: {error}", self.pod));
                        noted = true;
                    }
                    if last {
                        return sink.write(&lines.finish());
                    }
                }
            }
            // The state that is found then is the one to read by.
            tokio::time::sleep(pause.next().unwrap_or(PAUSE.1)).await;
            self.refresh().await;
        }
        sink.write(&lines.finish())
    }

    /// Finds out how far the run is, if that can be found out.
    pub(super) async fn refresh(&mut self) {
        self.state = self.progress().await.unwrap_or(self.state);
    }

    /// Reads until the log or the connection ends.
    async fn read(&self, lines: &mut Lines, follow: bool, sink: &impl LogSink) -> Result<End, ReadError> {
        lines.reopen();
        let position = lines.position();
        let params = LogParams {
            follow,
            container: Some(self.key.container.clone()),
            previous: self.state == Progress::Previous,
            timestamps: true,
            since_time: position.map(|position| position.since()),
            since_seconds: self.extent.since_seconds.filter(|_| position.is_none()),
            tail_lines: self.extent.tail.filter(|_| position.is_none()),
            ..LogParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let log = pods.log_stream(&self.pod, &params).await.map_err(ReadError::Request)?;
        // The next run may have begun just before the request.
        if self.may_restart
            && self.state != Progress::Previous
            && matches!(self.progress().await, Ok(Progress::Previous | Progress::Gone))
        {
            return Ok(End::Superseded);
        }
        let mut log = pin!(log);
        loop {
            let piece = log.fill_buf().await.map_err(ReadError::Connection)?;
            if piece.is_empty() {
                return Ok(End::Complete);
            }
            let (length, shown) = (piece.len(), lines.take(piece));
            log.consume_unpin(length);
            if !shown.is_empty() {
                sink.write(&shown).map_err(ReadError::Output)?;
            }
        }
    }

    /// How far the run is, according to the API server.
    async fn progress(&self) -> Result<Progress, kube::Error> {
        let pod = ApiResource::erase::<Pod>(&());
        let pods: Api<PodView> = Api::namespaced_with(self.client.clone(), &self.namespace, &pod);
        let pod = pods.get_opt(&self.pod).await?;
        let Some(pod) = pod.filter(|pod| pod.metadata.uid.as_ref() == Some(&self.key.pod_uid)) else {
            return Ok(Progress::Gone);
        };
        let status = pod.status.unwrap_or_default();
        let container = status.containers().find(|container| container.name == *self.key.container);
        Ok(container.map_or(Progress::Gone, |container| self.of(container)))
    }

    fn of(&self, container: &ContainerStatus) -> Progress {
        match container.restart_count.checked_sub(self.key.restart_count) {
            Some(0) if container.run_state() == RunState::Ended => Progress::Ended,
            Some(0) => Progress::Running,
            Some(1) => Progress::Previous,
            _ => Progress::Gone,
        }
    }
}
