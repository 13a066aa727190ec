//! The gate's queue: the highest priority first, and within a priority round robin over flows.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;

/// A queue that returns the highest priority (the smallest `P`) and, within it, one item of each flow in
/// turn: a flow with 100,000 items delays the single item of another flow by at most one item per flow that
/// waits. Items of one flow and priority keep their order.
///
/// A priority gets a turn after [`PATIENCE`] items of higher priorities, if its next item is overdue. So one
/// flow's many items of a high priority do not delay other flows' items of a lower one for long.
#[derive(Debug)]
pub(crate) struct FairQueue<P, F, T> {
    levels: BTreeMap<P, Level<F, T>>,
    is_overdue: fn(P, &T) -> bool,
}

/// Items that may precede a waiting one of a lower priority.
const PATIENCE: usize = 4;

/// All items of one priority.
#[derive(Debug)]
struct Level<F, T> {
    /// Flows with items, in the order of their turns.
    turns: VecDeque<F>,
    /// Items by flow; never an empty list.
    flows: HashMap<F, VecDeque<T>, RandomState>,
    len: usize,
    /// Items of higher priorities returned since the last one of this priority, while some of this one
    /// waited.
    passed_over: usize,
}

impl<P: Ord + Copy, F: Hash + Eq + Clone, T> FairQueue<P, F, T> {
    /// An empty queue. A priority whose next item is not overdue waits for as long as higher ones have items.
    pub(crate) fn new(is_overdue: fn(P, &T) -> bool) -> Self {
        Self { levels: BTreeMap::new(), is_overdue }
    }

    pub(crate) fn push(&mut self, priority: P, flow: F, item: T) {
        let level = self.levels.entry(priority).or_default();
        level.len += 1;
        match level.flows.get_mut(&flow) {
            Some(items) => items.push_back(item),
            None => {
                level.turns.push_back(flow.clone());
                level.flows.insert(flow, VecDeque::from([item]));
            }
        }
    }

    /// Puts back an item that was taken too early: it is the next of its priority.
    pub(crate) fn put_back(&mut self, priority: P, flow: F, item: T) {
        let level = self.levels.entry(priority).or_default();
        level.len += 1;
        level.turns.retain(|waiting| *waiting != flow);
        level.turns.push_front(flow.clone());
        level.flows.entry(flow).or_default().push_front(item);
    }

    pub(crate) fn pop(&mut self) -> Option<(P, T)> {
        let next = self.next()?;
        for (priority, level) in &mut self.levels {
            level.passed_over += usize::from(*priority > next && level.len > 0);
        }
        let level = self.levels.get_mut(&next)?;
        level.passed_over = 0;
        Some((next, level.pop()?))
    }

    /// The priority whose turn it is.
    fn next(&self) -> Option<P> {
        let mut waiting = self.levels.iter().filter(|(_, level)| level.len > 0);
        let (first, _) = waiting.next()?;
        let starves = |priority, level: &Level<F, T>| {
            level.passed_over >= PATIENCE
                && level.next().is_some_and(|item| (self.is_overdue)(priority, item))
        };
        let starving = waiting.find(|(priority, level)| starves(**priority, level));
        Some(*starving.map_or(first, |(priority, _)| priority))
    }

    /// Number of items of one priority.
    pub(crate) fn len(&self, priority: P) -> usize {
        self.levels.get(&priority).map_or(0, |level| level.len)
    }

    /// Number of flows with items of one priority.
    pub(crate) fn flows(&self, priority: P) -> usize {
        self.levels.get(&priority).map_or(0, |level| level.flows.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.levels.values().all(|level| level.len == 0)
    }
}

impl<F: Hash + Eq + Clone, T> Level<F, T> {
    fn next(&self) -> Option<&T> {
        self.flows.get(self.turns.front()?)?.front()
    }

    fn pop(&mut self) -> Option<T> {
        let flow = self.turns.pop_front()?;
        let items = self.flows.get_mut(&flow)?;
        let item = items.pop_front()?;
        if items.is_empty() {
            self.flows.remove(&flow);
        } else {
            self.turns.push_back(flow);
        }
        self.len -= 1;
        Some(item)
    }
}

impl<F, T> Default for Level<F, T> {
    fn default() -> Self {
        Self { turns: VecDeque::new(), flows: HashMap::default(), len: 0, passed_over: 0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn priorities_come_first_and_flows_take_turns() {
        let mut queue = FairQueue::new(|_, _| false);
        for n in 0..4 {
            queue.push(1, "huge", n);
        }
        queue.push(1, "tiny", 10);
        queue.push(0, "huge", 20);
        assert_eq!((queue.len(0), queue.len(1)), (1, 5));
        assert_eq!((queue.flows(0), queue.flows(1)), (1, 2));
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop().map(|(_, item)| item)).collect();
        assert_eq!(order, [20, 0, 10, 1, 2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn an_item_put_back_is_next_and_takes_one_turn() {
        let mut queue = FairQueue::new(|_, _| false);
        for (flow, item) in [("a", 1), ("b", 10), ("a", 2)] {
            queue.push(0, flow, item);
        }
        let (_, first) = queue.pop().unwrap();
        queue.put_back(0, "a", first);
        queue.put_back(0, "c", 20);
        assert_eq!(queue.len(0), 4);
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop().map(|(_, item)| item)).collect();
        assert_eq!(order, [20, 1, 10, 2]);
    }

    #[test]
    fn a_priority_with_overdue_items_gets_one_turn_in_five() {
        let mut queue = FairQueue::new(|priority, _| priority != 3);
        for n in 0..11 {
            queue.push(0, "huge", n);
        }
        for (priority, item) in [(1, 100), (2, 200), (2, 201), (3, 300)] {
            queue.push(priority, "tiny", item);
        }
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop().map(|(_, item)| item)).collect();
        assert_eq!(order, [0, 1, 2, 3, 100, 200, 4, 5, 6, 7, 201, 8, 9, 10, 300]);
    }

    proptest! {
        /// Between two items of one flow, no other flow of that priority gets two.
        #[test]
        fn turns_are_fair_and_nothing_is_lost(pushes in prop::collection::vec((0..3u8, 0..5u8), 0..200)) {
            let mut queue = FairQueue::new(|_, _| false);
            for (number, (priority, flow)) in pushes.iter().enumerate() {
                queue.push(*priority, *flow, (*flow, number));
            }
            let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(order.len(), pushes.len());
            prop_assert!(order.is_sorted_by_key(|(priority, _)| *priority));
            for priority in 0..3u8 {
                let level: Vec<_> = order.iter().filter(|(p, _)| *p == priority).map(|(_, item)| *item).collect();
                for flow in 0..5u8 {
                    let own: Vec<_> = level.iter().filter(|(f, _)| *f == flow).map(|(_, n)| *n).collect();
                    prop_assert!(own.is_sorted(), "order within a flow");
                    let last = level.iter().rposition(|(f, _)| *f == flow).unwrap_or(0);
                    let mut since = std::collections::HashMap::new();
                    for (other, _) in &level[..last] {
                        if *other == flow {
                            since.clear();
                        } else {
                            let turns = since.entry(*other).or_insert(0);
                            *turns += 1;
                            prop_assert!(*turns <= 1, "flow {} had two turns while {} waited", other, flow);
                        }
                    }
                }
            }
        }
    }
}
