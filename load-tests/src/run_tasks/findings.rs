//! Medians, the ratios of Yardmaster's to those of the others, and the goals.

use std::fmt::Write as _;

use indicatif::HumanCount;
use serde::Serialize;

use super::programs::{Contender, Tasks};
use super::timed::Spent;
use super::{Entry, Runtime};
use crate::report::{median, round};

/// The goal for a start: most seconds beyond that of the task alone.
const START_GOAL_S: f64 = 0.5;

/// A way to start a single task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// As a Job.
    Yardmaster,
    /// By itself, or by the engine.
    Alone,
}

/// The figures of all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Findings {
    /// Yardmaster's are the first.
    runs: Vec<RunFigures>,
    /// Absent if no start was timed.
    start: Option<StartFigures>,
}

/// The figures of a contender. The ratios are Yardmaster's median divided by that of this contender.
#[derive(Clone, Debug, Serialize)]
struct RunFigures {
    who: Contender,
    /// Medians of all rounds.
    #[serde(flatten)]
    median: Spent,
    wall_ratio: Option<f64>,
    cpu_ratio: Option<f64>,
    /// The goal for `wall_ratio`: at most so much.
    goal: Option<f64>,
    is_met: Option<bool>,
    rounds: Vec<Spent>,
}

/// Medians of the time from the start of a program to the first line of output of its task, in seconds.
#[derive(Clone, Debug, Serialize)]
struct StartFigures {
    yardmaster_s: f64,
    alone_s: f64,
    /// The difference.
    beyond_s: f64,
    goal_s: f64,
    is_met: bool,
}

impl Findings {
    pub(super) fn new(mut runs: Vec<Entry<Contender, Spent>>, starts: Vec<Entry<Start, f64>>) -> Self {
        runs.sort_by_key(|run| run.who);
        let medians = |run: &Entry<Contender, Spent>| {
            let of = |figure: fn(&Spent) -> f64| round(median(run.costs.iter().map(figure).collect()));
            Spent { wall_s: of(|spent| spent.wall_s), cpu_s: of(|spent| spent.cpu_s) }
        };
        let ours = runs.iter().find(|run| run.who == Contender::Yardmaster).map(medians);
        let figures = runs.into_iter().map(|run| {
            let (median, goal) = (medians(&run), run.who.goal());
            let ours = ours.filter(|_| run.who != Contender::Yardmaster);
            let ratio = |figure: fn(&Spent) -> f64| quotient(figure(&ours?), figure(&median));
            let (wall_ratio, cpu_ratio) = (ratio(|spent| spent.wall_s), ratio(|spent| spent.cpu_s));
            let is_met = wall_ratio.zip(goal).map(|(ratio, goal)| ratio <= goal);
            RunFigures { who: run.who, median, wall_ratio, cpu_ratio, goal, is_met, rounds: run.costs }
        });
        Self { runs: figures.collect(), start: StartFigures::new(starts) }
    }

    /// The tables, in Markdown.
    pub(super) fn tables(&self, tasks: &Tasks) -> String {
        let (number, nature) = (HumanCount(tasks.number.into()), tasks.runtime.name());
        let mut text = format!(
            "| {number} tasks of `true` as {nature}, {} at once | time | CPU | time of Yardmaster | CPU of Yardmaster | goal |\n\
             |---|---|---|---|---|---|\n",
            tasks.at_once
        );
        let times =
            |ratio: Option<f64>| ratio.map(|ratio| format!("{ratio:.2} times that")).unwrap_or_default();
        for run in &self.runs {
            let goal = run.goal.zip(run.is_met);
            let goal = goal.map(|(goal, is_met)| format!("at most {goal:.2}: {}", verdict(is_met)));
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "| {} | {:.3} s | {:.3} s | {} | {} | {} |",
                tasks.name(run.who),
                run.median.wall_s,
                run.median.cpu_s,
                times(run.wall_ratio),
                times(run.cpu_ratio),
                goal.unwrap_or_default(),
            );
        }
        if tasks.runtime == Runtime::Containers {
            text.push_str("\nThe CPU of containers, and of the engine's own processes, is not counted.\n");
        }
        if let Some(start) = &self.start {
            let StartFigures { yardmaster_s, alone_s, beyond_s, goal_s, is_met } = start;
            let _ = write!(
                text,
                "\n| start of a task, until its first line | time |\n|---|---|\n\
                 | `yardmaster run` | {yardmaster_s:.3} s |\n| the same without a Job | {alone_s:.3} s |\n\
                 | difference; goal: at most {goal_s} s | {beyond_s:.3} s: {} |\n",
                verdict(*is_met)
            );
        }
        text
    }
}

impl StartFigures {
    fn new(starts: Vec<Entry<Start, f64>>) -> Option<Self> {
        let of = |who: Start| {
            let times = &starts.iter().find(|start| start.who == who)?.costs;
            (!times.is_empty()).then(|| median(times.clone()))
        };
        let (yardmaster, alone) = (of(Start::Yardmaster)?, of(Start::Alone)?);
        let beyond = yardmaster - alone;
        Some(Self {
            yardmaster_s: round(yardmaster),
            alone_s: round(alone),
            beyond_s: round(beyond),
            goal_s: START_GOAL_S,
            is_met: beyond <= START_GOAL_S,
        })
    }
}

/// The quotient; `None` if it would be infinite.
fn quotient(ours: f64, theirs: f64) -> Option<f64> {
    (theirs > 0.0).then(|| round(ours / theirs))
}

fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::super::programs::tests::tasks;
    use super::*;

    fn entry<W, C: Copy>(who: W, costs: &[C]) -> Entry<W, C> {
        Entry { costs: costs.to_vec(), ..Entry::new(who, Command::new("true")) }
    }

    fn spent(times: [f64; 3]) -> Vec<Spent> {
        times.into_iter().map(|wall_s| Spent { wall_s, cpu_s: wall_s / 2.0 }).collect()
    }

    /// Findings of rounds with these medians: 1.25 s for xargs, and 6 s for GNU parallel.
    fn findings(yardmaster: [f64; 3]) -> Findings {
        let runs = vec![
            entry(Contender::Parallel, &spent([6.0, 60.0, 5.0])),
            entry(Contender::Yardmaster, &spent(yardmaster)),
            entry(Contender::Xargs, &spent([1.25, 1.0, 9.0])),
        ];
        Findings::new(runs, vec![entry(Start::Alone, &[0.2, 0.25]), entry(Start::Yardmaster, &[0.8, 0.75])])
    }

    #[test]
    fn medians_of_yardmaster_are_divided_by_those_of_the_others() {
        let findings = findings([2.0, 1.0, 30.0]);
        let of = |who| findings.runs.iter().find(|run| run.who == who).unwrap();
        let xargs = of(Contender::Xargs);
        assert_eq!((xargs.wall_ratio, xargs.cpu_ratio, xargs.is_met), (Some(1.6), Some(1.6), Some(false)));
        let parallel = of(Contender::Parallel);
        assert_eq!((parallel.wall_ratio, parallel.is_met), (Some(0.333), Some(true)));
        let ours = of(Contender::Yardmaster);
        assert_eq!((ours.median.wall_s, ours.wall_ratio, ours.goal), (2.0, None, None));
        let start = findings.start.as_ref().unwrap();
        assert_eq!((start.beyond_s, start.is_met), (0.55, false));
    }

    #[test]
    fn tables_have_the_goals() {
        let tables = findings([1.5, 1.5, 1.5]).tables(&tasks(Runtime::Processes, None));
        for line in [
            "| `yardmaster run` | 1.500 s | 0.750 s |  |  |  |",
            "| xargs | 1.250 s | 0.625 s | 1.20 times that | 1.20 times that | at most 1.20: met |",
            "| GNU parallel | 6.000 s | 3.000 s | 0.25 times that | 0.25 times that | at most 0.33: met |",
            "| difference; goal: at most 0.5 s | 0.550 s: missed |",
        ] {
            assert!(tables.lines().any(|found| found == line), "{line}:\n{tables}");
        }
    }

    #[test]
    fn without_starts_there_is_no_goal_for_them() {
        assert!(Findings::new(Vec::new(), Vec::new()).start.is_none());
        let unmeasured = vec![entry(Start::Alone, &[]), entry(Start::Yardmaster, &[])];
        assert!(Findings::new(Vec::new(), unmeasured).start.is_none());
    }
}
