//! The order in which Events are written.
//!
//! Namespaces take turns, and so do the objects of each ([`FairQueue`]). Events that report how a Job
//! ended come first, then Warnings, then Normal Events. A namespace has few writes of each class in flight
//! ([`Class::at_once`]). So hanging writes cost a bounded number of tasks, and no other namespace waits for
//! them. The gate bounds the Events of all namespaces, and sends those that only inform last.

use std::sync::Arc;

use super::counts::EventCounts;
use super::{Event, EventType};
use crate::cluster::fair_queue::{FairQueue, Room};
use crate::cluster::gate::Priority;
use crate::job::uid::Uid;

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

    /// Most writes of this class that one namespace has in flight. For Normal Events it is one, as
    /// client-go writes all Events.
    fn at_once(self) -> usize {
        match self {
            Self::Normal => 1,
            Self::Warning | Self::Must => 64,
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

/// Writes that wait for their turn, and the number of those that have it.
#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: FairQueue<Class, Arc<str>, Uid, T>,
    in_flight: EventCounts,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { waiting: FairQueue::new(|_, _| false), in_flight: EventCounts::default() }
    }
}

impl<T> Turns<T> {
    /// Puts this behind the waiting items of its class about the same object.
    pub(super) fn push(&mut self, class: Class, namespace: &Arc<str>, object: &Uid, item: T) {
        self.waiting.push(class, namespace.clone(), object.clone(), item);
    }

    /// Takes the item that would have the next turn of its class and namespace.
    pub(super) fn take_oldest(&mut self, class: Class, namespace: &Arc<str>) -> Option<T> {
        let is_its = |of: Class, name: &Arc<str>, _| match of == class && name == namespace {
            true => Room::Preferred,
            false => Room::None,
        };
        self.waiting.pop(is_its).map(|(.., item)| item)
    }

    /// How many Normal Events wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len(Class::Normal)
    }

    /// Takes an item that has its turn now, until [`end`](Self::end).
    pub(super) fn next(&mut self) -> Option<T> {
        let Self { waiting, in_flight } = self;
        let has_room = |class: Class, namespace: &Arc<str>, _| match in_flight.of_namespace(namespace, class)
        {
            number if number < class.at_once() => Room::Preferred,
            _ => Room::None,
        };
        let (class, namespace, item) = waiting.pop(has_room)?;
        in_flight.add(&namespace, class);
        Some(item)
    }

    /// A turn of this class has ended in this namespace.
    pub(super) fn end(&mut self, class: Class, namespace: &Arc<str>) {
        self.in_flight.remove(namespace, class, 1);
    }
}
