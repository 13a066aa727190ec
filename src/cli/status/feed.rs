//! Reports one after the other, from watches: the API server lists Jobs and Leases only once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::task::AbortOnDropHandle;

use super::job::JobReport;
use super::report::{Report, Selection, waits, with_logs, with_pods};
use super::wait_reasons::{Inquiry, Waiting};
use crate::cli::failure;
use crate::cli::job_phase::JobPhase;
use crate::cli::ownership::Ownership;
use crate::cli::readable::events;
use crate::sharding::lease::LEASE_LABEL;

/// Interval of reports.
pub(super) const PERIOD: Duration = Duration::from_secs(2);
/// Age at which the wait of a Job that has not changed is found out again.
const WAIT_AGE: Duration = Duration::from_secs(10);
/// Jobs whose waits are found out for one report: each may take a list of pods and one of Events.
const EXAMINED: usize = 250;
/// Where `kubectl apply` keeps the whole Job a second time.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The newest report, and what is wrong with it.
#[derive(Clone, Debug, Default)]
pub(super) struct Latest {
    /// Absent until everything was listed.
    pub(super) report: Option<Arc<Report>>,
    /// Why the report may be old or lacks something.
    pub(super) problem: Option<String>,
    /// Why there will be no further reports.
    pub(super) end: Option<String>,
}

/// Namespace and name of a Job.
pub(super) type JobKey = (String, String);

/// The reports of a cluster; they end when this is dropped.
pub(super) struct Feed {
    latest: watch::Receiver<Latest>,
    opened: watch::Sender<Option<JobKey>>,
    _reader: AbortOnDropHandle<()>,
}

impl Feed {
    /// Begins to watch.
    pub(super) fn start(client: Client, selection: Selection, lease_namespace: Option<String>) -> Self {
        let (sender, latest) = watch::channel(Latest::default());
        let (opened, opens) = watch::channel(None);
        let reader = tokio::spawn(async move {
            let mut reader =
                Reader { client, selection, opens, waits: HashMap::new(), whole: None, unknown: None };
            if let Err(error) = reader.run(lease_namespace, &sender).await {
                sender.send_modify(|latest| latest.end = Some(failure::text(&error)));
            }
        });
        Self { latest, opened, _reader: AbortOnDropHandle::new(reader) }
    }

    /// From now on, reports have everything about this Job.
    pub(super) fn open(&self, job: Option<&JobKey>) {
        self.opened.send_if_modified(|opened| {
            let is_new = opened.as_ref() != job;
            *opened = job.cloned();
            is_new
        });
    }

    /// Waits for something newer.
    pub(super) async fn next(&mut self) -> Latest {
        let ended = self.latest.changed().await.is_err();
        let mut latest = self.latest.borrow_and_update().clone();
        if ended {
            latest.end.get_or_insert_with(|| "the reports have ended".to_owned());
        }
        latest
    }
}

/// The wait of a Job, and what it was found from.
struct Examined {
    version: Option<String>,
    at: Instant,
    waiting: Option<Waiting>,
}

/// The requests of a report beside its watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asking {
    Everything,
    /// It does not answer, or late.
    Nothing,
}

struct Reader {
    client: Client,
    selection: Selection,
    /// The Job about which everything is read.
    opens: watch::Receiver<Option<JobKey>>,
    /// The last such Job, with everything.
    whole: Option<JobReport>,
    /// Waits by Job UID.
    waits: HashMap<String, Examined>,
    /// Why the wait of some Job is not known.
    unknown: Option<String>,
}

impl Reader {
    async fn run(
        &mut self,
        lease_namespace: Option<String>,
        latest: &watch::Sender<Latest>,
    ) -> anyhow::Result<()> {
        let (jobs, jobs_writer) = reflector::store::<Job>();
        let (leases, leases_writer) = reflector::store::<Lease>();
        let watched = events(self.selection.api(&self.client), self.selection.watch());
        let watched = watched.modify(forget_unneeded);
        let mut job_events =
            std::pin::pin!(reflector::reflector(jobs_writer, watched).map(|event| event.map(drop)));
        let api = Ownership::leases(&self.client, lease_namespace.as_deref());
        let watched = events(api, watcher::Config::default().labels(LEASE_LABEL));
        let mut lease_events =
            std::pin::pin!(reflector::reflector(leases_writer, watched).map(|event| event.map(drop)));
        let (mut ready, mut is_silent, mut answered) = (false, false, Instant::now());
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut opens = self.opens.clone();
        loop {
            let event = tokio::select! {
                Ok(()) = opens.changed(), if ready => None,
                Some(event) = job_events.next() => Some(event),
                Some(event) = lease_events.next() => Some(event),
                _ = ticks.tick(), if ready => None,
            };
            match event {
                Some(Ok(())) => {
                    // A poll shows whether the store is filled.
                    ready = ready || is_filled(&jobs) && is_filled(&leases);
                    latest.send_if_modified(|latest| latest.problem.take().is_some());
                }
                Some(Err(error)) if !ready => return Err(error.into()),
                Some(Err(error)) => latest.send_modify(|latest| {
                    latest.problem = Some(format!("connection lost, trying again: {error}"));
                }),
                None if !answers(&self.client).await => {
                    let silent = answered.elapsed().as_secs();
                    let report = self.report(&jobs.state(), &leases.state(), Asking::Nothing).await?;
                    latest.send_modify(|latest| {
                        latest.report = Some(Arc::new(report));
                        latest.problem = Some(format!("no answer for {silent} s: what is shown may be old"));
                    });
                    is_silent = true;
                }
                None => {
                    answered = Instant::now();
                    let was_silent = std::mem::take(&mut is_silent);
                    let report = self.report(&jobs.state(), &leases.state(), Asking::Everything).await?;
                    let unknown = self.unknown.take();
                    latest.send_modify(|latest| {
                        latest.report = Some(Arc::new(report));
                        latest.problem = latest.problem.take().filter(|_| !was_silent).or(unknown);
                    });
                }
            }
        }
    }

    async fn report(
        &mut self,
        jobs: &[Arc<Job>],
        leases: &[Arc<Lease>],
        asking: Asking,
    ) -> anyhow::Result<Report> {
        let time = Timestamp::now();
        let leases: Vec<Lease> = leases.iter().map(|lease| Lease::clone(lease)).collect();
        let ownership = Ownership::of(&leases, time);
        if asking == Asking::Everything {
            self.examine(jobs, time).await;
        }
        let mut reports: Vec<_> = jobs
            .iter()
            .map(|job| {
                let waiting = self.examined(job).and_then(|examined| examined.waiting.clone());
                JobReport { waiting, ..JobReport::of(job, &ownership, time) }
            })
            .filter(|job| self.selection.includes(job))
            .collect();
        let wanted = match &self.selection {
            Selection::One { namespace, name } => {
                anyhow::ensure!(!reports.is_empty(), "Job {namespace}/{name} not found");
                Some((namespace.clone(), name.clone()))
            }
            Selection::Many { .. } => self.opens.borrow().clone(),
        };
        let is_wanted = |job: &JobReport| {
            wanted.as_ref().is_some_and(|(namespace, name)| job.namespace == *namespace && job.name == *name)
        };
        if let Some(place) = reports.iter().position(is_wanted) {
            reports[place] = self.whole(reports[place].clone(), asking).await;
        }
        reports.sort_by(JobReport::by_interest);
        Ok(Report { time, ownership, jobs: reports })
    }

    /// A Job with everything about it, some of it from before where the API server does not answer.
    async fn whole(&mut self, job: JobReport, asking: Asking) -> JobReport {
        let earlier = self.whole.take().filter(|earlier| earlier.uid == job.uid);
        let read = match asking {
            Asking::Nothing => None,
            Asking::Everything => match with_pods(&self.client, job.clone()).await {
                Ok(job) => Some(job),
                Err(error) => {
                    self.unknown = Some(format!("cannot list the pods of the Job: {error}"));
                    None
                }
            },
        };
        let whole = match (read, earlier) {
            (Some(job), earlier) => {
                let failures = earlier.as_ref().and_then(|earlier| earlier.failures.as_ref());
                with_logs(&self.client, job, failures).await
            }
            (None, Some(earlier)) => {
                let JobReport { pods, failures, index_map, .. } = earlier;
                JobReport { pods, failures, index_map, ..job }
            }
            (None, None) => job,
        };
        self.whole = Some(whole.clone());
        whole
    }

    /// Finds out what Jobs wait for, where that is not known from a short time ago.
    async fn examine(&mut self, jobs: &[Arc<Job>], now: Timestamp) {
        let unfinished: Vec<_> = jobs.iter().filter(|job| !JobPhase::of(job).is_finished()).collect();
        let uids: HashSet<&str> = unfinished.iter().filter_map(|job| job.metadata.uid.as_deref()).collect();
        self.waits.retain(|uid, _| uids.contains(uid.as_str()));
        let due = unfinished.into_iter().filter(|job| !self.is_examined(job, now));
        let mut due: Vec<Arc<Job>> = due.cloned().collect();
        // Jobs that were never examined come first. The others follow by age of their examination.
        due.sort_by_key(|job| self.examined(job).map(|examined| examined.at));
        due.truncate(EXAMINED);
        let inquiry = Inquiry::new(self.client.clone(), now);
        let found = waits(&inquiry, &due).await;
        for (job, waiting) in due.into_iter().zip(found) {
            let (uid, version) = (job.metadata.uid.clone().unwrap_or_default(), job.resource_version());
            let waiting = waiting.unwrap_or_else(|error| {
                self.unknown =
                    Some(format!("cannot find out what Job {} waits for: {error}", job.name_any()));
                None
            });
            self.waits.insert(uid, Examined { version, at: Instant::now(), waiting });
        }
    }

    /// The last examination of a Job.
    fn examined(&self, job: &Job) -> Option<&Examined> {
        self.waits.get(job.metadata.uid.as_ref()?)
    }

    /// Whether the wait of a Job, as it is now, is known from a short time ago, and has not run out.
    fn is_examined(&self, job: &Job, now: Timestamp) -> bool {
        self.examined(job).is_some_and(|examined| {
            let until = examined.waiting.as_ref().and_then(|waiting| waiting.until);
            examined.version == job.resource_version()
                && examined.at.elapsed() < WAIT_AGE
                && until.is_none_or(|until| until > now)
        })
    }
}

/// Whether the API server answers. A watch alone does not tell: it may have nothing to say.
async fn answers(client: &Client) -> bool {
    match timeout(PERIOD, client.apiserver_version()).await {
        Ok(Ok(_) | Err(kube::Error::Api(_))) => true,
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Whether the first list is complete.
fn is_filled<K>(store: &Store<K>) -> bool
where
    K: reflector::Lookup<DynamicType = ()> + Clone + 'static,
{
    store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok())
}

/// Drops what no report needs and what takes most of the memory of a Job.
fn forget_unneeded(job: &mut Job) {
    if let Some(spec) = &mut job.spec {
        let restart_policy = spec.template.spec.take().and_then(|pod| pod.restart_policy);
        let pod = PodSpec { restart_policy, ..PodSpec::default() };
        spec.template = PodTemplateSpec { spec: Some(pod), ..PodTemplateSpec::default() };
    }
    if let Some(annotations) = &mut job.metadata.annotations {
        annotations.remove(LAST_APPLIED);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;

    fn answering(code: Option<u16>) -> Client {
        let service = service_fn(move |_: Request<Body>| async move {
            match code {
                Some(code) => {
                    let body = Body::from(br#"{"kind": "Status"}"#.to_vec());
                    Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                }
                None => std::future::pending().await,
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_answers_and_one_that_hangs_does_not() {
        assert!(answers(&answering(Some(403))).await);
        assert!(!answers(&answering(None)).await);
    }
}
