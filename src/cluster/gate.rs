//! The gate through which all writes leave (invariant 6: one write gate).
//!
//! The gate sends status and finalizers first. Deletions, creations, statuses that only show progress,
//! Events that report failures and ends, and other Events follow, in this order. Only the last may starve;
//! progress and reports wait for a while. Within a priority it serves the namespaces in turn, and within
//! these the Jobs. A turn of a Job lasts for up to 16 creations, so that its pods are created together. Every
//! other creation is that of the Job that needs the fewest pods. The gate keeps to a rate, and to
//! windows that follow the API server's answers ([`slots`]): failures in one namespace hold back that
//! namespace only. When a write leaves, its shard must still be ours, up to the moment in which its bytes
//! do ([`Departure`]). Its answer is awaited no longer than the right to act lasts.
//!
//! The gate never repeats a write that may have had an effect. A write that the API server rejected unread
//! (429) had none. It is queued again, and writes of its kind in its namespace pause for as long as the API
//! server asks. Rejected Events are returned to their recorder, since they may be out of date by then. Refusals
//! by a webhook are returned as well, whatever their code.

mod answer;
mod awaited_answer;
mod dispatch;
mod priority;
mod slots;
mod turn;
mod turn_time;
mod waiting;
mod window;
mod write;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::dispatch::{dispatch, grant};
use self::slots::Slots;
use self::turn_time::TurnTime;
use self::waiting::Waiting;
use super::answer_body::LongAnswers;
use super::answer_time::AnswerTime;
use super::fair_queue::FairQueue;
use super::rate::Rate;
use super::supervision::supervised;
use super::transport::Transport;
use super::wire::PodDecoder;
use crate::job::limits::Pace;
use crate::job::pod::Behind;
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::QueueLabels;
use crate::telemetry::traces::CallTrace;

pub use self::answer::{Answer, WriteError};
pub use self::priority::Priority;
pub use self::turn::{Reservation, Turn};
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
    /// The writes of the same kind that its flow needs after it. The flows of a namespace take turns, but every other turn is
    /// that of the flow that needs fewest.
    pub behind: Behind,
}

impl Order {
    /// The order of a write after which its flow needs no other of the kind.
    pub fn new(priority: Priority, flow: Uid, fence: Fence) -> Self {
        Self { priority, flow, fence, behind: Behind::default() }
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
    pods: PodDecoder,
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
    queue: FairQueue<Priority, Arc<str>, Uid, Waiting>,
    slots: Slots,
}

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
            pods: PodDecoder::new(finalizer),
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
        let turn = self.reserve(&order, write.namespace().clone());
        // Boxed, since the future of a caller that awaits it would have room for it twice.
        Box::pin(self.shared.clone().carry_out(order, write, trace, turn))
    }

    /// Asks for the turn of a Job's status in this namespace. Its content can be decided when the turn has
    /// come.
    pub fn reserve_status(&self, order: &Order, namespace: Arc<str>) -> Reservation {
        self.reserve(order, namespace)
    }

    fn reserve(&self, order: &Order, namespace: Arc<str>) -> Reservation {
        let (waiting, turn) = Waiting::of(order);
        self.shared.queue(order, namespace.clone(), waiting);
        Reservation::of(self.shared.clone(), order, namespace, turn)
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
        let here = Reservation::of(self.shared.clone(), &order, write.namespace().clone(), granted);
        Box::pin(self.shared.clone().carry_out(order, write, trace, here))
    }

    /// How many writes each Job of this namespace with waiting writes may have in flight. In total they
    /// keep the widest window full without piling up. Each namespace has the same part of them, so the Jobs
    /// of one that is stuck do not slow down others. Statuses get only a small part of the rate, or of the
    /// capacity of a slow API server. If the API server is slow, the status of a Job's start waits, since
    /// the Job may end soon.
    pub fn pace(&self, namespace: &Arc<str>) -> Pace {
        let state = self.shared.lock();
        let of_jobs = || Priority::ALL.into_iter().filter(|priority| !priority.is_event());
        let of_namespace = |priority| state.queue.flows_of(priority, namespace).max(1);
        let in_all = |priority| {
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

#[cfg(test)]
mod tests;
