//! Runs plans: a single one, or the plans of many seeds on all cores.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use crate::checks::{Promise, Violation};
use crate::log::Log;
use crate::mutants::run_as;
use crate::panics;
use crate::plan::Plan;
use crate::replay::Replay;
use crate::time::Time;
use crate::world::{Outcome, World};

/// The stack of a thread that runs worlds: without optimization, futures within futures need much.
pub(crate) const STACK: usize = 16 << 20;

/// A world that has run.
pub struct Finished {
    /// How it is seen again.
    pub replay: Replay,
    /// The plan that was run.
    pub plan: Plan,
    /// The outcome of the first run.
    pub outcome: Outcome,
    /// Whether a second run had the same log, if there was one.
    pub repeats: Option<bool>,
}

/// Runs a plan. The log has lines if `keeps_log`. A panic of the world itself breaks [`Promise::Runs`].
pub fn run(plan: &Plan, keeps_log: bool) -> Outcome {
    let _kept = panics::keep();
    let world = || World::new(plan.clone(), keeps_log).map(World::run);
    let what = match catch_unwind(AssertUnwindSafe(world)) {
        Ok(Ok(outcome)) => return outcome,
        Ok(Err(error)) => format!("no runtime: {error}"),
        Err(_) => panics::take().join("; "),
    };
    Outcome {
        violation: Some(Violation { promise: Promise::Runs, at: Time::ZERO, what }),
        log: Log::new(keeps_log),
        time: Time::ZERO,
        requests: 0,
        repeats: BTreeMap::new(),
        pods: 0,
        reached: BTreeMap::new(),
    }
}

/// Runs many worlds on this number of threads, each in one thread. `twice`: runs each world two times and
/// compares the logs. `each` gets the results in the order of `replays`, and may stop the run.
///
/// # Errors
/// When the operating system gives no thread.
pub fn run_all(
    replays: &[Replay],
    threads: usize,
    twice: bool,
    mut each: impl FnMut(Finished) -> ControlFlow<()>,
) -> std::io::Result<()> {
    let next = AtomicUsize::new(0);
    let stopped = AtomicBool::new(false);
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, replays.len().max(1)) {
            let done = done.clone();
            let work = || {
                let done = done;
                while !stopped.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(replay) = replays.get(number).cloned() else { break };
                    let plan = replay.plan();
                    let run = || run_as(replay.mutant, &plan, false);
                    let outcome = run();
                    let repeats = twice.then(|| run().log.digest() == outcome.log.digest());
                    if done.send((number, Finished { replay, plan, outcome, repeats })).is_err() {
                        break;
                    }
                }
            };
            thread::Builder::new().name("world".into()).stack_size(STACK).spawn_scoped(scope, work)?;
        }
        drop(done);
        let mut early = BTreeMap::new();
        let mut due = 0;
        for (number, world) in finished {
            early.insert(number, world);
            while let Some(world) = early.remove(&due) {
                due += 1;
                if each(world).is_break() {
                    stopped.store(true, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        Ok(())
    })
}
