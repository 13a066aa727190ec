//! The way of a write through the gate: it is queued, gets its turn, is sent and ends.

use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::FutureExt;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Answer, WriteError};
use super::awaited_answer::{self, Sent};
use super::slots::{Signal, Slot};
use super::turn::{Reservation, Turn};
use super::waiting::Waiting;
use super::write::{Call, Write};
use super::{HELD_UP, HELD_UP_SURELY, Order, Priority, Shared, State};
use crate::cluster::answer_time;
use crate::cluster::departure::Departure;
use crate::cluster::fair_queue::Room;
use crate::cluster::fence::Fence;
use crate::cluster::rate::Rate;
use crate::job::uid::Uid;
use crate::telemetry::traces::{CallEnd, CallSpan, CallTrace};

/// The dispatcher: gives waiting writes their turn, as window and rate allow.
pub(super) async fn dispatch(shared: &Arc<Shared>, rate: Option<&Rate>) {
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
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Poisoning is ignored: the state is changed by steps that do not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a write. If nothing holds the write back, it gets its turn without the dispatcher.
    pub(super) fn queue(self: &Arc<Self>, order: &Order, namespace: Arc<str>, waiting: Waiting) {
        let mut state = self.lock();
        state.slots.take_back(self.answer_time.is_congested());
        let at_once = self.qps == 0
            && state.queue.is_empty()
            && state.slots.room(order.priority, &namespace, 0) != Room::None;
        if at_once {
            let slot = state.slots.start(order.priority, namespace);
            self.update_gauges(&state);
            drop(state);
            grant(waiting.turn, Ok(Turn { shared: self.clone(), slot: Some(slot) }));
        } else {
            state.queue.push(order.priority, namespace, order.flow.clone(), waiting);
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
        while let Some((priority, namespace, Waiting { fence, turn, .. })) = state.next() {
            if !fence.is_open() {
                grant(turn, self.fenced(&fence));
            } else {
                let slot = state.slots.start(priority, namespace);
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
    pub(super) async fn carry_out(
        self: Arc<Self>,
        order: Order,
        write: Write,
        trace: CallTrace,
        mut turn: Reservation,
    ) -> Result<Answer, WriteError> {
        let mut resends = 0_u32;
        loop {
            let granted = tokio::select! {
                biased;
                granted = turn.come() => Some(granted?),
                () = order.fence.closed() => None,
            };
            let Some(mut granted) = granted else {
                return self.fenced(&order.fence);
            };
            let call = write.call();
            let name = call.span;
            // A request that does not leave has no span.
            let span = if order.fence.is_open() { trace.begin(name) } else { CallSpan::default() };
            let (signal, result) = match self.send(call, &write, &order.fence, &span) {
                Ok(sent) => {
                    let (signal, end, result) = sent.answered(&self.pods, &self.metrics).await;
                    trace.end(name, span, &CallEnd { resends, ..end }, || write.target(&result));
                    (signal, result)
                }
                Err(refusal) => (None, Err(refusal)),
            };
            let Some(slot) = granted.slot.take() else { return result };
            match result {
                Err(WriteError::Busy { retry_after }) if !order.priority.is_event() => {
                    let (again, next_turn) = Waiting::of(&order);
                    let namespace = write.namespace().clone();
                    self.end(slot, signal, |state| state.requeue(&order, namespace, again, retry_after));
                    turn = Reservation::of(self.clone(), &order, write.namespace().clone(), next_turn);
                }
                result => {
                    let asked = match &result {
                        // Without `Retry-After`, it is a limit for an object, of which other Events know nothing.
                        Err(WriteError::Busy { retry_after }) => *retry_after,
                        _ => None,
                    };
                    self.end(slot, signal, |state| {
                        if asked.is_some() {
                            state.slots.pause(order.priority, write.namespace(), asked);
                        }
                    });
                    return result;
                }
            }
            resends = resends.saturating_add(1);
        }
    }

    /// Ends a request; `then` may put its write back into the queue.
    pub(super) fn end(&self, slot: Slot, signal: Option<Signal>, then: impl FnOnce(&mut State)) {
        let mut signal = signal;
        if let Some(Signal::Answered(took)) = signal {
            let kind =
                if slot.is_creation() { answer_time::Kind::Creation } else { answer_time::Kind::Other };
            self.answer_time.observe(kind, slot.namespace(), took);
            if slot.is_creation() && self.answer_time.is_congested() {
                signal = Some(Signal::Congested);
            }
        }
        if let Some(Signal::Answered(took) | Signal::Refused(took)) = signal
            && took > (self.answer_time.get() * HELD_UP.1).clamp(HELD_UP.0, HELD_UP_SURELY)
        {
            signal = Some(Signal::Webhook);
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
    pub(super) fn forget_unwanted(&self, priority: Priority, namespace: &Arc<str>, flow: &Uid) {
        let mut state = self.lock();
        state.queue.forget(priority, namespace, flow);
        self.update_gauges(&state);
    }

    /// Drops all waiting writes, which fails them.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.queue.clear();
        self.update_gauges(&state);
    }

    /// Builds the request of a write whose turn has come.
    fn send(&self, call: Call, write: &Write, fence: &Fence, span: &CallSpan) -> Result<Sent, WriteError> {
        let (labels, expected, of_existing) = (call.labels.clone(), call.expected, call.of_existing);
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
        let (opened, turns) = (self.transport.open(request), self.long_answers.clone());
        let namespace = write.namespace().clone();
        let answer = async move { turns.read(opened.await?, Some(&namespace)).await };
        let outcome = Box::pin(awaited_answer::outcome(answer.boxed(), fence.clone(), longest));
        Ok(Sent { labels, expected, of_existing, started, departure, longest, outcome })
    }

    fn fenced<T>(&self, fence: &Fence) -> Result<T, WriteError> {
        Err(answer::kept_back(fence, &self.metrics))
    }

    pub(super) fn update_gauges(&self, state: &State) {
        for (priority, gauge) in Priority::ALL.into_iter().zip(&self.depth) {
            gauge.set(state.queue.len(priority) as i64);
        }
        self.metrics.write_window.set(state.slots.size() as i64);
        self.metrics.writes_in_flight.set(state.slots.in_flight() as i64);
        self.metrics.throttled_namespaces.set(state.slots.throttled() as i64);
    }
}

impl State {
    /// Queues a write again that the API server rejected unread (429), and pauses.
    fn requeue(
        &mut self,
        order: &Order,
        namespace: Arc<str>,
        waiting: Waiting,
        retry_after: Option<Duration>,
    ) {
        self.slots.pause(order.priority, &namespace, retry_after);
        self.queue.push(order.priority, namespace, order.flow.clone(), waiting);
    }

    /// Takes the next write for which there is a slot.
    fn next(&mut self) -> Option<(Priority, Arc<str>, Waiting)> {
        let slots = &self.slots;
        if !slots.has_room() {
            return None;
        }
        self.queue.pop(|priority, namespace, waiting| slots.room(priority, namespace, waiting))
    }

    fn is_sendable(&self) -> bool {
        self.slots.has_room()
            && self
                .queue
                .is_ready(|priority, namespace, waiting| self.slots.room(priority, namespace, waiting))
    }

    pub(super) fn is_idle(&self) -> bool {
        let waits = |priority: Priority| !priority.is_event() && self.queue.len(priority) > 0;
        !Priority::ALL.into_iter().any(waits) && self.slots.in_flight() == self.slots.events()
    }
}

/// Gives a write its turn, if its future still exists. Otherwise the turn is dropped, which frees its room.
pub(super) fn grant(turn: oneshot::Sender<Result<Turn, WriteError>>, granted: Result<Turn, WriteError>) {
    drop(turn.send(granted));
}
