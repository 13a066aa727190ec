//! The actors of a namespace to wake, in portions.
//!
//! All Jobs of a namespace may wait for one Job, which its users create and delete as often as they like. Each actor that is woken
//! looks at all its predecessors. So only some are woken at once, and others have their turns in between. However often a Job
//! changes meanwhile, its name waits once.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use tokio::time::Instant;

use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::JobInput;
use crate::job::uid::Uid;

/// The most actors of a namespace that are woken at once. To look at predecessors and to plan takes about 40 µs, so they use a fifth of a
/// thread.
pub(super) const PORTION: usize = 100;
/// The time between two portions of a namespace.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// A name, and the UID of a Job that waits for it.
pub(super) type Waiting = (Box<str>, Uid);

/// The names of a namespace whose Jobs have changed, and how far those that wait for them are woken.
#[derive(Debug, Default)]
pub(super) struct WakeRound {
    changed: BTreeSet<Box<str>>,
    /// The actor that was woken last. The round goes on behind it.
    last: Option<Waiting>,
    /// When the pause after the last portion ends.
    pauses_until: Option<Instant>,
}

impl WakeRound {
    /// A Job of this name has changed.
    pub(super) fn add(&mut self, name: &str) {
        if !self.changed.contains(name) {
            self.changed.insert(name.into());
        }
    }

    /// Adds the next actors to wake to `woken`, unless the round pauses. Returns when the pause ends, which follows each portion, the
    /// last one as well: the next change may come at once. If the round is over,
    /// returns `None`.
    pub(super) fn wake_some(
        &mut self,
        waiting: &BTreeMap<Waiting, Inbox<JobInput>>,
        now: Instant,
        woken: &mut Vec<Inbox<JobInput>>,
    ) -> Option<Instant> {
        if self.pauses_until.is_none_or(|until| until <= now) {
            let portion = self.portion(waiting);
            self.pauses_until = (!portion.is_empty()).then_some(now + PAUSE);
            woken.extend(portion);
        }
        self.pauses_until
    }

    fn portion(&mut self, waiting: &BTreeMap<Waiting, Inbox<JobInput>>) -> Vec<Inbox<JobInput>> {
        let mut portion = Vec::new();
        while portion.len() < PORTION
            && let Some(last) = self.last.take().or_else(|| self.next_name(""))
        {
            let others = waiting.range::<Waiting, _>((Excluded(&last), Unbounded));
            let same = others.take_while(|((name, _), _)| *name == last.0).take(PORTION - portion.len());
            let mut reached = None;
            for (one, inbox) in same {
                portion.push(inbox.clone());
                reached = Some(one.clone());
            }
            self.last = reached.or_else(|| self.next_name(&last.0));
        }
        portion
    }

    /// Goes on with the next name, so that each has its turn. After the last name, the first one follows.
    fn next_name(&mut self, before: &str) -> Option<Waiting> {
        let later = self.changed.range::<str, _>((Excluded(before), Unbounded)).next();
        let name = later.or_else(|| self.changed.first())?.clone();
        self.changed.remove(&name);
        Some((name, Uid::LOWEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(names: &[(&str, usize)]) -> BTreeMap<Waiting, Inbox<JobInput>> {
        let all = names.iter().flat_map(|(name, number)| {
            (0..*number)
                .map(move |one| ((Box::from(*name), Uid::from(format!("{name}-{one:05}"))), Inbox::default()))
        });
        all.collect()
    }

    fn take(round: &mut WakeRound, waiting: &BTreeMap<Waiting, Inbox<JobInput>>) -> usize {
        let portion = round.portion(waiting);
        portion.iter().for_each(|inbox| inbox.push(JobInput::PredecessorChanged));
        portion.len()
    }

    /// The names of the Jobs for which each of these waits was woken.
    fn woken(waiting: &BTreeMap<Waiting, Inbox<JobInput>>) -> BTreeMap<&str, usize> {
        let mut woken = BTreeMap::new();
        for ((name, _), inbox) in waiting {
            *woken.entry(&**name).or_default() += inbox.take().len();
        }
        woken
    }

    #[test]
    fn all_that_wait_for_a_name_are_woken_in_portions() {
        let waiting = waiting(&[("a", 1), ("b", 250), ("c", 1)]);
        let mut round = WakeRound::default();
        round.add("b");
        let portions: Vec<usize> = (0..4).map(|_| take(&mut round, &waiting)).collect();
        assert_eq!(portions, [100, 100, 50, 0]);
        assert_eq!(woken(&waiting), BTreeMap::from([("a", 0), ("b", 250), ("c", 0)]));
    }

    #[test]
    fn a_portion_has_all_names_that_few_wait_for() {
        let waiting = waiting(&[("a", 10), ("b", 20), ("c", 30)]);
        let mut round = WakeRound::default();
        ["c", "a"].into_iter().for_each(|name| round.add(name));
        assert_eq!(take(&mut round, &waiting), 40);
        assert_eq!(take(&mut round, &waiting), 0);
    }

    /// It is created and deleted all the time.
    #[test]
    fn a_name_that_changes_again_and_again_does_not_keep_others_waiting() {
        let waiting = waiting(&[("a", 1_000), ("b", 1_000)]);
        let mut round = WakeRound::default();
        round.add("b");
        for _ in 0..20 {
            round.add("a");
            assert_eq!(take(&mut round, &waiting), PORTION);
        }
        assert_eq!(woken(&waiting), BTreeMap::from([("a", 1_000), ("b", 1_000)]));
        // Since the last change, all are woken once more.
        round.add("a");
        let mut more = 0;
        while take(&mut round, &waiting) > 0 {
            more += 1;
        }
        assert_eq!(more, 10);
        assert_eq!(woken(&waiting), BTreeMap::from([("a", 1_000), ("b", 0)]));
    }
}
