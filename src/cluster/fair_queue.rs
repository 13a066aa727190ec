//! A queue that is fair at each step. The highest priority comes first, and its groups take turns. In a group
//! its flows take turns; every other turn goes to the flow that is nearest to its end.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::job::pod::Behind;

use self::flows::Flows;

mod flows;

/// Whether an item of a group may be taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// The item has to wait, and does not hold up other groups.
    None,
    /// The item may be taken, if no group comes before it.
    Some,
    /// The item may be taken, and comes before groups that have more.
    Preferred,
}

/// A queue that returns the highest priority (the smallest `P`) that has room. Within it, the groups `G` take
/// turns, and so do the [flows](flows) `F` of a group. If one flow has
/// 100,000 items, the single item of another waits for at most one of them. It also waits for two items of each
/// other flow that has a single one. Items of one flow, group and priority keep their order.
///
/// A priority gets a turn after [`PATIENCE`] items of higher priorities, if its next item is overdue. So one
/// flow's many items of a high priority do not delay other flows' items of a lower one for long.
#[derive(Debug)]
pub(super) struct FairQueue<P, G, F, T> {
    levels: BTreeMap<P, Level<G, F, T>>,
    is_overdue: fn(P, &T) -> bool,
    is_unwanted: fn(&T) -> bool,
    behind: fn(&T) -> Behind,
}

/// Items that may precede a waiting one of a lower priority.
const PATIENCE: usize = 4;

/// All items of one priority.
#[derive(Debug)]
struct Level<G, F, T> {
    /// The groups with items, in the order of their turns.
    order: VecDeque<G>,
    groups: HashMap<G, Flows<F, T>, RandomState>,
    len: usize,
    /// Items of higher priorities returned since the last one of this priority, while some of this one could
    /// have been.
    passed_over: usize,
}

impl<P: Ord + Copy, G: Hash + Eq + Clone, F: Hash + Eq + Clone, T> FairQueue<P, G, F, T> {
    /// An empty queue. A priority whose next item is not overdue waits for as long as higher ones have items.
    pub(super) fn new(is_overdue: fn(P, &T) -> bool) -> Self {
        Self { levels: BTreeMap::new(), is_overdue, is_unwanted: |_| false, behind: |_| Behind::default() }
    }

    /// The items of its flow that are to come after an item, whether they have been pushed or not. Without this, they are all
    /// alike.
    pub(super) fn with_behind(self, behind: fn(&T) -> Behind) -> Self {
        Self { behind, ..self }
    }

    /// Items that are not wanted any more take no turn. They are dropped when they would be returned, or when their flow would
    /// need more memory.
    pub(super) fn without(self, is_unwanted: fn(&T) -> bool) -> Self {
        Self { is_unwanted, ..self }
    }

    pub(super) fn push(&mut self, priority: P, group: G, flow: F, item: T) {
        let level = self.levels.entry(priority).or_default();
        let flows = level.groups.entry(group).or_insert_with_key(|group| {
            level.order.push_back(group.clone());
            Flows::new(self.behind)
        });
        level.len = level.len + 1 - flows.push(flow, item, self.is_unwanted);
    }

    /// Takes the next item of a group that has room. `room` is asked with the priority, the group, and how many
    /// groups of that priority wait.
    pub(super) fn pop(&mut self, room: impl Fn(P, &G, usize) -> Room) -> Option<(P, G, T)> {
        loop {
            let ready: Vec<(P, usize)> = self.ready(&room).collect();
            let (next, turn) = self.next(&ready)?;
            let level = self.levels.get_mut(&next)?;
            if level.peek(turn).is_some_and(self.is_unwanted) {
                level.discard(turn);
                continue;
            }
            level.passed_over = 0;
            let (group, item) = level.pop(turn)?;
            for (priority, _) in ready.iter().filter(|(priority, _)| *priority > next) {
                if let Some(level) = self.levels.get_mut(priority) {
                    level.passed_over += 1;
                }
            }
            return Some((next, group, item));
        }
    }

    /// The one of these whose turn it is.
    fn next(&self, ready: &[(P, usize)]) -> Option<(P, usize)> {
        let (first, rest) = ready.split_first()?;
        let starves = |(priority, turn): &&(P, usize)| {
            let passed = self.levels.get(priority).filter(|level| level.passed_over >= PATIENCE);
            passed.and_then(|level| level.peek(*turn)).is_some_and(|item| (self.is_overdue)(*priority, item))
        };
        Some(*rest.iter().find(starves).unwrap_or(first))
    }

    /// An item of a flow is unwanted from now on. Unwanted items are dropped together, without a walk over
    /// the flow for each. This happens when they may be more than half of the flow, or when their turn comes.
    pub(super) fn forget(&mut self, priority: P, group: &G, flow: &F) {
        let Some(level) = self.levels.get_mut(&priority) else { return };
        let Some(flows) = level.groups.get_mut(group) else { return };
        level.len -= flows.forget(flow, self.is_unwanted);
        if flows.is_empty() {
            level.groups.remove(group);
            level.order.retain(|waiting| waiting != group);
        }
    }

    /// Whether [`pop`](Self::pop) would return an item.
    pub(super) fn is_ready(&self, room: impl Fn(P, &G, usize) -> Room) -> bool {
        self.ready(room).next().is_some()
    }

    /// The priorities that have room, highest first, each with the place of the group whose turn it is.
    fn ready(&self, room: impl Fn(P, &G, usize) -> Room) -> impl Iterator<Item = (P, usize)> {
        self.levels.iter().filter_map(move |(priority, level)| {
            let turn = level.turn(|group| room(*priority, group, level.order.len()))?;
            Some((*priority, turn))
        })
    }

    /// Number of items of one priority.
    pub(super) fn len(&self, priority: P) -> usize {
        self.levels.get(&priority).map_or(0, |level| level.len)
    }

    /// Number of groups with items of one priority.
    pub(super) fn groups(&self, priority: P) -> usize {
        self.levels.get(&priority).map_or(0, |level| level.order.len())
    }

    /// Number of flows of a group with items of one priority.
    pub(super) fn flows_of(&self, priority: P, group: &G) -> usize {
        let level = self.levels.get(&priority);
        level.and_then(|level| level.groups.get(group)).map_or(0, Flows::len)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.values().all(|level| level.len == 0)
    }

    /// Drops all items.
    pub(super) fn clear(&mut self) {
        self.levels.clear();
    }
}

impl<G: Hash + Eq + Clone, F: Hash + Eq + Clone, T> Level<G, F, T> {
    fn peek(&self, turn: usize) -> Option<&T> {
        self.groups.get(self.order.get(turn)?)?.peek()
    }

    /// Drops the next item of the group at this place. The group and the item's flow keep their turns.
    fn discard(&mut self, turn: usize) {
        let Some(group) = self.order.get(turn) else { return };
        let Some(flows) = self.groups.get_mut(group) else { return };
        flows.discard();
        self.len -= 1;
        if flows.is_empty() {
            self.groups.remove(group);
            self.order.remove(turn);
        }
    }

    /// Takes the next item of the group at this place, which then has the last turn.
    fn pop(&mut self, turn: usize) -> Option<(G, T)> {
        let group = self.order.remove(turn)?;
        let flows = self.groups.get_mut(&group)?;
        let item = flows.pop()?;
        self.len -= 1;
        if flows.is_empty() {
            self.groups.remove(&group);
        } else {
            self.order.push_back(group.clone());
        }
        Some((group, item))
    }

    /// The place of the first group that is preferred; without one, of the first that has room.
    fn turn(&self, room: impl Fn(&G) -> Room) -> Option<usize> {
        let mut first = None;
        for (place, group) in self.order.iter().enumerate() {
            match room(group) {
                Room::Preferred => return Some(place),
                Room::Some => first = first.or(Some(place)),
                Room::None => {}
            }
        }
        first
    }
}

impl<G, F, T> Default for Level<G, F, T> {
    fn default() -> Self {
        Self { order: VecDeque::new(), groups: HashMap::default(), len: 0, passed_over: 0 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::*;

    fn all<P, G>(_: P, _: &G, _: usize) -> Room {
        Room::Preferred
    }

    /// Takes all items.
    fn drain<P, G, F, T>(queue: &mut FairQueue<P, G, F, T>) -> Vec<T>
    where
        P: Ord + Copy,
        G: Hash + Eq + Clone,
        F: Hash + Eq + Clone,
    {
        std::iter::from_fn(|| queue.pop(all).map(|(_, _, item)| item)).collect()
    }

    #[test]
    fn priorities_come_first_and_flows_take_turns() {
        let mut queue = FairQueue::new(|_, _| false);
        for n in 0..4 {
            queue.push(1, "a", "huge", n);
        }
        queue.push(1, "a", "tiny", 10);
        queue.push(0, "a", "huge", 20);
        assert_eq!((queue.len(0), queue.len(1)), (1, 5));
        assert_eq!((queue.flows_of(0, &"a"), queue.flows_of(1, &"a")), (1, 2));
        assert_eq!(drain(&mut queue), [20, 0, 10, 1, 2, 3]);
        assert!(queue.is_empty());
        assert_eq!((queue.flows_of(0, &"a"), queue.groups(1)), (0, 0));
    }

    #[test]
    fn groups_take_turns_however_many_flows_they_have() {
        let mut queue = FairQueue::new(|_, _| false);
        for flow in 0..3 {
            queue.push(0, "many", flow, 10 * flow);
            queue.push(0, "many", flow, 10 * flow + 1);
        }
        queue.push(0, "one", 9, 100);
        queue.push(0, "one", 9, 101);
        assert_eq!(drain(&mut queue), [0, 100, 10, 101, 20, 1, 11, 21]);
    }

    #[test]
    fn groups_without_room_do_not_hold_up_others_and_preferred_ones_go_first() {
        let mut queue = FairQueue::new(|_, _| true);
        for (priority, group) in [(0, "full"), (0, "much"), (0, "little"), (1, "full"), (1, "low")] {
            queue.push(priority, group, "flow", (priority, group));
        }
        let room = |_, group: &&str, _| match *group {
            "full" => Room::None,
            "little" => Room::Preferred,
            _ => Room::Some,
        };
        let order: Vec<_> = std::iter::from_fn(|| queue.pop(room).map(|(_, _, item)| item)).collect();
        assert_eq!(order, [(0, "little"), (0, "much"), (1, "low")]);
        assert!(!queue.is_ready(room) && !queue.is_empty());
        assert_eq!(drain(&mut queue), [(0, "full"), (1, "full")]);
    }

    #[test]
    fn a_priority_with_overdue_items_gets_one_turn_in_five() {
        let mut queue = FairQueue::new(|priority, _| priority != 3);
        for n in 0..11 {
            queue.push(0, "g", "huge", n);
        }
        for (priority, item) in [(1, 100), (2, 200), (2, 201), (3, 300)] {
            queue.push(priority, "g", "tiny", item);
        }
        assert_eq!(drain(&mut queue), [0, 1, 2, 3, 100, 200, 4, 5, 6, 7, 201, 8, 9, 10, 300]);
    }

    #[test]
    fn every_other_turn_is_that_of_the_flow_that_is_nearest_to_its_end() {
        let mut queue = FairQueue::new(|_, _| false)
            .with_behind(|item: &u32| Behind { in_all: item % 10, now: item % 10 });
        for (flow, item) in [("a", 12), ("a", 11), ("a", 10), ("b", 20), ("c", 32), ("c", 31)] {
            queue.push(0, "g", flow, item);
        }
        assert_eq!(drain(&mut queue), [12, 20, 11, 10, 32, 31]);
    }

    #[test]
    fn what_is_not_wanted_any_more_takes_no_turn() {
        let mut queue = FairQueue::new(|_, _| true).without(|item: &i32| *item < 0);
        for n in 1..=10 {
            queue.push(0, (), "huge", n);
        }
        for item in [-1, -2, 100, -3] {
            queue.push(1, (), "tiny", item);
        }
        let order: Vec<i32> =
            std::iter::from_fn(|| queue.pop(|_, _, _| Room::Some).map(|(_, _, item)| item)).collect();
        assert_eq!(order, [1, 2, 3, 4, 100, 5, 6, 7, 8, 9, 10]);
        assert!(queue.is_empty());
    }

    #[test]
    fn who_withdraws_an_item_keeps_the_turn() {
        let mut queue = FairQueue::new(|_, _| true).without(|item: &i32| *item < 0);
        for (group, flow, item) in [("a", 1, -1), ("b", 1, 10), ("a", 1, 1), ("a", 2, 2), ("b", 1, 11)] {
            queue.push(0, group, flow, item);
        }
        assert_eq!(drain(&mut queue), [1, 10, 2, 11]);
        queue.push(0, "a", 1, -1);
        assert!(queue.pop(all).is_none() && queue.is_empty() && queue.groups(0) == 0);
    }

    #[test]
    fn a_flow_keeps_its_turn_while_items_of_it_are_kept() {
        // An item is wanted as long as there is another reference to it.
        let mut queue = FairQueue::new(|_, _| false).without(|item: &Rc<i32>| Rc::strong_count(item) == 1);
        let mut wanted: Vec<Rc<i32>> = [1, 10, 2, 3, 11, 4].map(Rc::new).into();
        for (group, flow, at) in
            [("a", 1, 0), ("b", 1, 1), ("a", 2, 2), ("a", 1, 3), ("b", 1, 4), ("a", 1, 5)]
        {
            queue.push(0, group, flow, wanted[at].clone());
        }
        let mut forget = |queue: &mut FairQueue<_, _, _, Rc<i32>>, group, item| {
            wanted.retain(|known| **known != item);
            queue.forget(0, &group, &1);
        };
        queue.forget(0, &"a", &9);
        forget(&mut queue, "a", 1);
        assert_eq!(queue.len(0), 6, "a third of its flow");
        forget(&mut queue, "a", 3);
        assert_eq!(queue.len(0), 4);
        forget(&mut queue, "b", 10);
        forget(&mut queue, "b", 11);
        assert_eq!((queue.len(0), queue.groups(0)), (2, 1));
        let left: Vec<i32> = std::iter::from_fn(|| queue.pop(all)).map(|(.., item)| *item).collect();
        assert_eq!(left, [4, 2]);
        assert!(queue.is_empty());
    }

    proptest! {
        /// Between two items of one flow, no other flow of its group gets two, if they are alike. Between two
        /// items of one group, no other group gets two.
        #[test]
        fn turns_are_fair_and_nothing_is_lost(
            pushes in prop::collection::vec((0..3u8, 0..3u8, 0..4u8), 0..200),
        ) {
            let mut queue = FairQueue::new(|_, _| false);
            for (number, (priority, group, flow)) in pushes.iter().enumerate() {
                queue.push(*priority, *group, *flow, (*priority, *group, *flow, number));
            }
            let flows: std::collections::HashSet<_> = pushes.iter().filter(|push| push.0 == 0).collect();
            let groups: std::collections::HashSet<_> = flows.iter().map(|push| push.1).collect();
            prop_assert_eq!(queue.groups(0), groups.len());
            prop_assert_eq!(groups.iter().map(|group| queue.flows_of(0, group)).sum::<usize>(), flows.len());
            let order = drain(&mut queue);
            prop_assert_eq!(order.len(), pushes.len());
            prop_assert!(order.is_sorted_by_key(|(priority, ..)| *priority));
            for priority in 0..3u8 {
                let level: Vec<_> = order.iter().filter(|item| item.0 == priority).collect();
                prop_assert!(fair(level.iter().map(|item| item.1)));
                for group in 0..3u8 {
                    let of_group: Vec<_> = level.iter().filter(|item| item.1 == group).collect();
                    prop_assert!(fair(of_group.iter().map(|item| item.2)));
                    for flow in 0..4u8 {
                        let own = of_group.iter().filter(|item| item.2 == flow).map(|item| item.3);
                        prop_assert!(own.is_sorted(), "order within a flow");
                    }
                }
            }
        }
    }

    /// Whether no flow has two turns while another one waits for its next.
    fn fair(turns: impl Iterator<Item = u8>) -> bool {
        let turns: Vec<u8> = turns.collect();
        (0..4).all(|waiting| {
            let last = turns.iter().rposition(|turn| *turn == waiting).unwrap_or(0);
            turns[..last].split(|turn| *turn == waiting).all(|between| {
                let mut once = std::collections::HashSet::new();
                between.iter().all(|other| once.insert(other))
            })
        })
    }
}
