//! Numbers of Events or of their writes, by class and namespace.

use std::collections::HashMap;
use std::sync::Arc;

use super::turns::Class;

/// A number for each class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ByClass([usize; 3]);

/// Numbers of all namespaces.
#[derive(Clone, Debug, Default)]
pub(super) struct EventCounts {
    all: ByClass,
    /// Namespaces that have some.
    namespaces: HashMap<Arc<str>, ByClass>,
}

impl EventCounts {
    /// The number of a class.
    pub(super) fn of(&self, class: Class) -> usize {
        self.all.0[class as usize]
    }

    /// The number of a class in one namespace.
    pub(super) fn of_namespace(&self, namespace: &str, class: Class) -> usize {
        self.namespaces.get(namespace).map_or(0, |counts| counts.0[class as usize])
    }

    /// The namespace that has most of a class.
    pub(super) fn largest(&self, class: Class) -> Option<Arc<str>> {
        let largest = self.namespaces.iter().max_by_key(|(name, counts)| (counts.0[class as usize], *name));
        largest.map(|(name, _)| name.clone())
    }

    /// The number of all classes.
    pub(super) fn total(&self) -> usize {
        self.all.0.iter().sum()
    }

    /// Adds one.
    pub(super) fn add(&mut self, namespace: &Arc<str>, class: Class) {
        self.all.0[class as usize] += 1;
        self.namespaces.entry(namespace.clone()).or_default().0[class as usize] += 1;
    }

    /// Takes away some that are among these.
    pub(super) fn remove(&mut self, namespace: &Arc<str>, class: Class, events: usize) {
        self.subtract(
            namespace,
            ByClass(std::array::from_fn(|of| if of == class as usize { events } else { 0 })),
        );
    }

    /// Takes away others, which are among these.
    pub(super) fn remove_all(&mut self, others: &Self) {
        others.namespaces.iter().for_each(|(namespace, counts)| self.subtract(namespace, *counts));
    }

    fn subtract(&mut self, namespace: &Arc<str>, counts: ByClass) {
        self.all.subtract(counts);
        if let Some(known) = self.namespaces.get_mut(namespace) {
            known.subtract(counts);
            if *known == ByClass::default() {
                self.namespaces.remove(namespace);
            }
        }
    }
}

impl ByClass {
    fn subtract(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(number, other)| *number -= other);
    }
}
