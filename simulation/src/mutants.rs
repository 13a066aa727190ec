//! Mutants: each deliberately broken variant of the controller must break a promise in one of the first seeds.
//! One that lives shows what the simulator does not try or does not check.

use std::fmt;
use std::io;

use yardmaster::mutants::{Mutant, with};

use crate::checks::Violation;
use crate::known;
use crate::world::World;

/// Most seeds that a mutant may survive.
pub const MOST_SEEDS: u64 = 2_000;

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

/// A row of the table of mutants in `docs/reliability.md`.
impl fmt::Display for Catch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutant, seed, violation } = self;
        write!(
            f,
            "| `{}` | {} | {seed} | {:?} | {} s |",
            mutant.name(),
            mutant.what(),
            violation.promise,
            violation.at
        )
    }
}

/// Runs worlds of a mutant, from the seed `from` on, until one breaks a promise that the unbroken controller keeps
/// there. `None` if it survives so many `seeds`.
///
/// # Errors
/// When the operating system gives no runtime.
pub fn hunt(mutant: Mutant, from: u64, seeds: u64) -> io::Result<Option<Catch>> {
    for seed in from..from.saturating_add(seeds) {
        if let Some(caught) = replay(mutant, seed)? {
            return Ok(Some(caught));
        }
    }
    Ok(None)
}

/// What becomes of a mutant in the world of one seed.
///
/// # Errors
/// When the operating system gives no runtime.
pub fn replay(mutant: Mutant, seed: u64) -> io::Result<Option<Catch>> {
    let Some(violation) = violation(Some(mutant), seed)? else { return Ok(None) };
    let unbroken = self::violation(None, seed)?;
    let is_its_own = unbroken.is_none_or(|unbroken| unbroken.promise != violation.promise);
    Ok(is_its_own.then_some(Catch { mutant, seed, violation }))
}

/// The promise that a mutant, or the unbroken controller, breaks in the world of a seed, if any.
fn violation(mutant: Option<Mutant>, seed: u64) -> io::Result<Option<Violation>> {
    with(mutant, || Ok(World::new(known::plan(seed, &[]), false)?.run().violation))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Mutex;
    use std::thread::{available_parallelism, scope};

    use super::*;

    /// The page with the table.
    const PAGE: &str = include_str!("../../docs/reliability.md");

    /// The seed of a mutant in the table.
    fn seed_of(mutant: Mutant) -> Option<u64> {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{}` |", mutant.name())))?;
        row.split('|').nth(3)?.trim().parse().ok()
    }

    /// The world of the seed in the table, and no other, so that this takes seconds. When worlds have changed, the
    /// command above the table finds the seeds anew.
    #[test]
    fn each_mutant_is_caught_as_the_table_tells() {
        let (left, wrong) = (Mutex::new(Mutant::ALL.iter()), Mutex::new(Vec::new()));
        let check = || {
            loop {
                let Some(mutant) = left.lock().unwrap().next() else { return };
                let violation = seed_of(*mutant).and_then(|seed| violation(Some(*mutant), seed).unwrap());
                let seed = seed_of(*mutant).unwrap_or_default();
                let row = violation.map(|violation| Catch { mutant: *mutant, seed, violation }.to_string());
                if row.as_ref().is_none_or(|row| !PAGE.contains(row)) {
                    wrong.lock().unwrap().push(format!("{}: {row:?}", mutant.name()));
                }
            }
        };
        scope(|threads| (0..available_parallelism().unwrap().get()).for_each(|_| _ = threads.spawn(check)));
        let wrong = wrong.into_inner().unwrap();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}
