//! How much work is left for each shard: the book of Jobs writes it, heartbeats and pages tell it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::job::spec::Job;
use crate::sharding::{ShardCount, ShardId};

/// The work that is left for each shard, in pods. Clones are the same board.
#[derive(Clone, Debug)]
pub struct LoadBoard(Arc<[AtomicU32]>);

impl LoadBoard {
    /// No work, in so many shards.
    pub fn new(count: ShardCount) -> Self {
        Self(count.shards().map(|_| AtomicU32::new(0)).collect())
    }

    /// Takes in how much work is left for a shard.
    pub fn write(&self, shard: ShardId, work: u64) {
        if let Some(load) = self.0.get(shard.0 as usize) {
            load.store(u32::try_from(work).unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// How much work is left for a shard.
    pub fn read(&self, shard: ShardId) -> u32 {
        self.0.get(shard.0 as usize).map_or(0, |load| load.load(Ordering::Relaxed))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::spec::Completion;
    use crate::job::status::{Condition, ConditionKind, ConditionStatus};
    use crate::job::tests::fixture::{at, job};

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
    fn the_board_keeps_the_last_that_was_written() {
        let board = LoadBoard::new(ShardCount::default());
        board.clone().write(ShardId(3), 70);
        board.write(ShardId(4), u64::MAX);
        assert_eq!([3, 4, 5].map(|shard| board.read(ShardId(shard))), [70, u32::MAX, 0]);
    }
}
