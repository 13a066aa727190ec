//! The decision on each pair: its first play, and further plays if that shows a difference.

use std::time::{Duration, Instant};

use futures::future::{join, join_all};
use tokio::sync::Semaphore;

use super::pair::{HEALING, HEALING_LATE, Opponent, Pauses, Played};
use super::plan::Plan;
use super::report::Verdict;
use super::rules::Known;
use super::saved::SavedReport;
use super::shrink;
use super::state::Difference;
use super::yard::Yard;

/// Smaller plans of one story that are played at once.
const TRIED_AT_ONCE: usize = 6;
/// Longest time for which a plan is made smaller. A difference that passes takes minutes in each play.
const SHRUNK_FOR: Duration = Duration::from_secs(300);
/// Pairs that are begun and not yet decided, for each place. They are more than the places, since some only wait.
const BEGUN: usize = 3;
/// How often a difference is played again, and the reference against itself.
const AGAIN: usize = 5;
/// How many of these plays come first. Most differences are explained by them, or by pauses.
const AT_FIRST: usize = 2;
/// Most acts of a step between which the reference gets pauses.
const MOST_ACTS: usize = 12;

/// Decides on pairs. Differences are played again while other pairs have their first play.
pub(super) struct PairJudge<'a> {
    yard: &'a Yard,
    /// Most plans that are played to make a difference smaller.
    shrink: u32,
    threads: usize,
    /// The right to play a pair. Waiting plays get it in the order in which they ask.
    places: Semaphore,
}

impl<'a> PairJudge<'a> {
    /// Plays at most this number of pairs at once.
    pub(super) fn new(yard: &'a Yard, threads: usize, shrink: u32) -> Self {
        let threads = threads.max(1);
        Self { yard, shrink, threads, places: Semaphore::new(threads) }
    }

    /// Most pairs that are begun and not yet decided.
    pub(super) fn pairs_at_once(&self) -> usize {
        BEGUN * self.threads
    }

    /// Plays a plan, and reports what is decided.
    pub(super) async fn decide(&self, plan: Plan, report: &SavedReport) {
        let first = self.play(plan, Opponent::Ours, HEALING_LATE).await;
        let verdict = Verdict::of(&first);
        if verdict != Verdict::Equal {
            println!("seed {}: {verdict}", first.plan.seed);
        }
        if !matches!(verdict, Verdict::Different(_)) {
            return report.change().add(&first, &first, None);
        }
        report.change().keep(&first);
        let (decided, repeats) = self.judge(&first, &verdict).await;
        report.change().add(&first, &decided, repeats);
    }

    async fn play(&self, plan: Plan, opponent: Opponent, patience: Duration) -> Played {
        // It is never closed.
        let place = self.places.acquire().await.ok();
        Played::of(self.yard, &plan, opponent, patience, place).await
    }

    /// Looks whether a difference is chance, and whether it is seen again. If so, makes its plan smaller.
    async fn judge(&self, played: &Played, verdict: &Verdict) -> (Played, Option<bool>) {
        let mut seen = Vec::new();
        for times in [AT_FIRST, AGAIN - AT_FIRST] {
            if self.is_chance(played, times, &mut seen).await {
                return (explained(played, Known::Race), None);
            }
            // Chance may also decide which pods an act with a pause before it finds.
            if comes_to_ours(played, &self.with_pauses(played).await, false) {
                return (explained(played, Known::ActsAtOnce), None);
            }
        }
        let is_same = |other: &Played| Verdict::of(other) == *verdict;
        let is_known =
            |other: &&Played| matches!(Verdict::of(other), Verdict::Known(_)) && other.differs_as(played);
        let Some(seen) = seen.iter().find(|other| is_same(other)) else {
            return seen
                .iter()
                .find(is_known)
                .map_or((played.clone(), Some(false)), |known| (known.clone(), None));
        };
        let began = Instant::now();
        let same_again = async |plan: Plan| {
            let in_time = began.elapsed() < SHRUNK_FOR;
            if in_time {
                Some(self.play(plan, Opponent::Ours, patience(seen)).await).filter(is_same)
            } else {
                None
            }
        };
        let (_, smaller) = shrink::smallest(seen.plan.clone(), self.shrink, TRIED_AT_ONCE, same_again).await;
        match smaller {
            Some(smaller) if !self.reference_varies(&smaller).await => (smaller, Some(true)),
            _ => (seen.clone(), Some(true)),
        }
    }

    /// Plays a plan again this often, and the reference against itself. Returns whether that shows chance, and adds the
    /// plays of ours to `seen`.
    async fn is_chance(&self, played: &Played, times: usize, seen: &mut Vec<Played>) -> bool {
        let (again, itself) =
            join(self.repeat(played, Opponent::Ours, times), self.repeat(played, Opponent::Itself, times))
                .await;
        let is_chance = itself.iter().any(|other| other.differs_as(played))
            || comes_to_ours(played, &again, false)
            || comes_to_ours(played, &itself, true);
        seen.extend(again);
        is_chance
    }

    async fn repeat(&self, played: &Played, opponent: Opponent, times: usize) -> Vec<Played> {
        join_all((0..times).map(|_| self.play(played.plan.clone(), opponent, patience(played)))).await
    }

    /// Whether the reference differs from itself in what is weightiest in this difference.
    async fn reference_varies(&self, played: &Played) -> bool {
        let itself = self.repeat(played, Opponent::Itself, AGAIN).await;
        itself.iter().any(|other| other.differs_as(played))
    }

    /// Plays a plan with pauses for the reference at each place of the last step, and at all of them.
    async fn with_pauses(&self, played: &Played) -> Vec<Played> {
        let acts = played.plan.steps.last().map_or(0, |step| step.singly().0.len());
        let plays = Pauses::between(acts)
            .filter(|_| acts <= MOST_ACTS)
            .map(|pauses| self.play(played.plan.clone(), Opponent::OursWithPauses(pauses), patience(played)));
        join_all(plays).await
    }
}

/// How long a difference that was seen may take to pass when it is played again.
fn patience(played: &Played) -> Duration {
    if played.has_passed() { HEALING_LATE } else { HEALING }
}

fn explained(played: &Played, rule: Known) -> Played {
    Played { shown: Some(rule), ..played.clone() }
}

/// Whether the reference comes in one of these plays to what ours came to.
fn comes_to_ours(played: &Played, others: &[Played], are_of_reference: bool) -> bool {
    let Some(difference) = played.difference() else { return false };
    let steps = played.plan.steps.len();
    let mut states = others.iter().flat_map(|other| other.of_reference(steps, are_of_reference));
    states.any(|state| Difference::between(state, &difference.ours).is_none())
}
