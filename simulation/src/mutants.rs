//! Mutants: each deliberately broken variant of the controller must break a promise in one of the first
//! seeds. A surviving mutant shows a gap in the simulator's plans or checks.

use std::fmt;
use std::io;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

pub use yardmaster::mutants::Mutant;
use yardmaster::mutants::with;

use crate::checks::Violation;
use crate::known;
use crate::plan::{Plan, lost, options, order, queued, tenant, wider};
use crate::run::{STACK, run};
use crate::world::Outcome;

/// No mutant has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mutant is called {0:?}")]
pub struct NoSuchMutant(String);

/// The mutant of this name; `all`: all of them.
///
/// # Errors
/// When there is none.
pub fn named(name: &str) -> Result<Vec<Mutant>, NoSuchMutant> {
    if name == "all" { Ok(Mutant::ALL.to_vec()) } else { one(name).map(|mutant| vec![mutant]) }
}

/// The one mutant of this name.
///
/// # Errors
/// When there is none.
pub fn one(name: &str) -> Result<Mutant, NoSuchMutant> {
    let named = Mutant::ALL.iter().find(|mutant| mutant.name() == name);
    named.copied().ok_or_else(|| NoSuchMutant(name.to_owned()))
}

/// How a mutant was caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catch {
    /// The mutant.
    pub mutant: Mutant,
    /// The seed.
    pub seed: u64,
    /// The promise that it has broken, and when.
    pub violation: Violation,
}

/// A row of the table of mutants in `tests/data/simulation-mutants.md`.
impl fmt::Display for Catch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutant, seed, .. } = self;
        write!(f, "| `{}` | {} | {seed} |", mutant.name(), mutant.what())
    }
}

/// The first seed whose world is likely to show a mutant: some need a tenant, many adoptions, or many deletions at once.
pub fn first_seed(mutant: Mutant) -> u64 {
    match mutant {
        Mutant::ActiveUntilRemovalSent => queued::FIRST,
        Mutant::AdoptionsNotAwaited => wider::FROM,
        Mutant::LineageNotWritten
        | Mutant::OnlyLimitsRaised
        | Mutant::RestartLeavesOthers
        | Mutant::RestartNotWritten => options::FIRST,
        Mutant::FailureTakenForSuccess | Mutant::MissingTakenForEnded => order::FIRST,
        Mutant::LostPodsKeepGrace | Mutant::ResultsForgotten => lost::FIRST,
        Mutant::OwnershipByUid | Mutant::TurnsByUid => tenant::FIRST,
        _ => 0,
    }
}

/// Runs worlds of a mutant, from the seed `from` on, until one breaks a promise that the unbroken controller
/// keeps there. Returns `None` if the mutant survives all `seeds` worlds.
pub fn hunt(mutant: Mutant, from: u64, seeds: u64) -> Option<Catch> {
    (from..from.saturating_add(seeds)).find_map(|seed| {
        let caught = replay(mutant, seed)?;
        let unbroken = violation(None, seed);
        unbroken.is_none_or(|unbroken| unbroken.promise != caught.violation.promise).then_some(caught)
    })
}

/// The violation by a mutant in the world of one seed.
fn replay(mutant: Mutant, seed: u64) -> Option<Catch> {
    violation(Some(mutant), seed).map(|violation| Catch { mutant, seed, violation })
}

fn violation(mutant: Option<Mutant>, seed: u64) -> Option<Violation> {
    run_as(mutant, &known::plan(seed, &[]), false).violation
}

/// Runs a plan whose controllers are a mutant or none. The log has lines if `keeps_log`.
pub fn run_as(mutant: Option<Mutant>, plan: &Plan, keeps_log: bool) -> Outcome {
    with(mutant, || run(plan, keeps_log))
}

/// Does `work` for each mutant, on this number of threads. `each` gets the results as they come.
///
/// # Errors
/// When the operating system gives no thread.
pub fn for_all<T: Send>(
    mutants: &[Mutant],
    threads: usize,
    work: impl Fn(Mutant) -> T + Sync,
    mut each: impl FnMut(Mutant, T),
) -> io::Result<()> {
    let left = Mutex::new(mutants.iter().copied());
    let next = || left.lock().ok()?.next();
    let (done, results) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, mutants.len().max(1)) {
            let (done, next, work) = (done.clone(), &next, &work);
            let worker = move || {
                while let Some(mutant) = next() {
                    // The receiver is gone if `each` has panicked.
                    let _ = done.send((mutant, work(mutant)));
                }
            };
            thread::Builder::new().name("mutants".into()).stack_size(STACK).spawn_scoped(scope, worker)?;
        }
        drop(done);
        results.into_iter().for_each(|(mutant, result)| each(mutant, result));
        Ok(())
    })
}
