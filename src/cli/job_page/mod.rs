//! Everything about one Job for the page, read from the API server with the rights of the viewer, and what a viewer does to it.

mod actions;
mod events;
mod log;
#[cfg(feature = "embedded")]
mod machine;
mod pods;
mod retry;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::Api;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

#[cfg(feature = "embedded")]
use self::machine::Machine;
use super::failure;
use super::namespace::parse_namespace;
use super::status::explained::report;
use crate::cluster::fair_semaphore::{FairSemaphore, Permit};
use crate::cluster::transport::ViewerClients;
use crate::job::job_id::is_subdomain;
use crate::telemetry::http::{JobAsk, JobKey, LiveAnswer, LiveJobs, LiveRefusal};
use crate::telemetry::traces::trace_id_of;

/// Questions that are answered at once.
const AT_ONCE: usize = 8;
/// Questions of one viewer that are answered at once.
const QUESTIONS_SHARE: usize = 4;
/// Lists of pods that are read at once: each may have 100,000 pods.
const LISTS_AT_ONCE: usize = 2;
/// Lists of one viewer that are read at once.
const LISTS_SHARE: usize = 1;
/// How long a question may wait for its turn, and take, besides a list of pods.
const PATIENCE: Duration = Duration::from_secs(15);

/// The source of the page's live answers. Clones share the connections and the bounds.
#[derive(Clone)]
pub(super) struct JobPage(Arc<JobPageState>);

struct JobPageState {
    clients: PageClients,
    offer: Offer,
    turns: PageTurns,
}

/// The turns of viewers: those of one viewer leave places to others.
struct PageTurns {
    questions: FairSemaphore,
    lists: FairSemaphore,
    /// Tells viewers apart, without their tokens.
    viewers: RandomState,
}

impl PageTurns {
    /// Of viewers with tokens.
    fn of_many() -> Self {
        Self {
            questions: FairSemaphore::new(AT_ONCE, QUESTIONS_SHARE),
            lists: FairSemaphore::new(LISTS_AT_ONCE, LISTS_SHARE),
            viewers: RandomState::new(),
        }
    }

    /// Of an owner, who is the only viewer.
    #[cfg(feature = "embedded")]
    fn of_one() -> Self {
        Self {
            questions: FairSemaphore::new(AT_ONCE, AT_ONCE),
            lists: FairSemaphore::new(LISTS_AT_ONCE, LISTS_AT_ONCE),
            viewers: RandomState::new(),
        }
    }

    /// A turn of the viewer with this token, which ends when it is dropped.
    async fn take(&self, turns: &FairSemaphore, token: Option<&str>) -> Result<Permit, LiveRefusal> {
        let viewer: Arc<str> = Arc::from(format!("{:x}", self.viewers.hash_one(token)));
        let turn = timeout(PATIENCE, turns.acquire(Some(&viewer), None)).await;
        turn.map_err(|_| refuse(StatusCode::SERVICE_UNAVAILABLE, "too many questions"))
    }

    async fn question(&self, token: Option<&str>) -> Result<Permit, LiveRefusal> {
        self.take(&self.questions, token).await
    }

    async fn list(&self, token: Option<&str>) -> Result<Permit, LiveRefusal> {
        self.take(&self.lists, token).await
    }
}

/// The operator's offer to viewers.
#[derive(Clone, Debug, Default)]
pub(super) struct Offer {
    /// Actions on Jobs.
    pub(super) actions: bool,
    /// The address of a trace, with `{trace}` in the place of its id.
    pub(super) trace_url: Option<String>,
}

/// Whose rights questions have.
enum PageClients {
    /// The owner of a cluster of one machine, whose page has the same owner.
    #[cfg(feature = "embedded")]
    Owner(Client, Machine),
    /// Each viewer's own.
    Viewers(ViewerClients),
}

impl JobPage {
    /// Answers with the rights of each viewer, by the viewer's token.
    pub(super) fn of_viewers(clients: ViewerClients, offer: Offer) -> Self {
        let turns = PageTurns::of_many();
        Self(Arc::new(JobPageState { clients: PageClients::Viewers(clients), offer, turns }))
    }

    /// Answers with the rights of this client, whose owner alone can read the page, and about this machine.
    #[cfg(feature = "embedded")]
    pub(super) fn of_owner(client: Client, offer: Offer) -> Self {
        let clients = PageClients::Owner(client, Machine::default());
        Self(Arc::new(JobPageState { clients, offer, turns: PageTurns::of_one() }))
    }
}

impl JobPageState {
    fn client(&self, token: Option<&str>) -> Result<Client, LiveRefusal> {
        match &self.clients {
            #[cfg(feature = "embedded")]
            PageClients::Owner(client, _) => Ok(client.clone()),
            PageClients::Viewers(clients) => {
                let missing =
                    || refuse(StatusCode::UNAUTHORIZED, "a bearer token of the cluster is required");
                clients.of(token.ok_or_else(missing)?).ok_or_else(missing)
            }
        }
    }

    async fn answer(
        &self,
        token: Option<String>,
        key: JobKey,
        ask: JobAsk,
    ) -> Result<LiveAnswer, LiveRefusal> {
        // Names become parts of paths.
        if parse_namespace(&key.namespace).is_err() || !is_subdomain(&key.name) {
            return Err(refuse(StatusCode::BAD_REQUEST, "namespace, name: no names of a Job"));
        }
        let client = self.client(token.as_deref())?;
        if ask == JobAsk::Pods {
            let deadline = Instant::now() + pods::PATIENCE;
            let turn = self.turns.list(token.as_deref()).await?;
            let job = timeout_at(deadline, job(&client, &key)).await.map_err(|_| late())??;
            return Ok(LiveAnswer::Lines(pods::lines(&client, job, turn, deadline)));
        }
        let _turn = self.turns.question(token.as_deref()).await?;
        let answer = async {
            Ok(match ask {
                JobAsk::Report | JobAsk::Pods => {
                    LiveAnswer::Json(whole(&job(&client, &key).await?, self.offer.trace_url.as_deref()))
                }
                JobAsk::Events => LiveAnswer::Json(events::read(&client, &key).await?),
                JobAsk::Manifest => LiveAnswer::Text(manifest(job(&client, &key).await?)?),
                JobAsk::Log(ask) => log::read(&client, &key.namespace, ask).await?,
                JobAsk::Actions => {
                    let is_on = self.offer.actions;
                    let possible = if is_on { actions::possible(&client, &key).await? } else { Vec::new() };
                    LiveAnswer::Json(json!({"switchedOn": is_on, "actions": possible}))
                }
                JobAsk::Act(_) if !self.offer.actions => {
                    return Err(refuse(StatusCode::FORBIDDEN, "actions are switched off: --page-actions"));
                }
                JobAsk::Act(ask) => LiveAnswer::Json(actions::act(&client, &key, ask).await?),
            })
        };
        timeout(PATIENCE, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

impl LiveJobs for JobPage {
    fn answer(
        &self,
        token: Option<String>,
        job: JobKey,
        ask: JobAsk,
    ) -> BoxFuture<'static, Result<LiveAnswer, LiveRefusal>> {
        let inner = self.0.clone();
        async move { inner.answer(token, job, ask).await }.boxed()
    }

    fn machine(&self) -> BoxFuture<'static, Option<Value>> {
        let inner = self.0.clone();
        async move {
            match &inner.clients {
                #[cfg(feature = "embedded")]
                PageClients::Owner(client, machine) => Some(machine.read(client).await),
                PageClients::Viewers(_) => None,
            }
        }
        .boxed()
    }
}

fn refuse(status: StatusCode, message: &str) -> LiveRefusal {
    LiveRefusal { status, message: message.to_owned() }
}

fn late() -> LiveRefusal {
    refuse(StatusCode::GATEWAY_TIMEOUT, "no answer from the API server")
}

/// The API server's refusal, or what kept it from answering.
fn refusal(error: kube::Error) -> LiveRefusal {
    match error {
        kube::Error::Api(status) => LiveRefusal {
            status: StatusCode::from_u16(status.code).unwrap_or(StatusCode::BAD_GATEWAY),
            message: status.message,
        },
        error => refuse(StatusCode::BAD_GATEWAY, &failure::text(&error.into())),
    }
}

async fn job(client: &Client, key: &JobKey) -> Result<Job, LiveRefusal> {
    Api::namespaced(client.clone(), &key.namespace).get(&key.name).await.map_err(refusal)
}

/// A Job as `status` reports it, with the parts of its spec that the page shows, and the address of its trace.
fn whole(job: &Job, trace_url: Option<&str>) -> Value {
    let trace = trace_id_of(job.metadata.uid.as_deref().unwrap_or_default()).to_string();
    let spec = job.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    let names = |containers: &[k8s_openapi::api::core::v1::Container]| -> Vec<String> {
        containers.iter().map(|container| container.name.clone()).collect()
    };
    json!({
        "job": report(job),
        "traceUrl": trace_url.map(|url| url.replace("{trace}", &trace)),
        "created": job.metadata.creation_timestamp.as_ref().map(|time| time.0),
        "deleting": job.metadata.deletion_timestamp.is_some(),
        "suspend": spec.and_then(|spec| spec.suspend),
        "completionMode": spec.and_then(|spec| spec.completion_mode.as_deref()),
        "activeDeadlineSeconds": spec.and_then(|spec| spec.active_deadline_seconds),
        "ttlSecondsAfterFinished": spec.and_then(|spec| spec.ttl_seconds_after_finished),
        "containers": pod.map(|pod| names(&pod.containers)),
        "initContainers": pod.and_then(|pod| pod.init_containers.as_deref()).map(names),
    })
}

/// The object as kubectl prints it.
fn manifest(mut job: Job) -> Result<String, LiveRefusal> {
    job.metadata.managed_fields = None;
    let value = serde_json::to_value(job).map_err(|error| broken(&error))?;
    serde_saphyr::to_string(&value).map_err(|error| broken(&error))
}

fn broken(error: &dyn std::fmt::Display) -> LiveRefusal {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_viewer_leaves_places_to_others() {
        let turns = PageTurns::of_many();
        let mut held = Vec::new();
        for _ in 0..QUESTIONS_SHARE {
            held.push(turns.question(Some("a")).await.unwrap());
        }
        let list = turns.list(Some("a")).await.unwrap();
        let refused = [turns.question(Some("a")).await.err(), turns.list(Some("a")).await.err()];
        assert!(refused.iter().flatten().all(|why| why.status == StatusCode::SERVICE_UNAVAILABLE));
        assert!(refused.iter().all(Option::is_some), "{refused:?}");
        held.push(turns.question(Some("b")).await.unwrap());
        held.push(turns.list(Some("b")).await.unwrap());
        drop(list);
        turns.list(Some("a")).await.unwrap();
    }
}
