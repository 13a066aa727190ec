//! The pod simulator: plays the kubelet for 100,000 pods at once, on one task.
//!
//! A pod costs one status write when it begins to run and one when it ends; in between it is an entry in a heap of
//! timers. It is not assigned to a node: the rules of Jobs do not ask for one, and pods without a node are removed at once
//! when they are deleted.

mod status;
mod turns;
mod write;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use self::status::Ending;
use self::write::{Done, Writers};
use crate::views::{Phase, Pod};
use crate::watch::{Collection, Event};

/// Annotation of pods: how long they run, such as `500ms`, or [`HOLD`].
pub(crate) const RUN_TIME: &str = "yardmaster.dev/simulated-run-time";
/// Annotation of pods: the part of them, from 0 to 1, that fails.
pub(crate) const FAIL_RATIO: &str = "yardmaster.dev/simulated-fail-ratio";
/// The run time of pods that run until they are released.
pub(crate) const HOLD: &str = "hold";

const DEFAULT_RUN_TIME: Duration = Duration::from_secs(1);

/// Whoever wants to know what becomes of pods. The order of `added` and `gone` is that of the API server.
pub(crate) trait Observer: Send + 'static {
    /// A pod came.
    fn added(&mut self, job: &str, at: Instant);
    /// It is about to be reported as ended.
    fn ending(&mut self, job: &str, at: Instant);
    /// Its end was refused: it had gone before.
    fn not_ended(&mut self, job: &str);
    /// It has ended or was deleted.
    fn gone(&mut self, job: &str, at: Instant);
}

/// Nobody wants to know.
impl Observer for () {
    fn added(&mut self, _: &str, _: Instant) {}
    fn ending(&mut self, _: &str, _: Instant) {}
    fn not_ended(&mut self, _: &str) {}
    fn gone(&mut self, _: &str, _: Instant) {}
}

/// Where a pod is in its short life.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The write that it runs is on its way.
    Starting,
    /// It runs for a time, or until it is released.
    Running,
    /// The write that it has ended is on its way, or done.
    Ended,
}

#[derive(Debug)]
struct Simulated {
    uid: Box<str>,
    job: Box<str>,
    containers: Box<[(Box<str>, Box<str>)]>,
    /// `None`: until it is released.
    run_time: Option<Duration>,
    exit_code: u8,
    started: Timestamp,
    state: State,
}

/// Namespace and name.
type Key = Box<str>;

/// The simulator.
pub(crate) struct Simulator<O> {
    pods: HashMap<Key, Simulated, FnvBuildHasher>,
    timers: BinaryHeap<Reverse<(Instant, Key)>>,
    /// Running pods that wait to be released.
    held: Vec<Key>,
    /// How many have to be held until all are released; 0 once they have been.
    hold: u64,
    writers: Writers,
    observer: O,
}

impl<O: Observer> Simulator<O> {
    /// A simulator that releases held pods once `hold` of them run.
    pub(crate) fn new(client: kube::Client, hold: u64, observer: O) -> Self {
        Self {
            pods: HashMap::default(),
            timers: BinaryHeap::new(),
            held: Vec::new(),
            hold,
            writers: Writers::new(client),
            observer,
        }
    }

    /// Plays all pods below this path that have not ended, until it is dropped.
    pub(crate) async fn run(mut self, client: kube::Client, path: &str) {
        let active = Collection::new(path).fields("status.phase!=Succeeded,status.phase!=Failed");
        let mut events: mpsc::Receiver<Event<Pod>> = active.follow(client);
        loop {
            self.send();
            let due = self.timers.peek().map(|Reverse((at, _))| *at);
            let timer = async {
                match due {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // What has happened comes before what happens next.
                biased;
                Some(done) = self.writers.next() => self.written(done),
                () = timer => self.fire(Instant::now()),
                event = events.recv() => match event {
                    Some(event) => self.observe(event),
                    None => return,
                },
            }
        }
    }

    /// Sends what may be sent now. A pod has ended when that is told, not when it waits for its turn to be told.
    fn send(&mut self) {
        let now = Instant::now();
        for key in self.writers.fill() {
            if let Some(pod) = self.pods.get(&key) {
                self.observer.ending(&pod.job, now);
            }
        }
    }

    fn observe(&mut self, event: Event<Pod>) {
        match event {
            Event::Listed(all) => {
                let mut gone = std::mem::take(&mut self.pods);
                for pod in all {
                    if let Some((key, known)) = gone.remove_entry(&key(&pod)) {
                        self.pods.insert(key, known);
                    }
                    self.apply(pod);
                }
                gone.into_values().for_each(|pod| self.observer.gone(&pod.job, Instant::now()));
            }
            Event::Applied(pod) => self.apply(pod),
            Event::Deleted(pod) => {
                if let Some(pod) = self.pods.remove(&key(&pod)) {
                    self.observer.gone(&pod.job, Instant::now());
                }
            }
        }
    }

    fn apply(&mut self, pod: Pod) {
        let key = key(&pod);
        if !pod.spec.scheduling_gates.is_empty() {
            return;
        }
        match self.pods.get(&key) {
            Some(known) if *known.uid == *pod.metadata.uid => return,
            // Another of the same name: that the first one went was missed.
            Some(known) => self.observer.gone(&known.job, Instant::now()),
            None => {}
        }
        let phase = pod.status.phase;
        let simulated = Simulated::of(pod);
        self.observer.added(&simulated.job, Instant::now());
        if phase == Phase::Pending {
            self.writers.start(&simulated.job, key.clone(), simulated.running());
            self.pods.insert(key, simulated);
        } else {
            // A simulator before this one reported that it runs.
            self.pods.insert(key.clone(), simulated);
            self.has_started(key);
        }
    }

    fn written(&mut self, done: Done) {
        match done {
            Done::Started(key) => self.has_started(key),
            Done::Ended => {}
            Done::Refused(key) => {
                if let Some(pod) = self.pods.get(&key)
                    && pod.state == State::Ended
                {
                    self.observer.not_ended(&pod.job);
                }
            }
        }
    }

    fn has_started(&mut self, key: Key) {
        let Some(pod) = self.pods.get_mut(&key).filter(|pod| pod.state == State::Starting) else { return };
        pod.state = State::Running;
        match pod.run_time {
            Some(time) => self.timers.push(Reverse((Instant::now() + time, key))),
            None if self.hold == 0 => self.end(key),
            None => {
                self.held.push(key);
                if self.held.len() as u64 >= self.hold {
                    self.hold = 0;
                    std::mem::take(&mut self.held).into_iter().for_each(|key| self.end(key));
                }
            }
        }
    }

    fn fire(&mut self, now: Instant) {
        while let Some(Reverse((at, _))) = self.timers.peek()
            && *at <= now
        {
            if let Some(Reverse((_, key))) = self.timers.pop() {
                self.end(key);
            }
        }
    }

    fn end(&mut self, key: Key) {
        let Some(pod) = self.pods.get_mut(&key).filter(|pod| pod.state == State::Running) else { return };
        pod.state = State::Ended;
        let end = pod.ended();
        self.writers.end(&pod.job, key, end);
    }
}

impl Simulated {
    fn of(pod: Pod) -> Self {
        let (meta, annotations) = (&pod.metadata, &pod.metadata.annotations);
        let run_time = match annotations.run_time.as_deref() {
            Some(HOLD) => None,
            time => {
                Some(time.and_then(|time| humantime::parse_duration(time).ok()).unwrap_or(DEFAULT_RUN_TIME))
            }
        };
        let ratio = annotations.fail_ratio.as_deref().and_then(|ratio| ratio.parse().ok()).unwrap_or(0.0);
        let exit_code = match annotations.exit_code.as_deref().and_then(|code| code.parse().ok()) {
            Some(code) => code,
            None => u8::from(fails(&meta.uid, ratio)),
        };
        let containers = pod.spec.containers.into_iter();
        Self {
            uid: meta.uid.as_str().into(),
            job: meta.labels.job.as_deref().unwrap_or_default().into(),
            containers: containers.map(|container| (container.name.into(), container.image.into())).collect(),
            run_time,
            exit_code,
            started: Timestamp::now(),
            state: State::Starting,
        }
    }

    fn running(&self) -> bytes::Bytes {
        status::running(&self.uid, &self.containers, self.started)
    }

    fn ended(&self) -> bytes::Bytes {
        let ending = Ending { exit_code: self.exit_code, started: self.started, finished: Timestamp::now() };
        status::ended(&self.uid, &self.containers, ending)
    }
}

/// Whether a pod is among those that fail: random, but the same for everybody who asks.
fn fails(uid: &str, ratio: f64) -> bool {
    use std::hash::Hasher;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(uid.as_bytes());
    // The upper bits of this hash hardly differ between texts that differ at their end.
    let mixed = hasher.finish().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let share = (mixed >> 32) as f64 / f64::from(u32::MAX);
    share < ratio
}

fn key(pod: &Pod) -> Key {
    format!("{}/{}", pod.metadata.namespace, pod.metadata.name).into()
}

#[cfg(test)]
mod tests {
    use super::fails;

    #[test]
    fn the_part_that_fails_is_about_the_ratio() {
        for ratio in [0.0, 0.2, 0.9] {
            let failed =
                (0..10_000).filter(|n| fails(&format!("00000000-0000-4000-8000-{n:012}"), ratio)).count();
            assert!((failed as f64 / 10_000.0 - ratio).abs() < 0.02, "{ratio}: {failed}");
        }
    }
}
