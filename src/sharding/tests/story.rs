//! A few replicas and their Leases, driven step by step. The test chooses which replicas run and how the
//! network behaves, and checks what they did and when.

use std::sync::Arc;
use std::time::Duration;

use super::store::{Change, Store, see};
use crate::sharding::hash::{ShardCount, ShardId};
use crate::sharding::lease::{Claim, Heartbeat};
use crate::sharding::{Action, Coordinator, ReplicaIdentity, Written};
use crate::sharding::{LeaseTimes, Moment};
use std::collections::BTreeMap;

pub(super) const TIMES: LeaseTimes = LeaseTimes {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// How the network treats a replica's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Net {
    Works,
    /// No request arrives, and every answer is a failure.
    Down,
    /// Every request arrives, and every answer is a failure.
    LosesReplies,
    /// Requests are held until [`Story::arrive`].
    Holds,
}

struct Replica {
    name: &'static str,
    coordinator: Coordinator,
    net: Net,
    /// Its watch delivers nothing.
    deaf: bool,
    /// The replica is of a version that reports no loads.
    old: bool,
    cursor: usize,
    wake_at: Option<Moment>,
    held: Vec<(Action, Moment)>,
    draining: Vec<ShardId>,
}

pub(super) struct Story {
    pub(super) store: Store,
    pub(super) now: Moment,
    shards: ShardCount,
    /// The work that is left for each shard.
    loads: BTreeMap<ShardId, u32>,
    replicas: Vec<Replica>,
    /// Actions since the last [`Story::run`] returned.
    steps: Vec<String>,
}

/// Position of a replica in a story.
pub(super) type Who = usize;

impl Story {
    pub(super) fn new(shards: u32) -> Self {
        let shards = ShardCount::new(shards).unwrap_or_default();
        let now = Duration::from_secs(100);
        let (store, loads) = (Store::default(), BTreeMap::new());
        Self { store, now, shards, loads, replicas: Vec::new(), steps: Vec::new() }
    }

    /// A replica that has not listed the Leases yet. Its process is named by the number of replicas before
    /// it.
    pub(super) fn starts(&mut self, name: &'static str) -> Who {
        let process = format!("process{}", self.replicas.len()).into();
        let me = ReplicaIdentity { identity: name.into(), process, shards: self.shards, qps: 0 };
        self.replicas.push(Replica {
            name,
            coordinator: Coordinator::new(me, TIMES),
            net: Net::Works,
            deaf: false,
            old: false,
            cursor: 0,
            wake_at: None,
            held: Vec::new(),
            draining: Vec::new(),
        });
        self.replicas.len() - 1
    }

    /// A replica that has listed the Leases.
    pub(super) fn joins(&mut self, name: &'static str) -> Who {
        let who = self.starts(name);
        self.listen(who);
        self.replicas[who].coordinator.listed();
        who
    }

    /// Two replicas that own one of two shards each. Their last heartbeats were two seconds ago, and the next
    /// are due.
    pub(super) fn pair() -> (Self, Who, Who) {
        let mut story = Self::new(2);
        let (a, b) = (story.joins("a"), story.joins("b"));
        story.run(&[a, b], 0.0);
        story.drained(a);
        story.run(&[a, b], 1.9);
        story.pass(0.1);
        assert_eq!((story.owners().as_str(), story.store.counts().beats), ("b a", 2));
        (story, a, b)
    }

    pub(super) fn of(&mut self, who: Who) -> &mut Coordinator {
        &mut self.replicas[who].coordinator
    }

    pub(super) fn net(&mut self, who: Who, net: Net) {
        self.replicas[who].net = net;
    }

    pub(super) fn deaf(&mut self, who: Who, deaf: bool) {
        self.replicas[who].deaf = deaf;
    }

    /// Makes the replica one of a version that reports no loads.
    pub(super) fn old(&mut self, who: Who) {
        self.replicas[who].old = true;
    }

    /// Sets the work that is left for the shards.
    pub(super) fn loads(&mut self, loads: &[u32]) {
        self.loads = (0..).map(ShardId).zip(loads.iter().copied()).collect();
    }

    /// Lets time pass while no replica runs.
    pub(super) fn pass(&mut self, seconds: f64) {
        self.now += Duration::from_secs_f64(seconds);
    }

    /// Runs these replicas for `seconds`, while all others are stopped. Returns their actions except for
    /// ordinary heartbeats.
    pub(super) fn run(&mut self, who: &[Who], seconds: f64) -> Vec<String> {
        let end = self.now + Duration::from_secs_f64(seconds);
        loop {
            let mut rounds = 0;
            while who.iter().any(|who| self.step(*who)) {
                rounds += 1;
                assert!(rounds < 100, "the replicas never become idle: {:?}", self.steps);
            }
            let next = who.iter().filter_map(|who| self.replicas[*who].wake_at).min();
            match next.filter(|next| *next <= end) {
                Some(next) => self.now = self.now.max(next),
                None => break,
            }
        }
        self.now = end;
        std::mem::take(&mut self.steps)
    }

    /// Lets held requests arrive; unless `answered`, their answers are lost.
    pub(super) fn arrive(&mut self, who: Who, answered: bool) {
        for (action, _) in std::mem::take(&mut self.replicas[who].held) {
            let written = self.write(who, &action);
            self.answer(who, &action, if answered { written } else { Written::Failed });
        }
    }

    /// Completes all drains of a replica.
    pub(super) fn drained(&mut self, who: Who) {
        for shard in std::mem::take(&mut self.replicas[who].draining) {
            self.of(who).drained(shard);
        }
    }

    /// The owners of all shards.
    pub(super) fn owners(&self) -> String {
        let name = |claim: &Claim| {
            claim.holder.as_ref().map_or("-".to_owned(), |holder| holder.identity.to_string())
        };
        self.store.claims().map(name).collect::<Vec<_>>().join(" ")
    }

    pub(super) fn is_ready(&self, who: Who) -> bool {
        self.replicas[who].coordinator.is_ready(self.now)
    }

    pub(super) fn acts(&self, who: Who) -> bool {
        self.replicas[who].coordinator.acts_until().is_some_and(|until| self.now < until)
    }

    /// The states of the shards at a replica.
    pub(super) fn states(&self, who: Who) -> String {
        let states = self.replicas[who].coordinator.states().map(|(_, state, _)| state.as_str());
        states.collect::<Vec<_>>().join(" ")
    }

    /// Delivers all outstanding watch events.
    pub(super) fn listen(&mut self, who: Who) {
        let (now, replica) = (self.now, &mut self.replicas[who]);
        let changes = self.store.log()[replica.cursor..].to_vec();
        replica.cursor = self.store.log().len();
        changes.into_iter().for_each(|change| see(&mut replica.coordinator, change, now));
    }

    /// Lets a replica decide and act. Returns whether it did anything.
    fn step(&mut self, who: Who) -> bool {
        if !self.replicas[who].deaf {
            self.listen(who);
        }
        let (now, replica) = (self.now, &mut self.replicas[who]);
        let load = |shard| self.loads.get(&shard).copied().unwrap_or_default();
        let (actions, wake_at) = replica.coordinator.decide(now, load);
        assert!(wake_at.is_none_or(|at| at > now), "{} would run hot after {actions:?}", replica.name);
        assert_eq!(replica.coordinator.decide(now, load).0, [], "{} repeats itself", replica.name);
        replica.wake_at = wake_at;
        for action in &actions {
            self.record(who, action);
            self.act(who, action);
        }
        !actions.is_empty()
    }

    fn record(&mut self, who: Who, action: &Action) {
        let what = match action {
            Action::WriteHeartbeat(beat) if beat.leaving => "beats, leaving".to_owned(),
            Action::WriteHeartbeat(_) => return,
            Action::ReadHeartbeat(identity) => format!("reads {identity}"),
            Action::DeleteHeartbeat(identity, _) => format!("deletes {identity}"),
            Action::WriteClaim(Claim { shard, holder: Some(_), epoch, .. }) => {
                format!("claims {shard}@{epoch}")
            }
            Action::WriteClaim(Claim { shard, holder: None, .. }) => format!("releases {shard}"),
            Action::WriteBalance(balance) => {
                let moves =
                    balance.moves.iter().map(|(shard, to)| format!(" {shard}@{} to {}", to.epoch, to.to));
                format!("balances{}", moves.collect::<String>())
            }
            Action::Start(shard, epoch) => format!("starts {shard}@{epoch}"),
            Action::Drain(shard) => format!("drains {shard}"),
            Action::Drop(shard) => format!("drops {shard}"),
            Action::Left => "left".to_owned(),
        };
        self.steps.push(format!("{:.1} {} {what}", self.now.as_secs_f64() - 100.0, self.replicas[who].name));
    }

    fn act(&mut self, who: Who, action: &Action) {
        match action {
            Action::Start(shard, epoch) => self.of(who).synced(*shard, *epoch),
            Action::Drain(shard) => self.replicas[who].draining.push(*shard),
            Action::Drop(shard) => self.of(who).dropped(*shard),
            Action::Left => {}
            request => match self.replicas[who].net {
                Net::Works => {
                    let written = self.write(who, request);
                    self.answer(who, request, written);
                }
                Net::Down => self.answer(who, request, Written::Failed),
                Net::LosesReplies => {
                    self.write(who, request);
                    self.answer(who, request, Written::Failed);
                }
                Net::Holds => {
                    let held = (request.clone(), self.now);
                    self.replicas[who].held.push(held);
                }
            },
        }
    }

    fn write(&mut self, who: Who, request: &Action) -> Written {
        let version = match request {
            Action::WriteHeartbeat(beat) if self.replicas[who].old => {
                self.store.write_beat(&Heartbeat { loads: None, ..beat.clone() })
            }
            Action::WriteHeartbeat(beat) => self.store.write_beat(beat),
            Action::WriteClaim(claim) => self.store.write_claim(claim),
            Action::WriteBalance(balance) => self.store.write_balance(balance),
            Action::DeleteHeartbeat(identity, version) => {
                self.store.delete_beat(identity, Some(*version));
                None
            }
            _ => return Written::As(0),
        };
        version.map_or(Written::Conflict, Written::As)
    }

    fn answer(&mut self, who: Who, request: &Action, written: Written) {
        let (now, coordinator) = (self.now, &mut self.replicas[who].coordinator);
        match request {
            Action::WriteHeartbeat(beat) => {
                if written == Written::Conflict {
                    see(coordinator, beat_now(&self.store, &beat.holder.identity, beat.version), now);
                }
                coordinator.heartbeat_written(written, beat.leaving, now);
            }
            Action::WriteClaim(claim) => {
                if written == Written::Conflict {
                    let found = self.store.claim(claim.shard).cloned().map(Change::Claim);
                    see(coordinator, found.unwrap_or(Change::ClaimGone(claim.shard, claim.version)), now);
                }
                coordinator.claim_written(claim, written, now);
            }
            Action::WriteBalance(balance) => {
                if written == Written::Conflict {
                    let found = self.store.balance().cloned().map(Change::Balance);
                    see(coordinator, found.unwrap_or(Change::BalanceGone(balance.version)), now);
                }
                coordinator.balance_written(balance.clone(), written, now);
            }
            Action::ReadHeartbeat(_) if written == Written::Failed => coordinator.heartbeat_unread(now),
            Action::ReadHeartbeat(identity) => {
                coordinator.heartbeat_read(identity, self.store.beat(identity).cloned(), now);
            }
            _ => {}
        }
    }
}

fn beat_now(store: &Store, identity: &Arc<str>, version: u64) -> Change {
    store.beat(identity).cloned().map_or(Change::BeatGone(identity.clone(), version), Change::Beat)
}
