//! The order in which Events are written.
//!
//! A Normal Event that may be lost is written alone: the next one waits until its write has ended. The others, which
//! report failures or ends, are written at once. client-go writes all Events one at a time. So where the API server
//! is slow, the Events that only inform cost it no more than those of the built-in controller. A write that is answered much
//! later than other writes lets one of another namespace go, so that a webhook that hangs keeps nobody else's Events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Event, EventType};
use crate::cluster::gate::Priority;

/// How long the write of a Normal Event keeps those of other namespaces waiting, once it has left: this long, or for so many
/// times as long as the API server takes for other writes, if that is more.
const KEEPS_TURN: (Duration, u32) = (Duration::from_secs(1), 8);

/// What is promised to an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    /// It informs, and may be lost.
    Normal,
    /// It reports a problem, and may be lost.
    Warning,
    /// It must be delivered.
    Must,
}

impl Class {
    /// The class of an Event.
    pub(super) fn of(event: &Event) -> Self {
        match event.kind {
            _ if event.must => Self::Must,
            EventType::Normal => Self::Normal,
            EventType::Warning => Self::Warning,
        }
    }

    /// Recorded Events of this class that may be neither sent nor lost. That of Normal Events is the length of
    /// client-go's queue.
    pub(super) fn capacity(self) -> usize {
        match self {
            Self::Normal => 1000,
            Self::Warning => 4096,
            Self::Must => usize::MAX,
        }
    }

    /// How often a write of this class is tried again after a failure that may pass, such as a busy or restarting API
    /// server. What reports a failure is mostly recorded once.
    pub(super) fn retries(self) -> usize {
        match self {
            Self::Normal => 0,
            Self::Warning => 4,
            Self::Must => 9,
        }
    }

    /// The priority of writes of this class.
    pub(super) fn priority(self) -> Priority {
        match self {
            Self::Normal => Priority::Event,
            Self::Warning | Self::Must => Priority::Report,
        }
    }
}

/// A number of Events of each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts([usize; 3]);

impl Counts {
    /// The number of a class.
    pub(super) fn of(&self, class: Class) -> usize {
        self.0[class as usize]
    }

    /// The number of a class, to change it.
    pub(super) fn of_mut(&mut self, class: Class) -> &mut usize {
        &mut self.0[class as usize]
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes away others, which are among these.
    pub(super) fn subtract(&mut self, others: &Self) {
        for (number, other) in self.0.iter_mut().zip(others.0) {
            *number -= other;
        }
    }

    /// The number of all classes.
    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }
}

/// What waits for its turn to be written.
#[derive(Debug)]
pub(super) struct Turns<T> {
    at_once: VecDeque<T>,
    one_at_a_time: VecDeque<(Arc<str>, T)>,
    /// The writes of Normal Events under way.
    under_way: Vec<UnderWay>,
    /// The number of turns of Normal Events so far.
    turns: u64,
}

/// A write of a Normal Event that is under way.
#[derive(Debug)]
struct UnderWay {
    turn: Turn,
    namespace: Arc<str>,
    /// When others need not wait for it any more, once it has left the gate.
    given_up: Option<Instant>,
}

/// The turn of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// One of many at once.
    Any,
    /// The one with this number, of those of Normal Events.
    Only(u64),
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { at_once: VecDeque::new(), one_at_a_time: VecDeque::new(), under_way: Vec::new(), turns: 0 }
    }
}

impl<T> Turns<T> {
    /// Puts this behind what waits in its class. `namespace`: that of the write.
    pub(super) fn push(&mut self, class: Class, namespace: &Arc<str>, item: T) {
        match class {
            Class::Normal => self.one_at_a_time.push_back((namespace.clone(), item)),
            Class::Warning | Class::Must => self.at_once.push_back(item),
        }
    }

    /// How many wait to be written one at a time.
    pub(super) fn waiting(&self) -> usize {
        self.one_at_a_time.len()
    }

    /// Takes what has its turn now, until [`end`](Self::end).
    pub(super) fn next(&mut self, now: Instant) -> Option<(T, Turn)> {
        if let Some(item) = self.at_once.pop_front() {
            return Some((item, Turn::Any));
        }
        if !self.have_all_left() || self.given_up().is_some_and(|given_up| given_up > now) {
            return None;
        }
        let (namespace, item) = self.one_at_a_time.remove(self.first_of_another_namespace()?)?;
        self.turns += 1;
        let turn = Turn::Only(self.turns);
        self.under_way.push(UnderWay { turn, namespace, given_up: None });
        Some((item, turn))
    }

    /// A write with this turn leaves, to an API server that answers other writes after this time.
    pub(super) fn leaves(&mut self, turn: Turn, now: Instant, answer_time: Duration) {
        let keeps_turn = KEEPS_TURN.0.max(KEEPS_TURN.1 * answer_time);
        if let Some(write) = self.under_way.iter_mut().find(|write| write.turn == turn) {
            write.given_up = Some(now + keeps_turn);
        }
    }

    /// When others need not wait any more for the writes under way, if all of these have left and any wait that may go
    /// then.
    pub(super) fn given_up(&self) -> Option<Instant> {
        if !self.have_all_left() {
            return None;
        }
        let last = self.under_way.iter().filter_map(|write| write.given_up).max()?;
        self.first_of_another_namespace().map(|_| last)
    }

    /// A turn has ended.
    pub(super) fn end(&mut self, turn: Turn) {
        self.under_way.retain(|write| write.turn != turn);
    }

    fn have_all_left(&self) -> bool {
        self.under_way.iter().all(|write| write.given_up.is_some())
    }

    /// The place of the first that waits and whose namespace has no write under way.
    fn first_of_another_namespace(&self) -> Option<usize> {
        let is_other =
            |namespace: &Arc<str>| self.under_way.iter().all(|write| write.namespace != *namespace);
        self.one_at_a_time.iter().position(|(namespace, _)| is_other(namespace))
    }
}
