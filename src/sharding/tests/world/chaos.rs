//! Random faults in the simulated world.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::network::Network;
use super::process::{Cut, Input};
use super::sim::{Checked, Event, Id, World};
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Balance, Move};

/// Kinds of faults.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Crash,
    Freeze,
    CutAll,
    CutWatch,
    CutWrites,
    Slow,
    Down,
    Lossy,
    Join,
    Leave,
    DeleteHeartbeat,
    DeleteClaim,
    /// The work of all shards changes.
    Work,
    /// Someone writes random moves of shards.
    RandomMoves,
}

/// All faults that occur without human action, and random moves.
pub(super) const ANYTHING: &[Kind] = &[
    Kind::Crash,
    Kind::Freeze,
    Kind::Freeze,
    Kind::CutAll,
    Kind::CutWatch,
    Kind::CutWatch,
    Kind::CutWrites,
    Kind::Slow,
    Kind::Down,
    Kind::Lossy,
    Kind::Join,
    Kind::Leave,
    Kind::Work,
    Kind::RandomMoves,
];
/// Someone deletes Leases while the network is healthy.
pub(super) const DELETIONS: &[Kind] = &[Kind::DeleteHeartbeat, Kind::DeleteClaim];

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Faults of these kinds occur now and then until this moment.
    Next {
        until: Duration,
        kinds: &'static [Kind],
    },
    Thaw(Id),
    /// A process's connections work again; its watch relists or resumes.
    Heal(Id, bool),
    /// A process starts under this name.
    Start(Arc<str>),
    Lossy(bool),
    Slow(bool),
    Down(bool),
    /// All faults end.
    Calm,
}

impl World {
    /// Schedules faults of these kinds until `until`, when all of them end.
    pub(super) fn schedule_faults(&mut self, until: Duration, kinds: &'static [Kind]) {
        self.after(Duration::ZERO, Event::Fault(Fault::Next { until, kinds }));
        self.after(until.saturating_sub(self.now), Event::Fault(Fault::Calm));
    }

    pub(super) fn apply_fault(&mut self, fault: Fault) -> Checked {
        match fault {
            Fault::Next { until, kinds } => {
                let pause = self.random_delay(100..6_000);
                if self.now + pause < until {
                    self.after(pause, Event::Fault(Fault::Next { until, kinds }));
                    return self.random_fault(until, kinds);
                }
            }
            Fault::Thaw(id) => return self.thaw(id),
            Fault::Heal(id, list) => {
                self.processes[id].cut = Cut::Nothing;
                self.reconnect(id, list);
            }
            Fault::Start(identity) => _ = self.start(&identity),
            Fault::Lossy(lossy) => self.network.lossy = lossy,
            Fault::Slow(slow) => self.network.slow = slow,
            Fault::Down(down) => {
                self.network.down = down;
                self.notify_watches();
            }
            Fault::Calm => return self.calm(),
        }
        Ok(())
    }

    fn random_fault(&mut self, until: Duration, kinds: &[Kind]) -> Checked {
        let live: Vec<Id> = self.live().collect();
        let (Some(id), Some(kind)) = (live.choose(&mut self.random), kinds.choose(&mut self.random)) else {
            _ = self.start(&self.fresh_name());
            return Ok(());
        };
        let (id, lasts) = (*id, self.random_delay(500..30_000).min(until.saturating_sub(self.now)));
        self.note(&("fault", kind, id, lasts));
        match kind {
            Kind::Crash => self.crash(id, lasts),
            Kind::Freeze => self.freeze(id, lasts),
            Kind::CutAll => self.cut(id, Cut::All, lasts),
            Kind::CutWatch => self.cut(id, Cut::Watch, lasts),
            Kind::CutWrites => self.cut(id, Cut::Writes, lasts),
            Kind::Slow => self.for_a_while(lasts / 2, Fault::Slow),
            Kind::Down => self.for_a_while(lasts / 2, Fault::Down),
            Kind::Lossy => self.for_a_while(lasts, Fault::Lossy),
            Kind::Join if live.len() < 6 => _ = self.start(&self.fresh_name()),
            Kind::Leave if live.len() > 1 => return self.deliver(id, Input::Leave),
            Kind::Join | Kind::Leave => {}
            Kind::DeleteHeartbeat => self.store.delete_beat(&self.processes[id].identity, None),
            Kind::DeleteClaim => {
                let shard = ShardId(self.random.random_range(0..self.shards.get()));
                self.store.delete_claim(shard);
            }
            Kind::Work => self.randomize_work(5_000),
            Kind::RandomMoves => self.write_random_moves(),
        }
        self.notify_watches();
        Ok(())
    }

    /// Gives every shard a random amount of work below `most`.
    pub(super) fn randomize_work(&mut self, most: u32) {
        self.loads = self.shards.shards().map(|shard| (shard, self.random.random_range(0..most))).collect();
    }

    /// Writes moves of random shards to random replicas, dead ones included, with present or future epochs.
    fn write_random_moves(&mut self) {
        let mut moves = BTreeMap::new();
        for shard in self.shards.shards() {
            let epoch = self.store.claim(shard).map_or(0, |claim| claim.epoch);
            let epoch = epoch + u64::from(self.random.random_bool(0.2));
            if let (true, Some(process)) = (self.random.random(), self.processes.choose(&mut self.random)) {
                moves.insert(shard, Move { to: process.identity.clone(), epoch });
            }
        }
        let version = self.store.balance().map_or(0, |balance| balance.version);
        if self.random.random_bool(0.1) {
            self.store.delete_balance();
        } else {
            self.store.write_balance(&Balance { version, moves });
        }
    }

    /// Kills the process. It may start again, under its name or another.
    fn crash(&mut self, id: Id, after: Duration) {
        self.kill(id);
        let identity = match self.random.random_range(0..3) {
            0 => self.processes[id].identity.clone(),
            1 => self.fresh_name(),
            _ => return,
        };
        self.after(after / 4, Event::Fault(Fault::Start(identity)));
    }

    /// Stops the process (SIGSTOP); now and then another one takes its name.
    fn freeze(&mut self, id: Id, lasts: Duration) {
        if self.processes[id].frozen.is_none() {
            self.processes[id].frozen = Some(Vec::new());
            self.after(lasts, Event::Fault(Fault::Thaw(id)));
        }
        if self.random.random_bool(0.15) {
            let identity = self.processes[id].identity.clone();
            self.after(lasts / 4, Event::Fault(Fault::Start(identity)));
        }
    }

    fn cut(&mut self, id: Id, cut: Cut, lasts: Duration) {
        self.processes[id].cut = cut;
        let list = self.random.random();
        self.after(lasts, Event::Fault(Fault::Heal(id, list)));
    }

    fn for_a_while(&mut self, lasts: Duration, fault: fn(bool) -> Fault) {
        self.after(Duration::ZERO, Event::Fault(fault(true)));
        self.after(lasts, Event::Fault(fault(false)));
    }

    /// Continues a stopped process: its timers may fire before its queued inputs arrive.
    fn thaw(&mut self, id: Id) -> Checked {
        let Some(inbox) = self.processes[id].frozen.take() else { return Ok(()) };
        if !self.processes[id].alive {
            return Ok(());
        }
        if self.random.random() {
            self.decide(id)?;
        }
        for input in inbox {
            self.deliver(id, input)?;
        }
        self.decide(id)
    }

    /// Ends all faults, removes all work, so that no shards move because of it, and makes sure that a replica
    /// is alive. If several processes have one name, only the last is kept, as an operator would ensure.
    fn calm(&mut self) -> Checked {
        self.network = Network::HEALTHY;
        self.loads.clear();
        let live: Vec<Id> = self.live().collect();
        for id in live {
            self.thaw(id)?;
            self.processes[id].cut = Cut::Nothing;
            let list = self.random.random();
            self.reconnect(id, list);
            let identity = self.processes[id].identity.clone();
            if self.live().any(|other| other != id && self.processes[other].identity == identity) {
                self.kill(id);
            }
        }
        if self.live().all(|id| self.processes[id].leaving) {
            _ = self.start(&self.fresh_name());
        }
        Ok(())
    }
}
