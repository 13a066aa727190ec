//! Numbers of writes in flight.

use crate::cluster::gate::Priority;

/// Numbers of writes in flight, by priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held([usize; Priority::ALL.len()]);

impl Held {
    pub(super) fn of(&self, priority: Priority) -> usize {
        self.0[priority as usize]
    }

    pub(super) fn total(&self) -> usize {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, priority: Priority) {
        self.0[priority as usize] += 1;
    }

    pub(super) fn remove(&mut self, priority: Priority) {
        self.0[priority as usize] -= 1;
    }

    pub(super) fn events(&self) -> usize {
        self.of(Priority::Report) + self.of(Priority::Event)
    }
}
