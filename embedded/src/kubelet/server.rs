//! The kubelet's HTTP endpoint for container logs, which the API server proxies. It is for the API server
//! alone, which shows a token. The kubelet asks the API server whose token that is, as in Kubernetes.

use std::collections::VecDeque;
use std::io::SeekFrom;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Request, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures::stream;
use hyper::body::Incoming;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::api::{Api, PostParams};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncSeekExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::logs::{Found, Log, LogIndex, Progress, Record};
use crate::authentication::{KUBELET_CLIENT, Token, bearer_token};
use crate::connections::{HttpLimits, Newcomer, Port};

/// Size of the chunks in which a log is read and sent, in bytes.
const CHUNK: usize = 64 * 1024;

/// Query of a log request (`PodLogOptions`).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    follow: bool,
    previous: bool,
    timestamps: bool,
    since_seconds: Option<u64>,
    since_time: Option<Timestamp>,
    tail_lines: Option<usize>,
    limit_bytes: Option<usize>,
}

/// Bounds of the endpoint. Its only client opens a connection for each log that it reads.
const LIMITS: HttpLimits = HttpLimits {
    connections: 1024,
    newcomers: 64,
    arrival: Duration::from_secs(10),
    idle: Duration::from_secs(30),
    body: Duration::from_secs(10),
};

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
        let port = Port { listener, tls: None, limits: LIMITS, stop: stop.clone(), tasks: tasks.clone() };
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
    Query(options): Query<Options>,
) -> Response {
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
    match Reader::open(&log, options).await {
        Ok(reader) => {
            let chunks = stream::try_unfold(reader, |mut reader| async move {
                Ok::<_, std::io::Error>(reader.next().await?.map(|chunk| (chunk, reader)))
            });
            ([(header::CONTENT_TYPE, "text/plain")], Body::from_stream(chunks)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Reads a log according to the options.
struct Reader {
    file: BufReader<File>,
    progress: watch::Receiver<Progress>,
    /// Number of bytes read from the file.
    position: u64,
    /// The beginning of an incomplete record.
    line: Vec<u8>,
    since: Option<Timestamp>,
    /// Number of bytes that may still be sent.
    budget: usize,
    follow: bool,
    timestamps: bool,
}

impl Reader {
    async fn open(log: &Log, options: Options) -> std::io::Result<Self> {
        let now = Timestamp::now();
        let seconds_ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap_or(Timestamp::MIN);
        let mut reader = Self {
            file: BufReader::with_capacity(CHUNK, File::open(&log.path).await?),
            progress: log.progress.subscribe(),
            position: 0,
            line: Vec::new(),
            since: options.since_time.or(options.since_seconds.map(seconds_ago)),
            budget: options.limit_bytes.unwrap_or(usize::MAX),
            follow: options.follow,
            timestamps: options.timestamps,
        };
        if let Some(lines) = options.tail_lines {
            reader.skip_to_last(lines).await?;
        }
        Ok(reader)
    }

    /// Moves to the start of the last `lines` lines.
    async fn skip_to_last(&mut self, lines: usize) -> std::io::Result<()> {
        let mut starts = VecDeque::new();
        let mut start = 0;
        while self.read_record().await? {
            starts.push_back(start);
            if starts.len() > lines {
                starts.pop_front();
            }
            start = self.position;
            self.line.clear();
        }
        self.position = if lines == 0 { start } else { starts.front().copied().unwrap_or(0) };
        self.line.clear();
        self.file.seek(SeekFrom::Start(self.position)).await.map(drop)
    }

    /// Reads until `line` contains a whole record; `false` if the file has none (yet).
    async fn read_record(&mut self) -> std::io::Result<bool> {
        self.position += self.file.read_until(b'\n', &mut self.line).await? as u64;
        Ok(self.line.last() == Some(&b'\n'))
    }

    /// The next chunk to send; `None` at the end.
    async fn next(&mut self) -> std::io::Result<Option<Bytes>> {
        let mut chunk = Vec::new();
        while self.budget > 0 && chunk.len() < CHUNK {
            if self.read_record().await? {
                self.send(&mut chunk);
            } else if !chunk.is_empty() || !self.more().await {
                break;
            }
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }

    /// Moves the record in `line` to the chunk, if the options include it.
    fn send(&mut self, chunk: &mut Vec<u8>) {
        let start = chunk.len();
        if let Some(record) = Record::parse(&self.line)
            && self.since.is_none_or(|since| record.time.parse::<Timestamp>().is_ok_and(|time| time >= since))
        {
            if self.timestamps {
                chunk.extend_from_slice(record.time.as_bytes());
                chunk.push(b' ');
            }
            record.text_into(chunk);
        }
        chunk.truncate(start + self.budget.min(chunk.len() - start));
        self.budget -= chunk.len() - start;
        self.line.clear();
    }

    /// Waits until there is more to read; `false` if there will not be, or if the client does not follow.
    async fn more(&mut self) -> bool {
        let position = self.position;
        let ahead = |progress: &Progress| progress.written > position;
        if !self.follow {
            return false;
        }
        // Fails when the pod has been removed meanwhile. The remaining output must still be read.
        let _known = self.progress.wait_for(|progress| ahead(progress) || progress.closed).await.map(drop);
        ahead(&self.progress.borrow())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::logs::LogWriter;
    use super::*;

    async fn read(log: &Log, options: Options) -> String {
        let mut reader = Reader::open(log, options).await.unwrap();
        let mut text = Vec::new();
        while let Some(chunk) = reader.next().await.unwrap() {
            text.extend_from_slice(&chunk);
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn options_select_the_lines_to_send() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(directory.path().join("log")).unwrap();
        writer.write(b"1\n2\n3\nend");
        let log = writer.log();
        drop(writer);
        assert_eq!(read(&log, Options::default()).await, "1\n2\n3\nend");
        assert_eq!(read(&log, Options { tail_lines: Some(2), ..Options::default() }).await, "3\nend");
        assert_eq!(read(&log, Options { tail_lines: Some(0), ..Options::default() }).await, "");
        assert_eq!(read(&log, Options { tail_lines: Some(9), ..Options::default() }).await, "1\n2\n3\nend");
        assert_eq!(read(&log, Options { limit_bytes: Some(3), ..Options::default() }).await, "1\n2");
        let future = Timestamp::now().checked_add(Duration::from_secs(60)).unwrap();
        assert_eq!(read(&log, Options { since_time: Some(future), ..Options::default() }).await, "");
        assert_eq!(
            read(&log, Options { since_seconds: Some(60), ..Options::default() }).await,
            "1\n2\n3\nend"
        );
        let stamped =
            read(&log, Options { timestamps: true, tail_lines: Some(1), ..Options::default() }).await;
        let (time, text) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok());
        assert_eq!(text, "end");
    }

    #[tokio::test]
    async fn following_ends_with_the_container() {
        let directory = tempfile::tempdir().unwrap();
        let mut writer = LogWriter::create(directory.path().join("log")).unwrap();
        let log = writer.log();
        writer.write(b"early\n");
        let reading =
            tokio::spawn(async move { read(&log, Options { follow: true, ..Options::default() }).await });
        tokio::task::yield_now().await;
        writer.write(b"late\nunfinished");
        drop(writer);
        assert_eq!(reading.await.unwrap(), "early\nlate\nunfinished");
    }
}
