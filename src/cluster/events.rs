//! Kubernetes Events about Jobs.
//!
//! Events are told in passing: recording one never waits, and what cannot be sent is counted. Equal ones become one
//! Event with a count, many similar ones a combined one, and one object cannot flood the API server. Only Events that
//! must come through (how a Job ended) are exempt from all of this.

mod correlator;

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::stream::{FuturesUnordered, StreamExt};
use jiff::Timestamp;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

use self::correlator::{Delivery, EventCorrelator, EventWrite, Noted};
use super::gate::{Answer, Fence, Order, Priority, WriteError, WriteGate};
use crate::job::uid::Uid;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::metrics::labels::{LostEvent, LostEventLabels};

/// The object that an Event is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.uid`.
    pub uid: Uid,
}

impl ObjectRef {
    /// A Job.
    pub fn job(namespace: &Arc<str>, name: &Arc<str>, uid: &Uid) -> Self {
        Self {
            api_version: "batch/v1",
            kind: "Job",
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
        }
    }
}

/// `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// All is well.
    Normal,
    /// Somebody should look.
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

/// Something to tell.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it is about.
    pub about: ObjectRef,
    /// Whether somebody should look.
    pub kind: EventType,
    /// `reason`: why, in one word.
    pub reason: Box<str>,
    /// `message`: why, in a sentence.
    pub message: Box<str>,
    /// When it happened.
    pub at: Timestamp,
    /// Whether it must come through: it is told on its own, and tried again.
    pub must: bool,
}

/// Events that may wait at once, besides those that must come through.
const CAPACITY: usize = 4096;
/// How often an Event that must come through is sent again.
const MUST_RETRIES: usize = 9;
/// Pause before the first of them; it doubles, up to a minute.
const MUST_PAUSE: Duration = Duration::from_millis(500);

/// Records Events. Clones are the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    inbox: mpsc::UnboundedSender<Event>,
    /// Events that have neither been sent nor lost.
    pending: watch::Sender<usize>,
    metrics: Arc<Metrics>,
}

impl Recorder {
    /// A recorder that sends through the gate on the current tokio runtime. `component` is the Events' source;
    /// `seed` varies their names.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(gate: WriteGate, component: &str, metrics: Arc<Metrics>, seed: u64) -> Self {
        let (inbox, events) = mpsc::unbounded_channel();
        let recorder = Self { inbox, pending: watch::Sender::new(0), metrics: metrics.clone() };
        let pending = recorder.pending.clone();
        let correlator = EventCorrelator::new(component, SmallRng::seed_from_u64(seed));
        tokio::spawn(Sender { gate, correlator, pending, metrics }.run(events));
        recorder
    }

    /// Records an Event. Never waits.
    pub fn record(&self, event: Event) {
        if !event.must && *self.pending.borrow() >= CAPACITY {
            count_lost(&self.metrics, LostEvent::QueueFull, 1);
            return;
        }
        self.pending.send_modify(|pending| *pending += 1);
        // The sender lives as long as its recorders, unless the whole runtime is shutting down.
        if self.inbox.send(event).is_err() {
            self.pending.send_modify(|pending| *pending -= 1);
        }
    }

    /// Waits until all recorded Events have been sent or lost.
    pub async fn flush(&self) {
        // An error would mean that the sender is gone, and with it all Events; but we hold one ourselves.
        let _ = self.pending.subscribe().wait_for(|pending| *pending == 0).await;
    }
}

/// Takes Events from the recorders to the gate, one write of each series at a time.
struct Sender {
    gate: WriteGate,
    correlator: EventCorrelator,
    pending: watch::Sender<usize>,
    metrics: Arc<Metrics>,
}

impl Sender {
    async fn run(mut self, mut events: mpsc::UnboundedReceiver<Event>) {
        let mut sending = FuturesUnordered::new();
        let mut open = true;
        while open || !sending.is_empty() {
            tokio::select! {
                event = events.recv(), if open => match event.map(|event| self.correlator.note(event)) {
                    Some(Noted::Write(write)) => sending.push(send(self.gate.clone(), write)),
                    Some(Noted::Merged) => {}
                    Some(Noted::Spam) => self.lost(LostEvent::Spam, 1),
                    None => open = false,
                },
                Some((write, delivery)) = sending.next() => {
                    match delivery {
                        Delivery::Sent => self.acknowledge(write.covered),
                        Delivery::Failed => self.lost(LostEvent::Refused, write.covered),
                        Delivery::Expired => {}
                    }
                    sending.extend(self.correlator.delivered(write, delivery).map(|next| send(self.gate.clone(), next)));
                }
            }
        }
    }

    fn lost(&self, reason: LostEvent, events: usize) {
        count_lost(&self.metrics, reason, events);
        self.acknowledge(events);
    }

    fn acknowledge(&self, events: usize) {
        self.pending.send_modify(|pending| *pending -= events);
    }
}

fn count_lost(metrics: &Metrics, reason: LostEvent, events: usize) {
    metrics.lost_events.get_or_create(&LostEventLabels { reason }).inc_by(events as u64);
}

/// Sends a letter; one that must come through again and again while the failure may pass.
async fn send(gate: WriteGate, write: EventWrite) -> (EventWrite, Delivery) {
    let mut pauses = ExponentialBuilder::new()
        .with_min_delay(MUST_PAUSE)
        .with_max_times(if write.must { MUST_RETRIES } else { 0 })
        .build();
    loop {
        // An Event tells what was done, which stays true whoever owns the shard by now: no fence.
        let order = Order {
            priority: Priority::Event,
            flow: write.series.about.uid.clone(),
            fence: Fence::unlimited(),
        };
        let failure = match gate.submit(order, write.write.clone()).await {
            Ok(Answer::Gone) => return (write, Delivery::Expired),
            // A name that exists is an earlier try whose answer was lost.
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => return (write, Delivery::Sent),
            Err(failure) => failure,
        };
        let pause = if may_pass(&failure) { pauses.next() } else { None };
        let Some(pause) = pause else {
            tracing::debug!(%failure, "an Event was not sent");
            return (write, Delivery::Failed);
        };
        sleep(pause).await;
    }
}

fn may_pass(failure: &WriteError) -> bool {
    matches!(failure, WriteError::Busy { .. } | WriteError::Unknown(_) | WriteError::Server { .. })
}

#[cfg(test)]
mod tests;
