//! The work that remains for each shard: the job cache records it, heartbeats and HTTP pages report it.
//!
//! The job cache knows the statuses of all Jobs from the first moment. But a status does not show how many
//! pods still have their finalizers, and under a limited rate of requests it is seldom written. Job actors
//! therefore correct the recorded work, so that shards do not move because of stale statuses.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::job::end::Tally;
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::sharding::{ShardCount, ShardId};

/// The work that remains for each shard, in pods. Clones share one board.
#[derive(Clone, Debug)]
pub struct LoadBoard(Arc<[Load]>);

#[derive(Debug, Default)]
struct Load {
    /// The work that remains according to statuses.
    recorded: AtomicU64,
    /// The difference to the actual work; Job actors know it.
    correction: AtomicI64,
}

impl LoadBoard {
    /// A board without work, for this number of shards.
    pub fn new(count: ShardCount) -> Self {
        Self(count.shards().map(|_| Load::default()).collect())
    }

    /// Records the work that remains for a shard according to the statuses of its Jobs.
    pub fn write(&self, shard: ShardId, work: u64) {
        if let Some(load) = self.0.get(shard.0 as usize) {
            load.recorded.store(work, Ordering::Relaxed);
        }
    }

    /// The correction of a Job of the shard, zero at first.
    pub fn correction(&self, shard: ShardId) -> Correction {
        Correction { board: self.clone(), shard, value: 0 }
    }

    /// The work that remains for a shard.
    pub fn read(&self, shard: ShardId) -> u32 {
        self.0.get(shard.0 as usize).map_or(0, |load| {
            let recorded = load.recorded.load(Ordering::Relaxed);
            let work = recorded.saturating_add_signed(load.correction.load(Ordering::Relaxed));
            u32::try_from(work).unwrap_or(u32::MAX)
        })
    }
}

/// The work of a Job beyond the work in its status. Dropped, it no longer counts.
#[derive(Debug)]
pub struct Correction {
    board: LoadBoard,
    shard: ShardId,
    value: i64,
}

impl Correction {
    /// Updates the correction from the state of the Job.
    pub fn follow(&mut self, state: &JobState) {
        self.set(work_ahead(state).cast_signed() - work_left(&state.job).cast_signed());
    }

    fn set(&mut self, value: i64) {
        let change = value - std::mem::replace(&mut self.value, value);
        if let Some(load) = self.board.0.get(self.shard.0 as usize).filter(|_| change != 0) {
            load.correction.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Drop for Correction {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Most work of one Job. Balancing must not follow arbitrary numbers in `spec.completions`: a single Job
/// with 2^31 of them would outweigh all others.
const MOST_WORK: u64 = 10_000;
/// The pods of a Job that count, as a multiple of those that run at a time.
const ROUNDS: u64 = 4;

/// The part of the missing pods that counts: those that the Job runs in the near future.
fn near(missing: u64, job: &Job) -> u64 {
    missing.min(u64::from(job.spec.parallelism).saturating_mul(ROUNDS)).min(MOST_WORK)
}

/// The work that remains for a Job: its missing successes, and one for the Job. The successes count for at
/// most four times the parallelism, and at most 10,000. A suspended Job has none until it is resumed.
pub fn work_left(job: &Job) -> u64 {
    if job.deleting || job.spec.suspend || job.status.finished().is_some() {
        return 0;
    }
    // The number of pods that a work queue takes is unknown; `parallelism` of them run at a time.
    let wanted = job.spec.completion.wanted().unwrap_or(job.spec.parallelism);
    1 + near(u64::from(wanted.saturating_sub(job.status.succeeded)), job)
}

/// The work that remains according to the actor's state: a pod that has its finalizer is half done, also if
/// the status counts it.
fn work_ahead(state: &JobState) -> u64 {
    let pods = &state.pods;
    if work_left(&state.job) == 0 {
        return (pods.tracked() as u64).div_ceil(2).min(MOST_WORK);
    }
    let begun = (pods.tracked() + pods.pending_creates()) as u64;
    let running = (pods.active() + pods.pending_creates()) as u64;
    let wanted = state.job.spec.completion.wanted().unwrap_or(state.job.spec.parallelism);
    let missing = u64::from(wanted).saturating_sub(Tally::of(state).succeeded + running);
    1 + (near(missing, &state.job) + begun.div_ceil(2)).min(MOST_WORK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::pod::Phase;
    use crate::job::spec::Completion;
    use crate::job::status::{Condition, ConditionKind, ConditionStatus};
    use crate::job::tests::fixture::{at, ended, job, running, state};

    #[test]
    fn work_is_the_number_of_pods_that_have_yet_to_succeed_in_the_near_future() {
        let counted = job(Completion::Count(100), 10);
        let mut begun = counted.clone();
        begun.status.succeeded = 40;
        let mut nearly = counted.clone();
        nearly.status.succeeded = 88;
        let mut leaving = counted.clone();
        leaving.deleting = true;
        let mut suspended = counted.clone();
        Arc::make_mut(&mut suspended.spec).suspend = true;
        let mut complete = counted.clone();
        complete.status.conditions.push(Condition {
            kind: ConditionKind::Complete,
            status: ConditionStatus::True,
            reason: "".into(),
            message: "".into(),
            last_probe_time: None,
            last_transition_time: Some(at(1)),
        });
        for (job, work) in [
            (counted, 41),
            (begun, 41),
            (nearly, 13),
            (job(Completion::Count(i32::MAX as u32), 0), 1),
            (job(Completion::Indexed(i32::MAX as u32), i32::MAX as u32), 10_001),
            (job(Completion::WorkQueue, i32::MAX as u32), 10_001),
            (job(Completion::Indexed(7), 2), 8),
            (job(Completion::WorkQueue, 5), 6),
            (leaving, 0),
            (suspended, 0),
            (complete, 0),
        ] {
            assert_eq!(work_left(&job), work, "{job:?}");
        }
    }

    #[test]
    fn the_correction_of_a_job_actor_counts_until_it_ends() {
        let job = job(Completion::Count(10), 4);
        let board = LoadBoard::new(ShardCount::default());
        board.write(ShardId(3), work_left(&job) + 5);
        let mut correction = board.correction(ShardId(3));
        let ended = |uid| ended(running(uid), Phase::Succeeded, 1);
        for (pods, left, why) in [
            (vec![], 11, "nothing is done"),
            (vec![running("a"), running("b")], 10, "two are created"),
            (vec![running("a"), ended("b"), ended("c"), ended("d")], 9, "four have to be released"),
        ] {
            correction.follow(&state(job.clone(), pods));
            assert_eq!(board.read(ShardId(3)), left + 5, "{why}");
        }
        let mut recorded = job.clone();
        recorded.status.succeeded = 10;
        board.write(ShardId(3), work_left(&recorded) + 5);
        correction.follow(&state(recorded, [ended("a"), ended("b"), ended("c"), ended("d")]));
        assert_eq!(board.read(ShardId(3)), 3 + 5, "four have to be released");
        drop(correction);
        assert_eq!(board.read(ShardId(3)), 6);
    }

    #[test]
    fn the_board_keeps_the_last_value_written() {
        let board = LoadBoard::new(ShardCount::default());
        board.clone().write(ShardId(3), 70);
        board.write(ShardId(4), u64::MAX);
        assert_eq!([3, 4, 5].map(|shard| board.read(ShardId(shard))), [70, u32::MAX, 0]);
    }
}
