//! Explains a failure: the command that shows it again, and its story.

use crate::mutants::run_as;
use crate::replay::Replay;
use crate::shrink::shrink;
use crate::story::{jobs_in, story};

/// Explains a world that breaks a promise: the violation, the command that shows it again, and the story.
/// Shrinks the world first, in at most `most_runs` runs.
pub fn explain(replay: &Replay, most_runs: u32) -> String {
    let small = shrink(replay, most_runs);
    let shown = small.as_ref().map_or(replay, |small| &small.replay);
    let plan = shown.plan();
    let outcome = run_as(shown.mutant, &plan, true);
    let what = outcome.violation.map_or("nothing is broken".to_owned(), |violation| violation.to_string());
    let job = jobs_in(&what).next();
    let runs = small
        .as_ref()
        .map_or(String::new(), |small| format!("what is left of {replay} after {} runs:\n", small.runs));
    format!("{what}\n{runs}    {}\n{plan}{}", shown.command(), story(&outcome.log, job))
}
