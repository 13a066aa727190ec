//! The whole controller in simulated worlds: `docs/testing.md` explains how they are run, replayed and read.
#![allow(clippy::unwrap_used, missing_docs)]

use std::ops::ControlFlow;
use std::process::Command;
use std::thread::{self, available_parallelism};

use yardmaster_simulation::known::Defect;
use yardmaster_simulation::mutants::{self, Mutant};
use yardmaster_simulation::plan::{Refused, refusing};
use yardmaster_simulation::{Replay, Tally, Violation, explain, run, run_all};

/// Every world that ever failed. `data/simulation-seeds.md` has their stories.
const ONCE_BROKEN: &str = include_str!("data/simulation-seeds.txt");
/// Most worlds that are run to make a failure smaller.
const SHRINKING: u32 = 60;
/// Most worlds that are made for a known defect, until one shows it.
const PROVOKED: u64 = 40;
/// Worlds that are made for a mended defect, and must not show it.
const MENDED: u64 = 20;
/// Seeds among which each mutant is caught.
const MOST_SEEDS: u64 = 2_000;
/// The stack of a thread that runs worlds.
const STACK: usize = 16 << 20;
/// Worlds in which one kind of answer is provoked for ever.
const REFUSING: [u64; 3] = [4_000_003, 4_000_011, 5_000_004];
/// Most requests of one kind for one object in a minute.
const MOST_A_MINUTE: u32 = 30;
/// Worlds that are compared with those of another process.
const COMPARED: [u64; 4] = [3, 14, 159, 265];

fn threads() -> usize {
    available_parallelism().unwrap().get()
}

/// Runs worlds. The first world that breaks a promise is made smaller and reported.
#[track_caller]
fn all_hold(replays: &[Replay]) {
    let mut tally = Tally::default();
    run_all(replays, threads(), false, |world| {
        tally.add(&world);
        ControlFlow::Continue(())
    })
    .unwrap();
    println!("{tally}");
    let broken: Vec<_> = tally.broken.values().flat_map(|broken| &broken.examples).collect();
    let Some((first, _)) = broken.first() else { return };
    let all: Vec<String> =
        broken.iter().map(|(replay, violation)| format!("{violation}\n    {}", replay.command())).collect();
    panic!("{tally}\n{}\n\n{}", all.join("\n"), explain(first, SHRINKING));
}

#[test]
fn worlds_of_500_seeds_keep_every_promise() {
    // The later ones have everything that is rare, then a tenant, pods that end together, and writes that wait.
    // Options, lost nodes, and Jobs in an order follow.
    let later = [4_000_000, 5_000_000, 6_000_000, 7_000_000, 8_000_000, 8_700_000, 9_000_000]
        .into_iter()
        .flat_map(|first| first..first + 50);
    let seeds = (0..150).chain(later);
    let replays: Vec<Replay> = seeds.map(|seed| Replay::whole(seed, &[])).collect();
    all_hold(&replays);
}

#[test]
fn every_world_that_once_broke_a_promise_keeps_all() {
    let lines = ONCE_BROKEN.lines().map(|line| line.split('#').next().unwrap().trim());
    let replays: Vec<Replay> =
        lines.filter(|line| !line.is_empty()).map(|line| line.parse().unwrap()).collect();
    println!("the stories of these seeds: tests/data/simulation-seeds.md");
    all_hold(&replays);
}

/// Replicas retry with growing pauses, whatever the API server answers, and for however long.
#[test]
fn no_answer_makes_a_loop() {
    use Refused::{All, Claims, PodCreates, PodDeletes, PodPatches, Protobuf, Reads, Statuses, Writes};
    let kinds = [All, Writes, PodPatches, PodDeletes, PodCreates, Statuses, Reads, Protobuf, Claims];
    let codes = [400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 504];
    let worlds: Vec<_> = kinds.iter().flat_map(|what| codes.map(|code| (*what, code))).collect();
    let in_loop = |(number, (what, code)): (usize, &(Refused, u16))| {
        let seed = REFUSING[number % REFUSING.len()];
        let outcome = run(&refusing(seed, *code, *what), false);
        // From the second minute on, and until the last one that is refused as a whole.
        let (count, request) = outcome.repeats.range(2..10).map(|(_, most)| most).max()?;
        (*count > MOST_A_MINUTE)
            .then(|| format!("{what:?} -> {code}, seed {seed}: {count} times in a minute: {request}"))
    };
    let loops: Vec<String> = thread::scope(|scope| {
        let shares = (0..threads()).map(|share| {
            let mine = worlds.iter().enumerate().skip(share).step_by(threads());
            let work = move || mine.filter_map(in_loop).collect::<Vec<_>>();
            thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).unwrap()
        });
        let shares: Vec<_> = shares.collect();
        shares.into_iter().flat_map(|share| share.join().unwrap()).collect()
    });
    assert!(loops.is_empty(), "{}", loops.join("\n"));
}

fn digest(seed: u64) -> String {
    let outcome = run(&Replay::whole(seed, &[]).plan(), false);
    format!("seed {seed}: {} lines, digest {:016x}", outcome.log.lines(), outcome.log.digest())
}

/// The first of some worlds that breaks a promise, and how.
fn first_broken(replays: &[Replay]) -> Option<(Replay, Violation)> {
    let mut first = None;
    run_all(replays, threads(), false, |world| match world.outcome.violation {
        Some(violation) => {
            first = Some((world.replay, violation));
            ControlFlow::Break(())
        }
        None => ControlFlow::Continue(()),
    })
    .unwrap();
    first
}

/// Plans leave out the causes of known defects. So a mended defect must be listed as mended, or its return
/// would stay unseen.
#[test]
fn known_defects_are_seen_and_mended_ones_are_not() {
    for defect in Defect::ALL {
        let is_mended = Defect::MENDED.contains(&defect);
        let worlds = 0..if is_mended { MENDED } else { PROVOKED };
        let replays: Vec<Replay> = worlds.map(|seed| Replay::provoking(defect, seed)).collect();
        if is_mended {
            all_hold(&replays);
            continue;
        }
        let seen = first_broken(&replays);
        let (replay, violation) = seen.unwrap_or_else(|| panic!("{} is mended", defect.name()));
        println!("{}: {violation}\n    {}", defect.name(), replay.command());
    }
}

/// Chance is in the world alone: not in addresses, hashes or threads, which differ in another process.
#[test]
fn a_world_is_the_same_in_another_process() {
    let other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "digests_for_another_process", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let printed = String::from_utf8(other.stdout).unwrap();
    for seed in COMPARED {
        let here = digest(seed);
        assert!(printed.lines().any(|line| line == here), "{here} here, and there:\n{printed}");
    }
}

#[test]
#[ignore = "another test calls it in a process of its own"]
fn digests_for_another_process() {
    println!();
    COMPARED.iter().for_each(|seed| println!("{}", digest(*seed)));
}

/// The table of mutants.
const MUTANTS: &str = include_str!("data/simulation-mutants.md");

/// Each mutant breaks a promise in the world of the seed in the table, where the unbroken controller keeps it. Other
/// seeds are not tried, so that this takes seconds: when plans have changed, the command above the table finds the
/// seeds again.
#[test]
fn mutants_are_caught_as_the_table_tells() {
    let row = |mutant: Mutant| {
        let begin = format!("| `{}` |", mutant.name());
        MUTANTS.lines().find(move |line| line.starts_with(&begin))
    };
    let is_early = |mutant, seed: &u64| {
        let first = mutants::first_seed(mutant);
        (first..first + MOST_SEEDS).contains(seed)
    };
    let seed =
        |mutant| row(mutant)?.split('|').nth(3)?.trim().parse().ok().filter(|seed| is_early(mutant, seed));
    let again = |mutant| mutants::hunt(mutant, seed(mutant)?, 1).map(|caught| caught.to_string());
    let mut wrong = Vec::new();
    mutants::for_all(Mutant::ALL, threads(), again, |mutant, again| {
        if again.is_none() || again.as_deref() != row(mutant) {
            wrong.push(mutant.name());
        }
    })
    .unwrap();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
