//! Makes a plan that breaks a promise smaller, while the same promise stays broken.

use crate::checks::{Promise, Violation};
use crate::cut::{Cut, Kept, List, duration_of};
use crate::mutants::run_as;
use crate::plan::Plan;
use crate::replay::Replay;

/// Durations are divided by this number at most.
const FINEST: u32 = 64;

/// A world that a shrinker has made smaller.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// How it is seen again.
    pub replay: Replay,
    /// The promise that it breaks.
    pub violation: Violation,
    /// How many worlds were tried.
    pub runs: u32,
}

/// Makes a world that breaks a promise smaller: removes steps, Jobs and replicas, then shortens faults. Tries
/// at most `most_runs` worlds. Returns `None` if this world breaks nothing.
pub fn shrink(replay: &Replay, most_runs: u32) -> Option<Shrunk> {
    let plan = replay.whole_plan();
    shrink_by(replay, &plan, most_runs, |plan| run_as(replay.mutant, plan, false).violation)
}

/// As [`shrink`], with any way to find out what a plan breaks.
fn shrink_by(
    replay: &Replay,
    plan: &Plan,
    most_runs: u32,
    breaks: impl FnMut(&Plan) -> Option<Violation>,
) -> Option<Shrunk> {
    let mut search = Search { plan, breaks, promise: None, left: most_runs, best: None };
    let whole = Small {
        steps: match &replay.cut.keep {
            Some(keep) => keep.0.clone(),
            None => (0..plan.steps.len()).map(|step| Kept { step, divisor: 1 }).collect(),
        },
        jobs: match &replay.cut.jobs {
            Some(jobs) => jobs.0.clone(),
            None => (0..plan.jobs.len()).collect(),
        },
        replicas: replay.cut.replicas.unwrap_or(plan.settings.replicas),
    };
    let mut small = whole.clone();
    if !search.holds(&whole) {
        return None;
    }
    loop {
        let before = small.clone();
        search.fewer(&mut small, |small| &mut small.steps);
        search.fewer(&mut small, |small| &mut small.jobs);
        search.fewer_replicas(&mut small);
        if small == before {
            break;
        }
    }
    search.shorter(&mut small);
    let violation = search.best?;
    Some(Shrunk {
        replay: Replay { cut: small.cut(plan), ..replay.clone() },
        violation,
        runs: most_runs - search.left,
    })
}

/// The part of a plan that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Small {
    steps: Vec<Kept>,
    jobs: Vec<usize>,
    replicas: usize,
}

impl Small {
    /// As a cut, which does not name what is whole.
    fn cut(&self, plan: &Plan) -> Cut {
        let all = (0..plan.steps.len()).map(|step| Kept { step, divisor: 1 });
        Cut {
            keep: (!all.eq(self.steps.iter().copied())).then(|| List(self.steps.clone())),
            jobs: (self.jobs.len() < plan.jobs.len()).then(|| List(self.jobs.clone())),
            replicas: (self.replicas < plan.settings.replicas).then_some(self.replicas),
        }
    }
}

struct Search<'a, F> {
    plan: &'a Plan,
    breaks: F,
    /// The promise that the whole plan breaks.
    promise: Option<Promise>,
    left: u32,
    /// The violation by the smallest plan so far.
    best: Option<Violation>,
}

impl<F: FnMut(&Plan) -> Option<Violation>> Search<'_, F> {
    /// Whether the same promise is broken.
    fn holds(&mut self, small: &Small) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        let Some(violation) = (self.breaks)(&small.cut(self.plan).of(self.plan)) else { return false };
        let same = *self.promise.get_or_insert(violation.promise) == violation.promise;
        if same {
            self.best = Some(violation);
        }
        same
    }

    /// Takes away parts of a list, first large ones: delta debugging.
    fn fewer<T: Clone>(&mut self, small: &mut Small, list: fn(&mut Small) -> &mut Vec<T>) {
        let mut size = list(small).len();
        while size > 0 {
            let mut begin = 0;
            while begin < list(small).len() {
                let mut without = small.clone();
                let end = (begin + size).min(list(small).len());
                list(&mut without).drain(begin..end);
                if self.holds(&without) {
                    *small = without;
                } else {
                    begin += size;
                }
            }
            size /= 2;
        }
    }

    fn fewer_replicas(&mut self, small: &mut Small) {
        for replicas in 1..small.replicas {
            let fewer = Small { replicas, ..small.clone() };
            if self.holds(&fewer) {
                *small = fewer;
                return;
            }
        }
    }

    /// Halves what lasts, one step after the other.
    fn shorter(&mut self, small: &mut Small) {
        for place in 0..small.steps.len() {
            let step = small.steps[place].step;
            let lasts = |plan: &Plan| {
                plan.steps.get(step).is_some_and(|step| duration_of(&mut step.act.clone()).is_some())
            };
            while lasts(self.plan) && small.steps[place].divisor < FINEST {
                let mut shorter = small.clone();
                shorter.steps[place].divisor *= 2;
                if !self.holds(&shorter) {
                    break;
                }
                *small = shorter;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::plan::{Act, Fault, Step, generate};
    use crate::time::Time;

    /// A plan with a crash of replica 1 among many other steps.
    fn plan() -> Plan {
        let mut plan = (0..).map(generate).find(|plan| plan.jobs.len() > 3).unwrap();
        plan.settings.replicas = 3;
        plan.steps = (0..20)
            .map(|number| {
                let down = Duration::from_secs(64);
                let act = if number == 13 { Fault::Crash { replica: 1, down } } else { Fault::Compact };
                Step { at: Time::ms(number * 1_000), act: Act::Fault(act) }
            })
            .collect();
        plan
    }

    fn violation(promise: Promise) -> Option<Violation> {
        Some(Violation { promise, at: Time::ZERO, what: String::new() })
    }

    /// Breaks when replica 1 of at least 2 is down for 8 s or more and Job 2 exists.
    fn breaks(plan: &Plan) -> Option<Violation> {
        let crashes = plan.steps.iter().any(|step| {
            step.at < Time::NEVER
                && matches!(&step.act, Act::Fault(Fault::Crash { replica: 1, down }) if down.as_secs() >= 8)
        });
        (crashes && plan.settings.replicas > 1 && plan.jobs[2].created < Time::NEVER)
            .then(|| violation(Promise::Ends))
            .flatten()
    }

    #[test]
    fn what_is_left_is_what_it_takes() {
        let plan = plan();
        let shrunk = shrink_by(&Replay::whole(plan.seed, &[]), &plan, 200, breaks).unwrap();
        let flags = format!("--seed {} --keep 13/8 --jobs 2 --replicas 2", plan.seed);
        assert_eq!(shrunk.replay.to_string(), flags);
        assert!(shrunk.runs < 100, "{}", shrunk.runs);
    }

    #[test]
    fn what_breaks_nothing_is_not_made_smaller() {
        let plan = plan();
        assert!(shrink_by(&Replay::whole(plan.seed, &[]), &plan, 200, |_| None).is_none());
    }

    #[test]
    fn a_search_ends_with_its_runs_and_keeps_to_its_promise() {
        let plan = plan();
        // With fewer than 20 steps, another promise is broken.
        let other = |plan: &Plan| {
            let steps = plan.steps.iter().filter(|step| step.at < Time::NEVER).count();
            violation(if steps < 20 { Promise::Runs } else { Promise::Ends })
        };
        let shrunk = shrink_by(&Replay::whole(plan.seed, &[]), &plan, 10, other).unwrap();
        assert_eq!((shrunk.violation.promise, shrunk.runs), (Promise::Ends, 10));
        assert_eq!(shrunk.replay.cut.keep, None);
    }
}
