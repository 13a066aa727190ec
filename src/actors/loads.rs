//! How much work is left for each shard: the book of Jobs writes it, heartbeats and pages tell it.
//!
//! The book knows what statuses say, of all Jobs and from the first moment. Under a limited rate of requests statuses are
//! written seldom, and shards would change places by old news; so the actors of Jobs tell what is done beyond that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// What is done of it that they do not say.
    done: AtomicU64,
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

    /// Nothing done yet beyond what the status of a Job of the shard says.
    pub fn unsaid(&self, shard: ShardId) -> Unsaid {
        Unsaid { board: self.clone(), shard, done: 0 }
    }

    /// How much work is left for a shard.
    pub fn read(&self, shard: ShardId) -> u32 {
        self.0.get(shard.0 as usize).map_or(0, |load| {
            let [told, done] = [&load.told, &load.done].map(|work| work.load(Ordering::Relaxed));
            u32::try_from(told.saturating_sub(done)).unwrap_or(u32::MAX)
        })
    }
}

/// What is done for a Job beyond what its status says; forgotten with its owner.
#[derive(Debug)]
pub struct Unsaid {
    board: LoadBoard,
    shard: ShardId,
    done: u64,
}

impl Unsaid {
    /// Takes in what is known of a Job.
    pub fn follow(&mut self, state: &JobState) {
        self.set(work_left(&state.job).saturating_sub(work_ahead(state)));
    }

    fn set(&mut self, done: u64) {
        let before = std::mem::replace(&mut self.done, done);
        if let Some(load) = self.board.0.get(self.shard.0 as usize).filter(|_| done != before) {
            load.done.fetch_add(done.wrapping_sub(before), Ordering::Relaxed);
        }
    }
}

impl Drop for Unsaid {
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

/// The same as the actor of a Job knows it: a pod that there is has cost one of its two requests, its creation.
fn work_ahead(state: &JobState) -> u64 {
    let pods = &state.pods;
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
    fn what_a_job_knows_beyond_its_status_counts_until_its_actor_ends() {
        let job = job(Completion::Count(10), 4);
        let board = LoadBoard::new(ShardCount::default());
        board.write(ShardId(3), work_left(&job) + 5);
        let mut unsaid = board.unsaid(ShardId(3));
        let ended = |uid| ended(running(uid), Phase::Succeeded, 1);
        for (pods, left, why) in [
            (vec![], 11, "nothing is done"),
            (vec![running("a"), running("b")], 10, "two are created"),
            (vec![running("a"), ended("b"), ended("c"), ended("d")], 9, "four have to be set free"),
        ] {
            unsaid.follow(&state(job.clone(), pods));
            assert_eq!(board.read(ShardId(3)), left + 5, "{why}");
        }
        drop(unsaid);
        assert_eq!(board.read(ShardId(3)), 16);
    }

    #[test]
    fn the_board_keeps_the_last_that_was_written() {
        let board = LoadBoard::new(ShardCount::default());
        board.clone().write(ShardId(3), 70);
        board.write(ShardId(4), u64::MAX);
        assert_eq!([3, 4, 5].map(|shard| board.read(ShardId(shard))), [70, u32::MAX, 0]);
    }
}
