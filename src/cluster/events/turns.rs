//! The order in which Events are written.
//!
//! A Normal Event that may be lost is written alone: the next one waits until its write has ended. The others, which
//! report failures or ends, are written at once. client-go writes all Events one at a time. So where the API server
//! is slow, the Events that only inform cost it no more than those of the built-in controller. A write that goes on for
//! [`TURN`] gives its turn up, so that a webhook that hangs in one namespace does not keep the Events of the others.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::{Event, EventType};
use crate::cluster::gate::Priority;

/// How long the write of a Normal Event keeps its turn.
const TURN: Duration = Duration::from_secs(1);

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
    one_at_a_time: VecDeque<T>,
    /// The last turn of a Normal Event, until it ends or is given up.
    taken: Option<(Turn, Instant)>,
    /// The number of turns of Normal Events so far.
    turns: u64,
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
        Self { at_once: VecDeque::new(), one_at_a_time: VecDeque::new(), taken: None, turns: 0 }
    }
}

impl<T> Turns<T> {
    /// Puts this behind what waits in its class.
    pub(super) fn push(&mut self, class: Class, item: T) {
        match class {
            Class::Normal => self.one_at_a_time.push_back(item),
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
        if self.taken.is_some_and(|(_, since)| now < since + TURN) {
            return None;
        }
        let item = self.one_at_a_time.pop_front()?;
        self.turns += 1;
        let turn = Turn::Only(self.turns);
        self.taken = Some((turn, now));
        Some((item, turn))
    }

    /// When the turn that others wait for is given up.
    pub(super) fn given_up(&self) -> Option<Instant> {
        self.taken.filter(|_| !self.one_at_a_time.is_empty()).map(|(_, since)| since + TURN)
    }

    /// A turn has ended.
    pub(super) fn end(&mut self, turn: Turn) {
        self.taken.take_if(|(taken, _)| *taken == turn);
    }
}
