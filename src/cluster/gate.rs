//! The gate through which all writes leave (invariant 6: one write gate).
//!
//! The gate sends status and finalizers first. Deletions, creations, statuses that only show progress,
//! Events that report failures and ends, and other Events follow, in this order. Only the last may starve;
//! progress and reports wait for a while. Within a priority it serves the namespaces in turn, and within
//! these the Jobs. Every other turn goes to the Job that needs the fewest pods. It keeps to a rate, and to
//! windows that follow the API server's answers ([`slots`]): failures in one namespace hold back that
//! namespace only. When a write leaves, its shard must still be ours, up to the moment in which its bytes
//! do ([`Departure`]). Its answer is awaited no longer than the right to act lasts.
//!
//! The gate never repeats a write that may have had an effect. A write that the API server rejected unread
//! (429) had none. It goes back to the head of its queue, and the gate pauses for as long as the API server
//! asks. Rejected Events are returned to their recorder, since they may be out of date by then. Refusals by
//! a webhook are returned as well, whatever their code.

mod answer;
mod flight;
mod priority;
mod slots;
mod turn_time;
mod waiting;
mod window;
mod write;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::answer::AnswerReader;
use self::flight::Sent;
use self::slots::{Lane, Signal, Slot, Slots};
use self::turn_time::TurnTime;
use self::waiting::Waiting;
use self::write::Call;
use super::answer_body::LongAnswers;
use super::answer_time::{self, AnswerTime};
use super::departure::Departure;
use super::fair_queue::{FairQueue, Room};
use super::rate::Rate;
use super::supervision::supervised;
use super::transport::Transport;
use super::wire::PodDecoder;
use crate::job::limits::Pace;
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::QueueLabels;
use crate::telemetry::traces::{CallEnd, CallSpan, CallTrace};

pub use self::answer::{Answer, WriteError};
pub use self::priority::Priority;
pub use self::window::WindowLimits;
pub use self::write::Write;
pub use super::fence::Fence;

/// How the gate schedules a write.
#[derive(Clone, Debug)]
pub struct Order {
    /// Priority of the write.
    pub priority: Priority,
    /// UID of the Job. Writes of one flow wait for each other.
    pub flow: Uid,
    /// How long the write may leave.
    pub fence: Fence,
    /// How many writes of the same kind its flow needs after it. The flows of a namespace take turns, but every other turn is
    /// that of the flow that needs fewest.
    pub behind: u32,
}

impl Order {
    /// The order of a write after which its flow needs no other of the kind.
    pub fn new(priority: Priority, flow: Uid, fence: Fence) -> Self {
        Self { priority, flow, fence, behind: 0 }
    }
}

/// Limits of a gate.
#[derive(Clone, Debug)]
pub struct GateConfig {
    /// Writes per second; 0 for no limit.
    pub qps: u32,
    /// Burst: writes at once after a pause; 0 for as many as per second.
    pub burst: u32,
    /// Writes in flight.
    pub window: WindowLimits,
    /// How long to wait for an answer before it counts as lost. The API server answers writes within 34 s,
    /// and waits for a webhook for up to 30 s. A write that a webhook has held up must not look lost.
    pub timeout: Duration,
    /// Is kept up to date.
    pub answer_time: AnswerTime,
}

impl Default for GateConfig {
    fn default() -> Self {
        let (window, answer_time) = (WindowLimits::default(), AnswerTime::default());
        Self { qps: 0, burst: 0, window, timeout: Duration::from_secs(35), answer_time }
    }
}

/// A webhook has held up a write whose answer took longer than this, and this many times as long as others'
/// answers ...
const HELD_UP: (Duration, u32) = (Duration::from_secs(1), 8);
/// ... or longer than this: if there are no other writers, others' answers may be those of the same
/// webhook.
const HELD_UP_SURELY: Duration = Duration::from_secs(10);

/// Writes of one priority that may wait, as a multiple of the widest window.
const WRITES_AHEAD: usize = 2;
/// Writes that each Job may have in flight, however many other namespaces have Jobs.
const FEWEST_WRITES: usize = 8;
/// Writes of a namespace that wait only since each of its Jobs may have [`FEWEST_WRITES`]. If more Jobs
/// wait, each may have fewer.
const MOST_BY_FEWEST: usize = 8192;

/// The write gate. Clones are the same gate. It works until the last clone is dropped; requests in flight
/// still end.
#[derive(Clone)]
pub struct WriteGate {
    shared: Arc<Shared>,
    _stop: Arc<DropGuard>,
}

/// State shared by the gate, its dispatcher and the writes.
struct Shared {
    transport: Arc<dyn Transport>,
    answers: AnswerReader,
    long_answers: LongAnswers,
    timeout: Duration,
    answer_time: AnswerTime,
    /// Writes per second; 0 for no limit.
    qps: u32,
    state: Mutex<State>,
    /// Wakes the dispatcher: a write was queued, or the window has room again.
    work: Notify,
    /// Wakes callers of [`WriteGate::idle`]: a write has ended.
    ended: Notify,
    metrics: Arc<Metrics>,
    depth: [Gauge; Priority::ALL.len()],
}

struct State {
    queue: FairQueue<Priority, Lane, Uid, Waiting>,
    slots: Slots,
}

/// The turn of a write. It holds a slot until it is used or dropped.
pub struct Turn {
    shared: Arc<Shared>,
    slot: Option<Slot>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.shared.end(slot, None, |_| ());
        }
    }
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// A turn that was asked for.
#[derive(Debug)]
pub struct Reservation {
    turn: oneshot::Receiver<Result<Turn, WriteError>>,
}

impl Reservation {
    /// The turn, if it has come; otherwise the reservation.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn granted(mut self) -> Result<Result<Turn, Self>, WriteError> {
        match self.turn.try_recv() {
            Ok(turn) => turn.map(Ok),
            Err(TryRecvError::Empty) => Ok(Err(self)),
            Err(TryRecvError::Closed) => Err(closed()),
        }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// [`WriteError::Fenced`] behind a closed fence, [`WriteError::Unknown`] once the gate is closed.
    pub async fn wait(self) -> Result<Turn, WriteError> {
        self.turn.await.unwrap_or_else(|_| Err(closed()))
    }
}

type WriteResult = Result<Answer, WriteError>;

fn closed() -> WriteError {
    WriteError::Unknown("the gate was closed".into())
}

impl WriteGate {
    /// Opens a gate whose requests run on the current tokio runtime. In its answers, a pod is tracked if it
    /// has the finalizer `finalizer`.
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
            long_answers: LongAnswers::default(),
            timeout: config.timeout,
            answer_time: config.answer_time,
            qps: config.qps,
            state: Mutex::new(State { queue: Waiting::queue(), slots: Slots::new(config.window) }),
            work: Notify::new(),
            ended: Notify::new(),
            metrics,
            depth,
        });
        shared.update_gauges(&shared.lock());
        let stop = CancellationToken::new();
        let rate = Rate::per_second(config.qps, config.burst);
        let (stopped, served) = (stop.clone(), shared.clone());
        tokio::spawn(async move {
            let dispatched = supervised("the write gate", || dispatch(&served, rate.as_ref()));
            stopped.run_until_cancelled(dispatched).await;
            served.close();
        });
        Self { shared, _stop: Arc::new(stop.drop_guard()) }
    }

    /// Queues a write at once, sends it when its turn has come, and returns its result. Only the queueing
    /// happens before the future is polled, so it must be polled until it is ready. If it is dropped while
    /// the write still waits, the write does not leave.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn submit(&self, order: Order, write: Write) -> BoxFuture<'static, Result<Answer, WriteError>> {
        self.submit_traced(order, write, CallTrace::default())
    }

    /// The same as [`submit`](Self::submit), for a write that belongs to a Job's trace.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn submit_traced(
        &self,
        order: Order,
        write: Write,
        trace: CallTrace,
    ) -> BoxFuture<'static, Result<Answer, WriteError>> {
        let (waiting, turn) = Waiting::of(&order);
        let shared = self.shared.clone();
        shared.queue(&order, write.lane(), waiting);
        // Boxed, since the future of a caller that awaits it would have room for it twice.
        Box::pin(shared.carry_out(order, write, trace, turn))
    }

    /// Asks for the turn of a write.
    pub fn reserve(&self, order: &Order, write: &Write) -> Reservation {
        self.reserve_in(order, write.lane())
    }

    /// Asks for the turn of a Job's status in this namespace. Its content can be decided when the turn has
    /// come.
    pub fn reserve_status(&self, order: &Order, namespace: Arc<str>) -> Reservation {
        self.reserve_in(order, Lane::status(namespace))
    }

    fn reserve_in(&self, order: &Order, lane: Lane) -> Reservation {
        let (waiting, turn) = Waiting::of(order);
        self.shared.queue(order, lane, waiting);
        Reservation { turn }
    }

    /// How quickly the API server answers writes at present; zero if unknown.
    pub fn answer_time(&self) -> Duration {
        self.shared.answer_time.get()
    }

    /// The same as [`submit_traced`](Self::submit_traced), in a turn that has come: the write leaves as soon as
    /// the future is polled.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn submit_in(
        &self,
        turn: Turn,
        order: Order,
        write: Write,
        trace: CallTrace,
    ) -> BoxFuture<'static, Result<Answer, WriteError>> {
        let (sender, granted) = oneshot::channel();
        grant(sender, Ok(turn));
        Box::pin(self.shared.clone().carry_out(order, write, trace, granted))
    }

    /// How many writes each Job of this namespace with waiting writes may have in flight. In total they
    /// keep the widest window full without piling up. Each namespace has the same part of them, so the Jobs
    /// of one that is stuck do not slow down others. Statuses get only a small part of the rate, or of the
    /// capacity of a slow API server. If the API server is slow, the status of a Job's start waits, since
    /// the Job may end soon.
    pub fn pace(&self, namespace: &Arc<str>) -> Pace {
        let state = self.shared.lock();
        let of_jobs = || Priority::ALL.into_iter().filter(|priority| !priority.is_event());
        let of_namespace = |priority: Priority| {
            let lane = Lane::of_jobs(priority, namespace.clone());
            state.queue.flows_of(priority, &lane).max(1)
        };
        let in_all = |priority: Priority| {
            let if_all_were_like_this = state.queue.groups(priority) * of_namespace(priority);
            if_all_were_like_this.min(state.queue.len(priority))
        };
        let own = of_jobs().map(of_namespace).max().unwrap_or(1);
        let sharing = of_jobs().map(in_all).max().unwrap_or(0);
        let total = WRITES_AHEAD * state.slots.limits().max;
        let turn = TurnTime::of(self.shared.qps, sharing, self.shared.answer_time.get(), state.slots.size());
        Pace {
            at_once: (total / sharing.max(1)).max((MOST_BY_FEWEST / own).clamp(1, FEWEST_WRITES)),
            status_period: turn.status_period(),
            start_period: turn.start_period(),
        }
    }

    /// Returns once no write but Events waits or is in flight.
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

/// The dispatcher: gives waiting writes their turn, as window and rate allow.
async fn dispatch(shared: &Arc<Shared>, rate: Option<&Rate>) {
    loop {
        shared.sendable().await;
        if let Some(rate) = rate {
            rate.take().await;
        }
        // A withdrawn write does not cost the token.
        while !shared.grant_next() {
            shared.sendable().await;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: the state is changed by steps that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write. If nothing holds the write back, it gets its turn without the dispatcher.
    fn queue(self: &Arc<Self>, order: &Order, lane: Lane, waiting: Waiting) {
        let mut state = self.lock();
        state.slots.take_back(self.answer_time.is_congested());
        let at_once = self.qps == 0
            && state.queue.is_empty()
            && state.slots.room(order.priority, &lane, 0) != Room::None;
        if at_once {
            let slot = state.slots.start(order.priority, lane);
            self.update_gauges(&state);
            drop(state);
            grant(waiting.turn, Ok(Turn { shared: self.clone(), slot: Some(slot) }));
        } else {
            state.queue.push(order.priority, lane, order.flow.clone(), waiting);
            self.update_gauges(&state);
            drop(state);
            self.work.notify_one();
        }
    }

    /// Returns once there is a write to send and a slot for it.
    async fn sendable(&self) {
        loop {
            let work = self.work.notified();
            let (sendable, next_change) = {
                let mut state = self.lock();
                state.slots.take_back(self.answer_time.is_congested());
                let next_change = state.slots.next_change().filter(|_| !state.queue.is_empty());
                (state.is_sendable(), next_change)
            };
            match next_change {
                _ if sendable => return,
                // Either is a reason to look again.
                Some(at) => drop(timeout_at(at, work).await),
                None => work.await,
            }
        }
    }

    /// Gives the next write that may leave its turn, if there is one. Writes behind a closed fence fail, and take
    /// neither room nor rate.
    fn grant_next(self: &Arc<Self>) -> bool {
        let mut state = self.lock();
        let mut next = None;
        while let Some((priority, lane, Waiting { fence, turn, .. })) = state.next() {
            if !fence.is_open() {
                grant(turn, self.fenced(&fence));
            } else {
                let slot = state.slots.start(priority, lane);
                next = Some((turn, Turn { shared: self.clone(), slot: Some(slot) }));
                break;
            }
        }
        self.update_gauges(&state);
        drop(state);
        let Some((turn, granted)) = next else {
            self.ended.notify_waiters();
            return false;
        };
        grant(turn, Ok(granted));
        true
    }

    /// Carries out a queued write, to its end.
    async fn carry_out(
        self: Arc<Self>,
        order: Order,
        write: Write,
        trace: CallTrace,
        mut turn: oneshot::Receiver<Result<Turn, WriteError>>,
    ) -> WriteResult {
        let mut resends = 0_u32;
        loop {
            let granted = tokio::select! {
                biased;
                granted = &mut turn => Some(granted.unwrap_or_else(|_| Err(closed()))?),
                () = order.fence.closed() => None,
            };
            let Some(mut granted) = granted else {
                drop(turn);
                self.forget_unwanted(&order, &write.lane());
                return self.fenced(&order.fence);
            };
            let call = write.call();
            let name = call.span;
            // A request that does not leave has no span.
            let span = if order.fence.is_open() { trace.begin(name) } else { CallSpan::default() };
            let (signal, result) = match self.send(call, &write, &order.fence, &span) {
                Ok(sent) => {
                    let (signal, end, result) = sent.answered(&self.answers, &self.metrics).await;
                    trace.end(name, span, &CallEnd { resends, ..end }, || write.target(&result));
                    (signal, result)
                }
                Err(refusal) => (None, Err(refusal)),
            };
            let Some(slot) = granted.slot.take() else { return result };
            match result {
                Err(WriteError::Busy { retry_after }) if !order.priority.is_event() => {
                    let (again, next_turn) = Waiting::of(&order);
                    self.end(slot, signal, |state| state.requeue(&order, write.lane(), again, retry_after));
                    turn = next_turn;
                }
                result => {
                    self.end(slot, signal, |_| ());
                    return result;
                }
            }
            resends = resends.saturating_add(1);
        }
    }

    /// Ends a request; `then` may put its write back into the queue.
    fn end(&self, slot: Slot, signal: Option<Signal>, then: impl FnOnce(&mut State)) {
        let mut signal = signal;
        if let Some(Signal::Answered(took)) = signal {
            let kind =
                if slot.is_creation() { answer_time::Kind::Creation } else { answer_time::Kind::Other };
            self.answer_time.observe(kind, slot.namespace(), took);
            if slot.is_creation() && self.answer_time.is_congested() {
                signal = Some(Signal::Congested(took));
            }
        }
        if let Some(Signal::Answered(took) | Signal::Refused(took)) = signal
            && took > (self.answer_time.get() * HELD_UP.1).clamp(HELD_UP.0, HELD_UP_SURELY)
        {
            signal = Some(Signal::HeldUp);
        }
        let mut state = self.lock();
        state.slots.end(slot, signal);
        then(&mut state);
        self.update_gauges(&state);
        drop(state);
        self.work.notify_one();
        self.ended.notify_waiters();
    }

    /// Drops the writes of a flow whose callers no longer wait.
    fn forget_unwanted(&self, order: &Order, lane: &Lane) {
        let mut state = self.lock();
        state.queue.forget(order.priority, lane, &order.flow);
        self.update_gauges(&state);
    }

    /// Drops all waiting writes, which fails them.
    fn close(&self) {
        let mut state = self.lock();
        state.queue.clear();
        self.update_gauges(&state);
    }

    /// Builds the request of a write whose turn has come.
    fn send(&self, call: Call, write: &Write, fence: &Fence, span: &CallSpan) -> Result<Sent, WriteError> {
        let Call { expected, of_existing, .. } = call;
        let mut request =
            call.into_request(write.body()).map_err(|e| WriteError::Invalid(e.to_string().into()))?;
        let started = Instant::now();
        if !fence.is_open() {
            return self.fenced(fence);
        }
        span.inject(request.headers_mut());
        let departure = Departure::through(fence);
        request.extensions_mut().insert(departure.clone());
        let longest = self.timeout;
        let Lane { namespace, call: labels } = write.lane();
        let (opened, turns) = (self.transport.open(request), self.long_answers.clone());
        let answer = async move { turns.read(opened.await?, Some(&namespace)).await };
        let outcome = Box::pin(flight::outcome(answer.boxed(), fence.clone(), longest));
        Ok(Sent { labels, expected, of_existing, started, departure, longest, outcome })
    }

    fn fenced<T>(&self, fence: &Fence) -> Result<T, WriteError> {
        Err(answer::kept_back(fence, &self.metrics))
    }

    fn update_gauges(&self, state: &State) {
        for (priority, gauge) in Priority::ALL.into_iter().zip(&self.depth) {
            gauge.set(state.queue.len(priority) as i64);
        }
        self.metrics.write_window.set(state.slots.size() as i64);
        self.metrics.writes_in_flight.set(state.slots.in_flight() as i64);
        self.metrics.throttled_namespaces.set(state.slots.throttled() as i64);
    }
}

impl State {
    /// Puts a write back that the API server rejected unread (429), and pauses.
    fn requeue(&mut self, order: &Order, lane: Lane, waiting: Waiting, retry_after: Option<Duration>) {
        self.slots.pause(&lane, retry_after);
        self.queue.put_back(order.priority, lane, order.flow.clone(), waiting);
    }

    /// Takes the next write for which there is a slot.
    fn next(&mut self) -> Option<(Priority, Lane, Waiting)> {
        let slots = &self.slots;
        if !slots.has_room() {
            return None;
        }
        self.queue.pop(|priority, lane, waiting| slots.room(priority, lane, waiting))
    }

    fn is_sendable(&self) -> bool {
        self.slots.has_room()
            && self.queue.is_ready(|priority, lane, waiting| self.slots.room(priority, lane, waiting))
    }

    fn is_idle(&self) -> bool {
        let waits = |priority: Priority| !priority.is_event() && self.queue.len(priority) > 0;
        !Priority::ALL.into_iter().any(waits) && self.slots.in_flight() == self.slots.events()
    }
}

/// Gives a write its turn, if its future still exists. Otherwise the turn is dropped, which frees its room.
fn grant(turn: oneshot::Sender<Result<Turn, WriteError>>, granted: Result<Turn, WriteError>) {
    drop(turn.send(granted));
}

#[cfg(test)]
mod tests;
