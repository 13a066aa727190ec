//! A Job and its pods in a world that answers at once, without network and actors.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Uuid;
use yardmaster::cluster::watch::{Event, read_event};
use yardmaster::cluster::wire::{Decoder, JobDecoder};
use yardmaster::job::limits::Limits;
use yardmaster::job::plan::Plan;
use yardmaster::job::pod::{IndexFailures, MaxRestarts, Phase, Place, Pod};
use yardmaster::job::reconcile::reconcile;
use yardmaster::job::spec::Job;
use yardmaster::job::state::{Changed, Created, JobState};
use yardmaster::job::uid::UidSet;

/// A line of a watch, broken into readable lines: a pod that has just become ready.
pub const POD_EVENT: &str = include_str!("pod_event.json");
/// A line of a watch, broken into readable lines: a Job with four `$` placeholders.
const JOB_EVENT: &str = include_str!("job_event.json");
/// The pod event as a frame, without its length. `tests/protobuf_decoders.rs` checks that it equals the line.
pub const POD_FRAME: &[u8] = include_bytes!("pod_event.pb");

/// Completions of Jobs that never end.
pub const ENDLESS: u32 = 1_000_000_000;
/// Time from one pod event to the next.
const PACE: SignedDuration = SignedDuration::from_millis(1);
/// Events before the first measured one. They include two status writes.
const WARM_UP: usize = 2_000;

/// A Job's completion mode and its number of pods.
#[derive(Clone, Copy, Debug)]
pub enum Held {
    Indexed(u32),
    NonIndexed(u32),
}

/// The pods of a Job on their nodes, as the watch shows them.
pub struct Fleet {
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
            forced: false,
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
    pub fn life(&mut self) -> [Pod; 4] {
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
pub fn managed(held: Held) -> (JobState, Fleet) {
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
pub struct World {
    pub state: JobState,
    fleet: Fleet,
    /// Readings that the watch will bring next.
    coming: VecDeque<Pod>,
    /// The plan whose requests are not answered yet.
    plan: Plan,
}

impl World {
    pub fn of(held: Held) -> Self {
        let (state, fleet) = managed(held);
        let mut world = Self { state, fleet, coming: VecDeque::new(), plan: Plan::default() };
        for _ in 0..WARM_UP {
            let now = world.next_event();
            world.plan(now);
        }
        world
    }

    pub fn plan(&mut self, now: Timestamp) {
        self.plan = reconcile(&self.state, now);
        self.state.begin(&self.plan, now);
    }

    /// Answers the last plan, and delivers one pod event.
    pub fn next_event(&mut self) -> Timestamp {
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
pub fn object<D: Decoder>(decoder: &D, line: &str) -> D::Object {
    match read_event(decoder, line.as_bytes()) {
        Ok(Event::Applied { object, .. }) => object,
        _ => panic!("{line} brings no object"),
    }
}

pub fn job(line: &str) -> Job {
    object(&JobDecoder::new(), line).job.clone().unwrap()
}

/// A line of a watch: a running Job.
pub fn job_line(held: Held, completions: u32, completed_indexes: &str) -> String {
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
