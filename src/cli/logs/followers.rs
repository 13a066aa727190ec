//! Follows the logs of many containers at once: each run of each container, and none twice.

use std::collections::{HashMap, HashSet};
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::container_run::{ContainerRun, Extent, LogSink, Progress, RunKey};
use super::lines::Decoration;
use crate::cli::pod_view::{ContainerStatus, PodView, RunState};

/// Shows logs in the background.
pub(in crate::cli) struct Followers<S> {
    client: kube::Client,
    /// A slot for each log that may be read at once.
    slots: Arc<Semaphore>,
    limit: usize,
    limit_noted: bool,
    /// Runs whose log is or was shown.
    shown: HashSet<RunKey>,
    /// The newest run by pod UID and container.
    newest: HashMap<(String, String), u32>,
    tasks: JoinSet<io::Result<()>>,
    sinks: PhantomData<S>,
}

impl<S: LogSink> Followers<S> {
    /// Reads at most `limit` logs at once; more wait for one to end.
    pub(in crate::cli) fn new(client: kube::Client, limit: usize) -> Self {
        let slots = Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS)));
        let (shown, newest) = (HashSet::new(), HashMap::new());
        let (tasks, sinks) = (JoinSet::new(), PhantomData);
        Self { client, slots, limit, limit_noted: false, shown, newest, tasks, sinks }
    }

    /// Shows the log of a container's newest run, unless it is or was shown. When runs in between were missed, that
    /// of the one before, too, which is the last that a cluster keeps.
    pub(in crate::cli) fn follow(
        &mut self,
        pod: &PodView,
        container: &ContainerStatus,
        extent: Extent,
        decoration: &Decoration,
        sink: &S,
    ) {
        let state = match container.run_state() {
            RunState::NotStarted => return,
            RunState::Running => Progress::Running,
            RunState::Ended => Progress::Ended,
        };
        let Some(run) = run(&self.client, pod, container, extent, state) else { return };
        let number = run.key.restart_count;
        let newest = self.newest.insert((run.key.pod_uid.clone(), run.key.container.clone()), number);
        if newest.is_some_and(|newest| newest + 1 < number) {
            let key = RunKey { restart_count: number - 1, ..run.key.clone() };
            self.start(ContainerRun { key, state: Progress::Previous, ..run.clone() }, decoration, sink);
        }
        self.start(run, decoration, sink);
    }

    fn start(&mut self, mut run: ContainerRun, decoration: &Decoration, sink: &S) {
        if !self.shown.insert(run.key.clone()) {
            return;
        }
        let free = self.slots.clone().try_acquire_owned();
        if free.is_err() && !self.limit_noted {
            self.limit_noted = true;
            let limit = self.limit;
            sink.note(&format!(
                "{limit} logs are read at once; others wait until one of them ends (--max-log-requests)"
            ));
        }
        let (slots, sink, decoration) = (self.slots.clone(), sink.clone(), decoration.clone());
        self.tasks.spawn(async move {
            let _slot = match free {
                Ok(slot) => Some(slot),
                Err(_) => {
                    // The semaphore is never closed.
                    let slot = slots.acquire_owned().await.ok();
                    if run.state != Progress::Previous {
                        run.refresh().await;
                    }
                    slot
                }
            };
            run.show(decoration, sink).await
        });
    }

    /// Waits until a log has been shown to its end; for ever if there is none. An error means that nothing more
    /// can be shown.
    pub(in crate::cli) async fn next_end(&mut self) -> io::Result<()> {
        match self.tasks.join_next().await {
            // A task that panicked has said so.
            Some(ended) => ended.unwrap_or(Ok(())),
            None => std::future::pending().await,
        }
    }

    /// Waits until each log has been shown, whatever becomes of the others. Returns why some could not be.
    pub(in crate::cli) async fn finish_each(&mut self) -> Vec<io::Error> {
        let mut errors = Vec::new();
        while let Some(ended) = self.tasks.join_next().await {
            // A task that panicked has said so.
            errors.extend(ended.unwrap_or(Ok(())).err());
        }
        errors
    }

    /// Waits until all logs have been shown.
    pub(in crate::cli) async fn finish(&mut self) -> io::Result<()> {
        while !self.tasks.is_empty() {
            self.next_end().await?;
        }
        Ok(())
    }
}

/// The newest run of a container; in the state `Previous`, the one before.
pub(super) fn run(
    client: &kube::Client,
    pod: &PodView,
    container: &ContainerStatus,
    extent: Extent,
    state: Progress,
) -> Option<ContainerRun> {
    let key = RunKey {
        pod_uid: pod.metadata.uid.clone()?,
        container: container.name.raw().to_owned(),
        restart_count: container.restart_count.saturating_sub(u32::from(state == Progress::Previous)),
    };
    Some(ContainerRun {
        client: client.clone(),
        namespace: pod.metadata.namespace.clone()?,
        pod: pod.metadata.name.clone()?,
        key,
        extent,
        state,
        may_restart: pod.spec.restart_policy != "Never",
    })
}
