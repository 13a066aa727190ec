//! The one gate through which all writes leave (invariant 6).
//!
//! It sends status and finalizers before deletions before creations before Events, but lets none but Events starve; within
//! each of these it serves the Jobs in turn; it keeps to a rate, and to a window that follows the API server's answers.
//! Right before a write leaves it asks whether the shard is still ours.
//!
//! It never repeats a write of which anything may have come. One that the API server turned away unread (429) has not been
//! made: it goes back to the head of its queue, and the gate pauses for as long as the API server asks. Only Events are left to whoever
//! records them: they may be out of date by then.

mod answer;
mod fence;
mod queue;
mod window;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Response;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, Timeout, sleep_until, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, Span, field};

use self::answer::AnswerReader;
use self::queue::FairQueue;
use self::window::{Signal, Ticket, Window};
use self::write::{Call, Expected};
use super::rate::Rate;
use super::transport::{Transport, TransportError};
use super::wire::PodDecoder;
use crate::job::state::Pace;
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::{ApiCallLabels, QueueLabels};

pub use self::answer::{Answer, WriteError};
pub use self::fence::Fence;
pub use self::window::WindowLimits;
pub use self::write::Write;

/// Which writes go first, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Job status.
    Status,
    /// Removals of finalizers, and other patches of pods.
    Finalizer,
    /// Deletions.
    Delete,
    /// Creations.
    Create,
    /// Events, which nobody waits for.
    Event,
}

impl Priority {
    /// All of them, the first to go first.
    pub const ALL: [Self; 5] = [Self::Status, Self::Finalizer, Self::Delete, Self::Create, Self::Event];

    /// The value of the label in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Finalizer => "finalizer",
            Self::Delete => "delete",
            Self::Create => "create",
            Self::Event => "event",
        }
    }
}

/// How a write is to be treated.
#[derive(Clone, Debug)]
pub struct Order {
    /// What goes first.
    pub priority: Priority,
    /// Writes of one flow wait for each other; flows take turns. The UID of the Job.
    pub flow: Uid,
    /// Until when the write may leave.
    pub fence: Fence,
}

/// Limits of a gate.
#[derive(Clone, Copy, Debug)]
pub struct GateConfig {
    /// Writes per second; 0 for no limit.
    pub qps: u32,
    /// Writes at once after a pause; 0 for as many as per second.
    pub burst: u32,
    /// Writes in flight.
    pub window: WindowLimits,
    /// How long to wait for an answer before it counts as lost.
    pub timeout: Duration,
}

impl Default for GateConfig {
    fn default() -> Self {
        Self { qps: 0, burst: 0, window: WindowLimits::default(), timeout: Duration::from_secs(30) }
    }
}

/// Pause after an API server has turned a write away without saying for how long.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause, whatever the API server says.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Writes of one priority that may wait, as a multiple of the widest window.
const WRITES_AHEAD: usize = 2;
/// Writes that each Job may have under way, however many Jobs there are.
const FEWEST_WRITES: usize = 8;
/// Of so many writes that the rate lets through, one may tell the progress of a Job.
const WRITES_PER_STATUS: u64 = 100;

/// The gate. Clones are the same gate; it works until the last one is dropped, and then lets what is in flight end.
#[derive(Clone)]
pub struct WriteGate {
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

/// What the gate, its dispatcher and the writes share.
struct Shared {
    transport: Arc<dyn Transport>,
    answers: AnswerReader,
    timeout: Duration,
    /// Writes per second; 0 for no limit.
    qps: u32,
    state: Mutex<State>,
    /// Wakes the dispatcher: something was queued, or room came free.
    work: Notify,
    /// Wakes those who wait for the gate to be idle: a write has ended.
    ended: Notify,
    metrics: Arc<Metrics>,
    depth: [Gauge; Priority::ALL.len()],
}

struct State {
    queue: FairQueue<Priority, Uid, Waiting>,
    window: Window,
    /// Until when the API server wants to be left alone.
    paused_until: Option<Instant>,
}

/// A write that waits for its turn.
struct Waiting {
    fence: Fence,
    turn: oneshot::Sender<Result<Turn, WriteError>>,
}

/// The turn of a write. Until it is used, or if it never is, it takes up room in the window.
struct Turn {
    shared: Arc<Shared>,
    ticket: Option<Ticket>,
}

/// A request on its way. Thousands of writes may wait at once, each with room for all that it will need on the way: what is made
/// and given on in one go is kept out of that.
struct Sent {
    of: ApiCallLabels,
    expected: Expected,
    of_existing: bool,
    started: Instant,
    answer: Timeout<BoxFuture<'static, Result<Response<Bytes>, TransportError>>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.end(ticket, None, |_| ());
        }
    }
}

type WriteResult = Result<Answer, WriteError>;

impl WriteGate {
    /// Opens a gate whose requests run on the current tokio runtime. Pods with the tracking finalizer `finalizer` are
    /// tracked in its answers.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn open(
        transport: Arc<dyn Transport>,
        config: GateConfig,
        finalizer: &str,
        metrics: Arc<Metrics>,
    ) -> Self {
        let depth = Priority::ALL.map(|priority| {
            let labels = QueueLabels { priority: priority.as_str() };
            metrics.write_queue_depth.get_or_create_owned(&labels)
        });
        let shared = Arc::new(Shared {
            transport,
            answers: AnswerReader { pods: PodDecoder::new(finalizer) },
            timeout: config.timeout,
            qps: config.qps,
            state: Mutex::new(State {
                queue: FairQueue::new(|priority| priority == Priority::Event),
                window: Window::new(config.window),
                paused_until: None,
            }),
            work: Notify::new(),
            ended: Notify::new(),
            metrics,
            depth,
        });
        shared.show(&shared.lock());
        let stop = CancellationToken::new();
        let rate = Rate::per_second(config.qps, config.burst);
        let dispatched = stop.clone().run_until_cancelled_owned(dispatch(shared.clone(), rate));
        let closed = shared.clone();
        tokio::spawn(async move {
            dispatched.await;
            closed.close();
        });
        Self { shared, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Queues a write at once, sends it when its turn has come, and answers when it has ended. All but the queueing is done
    /// by whoever polls the future, so it must be polled until then. If it is dropped while the write still waits, the write
    /// does not leave.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn submit(&self, order: Order, write: Write) -> BoxFuture<'static, Result<Answer, WriteError>> {
        let (waiting, turn) = waiting(&order);
        let shared = self.shared.clone();
        shared.queue(&order, waiting);
        // Boxed, since whoever awaits it would have room for it twice.
        Box::pin(shared.carry_out(order, write, turn, Span::current()))
    }

    /// How much each of the Jobs that wait here may ask for: enough in all to keep the widest window full, and not so much
    /// that their writes pile up; and no more of a limited rate for their statuses than a small part.
    pub fn pace(&self) -> Pace {
        let state = self.shared.lock();
        let jobs = Priority::ALL.map(|priority| state.queue.flows(priority)).into_iter().max().unwrap_or(0);
        let enough = WRITES_AHEAD * state.window.limits().max;
        let status_period = match self.shared.qps {
            0 => Duration::ZERO,
            qps => Duration::from_secs(WRITES_PER_STATUS * jobs as u64) / qps,
        };
        Pace { at_once: (enough / jobs.max(1)).max(FEWEST_WRITES), status_period }
    }

    /// Waits until nothing waits and nothing is in flight.
    pub async fn idle(&self) {
        loop {
            let ended = self.shared.ended.notified();
            if self.shared.lock().is_idle() {
                return;
            }
            ended.await;
        }
    }
}

/// Sends what waits, as room and rate allow.
async fn dispatch(shared: Arc<Shared>, rate: Option<Rate>) {
    loop {
        shared.sendable().await;
        if let Some(rate) = &rate {
            rate.take().await;
        }
        shared.call_next();
    }
}

/// Both sides of a write that waits.
fn waiting(order: &Order) -> (Waiting, oneshot::Receiver<Result<Turn, WriteError>>) {
    let (turn, called) = oneshot::channel();
    (Waiting { fence: order.fence.clone(), turn }, called)
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Counters and lists in it are changed by steps that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write. One that has nothing to wait for is called without the dispatcher.
    fn queue(self: &Arc<Self>, order: &Order, waiting: Waiting) {
        let mut state = self.lock();
        let at_once =
            self.qps == 0 && state.queue.is_empty() && state.window.has_room() && state.pause().is_none();
        if at_once {
            let ticket = state.window.start();
            self.show(&state);
            drop(state);
            call(waiting.turn, Ok(Turn { shared: self.clone(), ticket: Some(ticket) }));
        } else {
            state.queue.push(order.priority, order.flow.clone(), waiting);
            self.show(&state);
            drop(state);
            self.work.notify_one();
        }
    }

    /// Waits until there is a write to send and room to send it.
    async fn sendable(&self) {
        loop {
            let work = self.work.notified();
            let (sendable, pause) = {
                let state = self.lock();
                (state.is_sendable(), state.pause())
            };
            match pause {
                Some(end) => sleep_until(end).await,
                None if sendable => return,
                None => work.await,
            }
        }
    }

    /// Calls the next write that may leave. Those that may not any more are told so, and take neither room nor rate.
    fn call_next(self: &Arc<Self>) {
        let mut state = self.lock();
        let mut next = None;
        while let Some((_, Waiting { fence, turn })) = state.queue.pop() {
            if !fence.is_open(Instant::now()) {
                call(turn, self.fenced());
            } else if !turn.is_closed() {
                next = Some((turn, Turn { shared: self.clone(), ticket: Some(state.window.start()) }));
                break;
            }
        }
        self.show(&state);
        drop(state);
        match next {
            Some((turn, called)) => call(turn, Ok(called)),
            None => self.ended.notify_waiters(),
        }
    }

    /// A write from when it is queued to its end.
    async fn carry_out(
        self: Arc<Self>,
        order: Order,
        write: Write,
        mut turn: oneshot::Receiver<Result<Turn, WriteError>>,
        cause: Span,
    ) -> WriteResult {
        loop {
            let closed = |_| Err(WriteError::Unknown("the gate was closed".into()));
            let mut called = turn.await.unwrap_or_else(closed)?;
            let call = write.call();
            let span = tracing::debug_span!(
                parent: &cause,
                "api",
                otel.name = call.span,
                otel.kind = "client",
                http.response.status_code = field::Empty,
            );
            let (signal, result) = match span.in_scope(|| self.send(call, &order.fence)) {
                Ok(sent) => sent.answered(&self).instrument(span).await,
                Err(refusal) => (None, Err(refusal)),
            };
            let Some(ticket) = called.ticket.take() else { return result };
            match result {
                Err(WriteError::Busy { retry_after }) if order.priority != Priority::Event => {
                    let (again, next_turn) = waiting(&order);
                    self.end(ticket, signal, |state| state.turned_away(&order, again, retry_after));
                    turn = next_turn;
                }
                result => {
                    self.end(ticket, signal, |_| ());
                    return result;
                }
            }
        }
    }

    /// A write has ended, or goes back into the queue.
    fn end(&self, ticket: Ticket, signal: Option<Signal>, then: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        state.window.end(ticket, signal);
        then(&mut state);
        self.show(&state);
        drop(state);
        self.work.notify_one();
        self.ended.notify_waiters();
    }

    /// Tells all that wait that their turn will not come.
    fn close(&self) {
        let mut state = self.lock();
        while state.queue.pop().is_some() {}
        self.show(&state);
    }

    /// Makes the request of a write whose turn has come.
    fn send(&self, call: Call, fence: &Fence) -> Result<Sent, WriteError> {
        let Call { verb, resource, expected, of_existing, .. } = call;
        let request = call.into_request().map_err(|e| WriteError::Invalid(e.to_string().into()))?;
        let started = Instant::now();
        if !fence.is_open(started) {
            return self.fenced();
        }
        let answer = timeout(self.timeout, self.transport.send(request));
        Ok(Sent { of: ApiCallLabels { verb, resource }, expected, of_existing, started, answer })
    }

    fn fenced<T>(&self) -> Result<T, WriteError> {
        self.metrics.fenced_writes.inc();
        Err(WriteError::Fenced)
    }

    /// Brings the gauges up to date.
    fn show(&self, state: &State) {
        for (priority, gauge) in Priority::ALL.into_iter().zip(&self.depth) {
            gauge.set(state.queue.len(priority) as i64);
        }
        self.metrics.write_window.set(state.window.size() as i64);
        self.metrics.writes_in_flight.set(state.window.in_flight() as i64);
    }
}

impl Sent {
    /// Waits for the answer; the request leaves as this is polled.
    async fn answered(self, shared: &Shared) -> (Option<Signal>, WriteResult) {
        let answered = self.answer.await;
        let duration = self.started.elapsed();
        let answered =
            answered.unwrap_or_else(|_| Err(TransportError(format!("none within {:?}", shared.timeout))));
        let code = answered.as_ref().map_or(0, |response| response.status().as_u16());
        Span::current().record("http.response.status_code", code);
        shared.metrics.count_request(self.of, code, duration);
        match answered {
            Ok(response) => (
                Some(signal(&response, duration)),
                shared.answers.read(&response, self.expected, self.of_existing),
            ),
            Err(e) => (Some(Signal::Overloaded), Err(WriteError::Unknown(e.0.into()))),
        }
    }
}

impl State {
    /// The API server had no time for a write.
    fn turned_away(&mut self, order: &Order, waiting: Waiting, retry_after: Option<Duration>) {
        let pause = Instant::now() + retry_after.unwrap_or(PAUSE).min(LONGEST_PAUSE);
        self.paused_until = self.paused_until.max(Some(pause));
        self.queue.put_back(order.priority, order.flow.clone(), waiting);
    }

    /// Until when the API server wants to be left alone from now on.
    fn pause(&self) -> Option<Instant> {
        self.paused_until.filter(|end| *end > Instant::now())
    }

    fn is_sendable(&self) -> bool {
        self.window.has_room() && !self.queue.is_empty()
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.window.in_flight() == 0
    }
}

/// Calls a write, if anybody still waits for it. A turn that nobody takes is given back.
fn call(turn: oneshot::Sender<Result<Turn, WriteError>>, called: Result<Turn, WriteError>) {
    drop(turn.send(called));
}

fn signal(response: &Response<Bytes>, duration: Duration) -> Signal {
    match response.status().as_u16() {
        429 | 500.. => Signal::Overloaded,
        _ => Signal::Answered(duration),
    }
}

#[cfg(test)]
mod tests;
