//! Numbers of Events or of their writes, by class and namespace.

use std::collections::HashMap;
use std::sync::Arc;

use super::turns::Class;

/// Numbers of each class.
#[derive(Clone, Debug, Default)]
pub(super) struct EventCounts([OfClass; 3]);

#[derive(Clone, Debug, Default)]
struct OfClass {
    all: usize,
    /// Namespaces that have some.
    namespaces: HashMap<Arc<str>, usize>,
}

impl EventCounts {
    /// The number of a class.
    pub(super) fn of(&self, class: Class) -> usize {
        self.0[class as usize].all
    }

    /// The number of a class in one namespace.
    pub(super) fn of_namespace(&self, namespace: &str, class: Class) -> usize {
        self.0[class as usize].namespaces.get(namespace).copied().unwrap_or_default()
    }

    /// The namespace that has most of a class.
    pub(super) fn largest(&self, class: Class) -> Option<Arc<str>> {
        let namespaces = self.0[class as usize].namespaces.iter();
        namespaces.max_by_key(|(name, number)| (**number, *name)).map(|(name, _)| name.clone())
    }

    /// The number of all classes.
    pub(super) fn total(&self) -> usize {
        self.0.iter().map(|of_class| of_class.all).sum()
    }

    /// Adds one.
    pub(super) fn add(&mut self, namespace: &Arc<str>, class: Class) {
        let of_class = &mut self.0[class as usize];
        of_class.all += 1;
        *of_class.namespaces.entry(namespace.clone()).or_default() += 1;
    }

    /// Takes away some that are among these.
    pub(super) fn remove(&mut self, namespace: &str, class: Class, number: usize) {
        self.0[class as usize].remove(namespace, number);
    }

    /// Takes away others, which are among these.
    pub(super) fn remove_all(&mut self, others: &Self) {
        for (of_class, others) in self.0.iter_mut().zip(&others.0) {
            others.namespaces.iter().for_each(|(namespace, number)| of_class.remove(namespace, *number));
        }
    }
}

impl OfClass {
    fn remove(&mut self, namespace: &str, number: usize) {
        self.all -= number;
        if let Some(known) = self.namespaces.get_mut(namespace) {
            *known -= number;
            if *known == 0 {
                self.namespaces.remove(namespace);
            }
        }
    }
}
