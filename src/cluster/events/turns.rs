//! The order in which Events are written.
//!
//! Namespaces take turns, and so do the objects of each ([`FairQueue`]). Events that report how a Job
//! ended come first, then Warnings, then Normal Events. A namespace has few writes of each class in flight
//! ([`ClassLimits::at_once`]). So hanging writes cost a bounded number of tasks, and no other namespace waits for
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

    /// The limits of this class.
    pub(super) fn limits(self) -> ClassLimits {
        let (at_once, priority) = (64, Priority::Report);
        match self {
            Self::Must => ClassLimits { capacity: 8192, share: 1000, at_once, retries: 9, priority },
            Self::Warning => ClassLimits { capacity: 4096, share: 4096, at_once, retries: 4, priority },
            Self::Normal => {
                ClassLimits { capacity: 1000, share: 1000, at_once: 1, retries: 0, priority: Priority::Event }
            }
        }
    }
}

/// The limits of a class. Normal Events have those of client-go: the length of its queue, and one write at a
/// time.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassLimits {
    /// Most recorded Events that are neither sent nor lost. If there are more, the namespace with the most
    /// loses its oldest.
    pub(super) capacity: usize,
    /// Most of them in one namespace. If it has more, its oldest are lost. If the share is the whole
    /// capacity, one namespace may use all of it until others need room.
    pub(super) share: usize,
    /// Most writes that one namespace has in flight.
    at_once: usize,
    /// How often a write is tried again after a failure that may pass, such as a busy or restarting API
    /// server. A failure is mostly recorded once.
    pub(super) retries: usize,
    /// The priority of its writes.
    pub(super) priority: Priority,
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
            number if number < class.limits().at_once => Room::Preferred,
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
