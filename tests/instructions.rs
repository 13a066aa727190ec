//! A budget of instructions: what the controller executes for a pod and for a Job, stage by stage, without network and
//! actors. Instructions depend neither on the load of the machine nor on the hour, as CPU time does. valgrind counts them in
//! the profile of the tests, in which they are more, and as steady.
//!
//! The budgets are those of one compiler. After a change on purpose, record them again:
//!
//! ```sh
//! YARDMASTER_RECORD_INSTRUCTIONS=1 cargo test --test instructions
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../benches/stages/world.rs"]
#[allow(dead_code)]
mod world;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use yardmaster::cluster::watch::read_frame;
use yardmaster::cluster::wire::{Decoder, PodDecoder, status_patch, untrack_patch};
use yardmaster::job::manifest::Maker;
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::job::pod::{Behind, NewPod, Place};
use yardmaster::job::reconcile::reconcile;
use yardmaster::job::uid::Uid;

use crate::world::{ENDLESS, Held, POD_EVENT, POD_FRAME, World, job, job_line, managed, object};

/// The name of a stage, its budget, and its work.
type Stage = (&'static str, u64, fn(u64));

/// Tells a process of this test what to do: a stage, and how often.
const WORK: &str = "YARDMASTER_COUNTED_WORK";
/// Asks for new budgets.
const RECORD: &str = "YARDMASTER_RECORD_INSTRUCTIONS";
/// How much more than its budget a stage may take, in percent.
const TOLERANCE: u64 = 3;
/// Each stage: its name, how often it is carried out in the first of two processes, and the work. The second process does it
/// three times as often, so the difference is free of what happens once. Seeds of hash tables make a plan cost up to 1 % more
/// or less, so it is made more often.
const STAGES: [Stage; 5] = [
    ("an event of a pod is decoded, in protobuf", 400, decode_frames),
    ("an event of a pod is decoded, in JSON", 400, decode_lines),
    ("an event of a pod leads to a plan", 2_000, plan),
    ("a pod is created and released", 400, write),
    ("a Job of one pod is read, planned and its status written", 400, finish_jobs),
];

/// The recorded numbers of instructions.
#[derive(Debug, Deserialize, Serialize)]
struct Budgets {
    /// The compiler of these numbers.
    compiler: String,
    /// By stage: for one time.
    stages: BTreeMap<String, u64>,
}

fn decode_frames(times: u64) {
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let from_protobuf = PodDecoder::FROM_PROTOBUF.unwrap();
    for _ in 0..times {
        black_box(read_frame(black_box(POD_FRAME), |message| from_protobuf(&decoder, message)).unwrap());
    }
}

fn decode_lines(times: u64) {
    let (decoder, line) = (PodDecoder::new(EXTERNAL_FINALIZER), POD_EVENT.replace('\n', ""));
    (0..times).for_each(|_| _ = black_box(object(&decoder, black_box(&line))));
}

fn plan(times: u64) {
    let mut world = World::of(Held::Indexed(100));
    for _ in 0..times {
        let now = world.next_event();
        world.plan(now);
    }
}

fn write(times: u64) {
    let job = job(&job_line(Held::Indexed(1), ENDLESS, ""));
    let pod: Uid = Uuid::from_u128(1).to_string().into();
    let maker = Maker::new(&job, EXTERNAL_FINALIZER, 7, None).unwrap();
    for number in 0..times {
        let place = Place { number: u32::try_from(number).unwrap(), attempt: 0 };
        let new =
            NewPod { place, index_failures: None, backoff: None, lineage: None, behind: Behind::default() };
        black_box(maker.manifest(new).body());
        black_box(untrack_patch(black_box(&pod), EXTERNAL_FINALIZER));
    }
}

fn finish_jobs(times: u64) {
    let later = Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1);
    for _ in 0..times {
        let (mut state, mut fleet) = managed(Held::NonIndexed(1));
        let [ended, ..] = fleet.life();
        state.observe_pod(ended, Timestamp::UNIX_EPOCH);
        let first = reconcile(&state, Timestamp::UNIX_EPOCH);
        state.begin(&first, Timestamp::UNIX_EPOCH);
        let plan = reconcile(&state, later);
        let write = plan.status.as_ref().expect("a pod has ended");
        black_box(status_patch(&state.job.status, &write.status, &"1".into()));
        state.begin(&plan, later);
    }
}

/// The work of one process, if it is one that valgrind runs.
#[test]
fn counted_work() {
    let Ok(work) = std::env::var(WORK) else { return };
    let (stage, times) = work.split_once(':').unwrap();
    let (.., work) = STAGES[stage.parse::<usize>().unwrap()];
    work(times.parse().unwrap());
}

/// valgrind. Without it nothing is counted, which is an error in CI.
fn valgrind() -> Option<PathBuf> {
    let found = which::which("valgrind").ok();
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "valgrind is not found");
        println!("skipped: valgrind is not found");
    }
    found
}

/// The instructions of a process that does this work.
fn instructions(valgrind: &Path, stage: usize, times: u64) -> u64 {
    let mut command = Command::new(valgrind);
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().unwrap()).args(["--exact", "counted_work", "--test-threads=1"]);
    let output = command.env(WORK, format!("{stage}:{times}")).env_remove("CI").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let count = said.lines().find(|line| line.contains("refs:")).and_then(|line| line.rsplit(':').next());
    count.expect(&said).trim().replace(',', "").parse().unwrap()
}

/// The instructions of one time, if the work is done so much more often than is said.
fn counted(valgrind: &Path, stage: usize, excess_percent: u64) -> u64 {
    let times = STAGES[stage].1;
    let work = times * (100 + excess_percent) / 100;
    let all = [work, 3 * work].map(|times| instructions(valgrind, stage, times));
    (all[1] - all[0]) / (2 * times)
}

/// The fault of a count.
fn excess(stage: &str, budget: u64, counted: u64) -> Option<String> {
    (counted * 100 > budget * (100 + TOLERANCE)).then(|| {
        let percent = (counted as f64 / budget as f64 - 1.0) * 100.0;
        format!("{stage}: {counted} instructions, {percent:.1}% more than its budget of {budget}")
    })
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/instructions.json")
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-V").output().unwrap();
    format!("{} {}", String::from_utf8(output.stdout).unwrap().trim(), std::env::consts::ARCH)
}

/// The budgets, if they are of this compiler.
fn budgets() -> Option<Budgets> {
    let budgets: Budgets = serde_json::from_slice(&std::fs::read(file()).unwrap()).unwrap();
    let is_same = budgets.compiler == compiler();
    if !is_same {
        println!("skipped: the budgets are of {}, and this is {}", budgets.compiler, compiler());
    }
    is_same.then_some(budgets)
}

#[test]
fn no_stage_takes_more_instructions_than_its_budget() {
    let Some(valgrind) = valgrind() else { return };
    let count = |stage: usize| (STAGES[stage].0.to_owned(), counted(&valgrind, stage, 0));
    if std::env::var_os(RECORD).is_some() {
        let budgets = Budgets { compiler: compiler(), stages: (0..STAGES.len()).map(count).collect() };
        return std::fs::write(file(), serde_json::to_string_pretty(&budgets).unwrap() + "\n").unwrap();
    }
    let Some(budgets) = budgets() else { return };
    let counts: BTreeMap<_, _> = (0..STAGES.len()).map(count).collect();
    println!("{counts:#?}");
    assert!(counts.keys().eq(budgets.stages.keys()), "stages without budget: record them");
    let wrong: Vec<_> =
        counts.iter().filter_map(|(stage, counted)| excess(stage, budgets.stages[stage], *counted)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn five_percent_more_are_found() {
    let Some(valgrind) = valgrind() else { return };
    let Some(budgets) = budgets() else { return };
    let stage = STAGES[0].0;
    let more = counted(&valgrind, 0, 5);
    let budget = budgets.stages[stage];
    assert!(excess(stage, budget, more).is_some(), "{more} instructions with a budget of {budget}");
}
