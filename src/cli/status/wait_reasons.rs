//! Why no pod of a Job is created: the reason that a controller would find from the Job, its pods and its
//! Events now.
//!
//! The controller's own rules decide: the Job's pods go into a [`JobState`], and the resulting plan names the
//! wait. Its length follows from the Job's annotations and the default flags of a controller.

use crate::job::uid::UidSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1 as batch;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams};
use kube::core::Request;
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use crate::cli::event_view::EventView;
use crate::cli::lists::views;
use crate::cli::readable::Readable;
use crate::cli::untrusted::Untrusted;
use crate::cluster::wire::{Decoder, JobDecoder, ObservedPod, PodDecoder};
use crate::job::limits::Limits;
use crate::job::names::{BUILT_IN_CONTROLLER, BUILT_IN_FINALIZER, CONTROLLER_UID_LABEL, EXTERNAL_FINALIZER};
use crate::job::plan::Wait;
use crate::job::reconcile::reconcile;
use crate::job::spec::Job;
use crate::job::state::JobState;

/// Maximum number of pods that one report reads. Later Jobs show no wait if it depends on their pods.
const MAX_PODS: usize = 20_000;
/// How long one report looks for waits. Later Jobs show no wait if it depends on their pods or Events: others choose how many
/// of those there are.
const PATIENCE: Duration = Duration::from_secs(10);
/// A refusal older than this no longer holds: creations are retried at least once a minute.
const REFUSAL_AGE: SignedDuration = SignedDuration::from_mins(5);

/// Why no pod of a Job is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Waiting {
    /// The reason, a single CamelCase word.
    pub(super) reason: &'static str,
    /// When the wait ends, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// The message of the API server that refused a pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<Untrusted>,
}

impl From<&Wait> for Waiting {
    fn from(wait: &Wait) -> Self {
        Self { reason: wait.reason(), until: wait.until(), message: None }
    }
}

/// The source of a Job's wait.
enum Of {
    /// The Job itself.
    Job(Option<Waiting>),
    /// Its pods, which have the finalizer of this name.
    Pods(Box<JobState>, &'static str),
}

/// Finds the waits of Jobs for one report.
pub(super) struct Inquiry {
    client: Client,
    now: Timestamp,
    until: Instant,
    pods_left: AtomicUsize,
}

impl Inquiry {
    /// An inquiry that has read no pods yet.
    pub(super) fn new(client: Client, now: Timestamp) -> Self {
        Self { client, now, until: Instant::now() + PATIENCE, pods_left: AtomicUsize::new(MAX_PODS) }
    }

    /// Why no pod of the Job of this name is created; `None` if pods are created or the reason is unknown.
    pub(super) async fn why_named(&self, namespace: &str, name: &str) -> anyhow::Result<Option<Waiting>> {
        let jobs: Api<Readable<batch::Job>> = Api::namespaced(self.client.clone(), namespace);
        let Ok(found) = timeout_at(self.until, jobs.get_opt(name)).await else { return Ok(None) };
        match found? {
            Some(Readable(job)) => self.why(&job).await,
            None => Ok(None),
        }
    }

    /// The same, if it follows from the Job itself; else `None`.
    pub(super) fn without_pods(&self, job: &batch::Job) -> Option<anyhow::Result<Option<Waiting>>> {
        match self.begin(job) {
            Ok(Of::Job(waiting)) => Some(Ok(waiting)),
            Ok(Of::Pods(..)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// The same of a Job that has been read.
    pub(super) async fn why(&self, job: &batch::Job) -> anyhow::Result<Option<Waiting>> {
        match self.begin(job)? {
            Of::Job(waiting) => Ok(waiting),
            Of::Pods(state, finalizer) => {
                let asked = timeout_at(self.until, self.ask(state, finalizer)).await;
                asked.unwrap_or(Ok(None))
            }
        }
    }

    /// The wait that the Job's pods and Events show.
    async fn ask(&self, mut state: Box<JobState>, finalizer: &str) -> anyhow::Result<Option<Waiting>> {
        let Some(pods) = self.pods(&state.job, finalizer).await? else { return Ok(None) };
        for pod in pods {
            let pod = pod.of_job(&state.job.spec.selector);
            state.observe_pod(pod, self.now);
        }
        state.pods_listed(&UidSet::default(), 0);
        let plan = reconcile(&state, self.now);
        match plan.waiting {
            Some(wait) => Ok(Some(Waiting::from(&wait))),
            None if plan.creates.is_empty() => Ok(None),
            None => self.refusal(&state.job).await,
        }
    }

    /// The wait that the Job itself shows, without a request.
    fn begin(&self, job: &batch::Job) -> anyhow::Result<Of> {
        let observed = JobDecoder::new().decode(&serde_json::to_vec(job)?)?;
        let Ok(read) = &observed.job else { return Ok(Of::Job(None)) };
        if read.status.finished().is_some() {
            return Ok(Of::Job(None));
        }
        let limits = Limits { debounce_period: Duration::ZERO, ..Limits::default() };
        let state = JobState::new(read.clone(), limits);
        if let Some(wait) = reconcile(&state, self.now).waiting {
            return Ok(Of::Job(Some(Waiting::from(&wait))));
        }
        if is_full(&state.job) {
            return Ok(Of::Job(None));
        }
        let replaces_built_in = observed.managed_by.as_deref().is_none_or(|name| name == BUILT_IN_CONTROLLER);
        let finalizer = if replaces_built_in { BUILT_IN_FINALIZER } else { EXTERNAL_FINALIZER };
        Ok(Of::Pods(Box::new(state), finalizer))
    }

    /// The Job's pods; `None` if they exceed [`MAX_PODS`].
    async fn pods(&self, job: &Job, finalizer: &str) -> anyhow::Result<Option<Vec<Box<ObservedPod>>>> {
        let decoder = PodDecoder::new(finalizer);
        let request = Request::new(Pod::url_path(&(), Some(&job.namespace)));
        let labels = format!("{CONTROLLER_UID_LABEL}={}", job.uid);
        // A page is read in one piece, and a pod may have a megabyte.
        let mut params = ListParams::default().labels(&labels).limit(50);
        let (id, mut pods) = (job.id(), Vec::new());
        loop {
            let page: Page = self.client.request(request.list(&params)?).await?;
            let (room, count) = (self.pods_left.load(Ordering::Relaxed), page.items.len());
            if count > room {
                return Ok(None);
            }
            self.pods_left.fetch_sub(count, Ordering::Relaxed);
            for item in page.items {
                let pod = decoder.decode(item.get().as_bytes())?;
                if pod.job() == Some(&id) {
                    pods.push(pod);
                }
            }
            match page.metadata.continue_token.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(Some(pods)),
            }
        }
    }

    /// The wait of a Job that lacks pods although no rule delays them: a recent refusal by the API server,
    /// from Events.
    async fn refusal(&self, job: &Job) -> anyhow::Result<Option<Waiting>> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &job.namespace);
        let about = format!("involvedObject.uid={},reason=FailedCreate", job.uid);
        // Others choose how many Events there are, and how large.
        let mut events = pin!(views(api, &ListParams::default().fields(&about)));
        let mut newest: Option<(Timestamp, EventView)> = None;
        while let Some(event) = events.try_next().await? {
            let event: EventView = event;
            if let Some(at) = event.seen_at()
                && newest.as_ref().is_none_or(|(newest, _)| *newest <= at)
            {
                newest = Some((at, event));
            }
        }
        let recent = newest.filter(|(at, _)| self.now.duration_since(*at) < REFUSAL_AGE);
        let refused = Wait::Refused(self.now).reason();
        Ok(recent.map(|(_, event)| Waiting {
            reason: refused,
            until: None,
            message: event.message.map(Untrusted::from),
        }))
    }
}

/// Whether as many pods are active as there can be, so that none is missing.
fn is_full(job: &Job) -> bool {
    let status = &job.status;
    let all_at_work =
        |completions| u64::from(status.active) + u64::from(status.succeeded) >= u64::from(completions);
    status.active >= job.spec.parallelism || job.spec.completion.wanted().is_some_and(all_at_work)
}

/// A page of a list with undecoded items.
#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Vec<Box<RawValue>>,
}

#[derive(Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}
