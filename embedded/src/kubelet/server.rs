//! The kubelet's HTTP endpoint for container logs, which the API server proxies. It is for the API server
//! alone, which shows a token. The kubelet asks the API server whose token that is, as in Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use hyper::body::Incoming;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::logs::reader::{Options, Reader};
use super::logs::{Found, LogIndex};
use crate::authentication::{KUBELET_CLIENT, Token, bearer_token};
use crate::connections::{HttpLimits, Newcomer, Places, Port, Transport};
use crate::exchange::query::Query;

/// Bounds of the endpoint. Its only client opens a connection for each log that it reads.
const LIMITS: HttpLimits = HttpLimits {
    connections: 1024,
    newcomers: 64,
    arrival: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    body: Duration::from_secs(10),
};

/// The endpoint takes no more than a half of the files that this process may open.
const PART_OF_FILES: u64 = 2;

/// The running endpoint. Dropping it ends it at once.
#[derive(Debug)]
pub(super) struct LogServer {
    stop: CancellationToken,
    connections: TaskTracker,
    port: JoinSet<()>,
}

impl LogServer {
    /// Serves logs on a port. Credentials are reviewed by the API server of this client.
    pub(super) fn start(listener: TcpListener, logs: Arc<LogIndex>, client: kube::Client) -> Self {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let port = Port {
            listener,
            transport: Transport::Clear,
            limits: LIMITS,
            places: Places::new(&LIMITS, PART_OF_FILES),
            stop: stop.clone(),
            tasks: tasks.clone(),
        };
        let router = Router::new()
            .route("/containerLogs/{namespace}/{pod}/{container}", get(container_logs))
            .with_state(logs);
        let reviewer = Arc::new(Reviewer { reviews: Api::all(client), known: Mutex::default() });
        let handle = move |request: Request<Incoming>, connection: Arc<Newcomer>| {
            let (router, reviewer) = (router.clone(), Arc::clone(&reviewer));
            async move {
                if !reviewer.knows(request.headers()).await {
                    return Ok((StatusCode::UNAUTHORIZED, "Unauthorized").into_response());
                }
                connection.welcome();
                router.oneshot(request).await
            }
        };
        let mut serving = JoinSet::new();
        serving.spawn(port.serve(handle));
        Self { stop, connections: tasks, port: serving }
    }

    /// Ends the endpoint. Logs that are being followed are cut off.
    pub(super) async fn shutdown(mut self) {
        self.stop.cancel();
        while self.port.join_next().await.is_some() {}
        self.connections.close();
        self.connections.wait().await;
    }
}

impl Drop for LogServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Asks the API server whether a token is its own.
struct Reviewer {
    reviews: Api<TokenReview>,
    /// The last token that was.
    known: Mutex<Option<Token>>,
}

impl Reviewer {
    async fn knows(&self, headers: &HeaderMap) -> bool {
        let Some(sent) = bearer_token(headers) else { return false };
        if self.known.lock().as_ref().is_some_and(|known| known.is(sent)) {
            return true;
        }
        let spec = TokenReviewSpec { token: sent.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = match self.reviews.create(&PostParams::default(), &review).await {
            Ok(review) => review.status.unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "cannot ask the API server whose token a request for a log has");
                return false;
            }
        };
        let user = status.user.unwrap_or_default().username;
        let known = status.authenticated == Some(true) && user.as_deref() == Some(KUBELET_CLIENT);
        if known {
            *self.known.lock() = Token::new(sent).ok();
        }
        known
    }
}

async fn container_logs(
    State(logs): State<Arc<LogIndex>>,
    Path((namespace, pod, container)): Path<(String, String, String)>,
    RawQuery(query): RawQuery,
) -> Response {
    let options = match Options::of(&Query::parse(query.as_deref())) {
        Ok(options) => options,
        Err(problem) => return (StatusCode::BAD_REQUEST, problem).into_response(),
    };
    let log = match logs.find(&namespace, &pod, &container, options.previous) {
        Found::Log(log) => log,
        Found::NoPod => {
            let message = format!("pod \"{namespace}/{pod}\" not found");
            return (StatusCode::NOT_FOUND, message).into_response();
        }
        Found::NotStarted => {
            let message = if options.previous {
                format!("previous terminated container \"{container}\" in pod \"{pod}\" not found")
            } else {
                format!("container \"{container}\" in pod \"{pod}\" is waiting to start: ContainerCreating")
            };
            return (StatusCode::BAD_REQUEST, message).into_response();
        }
    };
    match Reader::open(log, options).await {
        Ok(reader) => {
            let chunks = stream::try_unfold(reader, |mut reader| async move {
                Ok::<_, std::io::Error>(reader.next().await?.map(|chunk| (chunk, reader)))
            });
            ([(header::CONTENT_TYPE, "text/plain")], Body::from_stream(chunks)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
