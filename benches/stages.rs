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

use std::cell::RefCell;
use std::collections::VecDeque;

use divan::counter::{BytesCount, ItemsCount};
use divan::{Bencher, black_box};
use jiff::{SignedDuration, Timestamp};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Uuid;
use yardmaster::cluster::watch::{Event, read_event, read_frame};
use yardmaster::cluster::wire::{Decoder, JobDecoder, PodDecoder, status_patch, untrack_patch};
use yardmaster::job::counting::{Next, compose};
use yardmaster::job::limits::Limits;
use yardmaster::job::manifest::Maker;
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::job::plan::Plan;
use yardmaster::job::pod::{IndexFailures, MaxRestarts, NewPod, Phase, Place, Pod};
use yardmaster::job::reconcile::reconcile;
use yardmaster::job::spec::Job;
use yardmaster::job::state::{Changed, Created, JobState};
use yardmaster::job::status::{JobStatus, Uncounted};
use yardmaster::job::uid::{Uid, UidSet};

/// The allocator of the `yardmaster` command.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A line of a watch, broken into readable lines: a pod that has just become ready.
const POD_EVENT: &str = include_str!("stages/pod_event.json");
/// A line of a watch, broken into readable lines: a Job with four `$` placeholders.
const JOB_EVENT: &str = include_str!("stages/job_event.json");
/// The pod event as a frame, without its length. `tests/protobuf_decoders.rs` checks that it equals the line.
const POD_FRAME: &[u8] = include_bytes!("stages/pod_event.pb");

/// Indexes of a Job with a long status.
const INDEXES: u32 = 100_000;
/// Uncounted pods of a Job with a long status.
const UNCOUNTED: usize = 500;
/// Completions of Jobs that never end.
const ENDLESS: u32 = 1_000_000_000;
/// Time from one pod event to the next.
const PACE: SignedDuration = SignedDuration::from_millis(1);
/// Events before the first measured one. They include two status writes.
const WARM_UP: usize = 2_000;

fn main() {
    divan::main();
}

/// A Job's completion mode and its number of pods.
#[derive(Clone, Copy, Debug)]
enum Held {
    Indexed(u32),
    NonIndexed(u32),
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
        behind: 0,
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

/// The pods of a Job on their nodes, as the watch shows them.
struct Fleet {
    indexed: bool,
    chance: SmallRng,
    now: Timestamp,
    version: u64,
    running: Vec<Pod>,
}

impl Fleet {
    /// A pod that is not scheduled yet.
    fn pod(&mut self, place: Place) -> Pod {
        self.version += 1;
        Pod {
            uid: Uuid::from_u128(self.chance.random()).to_string().into(),
            name: format!("training-{}-x7k2p", place.number).into(),
            version: self.version,
            created: self.now.into(),
            deleting: false,
            tracked: true,
            applied: false,
            selected: true,
            index: self.indexed.then_some(place.number),
            place: Some(place),
            index_failures: IndexFailures::default(),
            carried: None,
            scheduled: false,
            phase: Phase::Pending,
            ready_since: None,
            restarts: 0,
            max_restarts: MaxRestarts::default(),
            finished: self.now.into(),
            stalled: false,
            outcome: None,
        }
    }

    /// The pod in its next phase.
    fn later(&mut self, pod: &Pod, phase: Phase) -> Pod {
        self.version += 1;
        let ready_since = (phase == Phase::Running).then(|| self.now.into());
        let version = self.version;
        Pod { version, scheduled: true, phase, ready_since, finished: self.now.into(), ..pod.clone() }
    }

    /// The pod without its finalizer.
    fn untracked(&mut self, pod: &Pod) -> Pod {
        self.version += 1;
        Pod { version: self.version, tracked: false, ..pod.clone() }
    }

    /// A random pod succeeds.
    fn end(&mut self) -> Pod {
        let chosen = self.chance.random_range(..self.running.len());
        let pod = self.running.swap_remove(chosen);
        self.later(&pod, Phase::Succeeded)
    }

    /// A random pod succeeds and loses its finalizer, and another one takes its place and runs.
    fn life(&mut self) -> [Pod; 4] {
        let ended = self.end();
        let free = self.untracked(&ended);
        let place = ended.place.unwrap();
        let pending = self.pod(Place { attempt: place.attempt + 1, ..place });
        let running = self.later(&pending, Phase::Running);
        self.running.push(running.clone());
        [ended, free, pending, running]
    }
}

/// The state of a Job with this number of running pods.
fn managed(held: Held) -> (JobState, Fleet) {
    let (Held::Indexed(pods) | Held::NonIndexed(pods)) = held;
    let mut fleet = Fleet {
        indexed: matches!(held, Held::Indexed(_)),
        chance: SmallRng::seed_from_u64(1),
        now: Timestamp::UNIX_EPOCH,
        version: 0,
        running: Vec::new(),
    };
    let mut state = JobState::new(job(&job_line(held, ENDLESS, "")), Limits::default());
    for number in 0..pods {
        fleet.now += PACE;
        let pod = fleet.pod(Place { number, attempt: 0 });
        let pod = fleet.later(&pod, Phase::Running);
        fleet.running.push(pod.clone());
        state.observe_pod(pod, fleet.now);
    }
    state.pods_listed(&UidSet::default(), 0);
    (state, fleet)
}

/// A managed Job in a world that answers at once.
struct World {
    state: JobState,
    fleet: Fleet,
    /// Readings that the watch will bring next.
    coming: VecDeque<Pod>,
    /// The plan whose requests are not answered yet.
    plan: Plan,
}

impl World {
    fn of(held: Held) -> Self {
        let (state, fleet) = managed(held);
        let mut world = Self { state, fleet, coming: VecDeque::new(), plan: Plan::default() };
        for _ in 0..WARM_UP {
            let now = world.next_event();
            world.plan(now);
        }
        world
    }

    fn plan(&mut self, now: Timestamp) {
        self.plan = reconcile(&self.state, now);
        self.state.begin(&self.plan, now);
    }

    /// Answers the last plan, and delivers one pod event.
    fn next_event(&mut self) -> Timestamp {
        self.answer();
        self.fleet.now += PACE;
        let pod = self.coming.pop_front().unwrap_or_else(|| self.fleet.end());
        if pod.phase == Phase::Running {
            self.fleet.running.push(pod.clone());
        }
        self.state.observe_pod(pod, self.fleet.now);
        self.fleet.now
    }

    fn answer(&mut self) {
        let Self { state, fleet, coming, plan } = self;
        let (plan, now) = (std::mem::take(plan), fleet.now);
        assert!(plan.deletes.is_empty(), "no pod is too many");
        if let Some(write) = plan.status {
            state.observe_job(Job { status: write.status, ..state.job.clone() });
            state.status_written(now);
        }
        for pod in plan.releases {
            coming.push_back(fleet.untracked(state.pods.get(&pod.uid).unwrap()));
            state.changed(&pod.uid, Changed::Released, now);
        }
        for new in plan.creates {
            let pod = fleet.pod(new.place);
            coming.push_back(fleet.later(&pod, Phase::Running));
            state.created(new.place, Created::Pod(Box::new(pod)), now);
        }
    }
}

/// The object in a line of a watch.
fn object<D: Decoder>(decoder: &D, line: &str) -> D::Object {
    match read_event(decoder, line.as_bytes()) {
        Ok(Event::Applied { object, .. }) => object,
        _ => panic!("{line} brings no object"),
    }
}

fn job(line: &str) -> Job {
    object(&JobDecoder::new(), line).job.clone().unwrap()
}

/// A line of a watch: a Job with every other index completed.
fn long_job() -> String {
    let completed: Vec<String> = (0..INDEXES).step_by(2).map(|index| index.to_string()).collect();
    job_line(Held::Indexed(INDEXES), INDEXES, &completed.join(","))
}

/// A line of a watch: a running Job.
fn job_line(held: Held, completions: u32, completed_indexes: &str) -> String {
    let (mode, parallelism) = match held {
        Held::Indexed(pods) => ("Indexed", pods),
        Held::NonIndexed(pods) => ("NonIndexed", pods),
    };
    JOB_EVENT
        .replace('\n', "")
        .replace("$MODE", mode)
        .replace("$PARALLELISM", &parallelism.to_string())
        .replace("$COMPLETIONS", &completions.to_string())
        .replace("$COMPLETED", completed_indexes)
}
