//! What a failure is about: how it is seen again, and its story.

use crate::mutants::run_as;
use crate::replay::Replay;
use crate::shrink::shrink;
use crate::story::{jobs_in, story};

/// Tells of a world that breaks a promise: what is broken, the command that shows it, and the story. The world is made
/// smaller first, in at most so many runs.
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
