//! The cost of each stage between a pod event and the requests that follow from it, without network and
//! actors:
//!
//! 1. `decode_*`: a line of a watch becomes an object of the rules. The pod has the usual size, with
//!    `managedFields`, and is also decoded from a protobuf frame. The Job has 100,000 indexes, half of them
//!    completed.
//! 2. `pod_set`: a Job that holds many pods applies pod events. An iteration is the life of a pod in four
//!    events: a pod succeeds, loses its finalizer, and another one takes its place and runs.
//! 3. `reconcile`: a plan is made after one pod event, and begun. Pods end at random in a stream of 1,000
//!    events a second. Every request is answered before the next event, and status changes share a write each
//!    second. So the median is the cost of a pod event. The mean includes the few events that write a status,
//!    or release all pods that it has recorded.
//! 4. `pod_manifest`, `untrack`: the plan becomes bytes: a pod to create, and a finalizer to remove.
//! 5. `status_*`: a status with the 100,000 indexes of stage 1 and 500 uncounted pods is composed. It becomes
//!    a patch, and the answer is applied.
//!
//! The cost of a pod event must not depend on the number of pods of the Job: at 100,000 pods it must be at
//! most 1.3 times the cost at 1,000. Events concern random pods, so that large Jobs do not benefit from
//! caches more than in use.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "stages/world.rs"]
mod world;

use std::cell::RefCell;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use jiff::Timestamp;
use uuid::Uuid;
use yardmaster::cluster::watch::read_frame;
use yardmaster::cluster::wire::{Decoder, JobDecoder, PodDecoder, status_patch, untrack_patch};
use yardmaster::job::counting::{Next, compose};
use yardmaster::job::limits::Limits;
use yardmaster::job::manifest::Maker;
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::job::pod::{Behind, NewPod, Place};
use yardmaster::job::spec::Job;
use yardmaster::job::state::JobState;
use yardmaster::job::status::{JobStatus, Uncounted};
use yardmaster::job::uid::Uid;

use crate::world::{ENDLESS, Held, POD_EVENT, POD_FRAME, World, job, job_line, managed, object};

/// The allocator of the `yardmaster` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Indexes of a Job with a long status.
const INDEXES: u32 = 100_000;
/// Uncounted pods of a Job with a long status.
const UNCOUNTED: usize = 500;

fn main() {
    divan::main();
}

/// The sizes of Jobs: only small ones if nothing is measured.
fn held() -> Vec<Held> {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let sizes: &[u32] = if measures { &[1_000, 10_000, 100_000] } else { &[1_000] };
    [Held::Indexed, Held::NonIndexed].iter().flat_map(|mode| sizes.iter().map(|pods| mode(*pods))).collect()
}

#[divan::bench(sample_count = 1_000)]
fn decode_pod(bencher: Bencher<'_, '_>) {
    decode(bencher, &PodDecoder::new(EXTERNAL_FINALIZER), &POD_EVENT.replace('\n', ""));
}

#[divan::bench(sample_count = 1_000)]
fn decode_pod_protobuf(bencher: Bencher<'_, '_>) {
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let from_protobuf = PodDecoder::FROM_PROTOBUF.unwrap();
    bencher
        .counter(BytesCount::of_slice(POD_FRAME))
        .bench(|| read_frame(black_box(POD_FRAME), |message| from_protobuf(&decoder, message)).unwrap());
}

#[divan::bench]
fn decode_job(bencher: Bencher<'_, '_>) {
    decode(bencher, &JobDecoder::new(), &long_job());
}

fn decode<D: Decoder<Object: Sync>>(bencher: Bencher<'_, '_>, decoder: &D, line: &str) {
    bencher.counter(BytesCount::of_str(line)).bench(|| object(decoder, black_box(line)));
}

#[divan::bench(args = held(), sample_count = 1_000)]
fn pod_set(bencher: Bencher<'_, '_>, held: Held) {
    let (mut state, mut fleet) = managed(held);
    bencher.counter(ItemsCount::new(4_usize)).with_inputs(|| fleet.life()).bench_local_values(|life| {
        for pod in life {
            state.observe_pod(pod, Timestamp::UNIX_EPOCH);
        }
        // The next plan would do so.
        state.pods.clear_newly_ended();
    });
}

#[divan::bench(name = "reconcile", args = held(), sample_count = 10_000, sample_size = 1)]
fn reconcile_and_begin(bencher: Bencher<'_, '_>, held: Held) {
    let world = RefCell::new(World::of(held));
    bencher
        .with_inputs(|| world.borrow_mut().next_event())
        .bench_local_values(|now| world.borrow_mut().plan(now));
    let JobState { job, pods, .. } = world.into_inner().state;
    assert_eq!(pods.active() + pods.pending_creates(), job.spec.parallelism as usize);
}

#[divan::bench(sample_count = 1_000)]
fn pod_manifest(bencher: Bencher<'_, '_>) {
    let job = job(&job_line(Held::Indexed(1), ENDLESS, ""));
    let maker = || Maker::new(&job, EXTERNAL_FINALIZER, 7, None).unwrap();
    let at = |number| NewPod {
        place: Place { number, attempt: 0 },
        index_failures: None,
        backoff: None,
        lineage: None,
        behind: Behind::default(),
    };
    let body = |number| maker().manifest(at(number)).body();
    let mut numbers = INDEXES..;
    bencher
        .counter(BytesCount::new(body(INDEXES).len()))
        .with_inputs(|| numbers.next().unwrap())
        .bench_local_values(body);
}

#[divan::bench(sample_count = 1_000)]
fn untrack(bencher: Bencher<'_, '_>) {
    let pod: Uid = Uuid::from_u128(1).to_string().into();
    bencher.bench(|| untrack_patch(black_box(&pod), EXTERNAL_FINALIZER));
}

#[divan::bench(name = "status_compose")]
fn composed(bencher: Bencher<'_, '_>) {
    let state = JobState::new(with_uncounted(&job(&long_job()), 0), Limits::default());
    bencher.bench_local(|| compose(black_box(&state), &Next::default(), Timestamp::UNIX_EPOCH));
}

#[divan::bench(name = "status_patch")]
fn patch(bencher: Bencher<'_, '_>) {
    let [old, new] = successive(&job(&long_job())).map(|job| job.status);
    let version = "81250345".into();
    let size = status_patch(&old, &new, &version).len();
    bencher.counter(BytesCount::new(size)).bench(|| status_patch(black_box(&old), black_box(&new), &version));
}

#[divan::bench(name = "status_taken_in")]
fn taken_in(bencher: Bencher<'_, '_>) {
    let mut readings = successive(&job(&long_job()));
    let mut state = JobState::new(readings[1].clone(), Limits::default());
    bencher
        .with_inputs(|| {
            readings.reverse();
            readings[1].clone()
        })
        .bench_local_values(|job| state.observe_job(job));
}

/// A Job with a long status, and the Job 500 completed indexes and 500 failed pods later.
fn successive(job: &Job) -> [Job; 2] {
    let mut later = with_uncounted(job, UNCOUNTED);
    later.status.completed_indexes.extend((1..INDEXES).step_by(INDEXES as usize / UNCOUNTED));
    [with_uncounted(job, 0), later]
}

/// The Job with failed pods that are recorded and not yet counted.
fn with_uncounted(job: &Job, first: usize) -> Job {
    let uid = |number: usize| Uuid::from_u128(number as u128).to_string().into();
    let uncounted =
        Uncounted { succeeded: Vec::new(), failed: (first..first + UNCOUNTED).map(uid).collect() };
    Job { status: JobStatus { uncounted: Some(uncounted), ..job.status.clone() }, ..job.clone() }
}

/// A line of a watch: a Job with every other index completed.
fn long_job() -> String {
    let completed: Vec<String> = (0..INDEXES).step_by(2).map(|index| index.to_string()).collect();
    job_line(Held::Indexed(INDEXES), INDEXES, &completed.join(","))
}
