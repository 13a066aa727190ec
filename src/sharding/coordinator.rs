//! The Lease logic of one replica: a pure state machine. It takes observations and answers of the API
//! server, and decides which Leases to write and which shards to start and stop. Time is a parameter.

mod balancing;
mod decide;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use self::balancing::Balancing;
use super::action::{Action, Written};
use super::hash::{ShardCount, ShardId};
use super::lease::{Claim, Heartbeat, Holder};
use super::lease_validity::LeaseValidity;
use super::lifecycle::{ShardEvent, ShardState};
use super::members::Members;
use super::pauses::Pauses;
use super::shard::Shard;
use super::{LeaseTimes, Moment};

/// The identity of this replica, and the settings that all replicas share.
#[derive(Clone, Debug)]
pub struct ReplicaIdentity {
    /// Name of this replica, unique among the replicas.
    pub identity: Arc<str>,
    /// Unique to this process: distinguishes it from an earlier one of the same name.
    pub process: Arc<str>,
    /// Number of shards.
    pub shards: ShardCount,
    /// Rate limit of each replica in requests per second; 0 is no limit.
    pub qps: u32,
}

/// A heartbeat that has not been answered yet.
#[derive(Clone, Copy, Debug)]
struct PendingHeartbeat {
    sent: Moment,
    /// The session that it was sent in.
    session: u32,
}

/// Pause after a write that failed; of claims, the first.
const RETRY: Duration = Duration::from_millis(500);

/// The Lease logic of one replica.
#[derive(Debug)]
pub struct Coordinator {
    me: ReplicaIdentity,
    /// This replica in its present session.
    holder: Holder,
    times: LeaseTimes,
    members: Members,
    shards: BTreeMap<ShardId, Shard>,
    lease_validity: LeaseValidity,
    /// Number of the session within this process: a new one begins when everything is lost.
    session: u32,
    /// When the next heartbeat is due.
    beat_at: Moment,
    /// The heartbeat in flight.
    pending_heartbeat: Option<PendingHeartbeat>,
    /// Our heartbeat's version as last written or seen.
    version: u64,
    /// The Leases have been listed.
    listed: bool,
    leaving: bool,
    left: bool,
    /// A heartbeat is being read live.
    reading: bool,
    /// No heartbeat is read live before this moment.
    read_at: Moment,
    /// Dead heartbeats are not looked for before this moment.
    tidy_at: Moment,
    /// The pauses while heartbeats are left that cannot be deleted.
    tidying: Pauses,
    /// The replicas that shared the shards when `wanted` was computed, sorted.
    replicas: Vec<Arc<str>>,
    /// The shards that this replica should own.
    wanted: BTreeSet<ShardId>,
    /// Claims, or the shards that change places, have changed since `wanted` was computed.
    outdated: bool,
    balancing: Balancing,
}

impl Coordinator {
    /// A replica that knows nothing yet.
    pub fn new(me: ReplicaIdentity, times: LeaseTimes) -> Self {
        let shards = me.shards.shards().map(|shard| (shard, Shard::default())).collect();
        Self {
            holder: holder_in(&me, 0),
            me,
            times,
            members: Members::default(),
            shards,
            lease_validity: LeaseValidity::None,
            session: 0,
            beat_at: Moment::ZERO,
            pending_heartbeat: None,
            version: 0,
            listed: false,
            leaving: false,
            left: false,
            reading: false,
            read_at: Moment::ZERO,
            tidy_at: Moment::ZERO,
            tidying: Pauses::default(),
            replicas: Vec::new(),
            wanted: BTreeSet::new(),
            outdated: true,
            balancing: Balancing::default(),
        }
    }

    /// This replica in its present session.
    pub fn holder(&self) -> Holder {
        self.holder.clone()
    }

    /// Number of the present session: a new one begins when everything is lost.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Whether a holder is this process, in any session.
    fn is_this_process(&self, holder: &Holder) -> bool {
        holder.session.strip_prefix(&*self.me.process).is_some_and(|number| number.starts_with('-'))
    }

    /// Until when writes may leave; `None` if they may not.
    pub fn acts_until(&self) -> Option<Moment> {
        match self.lease_validity {
            LeaseValidity::None => None,
            LeaseValidity::Until { silent, .. } => Some(silent),
        }
    }

    /// The state of each shard at this replica, with the epoch of our claim.
    pub fn states(&self) -> impl Iterator<Item = (ShardId, ShardState, u64)> + '_ {
        self.shards.iter().map(|(id, shard)| (*id, shard.state, shard.epoch))
    }

    /// Whether the Leases are known, this replica may act, and no takeover of a shard is in progress.
    pub fn is_ready(&self, now: Moment) -> bool {
        let pending = |shard: &Shard| matches!(shard.state, ShardState::Claiming | ShardState::Syncing);
        self.listed && self.lease_validity.acts(now) && !self.shards.values().any(pending)
    }

    /// All Leases of the initial list have been reported.
    pub fn listed(&mut self) {
        self.listed = true;
    }

    /// A heartbeat as observed.
    pub fn heartbeat_seen(&mut self, beat: Heartbeat, now: Moment) {
        if beat.holder.identity == self.me.identity {
            self.version = self.version.max(beat.version);
        }
        self.members.saw(beat, now);
    }

    /// The version in which the heartbeat of a replica was last seen; 0 if there was none.
    pub fn heartbeat_version(&self, identity: &str) -> u64 {
        self.members.get(identity).map_or(0, |member| member.beat.version)
    }

    /// A heartbeat is gone; it was last seen in this version.
    pub fn heartbeat_gone(&mut self, identity: &str, version: u64, now: Moment) {
        if *identity == *self.me.identity && self.version <= version {
            self.version = 0;
            self.beat_at = now;
        }
        self.members.gone(identity, version, now);
    }

    /// The answer to [`Action::ReadHeartbeat`].
    pub fn heartbeat_read(&mut self, identity: &str, found: Option<Heartbeat>, now: Moment) {
        self.reading = false;
        self.members.read(identity, found, now);
    }

    /// [`Action::ReadHeartbeat`] has failed.
    pub fn heartbeat_unread(&mut self, now: Moment) {
        self.reading = false;
        self.read_at = now + self.pause();
    }

    /// A claim as observed.
    pub fn claim_seen(&mut self, claim: Claim) {
        if let Some(holder) = &claim.holder {
            self.members.claimed(holder, claim.version);
        }
        if let Some(shard) = self.shards.get_mut(&claim.shard) {
            self.outdated |= shard.claim_seen(claim, &self.holder);
        }
    }

    /// The claims that are known to exist, as last seen or written.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> + '_ {
        self.shards.values().filter_map(|shard| shard.claim.as_ref())
    }

    /// A claim is gone; it was last seen in this version.
    pub fn claim_gone(&mut self, shard: ShardId, version: u64, now: Moment) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            self.outdated |= shard.claim_gone(version, now + self.times.lease_duration);
        }
    }

    /// Our heartbeat exists in this version, and cannot be read: the next one replaces it.
    pub fn heartbeat_unreadable(&mut self, version: u64) {
        self.version = version;
    }

    /// A claim exists in this version and epoch, but the rest of it cannot be read.
    pub fn claim_unreadable(&mut self, shard: ShardId, version: u64, epoch: u64, now: Moment) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.claim_unreadable(version, epoch, &self.holder, now + self.times.lease_duration);
        }
    }

    /// The answer to [`Action::WriteHeartbeat`].
    pub fn heartbeat_written(&mut self, written: Written, leaving: bool, now: Moment) {
        let Some(PendingHeartbeat { sent, session }) = self.pending_heartbeat.take() else { return };
        match written {
            Written::As(version) => {
                self.version = self.version.max(version);
                if leaving != self.leaving || session != self.session {
                    self.beat_at = now;
                }
                if session != self.session {
                    // A heartbeat of an earlier session does not let this one act: others see its session.
                    return;
                }
                match self.lease_validity.renewed(&self.times, sent, now) {
                    Some(lease_validity) => self.lease_validity = lease_validity,
                    None if self.lease_validity.is_lost(now) => self.lose_all(),
                    None => {}
                }
            }
            Written::Conflict => self.beat_at = now,
            Written::Failed => self.beat_at = now + self.pause(),
        }
    }

    /// The answer to [`Action::WriteClaim`].
    pub fn claim_written(&mut self, claim: &Claim, written: Written, now: Moment) {
        let valid = self.lease_validity.acts(now)
            && claim.holder.as_ref().is_none_or(|holder| *holder == self.holder);
        let pause = self.pause();
        if let Some(shard) = self.shards.get_mut(&claim.shard) {
            shard.claim_written(claim, written, valid, (now, pause));
            self.outdated = true;
        }
    }

    /// A shard's Jobs and pods have been listed.
    pub fn synced(&mut self, shard: ShardId, epoch: u64) {
        if let Some(shard) = self.shards.get_mut(&shard).filter(|shard| shard.epoch == epoch) {
            shard.step(ShardEvent::Synced);
        }
    }

    /// No request is in flight for a shard any longer.
    pub fn drained(&mut self, shard: ShardId) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.step(ShardEvent::Drained);
        }
    }

    /// A shard's actors have stopped.
    pub fn dropped(&mut self, shard: ShardId) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.step(ShardEvent::Dropped);
        }
    }

    /// Actors of a shard have panicked, in this epoch: it is handed over, and claimed again after a pause. Returns
    /// whether that begins now.
    pub fn failed(&mut self, shard: ShardId, epoch: u64, now: Moment) -> bool {
        let runs = |shard: &&mut Shard| {
            shard.epoch == epoch && matches!(shard.state, ShardState::Syncing | ShardState::Active)
        };
        self.shards.get_mut(&shard).filter(runs).map(|shard| shard.failed(now)).is_some()
    }

    /// Hands all shards over, and ends.
    pub fn leave(&mut self) {
        self.leaving = true;
        self.beat_at = Moment::ZERO;
    }

    /// Everything that this replica owned is lost; it goes on in a new session.
    fn lose_all(&mut self) {
        self.lease_validity = LeaseValidity::None;
        self.session += 1;
        self.holder = holder_in(&self.me, self.session);
        for shard in self.shards.values_mut() {
            shard.taken_away();
            shard.forget_refusals();
        }
    }

    fn pause(&self) -> Duration {
        RETRY.min(self.times.retry_period)
    }
}

/// The replica in one of its sessions.
fn holder_in(me: &ReplicaIdentity, session: u32) -> Holder {
    Holder { identity: me.identity.clone(), session: format!("{}-{session}", me.process).into() }
}
