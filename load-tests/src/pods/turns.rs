//! Round-robin over Jobs: the many pods of one Job do not delay those of another, as on real nodes.

use std::collections::{HashMap, VecDeque};

/// Entries of several Jobs. Entries of a Job keep their order, ends before starts.
#[derive(Debug)]
pub(super) struct Turns<T> {
    waiting: HashMap<Box<str>, Waiting<T>>,
    /// Jobs with waiting entries, the next one first.
    order: VecDeque<Box<str>>,
}

#[derive(Debug)]
struct Waiting<T> {
    ends: VecDeque<T>,
    starts: VecDeque<T>,
}

impl<T> Turns<T> {
    /// An empty queue.
    pub(super) fn new() -> Self {
        Self { waiting: HashMap::new(), order: VecDeque::new() }
    }

    /// Adds the start or the end of a pod of this Job.
    pub(super) fn push(&mut self, job: &str, entry: T, ends: bool) {
        if !self.waiting.contains_key(job) {
            self.order.push_back(job.into());
        }
        let none = || Waiting { ends: VecDeque::new(), starts: VecDeque::new() };
        let waiting = self.waiting.entry(job.into()).or_insert_with(none);
        if ends { waiting.ends.push_back(entry) } else { waiting.starts.push_back(entry) }
    }

    /// The next entry.
    pub(super) fn pop(&mut self) -> Option<T> {
        let job = self.order.pop_front()?;
        let waiting = self.waiting.get_mut(&job)?;
        let next = waiting.ends.pop_front().or_else(|| waiting.starts.pop_front());
        if waiting.ends.is_empty() && waiting.starts.is_empty() {
            self.waiting.remove(&job);
        } else {
            self.order.push_back(job);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn jobs_take_turns_and_ends_come_first() {
        let mut turns = Turns::new();
        for (job, entry, ends) in [
            ("a", 1, false),
            ("a", 2, false),
            ("a", 3, true),
            ("b", 4, false),
            ("b", 5, false),
            ("c", 6, true),
        ] {
            turns.push(job, entry, ends);
        }
        let order: Vec<_> = std::iter::from_fn(|| turns.pop()).collect();
        assert_eq!(order, [3, 4, 6, 1, 5, 2]);
        turns.push("a", 7, true);
        assert_eq!(turns.pop(), Some(7));
        assert_eq!(turns.pop(), None);
    }
}
