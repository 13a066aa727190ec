//! Replays recorded scenarios of the Job controller and compares the state at every `settle` step.
//!
//! `YARDMASTER_SCENARIOS` names another folder of recordings. `YARDMASTER_MODE` restricts the run to one mode
//! (`replacement` or `external`). `YARDMASTER_KUBECONFIG` selects a cluster instead of an API server in this
//! process.

mod scenario;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream};
use kube::config::Kubeconfig;
use libtest_mimic::Arguments;
use tokio::{sync::RwLock, time::timeout};

use crate::scenario::{arena::Arena, deviation::named, file::Scenario, mode::Mode, play::play};

/// Longest time for one scenario.
const LIMIT: Duration = Duration::from_secs(300);
/// Number of concurrent scenarios. They spend most of their time waiting.
const CONCURRENCY: usize = 16;
/// Number of mismatches shown for one scenario. Later ones mostly follow from the first.
const SHOWN: usize = 3;

/// A scenario in one mode.
struct Case {
    scenario: Scenario,
    mode: Mode,
}

/// The result of a case.
struct Outcome {
    case: Case,
    took: Duration,
    mismatches: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(101),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(101)
        }
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let all = cases()?;
    let found = all.len();
    let cases: Vec<_> = all.into_iter().filter(|case| wanted(case, arguments)).collect();
    let filtered = found - cases.len();
    if arguments.list {
        cases.iter().for_each(|case| println!("{} ({}): test", case.scenario.name, case.mode.as_str()));
        return Ok(true);
    }
    println!("\nrunning {} tests", cases.len());
    println!("named deviations from the recordings: {}", named().count());
    let begin = Instant::now();
    let threads = arguments.test_threads.unwrap_or(CONCURRENCY);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcomes = runtime.block_on(play_all(cases, threads))?;
    Ok(report(&outcomes, filtered, begin.elapsed()))
}

/// All scenarios of the folder in all wanted modes.
fn cases() -> Result<Vec<Case>> {
    let folder = std::env::var_os("YARDMASTER_SCENARIOS").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/scenarios"),
        PathBuf::from,
    );
    let modes = match std::env::var("YARDMASTER_MODE") {
        Err(_) => Mode::ALL.to_vec(),
        Ok(name) => {
            let mode = Mode::ALL.into_iter().find(|mode| mode.as_str() == name);
            vec![mode.with_context(|| format!("YARDMASTER_MODE={name}: replacement or external"))?]
        }
    };
    let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    if files.is_empty() {
        bail!("no scenarios in {}", folder.display());
    }
    // Grouped by mode, so that the two runs of a heavy scenario do not overlap.
    let cases = modes.iter().flat_map(|&mode| files.iter().map(move |file| read(file, mode)));
    cases.collect()
}

fn read(file: &Path, mode: Mode) -> Result<Case> {
    let named = || file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(named)?;
    Ok(Case { scenario: Scenario::parse(&text, mode).with_context(named)?, mode })
}

fn wanted(case: &Case, arguments: &Arguments) -> bool {
    let matches = |filter: &String| match arguments.exact {
        true => case.scenario.name == *filter,
        false => case.scenario.name.contains(filter.as_str()),
    };
    arguments.filter.as_ref().is_none_or(matches) && !arguments.skip.iter().any(matches)
}

async fn play_all(cases: Vec<Case>, threads: usize) -> Result<Vec<Outcome>> {
    match std::env::var_os("YARDMASTER_KUBECONFIG") {
        None => {
            let played = cases.into_iter().map(|case| async move {
                let played = tokio::spawn(play_embedded(case));
                played.await.context("a scenario panicked")
            });
            stream::iter(played).buffer_unordered(threads).collect::<Vec<_>>().await.into_iter().collect()
        }
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)?;
            play_on_cluster(cases, &kubeconfig, threads).await
        }
    }
}

/// Plays a case on its own API server, so any number may run at once.
async fn play_embedded(case: Case) -> Outcome {
    let begin = Instant::now();
    let played = async {
        let arena = Arena::embedded(case.mode, &case.scenario.gates).await?;
        let mismatches = limited(&case, &arena).await;
        arena.shutdown().await;
        mismatches
    };
    let mismatches = played.await;
    outcome(case, begin, mismatches)
}

/// Plays cases on a shared cluster. Cases with the same mode and gates share a controller. A case that stops
/// it runs alone.
async fn play_on_cluster(cases: Vec<Case>, kubeconfig: &Kubeconfig, threads: usize) -> Result<Vec<Outcome>> {
    let mut together: BTreeMap<_, Vec<Case>> = BTreeMap::new();
    for case in cases {
        together.entry((case.mode, case.scenario.gates.clone())).or_default().push(case);
    }
    let mut outcomes = Vec::new();
    for ((mode, gates), cases) in together {
        let arena = Arc::new(RwLock::new(Arena::cluster(kubeconfig.clone(), mode, &gates).await?));
        let played = cases.into_iter().map(|case| {
            let arena = Arc::clone(&arena);
            async move {
                if case.scenario.needs_own_controller() {
                    play_in(case, &*arena.write().await).await
                } else {
                    play_in(case, &*arena.read().await).await
                }
            }
        });
        outcomes.extend(stream::iter(played).buffer_unordered(threads).collect::<Vec<_>>().await);
        if let Some(arena) = Arc::into_inner(arena) {
            arena.into_inner().shutdown().await;
        }
    }
    Ok(outcomes)
}

async fn play_in(case: Case, arena: &Arena) -> Outcome {
    let begin = Instant::now();
    let mismatches = limited(&case, arena).await;
    outcome(case, begin, mismatches)
}

async fn limited(case: &Case, arena: &Arena) -> Result<Vec<String>> {
    let name = &case.scenario.name;
    let unique = uuid::Uuid::new_v4().simple().to_string();
    let namespace = format!("{name:.40}-{}-{unique:.6}", case.mode.as_str());
    timeout(LIMIT, play(&case.scenario, case.mode, arena, &namespace))
        .await
        .with_context(|| format!("not over after {LIMIT:?}"))?
}

/// Prints the result of a case at once.
fn outcome(case: Case, begin: Instant, mismatches: Result<Vec<String>>) -> Outcome {
    let mismatches = mismatches.unwrap_or_else(|error| vec![format!("{error:#}")]);
    let took = begin.elapsed();
    let result = if mismatches.is_empty() { "ok" } else { "FAILED" };
    println!(
        "scenario {} ... {result} ({}, {:.1} s)",
        case.scenario.name,
        case.mode.as_str(),
        took.as_secs_f64()
    );
    Outcome { case, took, mismatches }
}

fn report(outcomes: &[Outcome], filtered: usize, took: Duration) -> bool {
    let failed: Vec<_> = outcomes.iter().filter(|outcome| !outcome.mismatches.is_empty()).collect();
    if !failed.is_empty() {
        println!("\nfailures:");
    }
    for outcome in &failed {
        let Outcome { case, mismatches, .. } = outcome;
        println!("\n---- {} ({}) ----", case.scenario.name, case.mode.as_str());
        mismatches.iter().take(SHOWN).for_each(|mismatch| println!("{mismatch}"));
        if mismatches.len() > SHOWN {
            println!("... and {} more mismatches", mismatches.len() - SHOWN);
        }
    }
    if let Some(slowest) = outcomes.iter().max_by_key(|outcome| outcome.took) {
        println!("\nslowest: {} ({:.1} s)", slowest.case.scenario.name, slowest.took.as_secs_f64());
    }
    let word = if failed.is_empty() { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {} passed; {} failed; 0 ignored; 0 measured; {filtered} filtered out; finished in {:.2}s\n",
        outcomes.len() - failed.len(),
        failed.len(),
        took.as_secs_f64()
    );
    failed.is_empty()
}
