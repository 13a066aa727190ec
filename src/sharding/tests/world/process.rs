//! The process of one replica: its coordinator, its own clock, its connections, and a model of its shards'
//! actors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::network::{Answer, Request};
use crate::sharding::hash::{ShardCount, ShardId};
use crate::sharding::tests::store::{Change, see};
use crate::sharding::{Coordinator, ReplicaIdentity, Written};
use crate::sharding::{LeaseTimes, Moment};

/// An input of a process.
#[derive(Clone, Debug)]
pub(super) enum Input {
    /// An answer to one of its requests. After a conflict, `reading_first` has the Lease reported before the
    /// answer.
    Answer {
        request: u64,
        answer: Answer,
        reading_first: bool,
    },
    Watch(Vec<Change>),
    /// All Leases, and deletions since the last list.
    List(Vec<Change>),
    Synced(ShardId, u64),
    Drained(ShardId),
    Dropped(ShardId),
    Leave,
    /// Time has passed.
    Wake,
}

/// The cut connections of a process.
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
    /// The time of its monotonic clock at the start of the simulation.
    clock: Duration,
    pub(super) alive: bool,
    pub(super) leaving: bool,
    /// The inputs since it was stopped; `None` while it runs.
    pub(super) frozen: Option<Vec<Input>>,
    pub(super) cut: Cut,
    /// Requests that are not answered yet, and when they were sent.
    pub(super) pending: BTreeMap<u64, (Request, Duration)>,
    /// How much of the log its watch has delivered; `None` before the first list.
    pub(super) cursor: Option<usize>,
    /// Number of the watch's connection: events of earlier ones are void.
    pub(super) connection: u32,
    /// A list or watch event is on its way to it.
    pub(super) watching: bool,
    /// Shards that its coordinator has started, and neither dropped nor released since.
    pub(super) started: BTreeSet<ShardId>,
    /// When the last acknowledged heartbeat was sent.
    pub(super) renewed: Option<Duration>,
    /// Number of the last timer set: earlier ones are void.
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

    /// The time of its own clock.
    pub(super) fn clock(&self, now: Duration) -> Moment {
        self.clock + now
    }

    /// The simulation's time at a moment of its clock.
    pub(super) fn world_time(&self, moment: Moment) -> Duration {
        moment.saturating_sub(self.clock)
    }

    /// Until when its writes may leave, in the simulation's time.
    pub(super) fn acts_until(&self) -> Duration {
        self.coordinator.acts_until().map_or(Duration::ZERO, |until| self.world_time(until))
    }

    /// Whether it acts for a shard, by its own fence.
    pub(super) fn acts(&self, shard: ShardId, now: Duration) -> bool {
        self.alive && self.started.contains(&shard) && now < self.acts_until()
    }

    /// Passes an input to the coordinator.
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
            Request::Balance(balance) => self.coordinator.balance_written(balance.clone(), written, clock),
            Request::Read(_) => self.coordinator.heartbeat_unread(clock),
            Request::Delete(..) => {}
        }
        after.into_iter().for_each(|change| see(&mut self.coordinator, change, clock));
    }
}
