//! Mutants: each deliberately broken variant of the controller must break a promise in one of the first seeds.
//! One that lives shows what the simulator does not try or does not check.

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
