//! The order in which Events are written.
//!
//! A Normal Event that may be lost is written alone: the next one waits until its write has ended. The others, which
//! report failures or ends, are written at once. client-go writes all Events one at a time. So where the API server
//! is slow, the Events that only inform cost it no more than those of the built-in controller. A write that is answered much
//! later than other writes lets one of another namespace go, so that a webhook that hangs keeps nobody else's Events.
//! Meanwhile its namespace keeps a few Events, and loses the others.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Event, EventType};
use crate::cluster::gate::Priority;

/// How long the write of a Normal Event keeps those of other namespaces waiting, once it has left: this long ...
const KEEPS_TURN: Duration = Duration::from_secs(1);
/// ... or, if that is more, so many times as long as the last Normal Event took ...
const OF_LAST: u32 = 2;
/// ... and so many times as long as other writes take.
const OF_OTHERS: u32 = 8;
/// How many wait of a namespace in which a write hangs, while others wait or so many wait in all that there is hardly room
/// for others.
const KEPT_BEHIND: usize = 50;
const MANY: usize = 500;

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
    /// How long the last Normal Event took that was sent.
    took: Duration,
}

/// A write of a Normal Event that is under way.
#[derive(Debug)]
struct UnderWay {
    turn: Turn,
    namespace: Arc<str>,
    /// When it left the gate, and when others need not wait for it any more.
    left: Option<(Instant, Instant)>,
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
        Self {
            at_once: VecDeque::new(),
            one_at_a_time: VecDeque::new(),
            under_way: Vec::new(),
            turns: 0,
            took: Duration::ZERO,
        }
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

    /// What waits to be written one at a time and is merged leaves; its heir, if there is one, takes the first place.
    pub(super) fn merge(&mut self, is_merged: impl Fn(&T) -> bool, heir: &mut Option<T>) {
        self.one_at_a_time.retain_mut(|(_, item)| match is_merged(item) {
            true => heir.take().map(|heir| *item = heir).is_some(),
            false => true,
        });
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
        self.under_way.push(UnderWay { turn, namespace, left: None });
        Some((item, turn))
    }

    /// A write with this turn leaves, to an API server that answers other writes after this time.
    pub(super) fn leaves(&mut self, turn: Turn, now: Instant, answer_time: Duration) {
        let keeps_turn = KEEPS_TURN.max(OF_LAST * self.took).max(OF_OTHERS * answer_time);
        if let Some(write) = self.under_way.iter_mut().find(|write| write.turn == turn) {
            write.left = Some((now, now + keeps_turn));
        }
    }

    /// When others need not wait any more for the writes under way, if all of these have left, and others wait or would
    /// hardly find room.
    pub(super) fn given_up(&self) -> Option<Instant> {
        let hinders = self.waiting() >= MANY || self.first_of_another_namespace().is_some();
        if !self.have_all_left() || !hinders {
            return None;
        }
        self.under_way.iter().filter_map(|write| write.left).map(|(_, given_up)| given_up).max()
    }

    /// A turn has ended; with a time, since the Event was sent then.
    pub(super) fn end(&mut self, turn: Turn, sent: Option<Instant>) {
        let Some(place) = self.under_way.iter().position(|write| write.turn == turn) else { return };
        let write = self.under_way.swap_remove(place);
        if let (Some(sent), Some((left, _))) = (sent, write.left) {
            self.took = sent - left;
        }
    }

    /// Takes what waits of namespaces in which a write hangs while others wait, but for a few.
    pub(super) fn drop_those_that_hang(&mut self, now: Instant) -> Vec<T> {
        if self.under_way.is_empty() || self.given_up().is_none_or(|given_up| given_up > now) {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        let mut kept: HashMap<Arc<str>, usize> =
            self.under_way.iter().map(|write| (write.namespace.clone(), KEPT_BEHIND)).collect();
        for (namespace, item) in std::mem::take(&mut self.one_at_a_time) {
            match kept.get_mut(&namespace) {
                Some(0) => dropped.push(item),
                Some(room) => {
                    *room -= 1;
                    self.one_at_a_time.push_back((namespace, item));
                }
                None => self.one_at_a_time.push_back((namespace, item)),
            }
        }
        dropped
    }

    fn have_all_left(&self) -> bool {
        self.under_way.iter().all(|write| write.left.is_some())
    }

    /// The place of the first that waits in a namespace without a write under way.
    fn first_of_another_namespace(&self) -> Option<usize> {
        let is_other =
            |namespace: &Arc<str>| self.under_way.iter().all(|write| write.namespace != *namespace);
        self.one_at_a_time.iter().position(|(namespace, _)| is_other(namespace))
    }
}
