//! Observations from outside: times of Jobs and pods, and the latencies between them.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use jiff::Timestamp;

use crate::pods::Observer;
use crate::views::Job;

/// Latencies in microseconds.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// From the creation of a Job to its first pod.
    pub(crate) create_to_first_pod: Histogram<u64>,
    /// From the end of a pod to the next pod of the Job.
    pub(crate) finish_to_replacement: Histogram<u64>,
    /// From the end of a pod to a status of the Job that counts it.
    pub(crate) finish_to_status: Histogram<u64>,
    /// From the end of the last pod of a Job to the end of the Job.
    pub(crate) last_finish_to_end: Histogram<u64>,
    /// From the creation of a Job to its end.
    pub(crate) job_total: Histogram<u64>,
    /// The same for each wave, in the order of the load.
    pub(crate) wave_total: Vec<Histogram<u64>>,
    /// From a Job's `creationTimestamp` to its `startTime`, in whole seconds, as ClusterLoader2 measures it.
    pub(crate) create_to_start: Histogram<u64>,
    /// From a Job's `startTime` to its `completionTime`, in whole seconds.
    pub(crate) start_to_complete: Histogram<u64>,
}

impl Latencies {
    fn new(waves: usize) -> Self {
        #[expect(
            clippy::expect_used,
            reason = "three significant digits are within the limits of the histogram"
        )]
        let histogram = || Histogram::new(3).expect("three digits");
        Self {
            create_to_first_pod: histogram(),
            finish_to_replacement: histogram(),
            finish_to_status: histogram(),
            last_finish_to_end: histogram(),
            job_total: histogram(),
            wave_total: (0..waves).map(|_| histogram()).collect(),
            create_to_start: histogram(),
            start_to_complete: histogram(),
        }
    }
}

/// A Job as seen from outside.
#[derive(Debug)]
struct Record {
    wave: usize,
    created: Instant,
    parallelism: u64,
    /// Pods needed for its completions. Each failure adds one.
    wanted: u64,
    pods: u64,
    active: u64,
    /// Ends of pods without replacement so far, oldest first.
    unreplaced: VecDeque<Instant>,
    /// Ends of pods that no status counts yet, oldest first.
    uncounted: VecDeque<Instant>,
    /// The last end of a pod.
    last_ended: Option<Instant>,
    counted: u64,
    /// Pods whose end the API server accepted.
    fate: Fate,
    finished: bool,
}

/// Ends of a Job's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
}

/// Numbers so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Jobs created.
    pub(crate) jobs: u64,
    /// Jobs that have ended.
    pub(crate) jobs_finished: u64,
    /// Pods created.
    pub(crate) pods: u64,
    /// Pods reported as ended.
    pub(crate) ended: u64,
    /// Pods that are active now.
    pub(crate) active: u64,
    /// Most pods active at once.
    pub(crate) max_active: u64,
    /// Most pods of a Job beyond its parallelism.
    pub(crate) beyond_parallelism: u64,
}

#[derive(Debug)]
struct Inner {
    jobs: HashMap<String, Record>,
    totals: Totals,
    latencies: Latencies,
    first: Option<Instant>,
    last: Option<Instant>,
}

/// The ledger, shared by its writers.
#[derive(Clone, Debug)]
pub(crate) struct Ledger(Arc<Mutex<Inner>>);

impl Ledger {
    /// An empty ledger for a load of `waves` waves.
    pub(crate) fn new(waves: usize) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            jobs: HashMap::new(),
            totals: Totals::default(),
            latencies: Latencies::new(waves),
            first: None,
            last: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves no harmful partial update, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a Job that is about to be created.
    pub(crate) fn job_created(
        &self,
        name: &str,
        wave: usize,
        completions: u32,
        parallelism: u32,
        at: Instant,
    ) {
        let mut inner = self.lock();
        inner.first.get_or_insert(at);
        inner.totals.jobs += 1;
        let record = Record {
            wave,
            created: at,
            parallelism: parallelism.into(),
            wanted: completions.into(),
            pods: 0,
            active: 0,
            unreplaced: VecDeque::new(),
            uncounted: VecDeque::new(),
            last_ended: None,
            counted: 0,
            fate: Fate::default(),
            finished: false,
        };
        inner.jobs.insert(name.to_owned(), record);
    }

    /// Records an observed state of a Job.
    pub(crate) fn job_seen(&self, job: &Job, at: Instant) {
        let mut inner = self.lock();
        let Inner { jobs, totals, latencies, last, .. } = &mut *inner;
        let Some(record) = jobs.get_mut(&job.metadata.name) else { return };
        let counted = job.status.succeeded + job.status.failed;
        while record.counted < counted {
            record.counted += 1;
            let Some(ended) = record.uncounted.pop_front() else { break };
            note(&mut latencies.finish_to_status, ended, at);
        }
        record.counted = record.counted.max(counted);
        if job.status.is_finished() && !record.finished {
            record.finished = true;
            totals.jobs_finished += 1;
            *last = Some(at);
            note(&mut latencies.job_total, record.created, at);
            if let Some(ended) = record.last_ended {
                note(&mut latencies.last_finish_to_end, ended, at);
            }
            let created = job.metadata.creation_timestamp;
            note_times(&mut latencies.create_to_start, created, job.status.start_time);
            note_times(&mut latencies.start_to_complete, job.status.start_time, job.status.completion_time);
            if let Some(histogram) = latencies.wave_total.get_mut(record.wave) {
                note(histogram, record.created, at);
            }
        }
    }

    /// Numbers so far.
    pub(crate) fn totals(&self) -> Totals {
        self.lock().totals
    }

    /// Ends of the pods of a Job, as accepted by the API server. Returns `None` for unknown Jobs.
    pub(crate) fn fate(&self, job: &str) -> Option<Fate> {
        self.lock().jobs.get(job).map(|record| record.fate)
    }

    /// Age of the oldest work that the controller owes: the first pod of a Job, or a status that counts a pod.
    pub(crate) fn debt(&self, now: Instant) -> Duration {
        let inner = self.lock();
        let owing = inner.jobs.values().filter(|record| !record.finished);
        let oldest = owing.filter_map(|record| match record.pods {
            0 => Some(record.created),
            _ => record.uncounted.front().copied(),
        });
        oldest.min().map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Seconds from the first Job's creation to the last Job's end.
    pub(crate) fn wall(&self) -> f64 {
        let inner = self.lock();
        match (inner.first, inner.last) {
            (Some(first), Some(last)) => last.duration_since(first).as_secs_f64(),
            _ => 0.0,
        }
    }

    /// Reads the latencies.
    pub(crate) fn latencies<T>(&self, look: impl FnOnce(&Latencies) -> T) -> T {
        look(&self.lock().latencies)
    }
}

impl Observer for Ledger {
    fn added(&mut self, job: &str, at: Instant) {
        let mut inner = self.lock();
        let Inner { jobs, totals, latencies, .. } = &mut *inner;
        totals.pods += 1;
        totals.active += 1;
        totals.max_active = totals.max_active.max(totals.active);
        let Some(record) = jobs.get_mut(job) else { return };
        if record.pods == 0 {
            note(&mut latencies.create_to_first_pod, record.created, at);
        }
        record.pods += 1;
        record.active += 1;
        totals.beyond_parallelism =
            totals.beyond_parallelism.max(record.active.saturating_sub(record.parallelism));
        if let Some(ended) = record.unreplaced.pop_front() {
            note(&mut latencies.finish_to_replacement, ended, at);
        }
    }

    fn ending(&mut self, job: &str, at: Instant) {
        let mut inner = self.lock();
        inner.totals.ended += 1;
        let Some(record) = inner.jobs.get_mut(job) else { return };
        record.uncounted.push_back(at);
        record.last_ended = Some(at);
        // The last pods have no replacement. Before `parallelism` pods exist, a new pod replaces none.
        if record.pods >= record.parallelism && record.pods < record.wanted {
            record.unreplaced.push_back(at);
        }
    }

    fn ended(&mut self, job: &str, failed: bool) {
        if let Some(Record { fate, .. }) = self.lock().jobs.get_mut(job) {
            *(if failed { &mut fate.failed } else { &mut fate.succeeded }) += 1;
        }
    }

    fn not_ended(&mut self, job: &str) {
        let mut inner = self.lock();
        inner.totals.ended = inner.totals.ended.saturating_sub(1);
        if let Some(record) = inner.jobs.get_mut(job) {
            record.uncounted.pop_back();
            record.unreplaced.pop_back();
        }
    }

    fn gone(&mut self, job: &str, _: Instant) {
        let mut inner = self.lock();
        inner.totals.active = inner.totals.active.saturating_sub(1);
        if let Some(record) = inner.jobs.get_mut(job) {
            record.active = record.active.saturating_sub(1);
        }
    }
}

/// Records the time between two times of the API server, if both are set.
fn note_times(histogram: &mut Histogram<u64>, from: Option<Timestamp>, to: Option<Timestamp>) {
    if let (Some(from), Some(to)) = (from, to) {
        let micros = u64::try_from(to.duration_since(from).as_micros()).unwrap_or_default();
        let _recorded = histogram.record(micros.max(1));
    }
}

fn note(histogram: &mut Histogram<u64>, from: Instant, to: Instant) {
    let micros = u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX);
    // The histogram resizes itself, so this does not fail.
    let _recorded = histogram.record(micros.max(1));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::views::{Condition, JobStatus, Meta};

    fn job(succeeded: u64, complete: bool) -> Job {
        let conditions = complete.then(|| Condition { r#type: "Complete".into(), status: "True".into() });
        Job {
            metadata: Meta { name: "j".into(), ..Meta::default() },
            status: JobStatus {
                succeeded,
                failed: 0,
                conditions: conditions.into_iter().collect(),
                ..JobStatus::default()
            },
            ..Job::default()
        }
    }

    #[test]
    fn latencies_of_a_job_with_three_pods_and_parallelism_two() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut ledger = Ledger::new(1);
        ledger.job_created("j", 0, 3, 2, at(0));
        assert_eq!(ledger.debt(at(4)), Duration::from_millis(4), "the first pod is owed");
        ledger.added("j", at(5));
        ledger.added("j", at(6));
        ledger.ending("j", at(100));
        ledger.ended("j", true);
        ledger.gone("j", at(101));
        ledger.added("j", at(110));
        assert_eq!(ledger.debt(at(115)), Duration::from_millis(15), "a count is owed");
        ledger.job_seen(&job(1, false), at(120));
        assert_eq!(ledger.debt(at(150)), Duration::ZERO);
        ledger.ending("j", at(200));
        ledger.ending("j", at(210));
        ledger.gone("j", at(211));
        ledger.gone("j", at(212));
        ledger.job_seen(&job(3, true), at(220));
        ledger.job_seen(&job(3, true), at(400));
        let maxima = ledger.latencies(|l| {
            let of_pods = [&l.create_to_first_pod, &l.finish_to_replacement, &l.finish_to_status];
            let of_jobs = [&l.last_finish_to_end, &l.job_total];
            of_pods.into_iter().chain(of_jobs).map(|h| (h.len(), h.max() / 1000)).collect::<Vec<_>>()
        });
        assert_eq!(maxima, [(1, 5), (1, 10), (3, 20), (1, 10), (1, 220)]);
        let totals = ledger.totals();
        assert_eq!((totals.max_active, totals.active, totals.jobs_finished), (2, 0, 1));
        assert_eq!((totals.beyond_parallelism, totals.pods, totals.ended), (0, 3, 3));
        assert!((ledger.wall() - 0.22).abs() < 0.001);
        assert_eq!(ledger.fate("j"), Some(Fate { succeeded: 0, failed: 1 }));
    }
}
