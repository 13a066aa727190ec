//! A part of a pod's log. The page follows a log by asking for what came after its last line.

use std::io;
use std::pin::pin;

use axum::http::StatusCode;
use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, LogParams};

use super::{refusal, refuse};
use crate::cli::logs::{Decoration, Lines, Position};
use crate::job::job_id::is_subdomain;
use crate::telemetry::http::{LiveAnswer, LiveRefusal, LogAsk};

/// Lines at the end of a log with which the page begins.
const LINES: i64 = 1_000;
/// An answer ends with the line that reaches this many bytes. The page then asks for the next.
const BYTES: usize = 256 << 10;
/// Most bytes that are read for an answer. Lines of the second of the last line come again, and are left out.
const MOST_READ: usize = 16 << 20;
/// Most bytes that are read in one piece.
const PIECE: usize = 64 << 10;
/// The end of a line that is too long.
const LONGER: &str = " [the rest of this line is left out]\n";

/// Reads the lines that are asked for, each with its time.
pub(super) async fn read(client: &Client, namespace: &str, ask: LogAsk) -> Result<LiveAnswer, LiveRefusal> {
    if !is_subdomain(&ask.pod) {
        return Err(refuse(StatusCode::BAD_REQUEST, "pod: no name of a pod"));
    }
    let since = ask.since.as_deref().map(str::parse).transpose();
    let since = since.map_err(|_| refuse(StatusCode::BAD_REQUEST, "since: no time in RFC 3339 format"))?;
    let shown = since.map(|time| Position::new(time, ask.skip));
    let params = LogParams {
        container: ask.container,
        previous: ask.previous,
        timestamps: true,
        tail_lines: shown.is_none().then_some(LINES),
        since_time: shown.map(Position::since),
        ..LogParams::default()
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let log = pods.log_stream(&ask.pod, &params).await.map_err(refusal)?;
    let part = LogPart::read(log, shown).await;
    match part.map_err(|error| refuse(StatusCode::BAD_GATEWAY, &error.to_string()))? {
        LogPart { bytes, more: true } if bytes.is_empty() => {
            let problem = "the log has too much text in this second: `kubectl logs` reads on";
            Err(refuse(StatusCode::BAD_GATEWAY, problem))
        }
        LogPart { bytes, more } => {
            Ok(LiveAnswer::Log { text: String::from_utf8_lossy(&bytes).into_owned(), more })
        }
    }
}

/// Lines of a log.
#[derive(Debug, PartialEq)]
struct LogPart {
    /// Whole lines. The last one may be open if the log ends with it.
    bytes: Vec<u8>,
    /// Whether more lines may follow.
    more: bool,
}

impl LogPart {
    /// Reads lines that have not been shown.
    async fn read(log: impl AsyncBufRead, shown: Option<Position>) -> io::Result<Self> {
        let mut log = pin!(log);
        let mut lines = Lines::behind(shown, Decoration { prefix: None, timestamps: true });
        let (mut bytes, mut read) = (Vec::new(), 0);
        while bytes.len() < BYTES && read < MOST_READ {
            let piece = log.fill_buf().await?;
            let length = piece.len().min(PIECE);
            if length == 0 {
                bytes.extend(lines.finish());
                return Ok(Self { bytes, more: false });
            }
            bytes.extend(lines.take(&piece[..length]));
            log.consume_unpin(length);
            read += length;
        }
        // A line of which a part was read comes again.
        match memchr::memrchr(b'\n', &bytes) {
            Some(end) => bytes.truncate(end + 1),
            None if bytes.is_empty() => {}
            None => bytes.extend_from_slice(LONGER.as_bytes()),
        }
        Ok(Self { bytes, more: true })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::convert::Infallible;
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// A client whose answers are this log, and the paths that it asks for.
    fn serving(log: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
        let (log, asked) = (log.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let paths = asked.clone();
        let answer = tower::service_fn(move |request: Request<Body>| {
            paths.lock().unwrap().push(request.uri().to_string());
            let answer = Response::new(Body::from(log.clone().into_bytes()));
            async { Ok::<_, Infallible>(answer) }
        });
        (Client::new(answer, "default"), asked)
    }

    fn ask(since: Option<&str>, skip: usize) -> LogAsk {
        LogAsk { pod: "p".into(), container: None, since: since.map(str::to_owned), skip, previous: false }
    }

    async fn text(client: &Client, ask: LogAsk) -> (String, bool) {
        match read(client, "ml", ask).await.unwrap() {
            LiveAnswer::Log { text, more } => (text, more),
            _ => panic!("no log"),
        }
    }

    #[tokio::test]
    async fn lines_of_the_second_of_the_last_line_are_read_and_shown_once() {
        let log = "2026-01-01T00:00:26.5Z a\n2026-01-01T00:00:26.75Z b\n2026-01-01T00:00:26.75Z c\n\
                   2026-01-01T00:00:26.8Z d\n";
        let (client, asked) = serving(log);
        let (shown, more) = text(&client, ask(Some("2026-01-01T00:00:26.750Z"), 1)).await;
        assert_eq!(shown, "2026-01-01T00:00:26.75Z c\n2026-01-01T00:00:26.8Z d\n");
        assert!(!more);
        let path = asked.lock().unwrap().remove(0);
        assert!(path.contains("sinceTime=2026-01-01T00%3A00%3A26Z"), "{path}");
    }

    #[tokio::test]
    async fn no_time_is_too_late_to_be_asked_for() {
        let (client, asked) = serving("");
        let last = ask(Some("9999-12-30T22:00:00.999999999Z"), usize::MAX);
        assert_eq!(text(&client, last).await, (String::new(), false));
        assert!(asked.lock().unwrap()[0].contains("sinceTime=9999-12-30T22%3A00%3A00Z"));
        assert!(read(&client, "ml", ask(Some("yesterday"), 0)).await.is_err());
    }

    /// Many lines have one time, and all are in one second.
    #[tokio::test]
    async fn a_long_log_is_read_part_by_part_and_keeps_its_place() {
        const TIME: &str = "2026-01-01T00:00:26.5Z";
        let line = |number: usize| format!("{TIME} {number:05} {}\n", "x".repeat(1_000));
        let log: String = (0..1_000).map(line).collect();
        let (client, _) = serving(&log);
        let (mut shown, mut parts, mut more) = (String::new(), 0, true);
        while more {
            let count = shown.lines().count();
            let part = text(&client, ask((count > 0).then_some(TIME), count)).await;
            shown += &part.0;
            (more, parts) = (part.1, parts + 1);
            assert!(parts < 10, "the place is lost");
        }
        assert!(shown == log, "each line is shown once");
    }

    #[tokio::test]
    async fn a_line_without_end_says_that_it_is_longer() {
        let log = format!("2026-01-01T00:00:26Z {}\n2026-01-01T00:00:27Z end\n", "x".repeat(3 << 20));
        let (client, _) = serving(&log);
        let (shown, more) = text(&client, ask(None, 0)).await;
        assert!(more && shown.ends_with(LONGER) && shown.lines().count() == 1);
        let (shown, more) = text(&client, ask(Some("2026-01-01T00:00:26Z"), 1)).await;
        assert_eq!((&*shown, more), ("2026-01-01T00:00:27Z end\n", false));
    }
}
