//! The pod simulator: plays the kubelet for 100,000 pods at once, on one task.
//!
//! A pod costs one status write when it starts to run and one when it ends. In between it is an entry in a
//! heap of timers. It has no node: Jobs do not need one, and a pod without node is removed at once when it is
//! deleted.

mod status;
mod turns;
mod write;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::time::{Duration, Instant};

use fnv::FnvBuildHasher;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::sleep_until;

use self::status::Ending;
use self::write::{Done, Ended, Writers};
use crate::views::{Phase, Pod};
use crate::watch::{Collection, Event};

/// Annotation of pods: their run time, such as `500ms`, or [`HOLD`].
pub(crate) const RUN_TIME: &str = "yardmaster.dev/simulated-run-time";
/// Annotation of pods: the share of them that fails, from 0 to 1.
pub(crate) const FAIL_RATIO: &str = "yardmaster.dev/simulated-fail-ratio";
/// The run time of pods that run until they are released.
pub(crate) const HOLD: &str = "hold";

const DEFAULT_RUN_TIME: Duration = Duration::from_secs(1);

/// An observer of pods. `added` and `gone` come in the order of the API server.
pub(crate) trait Observer: Send + 'static {
    /// A pod was created.
    fn added(&mut self, _job: &str, _at: Instant) {}
    /// Its end is about to be reported.
    fn ending(&mut self, _job: &str, _at: Instant) {}
    /// The report of its end was accepted.
    fn ended(&mut self, _job: &str, _failed: bool) {}
    /// The report of its end was refused, since it was gone.
    fn not_ended(&mut self, _job: &str) {}
    /// It has ended or was deleted.
    fn gone(&mut self, _job: &str, _at: Instant) {}
}

/// Ignores everything.
impl Observer for () {}

/// The lifecycle of a simulated pod.
#[derive(Debug, PartialEq, Eq)]
enum State {
    /// The write of Running is in flight.
    Starting,
    /// It runs for its run time, or until it is released.
    Running,
    /// The write of its end is in flight or done.
    Ended,
}

#[derive(Debug)]
struct Simulated {
    uid: Box<str>,
    job: Box<str>,
    containers: Box<[(Box<str>, Box<str>)]>,
    /// Without it, the pod runs until it is released.
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
    /// Running pods that wait for their release.
    held: Vec<Key>,
    /// Number of held pods at which all are released. 0 after the release.
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

    /// Plays the kubelet for all unfinished pods under this path, until dropped.
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
                // Finished writes are handled before timers and events.
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

    /// Sends waiting writes up to the limit. A pod counts as ended when its report is sent, not while it
    /// waits.
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
                // Replacements are among the listed ones: what they replace has gone before.
                let listed: HashSet<Key> = all.iter().map(key).collect();
                for (_, pod) in self.pods.extract_if(|key, _| !listed.contains(key)) {
                    self.observer.gone(&pod.job, Instant::now());
                }
                all.into_iter().for_each(|pod| self.apply(pod));
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
            // Another pod of the same name: the deletion of the first one was missed.
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
            // An earlier simulator has already reported it as Running.
            self.pods.insert(key.clone(), simulated);
            self.has_started(key);
        }
    }

    fn written(&mut self, done: Done) {
        match done {
            Done::Started(key) => self.has_started(key),
            Done::Ended(Ended { job, failed }) => self.observer.ended(&job, failed),
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
        let ended = Ended { job: pod.job.clone(), failed: pod.exit_code != 0 };
        let body = pod.ended();
        self.writers.end(key, body, ended);
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

/// Whether a pod fails. Pseudo-random, but always the same for a uid.
fn fails(uid: &str, ratio: f64) -> bool {
    use std::hash::Hasher;
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(uid.as_bytes());
    // The upper bits of FNV hardly differ between uids that differ only at their end, so they are mixed.
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
    fn the_share_of_failing_pods_is_close_to_the_ratio() {
        for ratio in [0.0, 0.2, 0.9] {
            let failed =
                (0..10_000).filter(|n| fails(&format!("00000000-0000-4000-8000-{n:012}"), ratio)).count();
            assert!((failed as f64 / 10_000.0 - ratio).abs() < 0.02, "{ratio}: {failed}");
        }
    }
}
