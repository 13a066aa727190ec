//! Kubernetes Events about Jobs.
//!
//! Recording an Event never waits, and Events that cannot be sent are counted. Equal Events become one with a
//! count, many similar ones become a combined one, and one object cannot flood the API server. Events that
//! only inform are sent one at a time in each namespace. Events that must be delivered (how a Job ended) are exempt from this.
//! If more are pending than may be, the namespace that has most loses its oldest.

mod correlator;
mod counts;
mod turns;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use self::correlator::{Delivery, EventCorrelator, EventWrite};
use self::counts::EventCounts;
use self::turns::Class;
use super::gate::{Answer, Fence, Order, Write, WriteError, WriteGate};
use super::supervision::{Pauses, caught};
use crate::job::job_id::JobId;
use crate::job::manifest::Encoding;
use crate::job::short_text::{short, short_word};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::{LostEvent, LostEventLabels};

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Information.
    Normal,
    /// A problem that needs attention.
    Warning,
}

impl EventType {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// An Event to record.
#[derive(Clone, Debug)]
pub struct Event {
    /// `involvedObject`.
    pub about: JobId,
    /// `type`.
    pub kind: EventType,
    /// `reason`: the cause in one CamelCase word.
    pub reason: Box<str>,
    /// `message`: the cause in a sentence.
    pub message: Box<str>,
    /// When it happened.
    pub at: Timestamp,
    /// Whether it must be delivered: it is never combined with others, and its write is retried most often.
    pub must: bool,
}

/// Back-off before the first retry of a write; it doubles, up to a minute.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Records Events. Clones are the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    inbox: mpsc::UnboundedSender<Event>,
    /// Events that have neither been sent nor lost.
    pending: watch::Sender<EventCounts>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// A recorder that sends through the gate on the current tokio runtime. `component` is the Events'
    /// source; `seed` varies their names.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(gate: WriteGate, component: &str, metrics: Arc<Metrics>, seed: u64) -> Self {
        let (inbox, events) = mpsc::unbounded_channel();
        let recorder = Self { inbox, pending: watch::Sender::default(), metrics: metrics.clone() };
        let pending = recorder.pending.clone();
        let correlator = EventCorrelator::new(component, SmallRng::seed_from_u64(seed));
        let sender = Sender { gate, correlator, taken: EventCounts::default(), pending, metrics };
        tokio::spawn(sender.run_supervised(events));
        recorder
    }

    /// Records an Event. This never waits. A long reason or message is cut.
    pub fn record(&self, event: Event) {
        let (reason, message) = (short_word(&event.reason).into(), short(&event.message).into());
        let event = Event { reason, message, ..event };
        let (class, namespace) = (Class::of(&event), event.about.namespace().clone());
        // If a namespace has more than its share, the sender makes room. Until then, at most twice its share
        // waits.
        let has_room = self.pending.send_if_modified(|pending| {
            let has_room = pending.of_namespace(&namespace, class) < 2 * class.limits().share;
            if has_room {
                pending.add(&namespace, class);
            }
            has_room
        });
        if !has_room {
            count_lost(&self.metrics, LostEvent::QueueFull, 1);
            return;
        }
        // The sender task lives as long as its recorders, unless the runtime is shutting down.
        if self.inbox.send(event).is_err() {
            self.pending.send_modify(|pending| pending.remove(&namespace, class, 1));
        }
    }

    /// Waits until all recorded Events have been sent or lost.
    pub async fn flush(&self) {
        self.wait_for(|pending| pending.total() == 0).await;
    }

    /// Waits until all recorded Events that report failures or ends have been sent or lost, and for the others for this
    /// long at most.
    pub async fn flush_reports(&self, patience: Duration) {
        // Without the others in time, they are lost: nothing is promised to them.
        let _ = timeout(patience, self.flush()).await;
        self.wait_for(|pending| pending.of(Class::Warning) + pending.of(Class::Must) == 0).await;
    }

    /// Recorded Events that have neither been sent nor lost.
    pub fn unsent(&self) -> usize {
        self.pending.borrow().total()
    }

    async fn wait_for(&self, is_reached: impl FnMut(&EventCounts) -> bool) {
        // An error would mean that the `watch::Sender` is gone, but we hold it ourselves.
        let _ = self.pending.subscribe().wait_for(is_reached).await;
    }
}

/// Sends recorded Events through the gate, one write of each series at a time.
struct Sender {
    gate: WriteGate,
    correlator: EventCorrelator,
    /// The pending Events that have left the inbox.
    taken: EventCounts,
    pending: watch::Sender<EventCounts>,
    metrics: Arc<Metrics>,
}

impl Sender {
    /// Runs until the last recorder is dropped. After a panic it goes on with the next Event.
    async fn run_supervised(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut pauses = Pauses::begin();
        while caught("the recorder of Events", self.run(&mut events)).await.is_none() {
            // The writes in flight have ended with the task, and with them all that waits for their outcome.
            self.correlator.clear();
            count_lost(&self.metrics, LostEvent::Refused, self.taken.total());
            let taken = std::mem::take(&mut self.taken);
            self.pending.send_modify(|pending| pending.remove_all(&taken));
            sleep(pauses.after_panic()).await;
        }
    }

    async fn run(&mut self, events: &mut mpsc::UnboundedReceiver<Event>) {
        let mut sending = FuturesUnordered::new();
        let mut open = true;
        while open || !sending.is_empty() {
            tokio::select! {
                biased;
                event = events.recv(), if open => match event {
                    Some(event) => self.take(event),
                    None => open = false,
                },
                Some((write, delivery)) = sending.next() => self.delivered(write, delivery),
            }
            while let Some(write) = self.correlator.next_write() {
                sending.push(send(self.gate.clone(), write).boxed());
            }
        }
    }

    fn take(&mut self, event: Event) {
        let (class, namespace) = (Class::of(&event), event.about.namespace().clone());
        self.taken.add(&namespace, class);
        match self.correlator.note(event) {
            true => self.make_room(&namespace, class),
            false => self.lost(LostEvent::Spam, &namespace, class, 1),
        }
    }

    /// Drops the oldest waiting Events. First this namespace loses Events while it has more than its share.
    /// Then the largest namespace does, while there are more than the capacity in all.
    fn make_room(&mut self, namespace: &Arc<str>, class: Class) {
        while self.taken.of_namespace(namespace, class) > class.limits().share
            && self.drop_oldest(namespace, class)
        {}
        while self.taken.of(class) > class.limits().capacity {
            let dropped = self.taken.largest(class).is_some_and(|largest| self.drop_oldest(&largest, class));
            if !dropped {
                break;
            }
        }
    }

    /// Returns whether there was one.
    fn drop_oldest(&mut self, namespace: &Arc<str>, class: Class) -> bool {
        let Some(lost) = self.correlator.drop_oldest(class, namespace) else { return false };
        self.lost(LostEvent::QueueFull, namespace, class, lost);
        true
    }

    fn delivered(&mut self, write: EventWrite, delivery: Delivery) {
        let (series, covered) = (write.series.clone(), write.covered);
        self.correlator.delivered(write, delivery);
        let namespace = series.about.namespace();
        match delivery {
            Delivery::Sent => self.acknowledge(namespace, series.class, covered),
            Delivery::Failed => self.lost(LostEvent::Refused, namespace, series.class, covered),
            Delivery::Expired | Delivery::RefusedInProtobuf => {}
        }
    }

    fn lost(&mut self, reason: LostEvent, namespace: &Arc<str>, class: Class, events: usize) {
        if events > 0 {
            count_lost(&self.metrics, reason, events);
            self.acknowledge(namespace, class, events);
        }
    }

    fn acknowledge(&mut self, namespace: &Arc<str>, class: Class, events: usize) {
        self.taken.remove(namespace, class, events);
        self.pending.send_modify(|pending| pending.remove(namespace, class, events));
    }
}

fn count_lost(metrics: &Metrics, reason: LostEvent, events: usize) {
    metrics.lost_events.get_or_create(&LostEventLabels { reason }).inc_by(events as u64);
}

/// Sends a write, and again after transient failures as often as its class allows. A write that may not
/// have been read is not repeated in protobuf: the correlator composes it again, in JSON.
async fn send(gate: WriteGate, write: EventWrite) -> (EventWrite, Delivery) {
    let limits = write.series.class.limits();
    // An Event reports a past action, which stays true whichever replica owns the shard now.
    let order = Order::new(limits.priority, write.series.about.uid().clone(), Fence::unlimited());
    let mut pauses =
        ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_times(limits.retries).build();
    let mut is_repeated = false;
    loop {
        let failure = match gate.submit(order.clone(), write.write.clone()).await {
            Ok(Answer::Gone) => return (write, Delivery::Expired),
            Ok(_) => return (write, Delivery::Sent),
            // An earlier try has succeeded and its answer was lost.
            Err(WriteError::AlreadyExists(_)) if is_repeated => return (write, Delivery::Sent),
            Err(failure) => failure,
        };
        let is_in_protobuf = matches!(write.write, Write::CreateEvent { encoding: Encoding::Protobuf, .. });
        if is_in_protobuf && failure.may_succeed_in_json() {
            tracing::debug!(%failure, "an Event was refused in protobuf");
            return (write, Delivery::RefusedInProtobuf);
        }
        let pause = if is_transient(&failure) { pauses.next() } else { None };
        let Some(pause) = pause else {
            tracing::debug!(%failure, "an Event was not sent");
            return (write, Delivery::Failed);
        };
        sleep(pause).await;
        is_repeated = true;
    }
}

fn is_transient(failure: &WriteError) -> bool {
    matches!(failure, WriteError::Busy { .. } | WriteError::Unknown(_) | WriteError::Server { .. })
}

#[cfg(test)]
mod tests;
