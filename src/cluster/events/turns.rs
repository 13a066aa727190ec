//! The order in which Events are written.
//!
//! Namespaces take turns, and so do the objects of each ([`FairQueue`]). Events that report how a Job
//! ended come first, then Warnings, then Normal Events. A namespace has at most [`REPORTS`] writes of
//! each of the first two in flight, so hanging writes cost a bounded number of tasks.
//!
//! Normal Events are written one at a time, as client-go writes all Events. If a write takes longer than
//! [`KEEPS_TURN`], one of another namespace may begin beside it. So each write through a slow webhook delays
//! the Events of other namespaces by that time at most. A slow API server gets one more write in that time,
//! and has at most one of each namespace in flight.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Event, EventType};
use crate::cluster::fair_queue::{FairQueue, Room};
use crate::cluster::gate::Priority;
use crate::job::uid::Uid;

/// How long the write of a Normal Event keeps those of other namespaces waiting.
const KEEPS_TURN: Duration = Duration::from_secs(1);
/// Most writes in flight that report failures in one namespace, and most that report ends.
const REPORTS: usize = 64;

/// The guarantee for an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Class {
    /// The Event must be delivered, unless there are too many such Events.
    Must,
    /// The Event reports a problem, and may be lost.
    Warning,
    /// The Event informs, and may be lost.
    Normal,
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

    /// Most recorded Events of this class that are neither sent nor lost. For Normal Events it is the
    /// length of client-go's queue. If there are more, the namespace with the most loses its oldest.
    pub(super) fn capacity(self) -> usize {
        match self {
            Self::Normal => 1000,
            Self::Warning => 4096,
            Self::Must => 8192,
        }
    }

    /// Most of them in one namespace. If it has more, its oldest are lost. If the share is the whole
    /// capacity, one namespace may use all of it until others need room.
    pub(super) fn share(self) -> usize {
        match self {
            Self::Normal | Self::Warning => self.capacity(),
            Self::Must => 1000,
        }
    }

    /// How often a write of this class is tried again after a failure that may pass, such as a busy or
    /// restarting API server. A failure is mostly recorded once.
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

/// Writes that wait for their turn.
#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: FairQueue<Class, Arc<str>, Uid, T>,
    /// How many reports are in flight.
    reports: HashMap<(Class, Arc<str>), usize>,
    /// The writes of Normal Events in flight.
    under_way: Vec<UnderWay>,
    /// The number of turns of Normal Events so far.
    turns: u64,
}

/// A write of a Normal Event that is in flight.
#[derive(Debug)]
struct UnderWay {
    turn: u64,
    namespace: Arc<str>,
    /// When others need not wait for it any more.
    given_up: Instant,
}

/// The turn of a write.
#[derive(Clone, Debug)]
pub(super) enum Turn {
    /// A report, of which several may be in flight.
    Report(Class, Arc<str>),
    /// The one with this number, of those of Normal Events.
    Only(u64),
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            waiting: FairQueue::new(|_, _| false),
            reports: HashMap::new(),
            under_way: Vec::new(),
            turns: 0,
        }
    }
}

impl<T> Turns<T> {
    /// Puts this behind the waiting items of its class about the same object.
    pub(super) fn push(&mut self, class: Class, namespace: &Arc<str>, object: &Uid, item: T) {
        self.waiting.push(class, namespace.clone(), object.clone(), item);
    }

    /// Drops Normal Events about an object that wait and are not kept.
    pub(super) fn retain(&mut self, namespace: &Arc<str>, object: &Uid, keep: impl Fn(&T) -> bool) {
        self.waiting.retain(Class::Normal, namespace, object, keep);
    }

    /// Takes the item that would have the next turn of its class and namespace.
    pub(super) fn take_oldest(&mut self, class: Class, namespace: &Arc<str>) -> Option<T> {
        let is_its = |of: Class, name: &Arc<str>, _| match of == class && name == namespace {
            true => Room::Preferred,
            false => Room::None,
        };
        self.waiting.pop(is_its).map(|(.., item)| item)
    }

    /// How many wait to be written one at a time.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len(Class::Normal)
    }

    /// Takes an item that has its turn now, until [`end`](Self::end).
    pub(super) fn next(&mut self, now: Instant) -> Option<(T, Turn)> {
        let next_normal = self.under_way.iter().all(|write| write.given_up <= now);
        let Self { waiting, reports, under_way, .. } = &mut *self;
        let room = |class: Class, namespace: &Arc<str>, _| {
            let has_room = match class {
                Class::Normal => next_normal && has_none(under_way, namespace),
                _ => reports.get(&(class, namespace.clone())).is_none_or(|number| *number < REPORTS),
            };
            if has_room { Room::Preferred } else { Room::None }
        };
        let (class, namespace, item) = waiting.pop(room)?;
        if class != Class::Normal {
            *reports.entry((class, namespace.clone())).or_default() += 1;
            return Some((item, Turn::Report(class, namespace)));
        }
        self.turns += 1;
        self.under_way.push(UnderWay { turn: self.turns, namespace, given_up: now + KEEPS_TURN });
        Some((item, Turn::Only(self.turns)))
    }

    /// When others need not wait any more for the writes in flight, if others wait.
    pub(super) fn given_up(&self) -> Option<Instant> {
        let is_other = |class, namespace: &Arc<str>, _| match class == Class::Normal
            && has_none(&self.under_way, namespace)
        {
            true => Room::Preferred,
            false => Room::None,
        };
        let given_up = self.under_way.iter().map(|write| write.given_up).max();
        given_up.filter(|_| self.waiting.is_ready(is_other))
    }

    /// A turn has ended.
    pub(super) fn end(&mut self, turn: Turn) {
        match turn {
            Turn::Only(turn) => self.under_way.retain(|write| write.turn != turn),
            Turn::Report(class, namespace) => {
                if let Entry::Occupied(mut number) = self.reports.entry((class, namespace)) {
                    *number.get_mut() -= 1;
                    if *number.get() == 0 {
                        number.remove();
                    }
                }
            }
        }
    }
}

/// Whether none of these writes is in this namespace.
fn has_none(under_way: &[UnderWay], namespace: &Arc<str>) -> bool {
    under_way.iter().all(|write| write.namespace != *namespace)
}
