//! The simulated world: replicas, their network, the Leases, and virtual time. The seed determines all
//! events.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use super::chaos::Fault;
use super::network::{Answer, Network, Request};
use super::process::{Input, Process};
use crate::sharding::Action;
use crate::sharding::LeaseTimes;
use crate::sharding::hash::{ShardCount, ShardId};
use crate::sharding::tests::store::{Change, Store};

pub(super) const TIMES: LeaseTimes = LeaseTimes {
    lease_duration: Duration::from_secs(15),
    renew_deadline: Duration::from_secs(10),
    retry_period: Duration::from_secs(2),
};

/// Position of a process in the world.
pub(super) type Id = usize;

#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request reaches the API server.
    Arrive(Id, u64, Request),
    /// A process reads the Lease that its write conflicted with.
    ReadConflict(Id, u64, Request),
    /// An input reaches a process.
    Deliver(Id, Input),
    /// A process's watch delivers the log up to this position; void if the process has reconnected since.
    Watch(Id, u32, usize),
    /// A process lists all Leases.
    List(Id, u32),
    /// The timer of a process fires; void if it has set another one since.
    Alarm(Id, u64),
    Fault(Fault),
}

/// A violated guarantee.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) what: String,
    pub(super) log: Vec<String>,
}

pub(super) type Checked = Result<(), String>;

pub(super) struct World {
    pub(super) now: Duration,
    pub(super) random: SmallRng,
    pub(super) store: Store,
    pub(super) processes: Vec<Process>,
    pub(super) network: Network,
    pub(super) shards: ShardCount,
    /// The work that is left for each shard.
    pub(super) loads: BTreeMap<ShardId, u32>,
    queue: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    /// Shards that were started before and are not now, and since when.
    idle: BTreeMap<ShardId, Duration>,
    /// How long each shard that changed hands was not started by any replica.
    pub(super) gaps: Vec<Duration>,
    /// The last events, if logging is on.
    log: Option<VecDeque<String>>,
}

impl World {
    pub(super) fn new(seed: u64, shards: ShardCount, logging: bool) -> Self {
        Self {
            now: Duration::ZERO,
            random: SmallRng::seed_from_u64(seed),
            store: Store::default(),
            processes: Vec::new(),
            network: Network::HEALTHY,
            shards,
            loads: BTreeMap::new(),
            queue: BTreeMap::new(),
            sequence: 0,
            idle: BTreeMap::new(),
            gaps: Vec::new(),
            log: logging.then(VecDeque::new),
        }
    }

    /// Starts a replica.
    pub(super) fn start(&mut self, identity: &str) -> Id {
        let id = self.processes.len();
        let clock = Duration::from_millis(self.random.random_range(0..1_000_000_000));
        let process = Process::new(identity.into(), format!("p{id}"), self.shards, TIMES, clock);
        self.processes.push(process);
        self.after(Duration::ZERO, Event::List(id, 0));
        id
    }

    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.queue.insert((self.now + delay, self.sequence), event);
    }

    pub(super) fn random_delay(&mut self, millis: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.random_range(millis))
    }

    pub(super) fn live(&self) -> impl Iterator<Item = Id> + '_ {
        (0..self.processes.len()).filter(|id| self.processes[*id].alive)
    }

    /// Handles all events up to `end`.
    pub(super) fn run_until(&mut self, end: Duration) -> Result<(), Broken> {
        while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= end) {
            self.now = entry.key().0;
            let event = entry.remove();
            self.note(&event);
            let checked = self.handle(event);
            self.checked(checked)?;
        }
        self.now = end;
        Ok(())
    }

    /// Adds the time and the log to a violation.
    pub(super) fn checked(&self, checked: Checked) -> Result<(), Broken> {
        checked.map_err(|what| Broken {
            what: format!("at {:?}: {what}", self.now),
            log: self.log.iter().flatten().cloned().collect(),
        })
    }

    pub(super) fn note(&mut self, what: &impl fmt::Debug) {
        const KEPT: usize = 400;
        if let Some(log) = &mut self.log {
            if log.len() == KEPT {
                log.pop_front();
            }
            log.push_back(format!("{:>12.4?} {what:?}", self.now));
        }
    }

    fn handle(&mut self, event: Event) -> Checked {
        match event {
            Event::Arrive(id, number, request) => self.serve(id, number, request),
            Event::ReadConflict(id, number, request) => self.serve_conflict(id, number, &request),
            Event::Deliver(id, input) => return self.deliver(id, input),
            Event::Watch(id, connection, upto) => return self.watch(id, connection, upto),
            Event::List(id, connection) => return self.list(id, connection),
            Event::Alarm(id, alarm) => {
                if self.processes[id].alarm == alarm {
                    return self.deliver(id, Input::Wake);
                }
            }
            Event::Fault(fault) => return self.apply_fault(fault),
        }
        Ok(())
    }

    /// Delivers an input to a process, which then decides and acts.
    pub(super) fn deliver(&mut self, id: Id, input: Input) -> Checked {
        let process = &mut self.processes[id];
        if !process.alive {
            return Ok(());
        }
        match &mut process.frozen {
            Some(inbox) => inbox.push(input),
            None => {
                process.apply(input, self.now);
                return self.decide(id);
            }
        }
        Ok(())
    }

    pub(super) fn decide(&mut self, id: Id) -> Checked {
        let process = &mut self.processes[id];
        let clock = process.clock(self.now);
        let (actions, wake_at) =
            process.coordinator.decide(clock, |shard| self.loads.get(&shard).copied().unwrap_or_default());
        if let Some(wake_at) = wake_at {
            if wake_at <= clock {
                return Err(format!("process {id} wants to wake at once, after {actions:?}"));
            }
            process.alarm += 1;
            let (alarm, delay) = (process.alarm, wake_at - clock);
            self.after(delay, Event::Alarm(id, alarm));
        }
        for action in actions {
            self.note(&(id, &action));
            self.act(id, action);
        }
        self.check(id)
    }

    fn act(&mut self, id: Id, action: Action) {
        match action {
            Action::WriteHeartbeat(beat) => self.send(id, Request::Beat(beat)),
            Action::WriteBalance(balance) => self.send(id, Request::Balance(balance)),
            Action::ReadHeartbeat(identity) => self.send(id, Request::Read(identity)),
            Action::DeleteHeartbeat(identity, version) => self.send(id, Request::Delete(identity, version)),
            Action::WriteClaim(claim) => {
                if claim.holder.is_none() {
                    self.end(id, claim.shard);
                }
                self.send(id, Request::Claim(claim));
            }
            Action::Start(shard, epoch) => {
                self.processes[id].started.insert(shard);
                self.gaps.extend(self.idle.remove(&shard).map(|since| self.now - since));
                let delay = self.random_delay(5..300);
                self.after(delay, Event::Deliver(id, Input::Synced(shard, epoch)));
            }
            Action::Drain(shard) => {
                let delay = self.random_delay(1..400);
                self.after(delay, Event::Deliver(id, Input::Drained(shard)));
            }
            Action::Drop(shard) => {
                self.end(id, shard);
                let delay = self.random_delay(1..100);
                self.after(delay, Event::Deliver(id, Input::Dropped(shard)));
            }
            Action::Left => self.processes[id].alive = false,
        }
    }

    /// A process stops working for a shard.
    fn end(&mut self, id: Id, shard: ShardId) {
        if self.processes[id].started.remove(&shard) {
            self.idle.insert(shard, self.now);
        }
    }

    /// A process ends at once (SIGKILL).
    pub(super) fn kill(&mut self, id: Id) {
        self.processes[id].alive = false;
        for shard in std::mem::take(&mut self.processes[id].started) {
            self.idle.insert(shard, self.now);
        }
    }

    fn send(&mut self, id: Id, request: Request) {
        self.sequence += 1;
        let number = self.sequence;
        let process = &mut self.processes[id];
        process.pending.insert(number, (request.clone(), self.now));
        let refused = self.network.loses(process.cut, &request, &mut self.random);
        let arrives = self.network.delay(&mut self.random);
        let given_up = if refused && self.random.random_bool(0.5) { arrives } else { Network::TIMEOUT };
        self.after(given_up, self.answer(id, number, Answer::Failed));
        if !refused {
            self.after(arrives, Event::Arrive(id, number, request));
        }
    }

    fn answer(&self, id: Id, request: u64, answer: Answer) -> Event {
        Event::Deliver(id, Input::Answer { request, answer, reading_first: request.is_multiple_of(2) })
    }

    fn serve(&mut self, id: Id, number: u64, request: Request) {
        let answer = match &request {
            Request::Beat(beat) => self.store.write_beat(beat).map(Answer::As),
            Request::Claim(claim) => self.store.write_claim(claim).map(Answer::As),
            Request::Balance(balance) => self.store.write_balance(balance).map(Answer::As),
            Request::Read(identity) => Some(Answer::Found(self.store.beat(identity).cloned())),
            Request::Delete(identity, version) => {
                self.store.delete_beat(identity, Some(*version));
                None
            }
        };
        self.notify_watches();
        let conflict = answer.is_none() && !matches!(request, Request::Delete(..));
        match answer {
            Some(answer) => self.reply(id, number, &request, answer),
            None if conflict => {
                // The conflict is answered to the replica, which then reads the Lease.
                let delay = self.network.delay(&mut self.random) + self.network.delay(&mut self.random);
                self.after(delay, Event::ReadConflict(id, number, request));
            }
            None => {}
        }
    }

    fn serve_conflict(&mut self, id: Id, number: u64, request: &Request) {
        let reading = match request {
            Request::Beat(beat) => match self.store.beat(&beat.holder.identity) {
                Some(found) => Some(Change::Beat(found.clone())),
                None => Some(Change::BeatGone(beat.holder.identity.clone(), beat.version)),
            },
            Request::Claim(claim) => match self.store.claim(claim.shard) {
                Some(found) => Some(Change::Claim(found.clone())),
                None => Some(Change::ClaimGone(claim.shard, claim.version)),
            },
            Request::Balance(balance) => match self.store.balance() {
                Some(found) => Some(Change::Balance(found.clone())),
                None => Some(Change::BalanceGone(balance.version)),
            },
            Request::Read(_) | Request::Delete(..) => None,
        };
        self.reply(id, number, request, Answer::Conflict(reading));
    }

    fn reply(&mut self, id: Id, number: u64, request: &Request, answer: Answer) {
        if !self.network.loses(self.processes[id].cut, request, &mut self.random) {
            let delay = self.network.delay(&mut self.random);
            self.after(delay, self.answer(id, number, answer));
        }
    }

    /// Schedules the delivery of new writes to all watches.
    pub(super) fn notify_watches(&mut self) {
        let upto = self.store.log().len();
        for id in 0..self.processes.len() {
            let process = &self.processes[id];
            let behind = process.cursor.is_some_and(|cursor| cursor < upto);
            if !process.alive || process.watching || !behind || self.network.silences(process.cut) {
                continue;
            }
            let connection = process.connection;
            let delay = self.network.delay(&mut self.random);
            self.processes[id].watching = true;
            self.after(delay, Event::Watch(id, connection, upto));
        }
    }

    fn watch(&mut self, id: Id, connection: u32, upto: usize) -> Checked {
        let process = &mut self.processes[id];
        if process.connection != connection {
            return Ok(());
        }
        process.watching = false;
        let Some(cursor) = process.cursor.filter(|_| !self.network.silences(process.cut)) else {
            return Ok(());
        };
        process.cursor = Some(upto);
        let changes = self.store.log()[cursor..upto].to_vec();
        self.notify_watches();
        self.deliver(id, Input::Watch(changes))
    }

    /// Reconnects a watch, with a relist or from where it was.
    pub(super) fn reconnect(&mut self, id: Id, list: bool) {
        let process = &mut self.processes[id];
        process.connection += 1;
        process.watching = list || process.cursor.is_none();
        if process.watching {
            let connection = process.connection;
            let delay = self.network.delay(&mut self.random);
            self.after(delay, Event::List(id, connection));
        } else {
            self.notify_watches();
        }
    }

    fn list(&mut self, id: Id, connection: u32) -> Checked {
        let process = &self.processes[id];
        if process.connection != connection || !process.alive {
            return Ok(());
        }
        if self.network.silences(process.cut) {
            self.after(Duration::from_secs(1), Event::List(id, connection));
            return Ok(());
        }
        let changes = self.store.relist(process.cursor.unwrap_or(0));
        self.processes[id].cursor = Some(self.store.log().len());
        self.processes[id].watching = false;
        self.deliver(id, Input::List(changes))
    }

    /// A name that no replica has had.
    pub(super) fn fresh_name(&self) -> Arc<str> {
        format!("replica-{}", self.processes.len()).into()
    }
}
