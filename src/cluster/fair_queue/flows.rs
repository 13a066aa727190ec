//! The flows of a group: they take turns, and every other turn is that of the flow that is nearest to its end.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use foldhash::fast::RandomState;

use crate::job::pod::Behind;

/// Items by flow; never a flow without items.
///
/// Turns in a circle alone are fair and slow: of many equal flows, all would end at the end. So every other item is of the
/// flow whose next item has the fewest behind it. A turn in the circle lasts for up to [`TURN`] items of the circle, so that
/// the items of a flow leave together. If its flow has no item at the moment, the shortest flow gets the item. So the
/// circle does not begin all flows before it ends one.
///
/// A flow waits for its next turn for at most one item, and twice [`TURN`] for each other flow. A flow whose items have
/// none behind them waits for no turn that lasts. A flow whose next items wait for the ends of earlier ones has no turn that
/// lasts.
#[derive(Debug)]
pub(super) struct Flows<F, T> {
    flows: HashMap<F, Flow<T>, RandomState>,
    /// Flows by the number of their turn.
    circle: BTreeMap<i64, F>,
    /// How many items are to come in all after the next one of a flow, and the number of its turn.
    shortest: BTreeSet<(u32, i64)>,
    /// The next turn is that of the shortest.
    shortest_is_next: bool,
    /// The flow whose turn in the circle goes on, and for how many items.
    holder: Option<(F, u32)>,
    behind: fn(&T) -> Behind,
}

/// Items of the circle for which a turn lasts: as many as a Job of middle size creates pods.
const TURN: u32 = 16;

#[derive(Debug)]
struct Flow<T> {
    turn: i64,
    behind: Behind,
    /// Items that were forgotten since the flow last had a turn, or unwanted items were last dropped.
    forgotten: usize,
    items: VecDeque<T>,
}

impl<F: Hash + Eq + Clone, T> Flows<F, T> {
    /// No flows. `behind`: the items of its flow that are to come after an item, whether they wait here or not.
    pub(super) fn new(behind: fn(&T) -> Behind) -> Self {
        Self {
            flows: HashMap::default(),
            circle: BTreeMap::new(),
            shortest: BTreeSet::new(),
            shortest_is_next: false,
            holder: None,
            behind,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Adds an item. A flow that had none has the last turn. If a flow would need more memory, its
    /// unwanted items are dropped first. So they never take more than the wanted ones. Returns how many
    /// were dropped.
    pub(super) fn push(&mut self, flow: F, item: T, is_unwanted: impl Fn(&T) -> bool) -> usize {
        let Some(Flow { items, .. }) = self.flows.get_mut(&flow) else {
            self.enter(flow, self.last_turn(), VecDeque::from([item]));
            return 0;
        };
        let before = items.len();
        if before == items.capacity() {
            items.retain(|item| !is_unwanted(item));
            items.reserve(items.len() + 1);
        }
        let dropped = before - items.len();
        items.push_back(item);
        dropped
    }

    /// The next item.
    pub(super) fn peek(&self) -> Option<&T> {
        self.flows.get(self.circle.get(&self.turn()?)?)?.items.front()
    }

    /// Takes the next item. Its flow has the last turn then, unless its turn goes on.
    pub(super) fn pop(&mut self) -> Option<T> {
        let turn = self.turn()?;
        let goes_on = self
            .circle
            .get(&turn)
            .and_then(|flow| self.flows.get(flow))
            .is_some_and(|flow| flow.behind.now > 0);
        let (flow, mut items) = self.leave(turn)?;
        let item = items.pop_front();
        self.pass_turn(&flow, goes_on);
        if !items.is_empty() {
            self.enter(flow, self.last_turn(), items);
        }
        self.shortest_is_next = !self.shortest_is_next;
        item
    }

    /// An item of this flow was taken. Whose turn in the circle goes on then. `goes_on`: the flow has more items now, or soon.
    fn pass_turn(&mut self, flow: &F, goes_on: bool) {
        let is_of_circle = !self.shortest_is_next;
        self.holder = match self.holder.take() {
            Some((holder, _)) if !goes_on && holder == *flow => None,
            Some((holder, left)) if is_of_circle => (left > 1).then(|| (holder, left - 1)),
            None if is_of_circle && goes_on => Some((flow.clone(), TURN - 1)),
            unchanged => unchanged,
        };
    }

    /// Drops the next item. Its flow keeps its turn.
    pub(super) fn discard(&mut self) {
        let Some(turn) = self.turn() else { return };
        let Some((flow, mut items)) = self.leave(turn) else { return };
        items.pop_front();
        if !items.is_empty() {
            self.enter(flow, turn, items);
        }
    }

    /// An item of a flow is unwanted from now on. If the unwanted items since the last turn of the flow
    /// may be more than half of it, they are dropped. Returns how many.
    pub(super) fn forget(&mut self, flow: &F, is_unwanted: impl Fn(&T) -> bool) -> usize {
        let Some(known) = self.flows.get_mut(flow) else { return 0 };
        known.forgotten += 1;
        if known.forgotten * 2 <= known.items.len() {
            return 0;
        }
        self.retain(flow, |item| !is_unwanted(item))
    }

    /// Drops items of a flow that are not to be kept, and returns how many. A flow that keeps some keeps its turn.
    pub(super) fn retain(&mut self, flow: &F, keep: impl Fn(&T) -> bool) -> usize {
        let turn = self.flows.get(flow).map(|known| known.turn);
        let Some((turn, (flow, mut items))) = turn.and_then(|turn| Some((turn, self.leave(turn)?))) else {
            return 0;
        };
        let before = items.len();
        items.retain(keep);
        let dropped = before - items.len();
        if !items.is_empty() {
            self.enter(flow, turn, items);
        }
        dropped
    }

    fn turn(&self) -> Option<i64> {
        let shortest = || self.shortest.first().map(|(_, turn)| *turn);
        match &self.holder {
            _ if self.shortest_is_next => shortest(),
            Some((holder, _)) => self.flows.get(holder).map(|flow| flow.turn).or_else(shortest),
            None => self.circle.first_key_value().map(|(turn, _)| *turn),
        }
    }

    fn last_turn(&self) -> i64 {
        self.circle.last_key_value().map_or(0, |(turn, _)| turn + 1)
    }

    fn enter(&mut self, flow: F, turn: i64, items: VecDeque<T>) {
        let behind = items.front().map_or(Behind::default(), self.behind);
        self.circle.insert(turn, flow.clone());
        self.shortest.insert((behind.in_all, turn));
        self.flows.insert(flow, Flow { turn, behind, forgotten: 0, items });
    }

    fn leave(&mut self, turn: i64) -> Option<(F, VecDeque<T>)> {
        let flow = self.circle.remove(&turn)?;
        let Flow { behind, items, .. } = self.flows.remove(&flow)?;
        self.shortest.remove(&(behind.in_all, turn));
        Some((flow, items))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn unwanted_items_take_no_more_memory_than_those_that_are_wanted() {
        let mut flows = Flows::new(|_| Behind::default());
        let mut dropped = 0;
        for item in 0..100_000_u32 {
            dropped += flows.push('f', item, |item| item % 1_000 != 0);
        }
        let items = &flows.flows[&'f'].items;
        assert!(items.capacity() <= 512, "room for {}", items.capacity());
        assert_eq!(items.len() + dropped, 100_000);
        assert_eq!(items.iter().filter(|item| *item % 1_000 == 0).count(), 100);
    }

    fn drain(flows: &mut Flows<u8, (u8, u32)>) -> Vec<(u8, u32)> {
        std::iter::from_fn(|| flows.pop()).collect()
    }

    fn behind(item: &(u8, u32)) -> Behind {
        Behind { in_all: item.1, now: item.1 }
    }

    #[test]
    fn every_other_item_is_of_the_flow_that_is_nearest_to_its_end() {
        let mut flows = Flows::new(behind);
        for flow in 0..3 {
            (0..3).rev().for_each(|behind| _ = flows.push(flow, (flow, behind), |_| false));
        }
        flows.push(9, (9, 0), |_| false);
        let order = drain(&mut flows);
        assert_eq!(order, [(0, 2), (9, 0), (0, 1), (0, 0), (1, 2), (1, 1), (1, 0), (2, 2), (2, 1), (2, 0)]);
        assert!(flows.is_empty() && flows.shortest.is_empty() && flows.circle.is_empty());
    }

    /// Jobs create their pods in rounds of 1, 2, 4 and 8. Each round waits for the answers to the one before.
    #[test]
    fn few_of_many_equal_flows_are_begun_and_not_ended() {
        const FLOWS: u8 = 100;
        const ITEMS: u32 = 20;
        let mut flows = Flows::new(behind);
        let (mut taken, mut pushed) = ([0_u32; FLOWS as usize], [1_u32; FLOWS as usize]);
        (0..FLOWS).for_each(|flow| _ = flows.push(flow, (flow, ITEMS - 1), |_| false));
        let mut most = 0_usize;
        while let Some((flow, _)) = flows.pop() {
            let at = usize::from(flow);
            taken[at] += 1;
            if taken[at] == pushed[at] {
                let round = (pushed[at] + 1).min(ITEMS - pushed[at]);
                let next = pushed[at]..pushed[at] + round;
                next.for_each(|number| _ = flows.push(flow, (flow, ITEMS - 1 - number), |_| false));
                pushed[at] += round;
            }
            most = most.max(taken.iter().filter(|taken| (1..ITEMS).contains(*taken)).count());
        }
        assert_eq!(taken, [ITEMS; FLOWS as usize]);
        assert!(most <= 4, "{most} flows were begun at once");
    }

    /// A long flow gets half of all turns, however many short ones come.
    #[test]
    fn a_long_flow_keeps_its_share() {
        let mut flows = Flows::new(behind);
        (0..100).rev().for_each(|left| _ = flows.push(0, (0, 1000 + left), |_| false));
        let mut of_long = 0;
        for _ in 0..100 {
            flows.push(1, (1, 0), |_| false);
            of_long += flows.pop().map_or(0, |(flow, _)| u32::from(flow == 0));
        }
        assert!((45..=50).contains(&of_long), "{of_long} of 100");
    }

    /// Jobs that run one pod after the other share the turns with a Job of many pods.
    #[test]
    fn a_turn_does_not_last_for_a_flow_that_waits_for_its_own_items_to_end() {
        let sequential = |number: u8| (number, 1_000);
        let mut flows = Flows::new(|item: &(u8, u32)| Behind {
            in_all: item.1,
            now: if item.0 == 0 { item.1 } else { 0 },
        });
        (0..200).rev().for_each(|left| _ = flows.push(0, (0, left), |_| false));
        (1..=50).for_each(|number| _ = flows.push(number, sequential(number), |_| false));
        let items = 2 * (TURN + 50);
        let begun = (0..items).filter_map(|_| flows.pop()).filter(|item| item.0 != 0).count();
        assert_eq!(begun, 50, "Jobs that have their pod after one turn of the long one");
    }

    proptest! {
        /// However short the others are. Dropped items cost no turn.
        #[test]
        fn a_flow_waits_for_one_turn_of_each_other_and_keeps_the_order_of_its_own(
            steps in prop::collection::vec((0..4u8, 0..5u32, 0..8u8), 0..300),
        ) {
            let mut flows = Flows::new(|item: &(u8, u32, usize)| Behind { in_all: item.1, now: item.1 });
            let (mut waited, mut taken, mut pushed) = ([0; 4], [0; 4], [0; 4]);
            for (flow, behind, act) in steps {
                let at = usize::from(flow);
                if act < 4 {
                    flows.push(flow, (flow, behind, pushed[at]), |_| false);
                    pushed[at] += 1;
                    continue;
                }
                let next = flows.peek().copied();
                if act == 4 {
                    flows.discard();
                    if let Some(at) = next.map(|item| usize::from(item.0)) {
                        taken[at] += 1;
                        waited[at] = if taken[at] < pushed[at] { waited[at] } else { 0 };
                    }
                    continue;
                }
                let Some(item) = flows.pop() else { continue };
                prop_assert_eq!(next, Some(item));
                let at = usize::from(item.0);
                prop_assert_eq!(item.2, taken[at]);
                taken[at] += 1;
                waited[at] = 0;
                for other in (0..4).filter(|other| *other != at) {
                    waited[other] = if taken[other] < pushed[other] { waited[other] + 1 } else { 0 };
                    prop_assert!(waited[other] <= 2 * 3 * TURN + 1, "{waited:?}");
                }
            }
            while flows.pop().is_some() {}
            prop_assert!(flows.is_empty() && flows.shortest.is_empty() && flows.circle.is_empty());
        }
    }
}
