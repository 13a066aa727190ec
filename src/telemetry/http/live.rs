//! The part of the page about one Job: questions that the API server answers, and actions of a viewer.
//!
//! A viewer's request carries the viewer's own token to the API server, which decides what the viewer sees and does. So the
//! page can neither show nor change anything that the viewer could not reach with kubectl.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Json, Router};
use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use serde::Deserialize;
use serde_json::Value;

use super::access::{Access, bearer};

/// A header that no form and no link of another web site can send.
const OF_PAGE: HeaderName = HeaderName::from_static("yardmaster-page");
/// A header of a log that goes on behind the lines of the answer.
const OF_LOG: HeaderName = HeaderName::from_static("yardmaster-log");
/// Most bytes of the body of an action.
const MAX_BODY: usize = 4 << 10;

/// Namespace and name of a Job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct JobKey {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// A question about a Job, or an action on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobAsk {
    /// Its status, as `yardmaster status JOB -o json` has it, and the parts of its spec that the page shows.
    Report,
    /// Its pods in compact lines, the last of which explains the failures.
    Pods,
    /// The newest Events about it, without those about its pods.
    Events,
    /// The object as YAML.
    Manifest,
    /// The log of a pod.
    Log(LogAsk),
    /// The actions that are possible for the viewer.
    Actions,
    /// Do this to the Job.
    Act(ActionAsk),
}

/// A part of a log.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct LogAsk {
    /// Name of the pod.
    pub pod: String,
    /// Name of the container; the only one if absent.
    #[serde(default)]
    pub container: Option<String>,
    /// Lines from this time on (RFC 3339); the last lines if absent.
    #[serde(default)]
    pub since: Option<String>,
    /// How many lines of this time the viewer has already.
    #[serde(default)]
    pub skip: usize,
    /// The log of the run before the last restart.
    #[serde(default)]
    pub previous: bool,
}

/// An action on a Job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ActionAsk {
    /// UID of the Job that the viewer saw: a Job of the same name that came later is left alone.
    pub uid: String,
    /// The kind of action.
    pub action: JobAction,
}

/// The kinds of actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobAction {
    /// Set `spec.suspend`.
    Suspend,
    /// Take `spec.suspend` back.
    Resume,
    /// Delete the Job and its pods.
    Delete,
    /// Create Jobs that run the failed indexes again.
    Retry,
}

/// The answer to a question.
pub enum LiveAnswer {
    /// A value.
    Json(Value),
    /// A text, such as a manifest.
    Text(String),
    /// Lines of a log.
    Log {
        /// The lines, each with its time.
        text: String,
        /// Whether more lines may follow at once. Otherwise the log ends here, as yet.
        more: bool,
    },
    /// Lines of JSON that are sent as they come.
    Lines(BoxStream<'static, String>),
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveRefusal {
    /// The code for the viewer.
    pub status: StatusCode,
    /// A text for the viewer.
    pub message: String,
}

/// The source of everything about one Job that the replica itself does not keep.
pub trait LiveJobs: Send + Sync + 'static {
    /// The answer to a question of the viewer with this bearer token.
    fn answer(
        &self,
        token: Option<String>,
        job: JobKey,
        ask: JobAsk,
    ) -> BoxFuture<'static, Result<LiveAnswer, LiveRefusal>>;

    /// The use of the machine of a cluster of one machine, and the pods that wait for room.
    fn machine(&self) -> BoxFuture<'static, Option<Value>> {
        Box::pin(async { None })
    }
}

/// The source of live answers, if there is one. Clones share it.
#[derive(Clone, Default)]
pub struct Live(Option<Arc<dyn LiveJobs>>);

impl Live {
    /// Answers from this source.
    pub fn of(jobs: impl LiveJobs) -> Self {
        Self(Some(Arc::new(jobs)))
    }

    /// The routes, if there is a source. The page's own secret is no token of the cluster.
    pub(super) fn routes(self, access: &Access) -> Router {
        let Some(jobs) = self.0 else {
            return Router::new().route("/debug/machine", get(async || StatusCode::NO_CONTENT));
        };
        let has_tokens = !matches!(access, Access::Secret(_));
        Router::new()
            .route("/debug/job", about(JobAsk::Report))
            .route("/debug/job/pods", about(JobAsk::Pods))
            .route("/debug/job/events", about(JobAsk::Events))
            .route("/debug/job/yaml", about(JobAsk::Manifest))
            .route("/debug/job/log", get(log))
            .route("/debug/job/actions", about(JobAsk::Actions))
            .route("/debug/job/act", post(act).layer(DefaultBodyLimit::max(MAX_BODY)))
            .route("/debug/machine", get(machine))
            .with_state(LiveSource { jobs, has_tokens })
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Live").field(&self.0.is_some()).finish()
    }
}

#[derive(Clone)]
struct LiveSource {
    jobs: Arc<dyn LiveJobs>,
    has_tokens: bool,
}

impl LiveSource {
    async fn answer(&self, headers: &HeaderMap, job: JobKey, ask: JobAsk) -> Response {
        let token = bearer(headers).filter(|_| self.has_tokens).map(str::to_owned);
        match self.jobs.answer(token, job, ask).await {
            Ok(answer) => answer.into_response(),
            Err(refusal) => refusal.into_response(),
        }
    }
}

impl IntoResponse for LiveAnswer {
    fn into_response(self) -> Response {
        const TEXT: &str = "text/plain; charset=utf-8";
        let (kind, body) = match self {
            Self::Log { text, more: true } => {
                return ([(header::CONTENT_TYPE, TEXT), (OF_LOG, "more")], text).into_response();
            }
            Self::Json(value) => ("application/json", Body::from(value.to_string())),
            Self::Text(text) | Self::Log { text, more: false } => (TEXT, Body::from(text)),
            Self::Lines(lines) => {
                let lines = lines.map(|line| Ok::<_, Infallible>(Bytes::from(line)));
                ("application/x-ndjson", Body::from_stream(lines))
            }
        };
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

impl IntoResponse for LiveRefusal {
    fn into_response(self) -> Response {
        (self.status, self.message).into_response()
    }
}

/// The route of a question that needs no more than the Job.
fn about(ask: JobAsk) -> MethodRouter<LiveSource> {
    get(async move |State(source): State<LiveSource>, Query(job): Query<JobKey>, headers: HeaderMap| {
        source.answer(&headers, job, ask).await
    })
}

async fn log(
    State(source): State<LiveSource>,
    Query(job): Query<JobKey>,
    Query(log): Query<LogAsk>,
    headers: HeaderMap,
) -> Response {
    source.answer(&headers, job, JobAsk::Log(log)).await
}

/// Acts on a Job. The guard has refused requests of other web sites by `Origin` and `Sec-Fetch-Site`. Besides, no other web site
/// can send this header or a body of JSON without a question that this server never permits.
async fn act(
    State(source): State<LiveSource>,
    Query(job): Query<JobKey>,
    headers: HeaderMap,
    Json(action): Json<ActionAsk>,
) -> Response {
    if !headers.contains_key(OF_PAGE) {
        return (StatusCode::FORBIDDEN, format!("actions need the header {OF_PAGE}\n")).into_response();
    }
    source.answer(&headers, job, JobAsk::Act(action)).await
}

async fn machine(State(source): State<LiveSource>) -> Response {
    match source.jobs.machine().await {
        Some(machine) => LiveAnswer::Json(machine).into_response(),
        // A page of several machines has none. A browser would report an error code.
        None => StatusCode::NO_CONTENT.into_response(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use axum::http::Request;
    use tower::ServiceExt as _;

    use super::super::secret::Secret;
    use super::*;

    /// The viewer's token, the Job and the question.
    type Asking = (Option<String>, JobKey, JobAsk);
    type Asked = Arc<Mutex<Vec<Asking>>>;

    /// Writes down what it is asked.
    struct Notes(Asked);

    impl LiveJobs for Notes {
        fn answer(
            &self,
            token: Option<String>,
            job: JobKey,
            ask: JobAsk,
        ) -> BoxFuture<'static, Result<LiveAnswer, LiveRefusal>> {
            self.0.lock().unwrap().push((token, job, ask));
            Box::pin(async { Ok(LiveAnswer::Text("answered".into())) })
        }
    }

    async fn ask(access: &Access, request: Request<Body>) -> (u16, Vec<Asking>) {
        let asked = Asked::default();
        let routes = Live::of(Notes(asked.clone())).routes(access);
        let status = routes.oneshot(request).await.unwrap().status().as_u16();
        let asked = std::mem::take(&mut *asked.lock().unwrap());
        (status, asked)
    }

    fn with_token(method: &str, path: &str, headers: &[(&str, &str)], body: &'static str) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header("authorization", "Bearer t");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Body::from(body)).unwrap()
    }

    #[tokio::test]
    async fn the_token_of_a_viewer_goes_on_and_the_secret_of_the_page_does_not() {
        let key = JobKey { namespace: "ml".into(), name: "train".into() };
        for (access, token) in
            [(Access::Loopback, Some("t".to_owned())), (Access::Secret(Secret::new("t")), None)]
        {
            let request = with_token("GET", "/debug/job?namespace=ml&name=train", &[], "");
            assert_eq!(ask(&access, request).await, (200, vec![(token, key.clone(), JobAsk::Report)]));
        }
    }

    #[tokio::test]
    async fn an_action_needs_the_header_and_a_body_that_no_form_can_send() {
        let path = "/debug/job/act?namespace=ml&name=train";
        let body = r#"{"uid": "u", "action": "suspend"}"#;
        let (json, page) = (("content-type", "application/json"), ("yardmaster-page", "1"));
        for (headers, expected) in [
            (vec![json, page], 200),
            (vec![json], 403),
            (vec![("content-type", "text/plain"), page], 415),
            (vec![page], 415),
        ] {
            let (status, asked) = ask(&Access::Loopback, with_token("POST", path, &headers, body)).await;
            assert_eq!((status, asked.len()), (expected, usize::from(expected == 200)), "{headers:?}");
        }
        for body in [r#"{"uid": "u", "action": "reboot"}"#, r#"{"action": "delete"}"#] {
            let (status, asked) = ask(&Access::Loopback, with_token("POST", path, &[json, page], body)).await;
            assert_eq!((status, asked.len()), (422, 0), "{body}");
        }
        let request = with_token("GET", path, &[json, page], body);
        assert_eq!(ask(&Access::Loopback, request).await.0, 405);
    }

    #[test]
    fn a_log_says_that_it_goes_on() {
        for more in [true, false] {
            let answer = LiveAnswer::Log { text: "line".into(), more }.into_response();
            assert_eq!(answer.headers().contains_key(OF_LOG), more);
        }
    }

    #[tokio::test]
    async fn without_a_source_nothing_is_served() {
        let request = with_token("GET", "/debug/job?namespace=ml&name=train", &[], "");
        let answer = Live::default().routes(&Access::Loopback).oneshot(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    }
}
