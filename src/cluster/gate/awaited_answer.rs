//! Requests in flight: how long an answer is awaited, and its signal for the windows.

use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use tokio::time::{Instant, timeout};

use super::answer::{self, Answer, WriteError, kept_back};
use super::slots::Signal;
use super::write::Expected;
use crate::cluster::departure::Departure;
use crate::cluster::fence::Fence;
use crate::cluster::transport::TransportError;
use crate::cluster::wire::{PodDecoder, Refusal};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::ApiCallLabels;
use crate::telemetry::traces::CallEnd;

/// `error.type` of a request that was not answered in time.
const TIMED_OUT: &str = "timeout";
/// `error.type` of a request that was not answered: the connection failed or broke.
const UNANSWERED: &str = "connection_error";

/// A request in flight. Thousands of writes may wait at once, and each of their futures has room for
/// everything that lives across an await point. This type is built and passed on without an await, so it adds
/// nothing to them.
pub(super) struct Sent {
    pub(super) labels: ApiCallLabels,
    pub(super) expected: Expected,
    pub(super) of_existing: bool,
    pub(super) started: Instant,
    pub(super) departure: Departure,
    /// How long an answer is awaited.
    pub(super) longest: Duration,
    pub(super) outcome: BoxFuture<'static, Outcome>,
}

/// The result of waiting for an answer.
pub(super) enum Outcome {
    Answered(Result<Response<Bytes>, TransportError>),
    /// There was no answer in time.
    TimedOut,
    /// There was no answer while the right to act lasted.
    RightEnded,
}

impl Sent {
    /// Waits for the answer; the request leaves as this is polled.
    pub(super) async fn answered(
        self,
        pods: &PodDecoder,
        metrics: &Metrics,
    ) -> (Option<Signal>, CallEnd, Result<Answer, WriteError>) {
        let outcome = self.outcome.await;
        let took = self.started.elapsed();
        let (code, failure) = match &outcome {
            Outcome::Answered(Ok(response)) => (Some(response.status().as_u16()), None),
            Outcome::Answered(Err(_)) => (None, Some(UNANSWERED)),
            Outcome::TimedOut | Outcome::RightEnded => (None, Some(TIMED_OUT)),
        };
        let end = CallEnd { code, failure, resends: 0, took };
        if self.departure.was_refused() {
            return (None, end, Err(kept_back(self.departure.fence(), metrics)));
        }
        metrics.count_request(self.labels, code.unwrap_or(0), took);
        let unknown = |why: String| Err(WriteError::Unknown(why.into()));
        match outcome {
            Outcome::Answered(Ok(response)) => (
                Some(signal(&response, took)),
                end,
                answer::read(pods, &response, self.expected, self.of_existing),
            ),
            Outcome::Answered(Err(e)) => (Some(Signal::Failed), end, unknown(e.0)),
            Outcome::TimedOut => {
                (Some(Signal::Failed), end, unknown(format!("none within {:?}", self.longest)))
            }
            Outcome::RightEnded => (None, end, unknown("none while the shard was ours".to_owned())),
        }
    }
}

/// Waits for an answer until it is too late for one, or until the right to act has ended, which may be renewed
/// meanwhile.
pub(super) async fn outcome(
    mut answer: BoxFuture<'static, Result<Response<Bytes>, TransportError>>,
    fence: Fence,
    longest: Duration,
) -> Outcome {
    let deadline = Instant::now() + longest;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = fence.lasts().map_or(left, |lasts| lasts.min(left));
        if let Ok(answer) = timeout(wait, &mut answer).await {
            return Outcome::Answered(answer);
        }
        if Instant::now() >= deadline {
            return Outcome::TimedOut;
        }
        if fence.lasts() == Some(Duration::ZERO) {
            fence.overrun();
            return Outcome::RightEnded;
        }
    }
}

fn signal(response: &Response<Bytes>, took: Duration) -> Signal {
    let code = response.status().as_u16();
    match code {
        ..400 => return Signal::Answered(took),
        429 | 500.. => {}
        _ => return Signal::Refused(took),
    }
    let refusal = Refusal::of(response.status(), response.headers(), response.body());
    match code {
        _ if refusal.is_of_webhook() => Signal::Webhook,
        429 => Signal::Busy,
        _ => Signal::Failed,
    }
}
