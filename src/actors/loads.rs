//! How much work is left for each shard: the book of Jobs writes it, heartbeats and pages tell it.
//!
//! The book knows what statuses say, of all Jobs and from the first moment. But a status does not say how many pods have yet
//! to lose their finalizers, and under a limited rate of requests it is written seldom. So the actors of Jobs tell how much
//! it is off, lest shards change places by that.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::job::end::Tally;
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::sharding::{ShardCount, ShardId};

/// The work that is left for each shard, in pods. Clones are the same board.
#[derive(Clone, Debug)]
pub struct LoadBoard(Arc<[Load]>);

#[derive(Debug, Default)]
struct Load {
    /// What is left as statuses say.
    told: AtomicU64,
    /// How much more it is in truth.
    off: AtomicI64,
}

impl LoadBoard {
    /// No work, in so many shards.
    pub fn new(count: ShardCount) -> Self {
        Self(count.shards().map(|_| Load::default()).collect())
    }

    /// Takes in how much work is left for a shard as the statuses of its Jobs say.
    pub fn write(&self, shard: ShardId, work: u64) {
        if let Some(load) = self.0.get(shard.0 as usize) {
            load.told.store(work, Ordering::Relaxed);
        }
    }

    /// A Job of the shard whose status says all.
    pub fn correction(&self, shard: ShardId) -> Correction {
        Correction { board: self.clone(), shard, off: 0 }
    }

    /// How much work is left for a shard.
    pub fn read(&self, shard: ShardId) -> u32 {
        self.0.get(shard.0 as usize).map_or(0, |load| {
            let told = load.told.load(Ordering::Relaxed);
            let work = told.saturating_add_signed(load.off.load(Ordering::Relaxed));
            u32::try_from(work).unwrap_or(u32::MAX)
        })
    }
}

/// How much more work there is for a Job than its status says; forgotten with the Job's actor.
#[derive(Debug)]
pub struct Correction {
    board: LoadBoard,
    shard: ShardId,
    off: i64,
}

impl Correction {
    /// Takes in what is known of a Job.
    pub fn follow(&mut self, state: &JobState) {
        self.set(work_ahead(state).cast_signed() - work_left(&state.job).cast_signed());
    }

    fn set(&mut self, off: i64) {
        let change = off - std::mem::replace(&mut self.off, off);
        if let Some(load) = self.board.0.get(self.shard.0 as usize).filter(|_| change != 0) {
            load.off.fetch_add(change, Ordering::Relaxed);
        }
    }
}

impl Drop for Correction {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The work that is left for a Job: the pods that have yet to succeed, and one for the Job. One that is suspended has none
/// until it is resumed.
pub fn work_left(job: &Job) -> u64 {
    if job.deleting || job.spec.suspend || job.status.finished().is_some() {
        return 0;
    }
    // Nobody knows how many pods a work queue takes; so many run at a time.
    let wanted = job.spec.completion.wanted().unwrap_or(job.spec.parallelism);
    1 + u64::from(wanted.saturating_sub(job.status.succeeded))
}

/// The same as the actor of a Job knows it: a pod that has its finalizer is half done, whatever the status says of it.
fn work_ahead(state: &JobState) -> u64 {
    let pods = &state.pods;
    if work_left(&state.job) == 0 {
        return (pods.tracked() as u64).div_ceil(2);
    }
    let begun = (pods.tracked() + pods.pending_creates()) as u64;
    let running = (pods.active() + pods.pending_creates()) as u64;
    let wanted = state.job.spec.completion.wanted().unwrap_or(state.job.spec.parallelism);
    let missing = u64::from(wanted).saturating_sub(Tally::of(state).succeeded + running);
    1 + missing + begun.div_ceil(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::pod::Phase;
    use crate::job::spec::Completion;
    use crate::job::status::{Condition, ConditionKind, ConditionStatus};
    use crate::job::tests::fixture::{at, ended, job, running, state};

    #[test]
    fn work_is_what_has_yet_to_succeed() {
        let counted = job(Completion::Count(100), 10);
        let mut begun = counted.clone();
        begun.status.succeeded = 40;
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
            (counted, 101),
            (begun, 61),
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
    fn what_the_actor_of_a_job_knows_counts_until_it_ends() {
        let job = job(Completion::Count(10), 4);
        let board = LoadBoard::new(ShardCount::default());
        board.write(ShardId(3), work_left(&job) + 5);
        let mut correction = board.correction(ShardId(3));
        let ended = |uid| ended(running(uid), Phase::Succeeded, 1);
        for (pods, left, why) in [
            (vec![], 11, "nothing is done"),
            (vec![running("a"), running("b")], 10, "two are created"),
            (vec![running("a"), ended("b"), ended("c"), ended("d")], 9, "four have to be set free"),
        ] {
            correction.follow(&state(job.clone(), pods));
            assert_eq!(board.read(ShardId(3)), left + 5, "{why}");
        }
        let mut recorded = job.clone();
        recorded.status.succeeded = 10;
        board.write(ShardId(3), work_left(&recorded) + 5);
        correction.follow(&state(recorded, [ended("a"), ended("b"), ended("c"), ended("d")]));
        assert_eq!(board.read(ShardId(3)), 3 + 5, "four have to be set free");
        drop(correction);
        assert_eq!(board.read(ShardId(3)), 6);
    }

    #[test]
    fn the_board_keeps_the_last_that_was_written() {
        let board = LoadBoard::new(ShardCount::default());
        board.clone().write(ShardId(3), 70);
        board.write(ShardId(4), u64::MAX);
        assert_eq!([3, 4, 5].map(|shard| board.read(ShardId(shard))), [70, u32::MAX, 0]);
    }
}
