//! Coming events in order of time. Events at the same time keep the order in which they were added.

use std::collections::BTreeMap;

use crate::time::Time;

/// Coming events.
#[derive(Debug)]
pub(crate) struct Agenda<E> {
    events: BTreeMap<(Time, u64), E>,
    next: u64,
}

impl<E> Agenda<E> {
    pub(crate) fn new() -> Self {
        Self { events: BTreeMap::new(), next: 0 }
    }

    pub(crate) fn add(&mut self, at: Time, event: E) {
        self.events.insert((at, self.next), event);
        self.next += 1;
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next event, if it happens no later than `now`.
    pub(crate) fn pop(&mut self, now: Time) -> Option<E> {
        let first = self.events.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}
