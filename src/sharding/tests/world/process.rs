//! One replica's process: its coordinator, its own clock, its shards' actors as a model, and its connections.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::network::{Answer, Request};
use crate::sharding::coordinator::{Coordinator, ReplicaIdentity, Written};
use crate::sharding::hash::{ShardCount, ShardId};
use crate::sharding::tests::store::{Change, see};
use crate::sharding::{LeaseTimes, Moment};

/// Something that comes to a process.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// An answer to one of its requests; `reading_first` is the order in which it hears of a conflict.
    Answer {
        request: u64,
        answer: Answer,
        reading_first: bool,
    },
    Watch(Vec<Change>),
    /// All Leases, and how far the log had come.
    List(Vec<Change>),
    Synced(ShardId, u64),
    Drained(ShardId),
    Dropped(ShardId),
    Leave,
    /// Time has passed.
    Wake,
}

/// What of a process's connections is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Nothing,
    All,
    Watch,
    Writes,
}

pub(super) struct Process {
    pub(super) identity: Arc<str>,
    pub(super) coordinator: Coordinator,
    /// What its monotonic clock shows when the world begins.
    clock: Duration,
    pub(super) alive: bool,
    pub(super) leaving: bool,
    /// While it is stopped: what has come meanwhile.
    pub(super) frozen: Option<Vec<Input>>,
    pub(super) cut: Cut,
    /// Requests without an answer, and when they were sent.
    pub(super) pending: BTreeMap<u64, (Request, Duration)>,
    /// How much of the log its watch has delivered; `None` before the first list.
    pub(super) cursor: Option<usize>,
    /// The watch's connection: what belongs to an earlier one is void.
    pub(super) connection: u32,
    /// Something is on its way through the watch.
    pub(super) watching: bool,
    /// Shards that it was told to start, and neither to end nor to release.
    pub(super) started: BTreeSet<ShardId>,
    /// When the last heartbeat that was acknowledged had been sent.
    pub(super) renewed: Option<Duration>,
    /// Only the last wake-up counts.
    pub(super) alarm: u64,
}

impl Process {
    pub(super) fn new(
        identity: Arc<str>,
        process: String,
        shards: ShardCount,
        times: LeaseTimes,
        clock: Duration,
    ) -> Self {
        let me = ReplicaIdentity { identity: identity.clone(), process: process.into(), shards, qps: 0 };
        Self {
            identity,
            coordinator: Coordinator::new(me, times),
            clock,
            alive: true,
            leaving: false,
            frozen: None,
            cut: Cut::Nothing,
            pending: BTreeMap::new(),
            cursor: None,
            connection: 0,
            watching: false,
            started: BTreeSet::new(),
            renewed: None,
            alarm: 0,
        }
    }

    /// What its own clock shows.
    pub(super) fn clock(&self, now: Duration) -> Moment {
        self.clock + now
    }

    /// World time of a moment of its clock.
    pub(super) fn world_time(&self, moment: Moment) -> Duration {
        moment.saturating_sub(self.clock)
    }

    /// Until when its writes may leave, in world time.
    pub(super) fn acts_until(&self) -> Duration {
        self.coordinator.acts_until().map_or(Duration::ZERO, |until| self.world_time(until))
    }

    /// Whether it acts for a shard, by its own fence.
    pub(super) fn acts(&self, shard: ShardId, now: Duration) -> bool {
        self.alive && self.started.contains(&shard) && now < self.acts_until()
    }

    /// Takes in what has come.
    pub(super) fn apply(&mut self, input: Input, now: Duration) {
        let clock = self.clock(now);
        match input {
            Input::Answer { request, answer, reading_first } => {
                if let Some((request, sent)) = self.pending.remove(&request) {
                    self.answered(&request, answer, sent, reading_first, clock);
                }
            }
            Input::Watch(changes) => {
                changes.into_iter().for_each(|change| see(&mut self.coordinator, change, clock))
            }
            Input::List(changes) => {
                changes.into_iter().for_each(|change| see(&mut self.coordinator, change, clock));
                self.coordinator.listed();
            }
            Input::Synced(shard, epoch) => self.coordinator.synced(shard, epoch),
            Input::Drained(shard) => self.coordinator.drained(shard),
            Input::Dropped(shard) => self.coordinator.dropped(shard),
            Input::Leave => {
                self.leaving = true;
                self.coordinator.leave();
            }
            Input::Wake => {}
        }
    }

    fn answered(
        &mut self,
        request: &Request,
        answer: Answer,
        sent: Duration,
        reading_first: bool,
        clock: Moment,
    ) {
        let (written, reading) = match answer {
            Answer::As(version) => (Written::As(version), None),
            Answer::Conflict(reading) => (Written::Conflict, reading),
            Answer::Failed => (Written::Failed, None),
            Answer::Found(found) => {
                if let Request::Read(identity) = request {
                    self.coordinator.heartbeat_read(identity, found, clock);
                }
                return;
            }
        };
        let (before, after) = if reading_first { (reading, None) } else { (None, reading) };
        before.into_iter().for_each(|change| see(&mut self.coordinator, change, clock));
        match request {
            Request::Beat(beat) => {
                if matches!(written, Written::As(_)) {
                    self.renewed = Some(sent);
                }
                self.coordinator.heartbeat_written(written, beat.leaving, clock);
            }
            Request::Claim(claim) => self.coordinator.claim_written(claim, written, clock),
            Request::Balance(balance) => self.coordinator.balance_written(balance.clone(), written),
            Request::Read(_) => self.coordinator.heartbeat_unread(clock),
            Request::Delete(..) => {}
        }
        after.into_iter().for_each(|change| see(&mut self.coordinator, change, clock));
    }
}
