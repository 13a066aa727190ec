//! All replicas and the owners of all shards as their Leases show them, and the recent hand-overs. The lease
//! manager records changes, the HTTP pages read them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::sharding::ShardId;
use crate::sharding::lease::{Claim, Heartbeat, LeaseRecord};

/// Most hand-overs that are remembered.
const MAX_HANDOVERS: usize = 512;

/// A shard that has got another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenHandover {
    /// The shard.
    pub shard: ShardId,
    /// The epoch of the new owner's claim.
    pub epoch: u64,
    /// The owner before, if there was one.
    pub from: Option<Arc<str>>,
    /// The new owner.
    pub to: Arc<str>,
    /// When this replica saw the claim.
    pub at: Timestamp,
    /// From the release to the claim, where the owner before released the shard.
    pub unowned: Option<Duration>,
    /// From the claim until the caches were synced, where this replica is the new owner.
    pub syncing: Option<Duration>,
}

/// A replica by its heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenReplica {
    /// When the heartbeat was last seen to change.
    pub renewed: Instant,
    /// How long it may be silent before the others regard it as dead.
    pub lease_duration: Duration,
    /// The replica hands its shards over, and ends.
    pub leaving: bool,
    version: u64,
}

/// A shard by its claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenClaim {
    /// The owner, if there is one.
    pub owner: Option<Arc<str>>,
    /// How often the shard has been claimed.
    pub epoch: u64,
    /// The last owner, and since when there is none.
    released: Option<(Arc<str>, Instant)>,
    version: u64,
}

/// Everything that the Leases show.
#[derive(Clone, Debug, Default)]
pub struct SeenLeases {
    /// Replicas by identity.
    pub replicas: BTreeMap<Arc<str>, SeenReplica>,
    /// Claims by shard.
    pub claims: BTreeMap<ShardId, SeenClaim>,
    /// Recent hand-overs, the latest last.
    pub handovers: VecDeque<SeenHandover>,
    /// The Leases have been listed: a shard without a claim was never claimed.
    listed: bool,
}

/// The Leases as last seen. Clones share one board.
#[derive(Clone, Debug, Default)]
pub struct LeaseBoard(Arc<Mutex<SeenLeases>>);

impl LeaseBoard {
    fn lock(&self) -> MutexGuard<'_, SeenLeases> {
        // A panic while writing leaves the maps whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything known.
    pub fn read(&self) -> SeenLeases {
        self.lock().clone()
    }

    /// The first list of Leases is complete.
    pub(super) fn listed(&self) {
        self.lock().listed = true;
    }

    /// A Lease as observed or written, at `now`.
    pub(super) fn seen(&self, record: &LeaseRecord, now: Instant, clock: Timestamp) {
        match record {
            LeaseRecord::Heartbeat(heartbeat) => self.lock().heartbeat(heartbeat, now),
            LeaseRecord::Claim(claim) => self.lock().claim(claim, now, clock),
            LeaseRecord::Layout(_) | LeaseRecord::Balance(_) => {}
        }
    }

    /// A Lease is gone.
    pub(super) fn gone(&self, record: &LeaseRecord) {
        let mut seen = self.lock();
        match record {
            LeaseRecord::Heartbeat(heartbeat) => {
                let identity = &heartbeat.holder.identity;
                if seen.replicas.get(identity).is_some_and(|known| known.version <= heartbeat.version) {
                    seen.replicas.remove(identity);
                }
            }
            LeaseRecord::Claim(claim) => {
                if seen.claims.get(&claim.shard).is_some_and(|known| known.version <= claim.version) {
                    seen.claims.remove(&claim.shard);
                }
            }
            LeaseRecord::Layout(_) | LeaseRecord::Balance(_) => {}
        }
    }

    /// The caches of a shard that this replica has claimed are synced.
    pub(super) fn synced(&self, shard: ShardId, epoch: u64, syncing: Duration) {
        let mut seen = self.lock();
        let of_claim = |handover: &&mut SeenHandover| handover.shard == shard && handover.epoch == epoch;
        if let Some(handover) = seen.handovers.iter_mut().rev().find(of_claim) {
            handover.syncing = Some(syncing);
        }
    }
}

impl SeenLeases {
    fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Instant) {
        let identity = &heartbeat.holder.identity;
        if self.replicas.get(identity).is_some_and(|known| known.version >= heartbeat.version) {
            return;
        }
        let replica = SeenReplica {
            renewed: now,
            lease_duration: heartbeat.lease_duration,
            leaving: heartbeat.leaving,
            version: heartbeat.version,
        };
        self.replicas.insert(identity.clone(), replica);
    }

    fn claim(&mut self, claim: &Claim, now: Instant, clock: Timestamp) {
        let known = self.claims.get(&claim.shard);
        if known.is_some_and(|known| known.version >= claim.version) {
            return;
        }
        let owner = claim.holder.as_ref().map(|holder| holder.identity.clone());
        let released = match (&owner, known) {
            (Some(_), _) | (None, None) => None,
            (None, Some(known)) => {
                known.owner.clone().map(|owner| (owner, now)).or_else(|| known.released.clone())
            }
        };
        let is_new = known.map_or(self.listed, |known| known.epoch != claim.epoch || known.owner != owner);
        if let Some(to) = owner.clone().filter(|_| is_new) {
            let last = known.and_then(|known| known.released.clone());
            let from = known.and_then(|known| known.owner.clone());
            let handover = SeenHandover {
                shard: claim.shard,
                epoch: claim.epoch,
                from: from.or_else(|| last.as_ref().map(|(owner, _)| owner.clone())),
                to,
                at: clock,
                unowned: last.map(|(_, since)| now.duration_since(since)),
                syncing: None,
            };
            self.handovers.push_back(handover);
            if self.handovers.len() > MAX_HANDOVERS {
                self.handovers.pop_front();
            }
        }
        let seen = SeenClaim { owner, epoch: claim.epoch, released, version: claim.version };
        self.claims.insert(claim.shard, seen);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::sharding::lease::Holder;

    fn claim(version: u64, owner: Option<&str>, epoch: u64) -> LeaseRecord {
        let holder = owner.map(|owner| Holder { identity: owner.into(), session: "s".into() });
        LeaseRecord::Claim(Claim { shard: ShardId(7), version, holder, epoch })
    }

    fn handovers(board: &LeaseBoard) -> Vec<(Option<String>, String, Option<u64>)> {
        let text = |name: &Arc<str>| name.to_string();
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap();
        let seen = board.read().handovers;
        seen.iter().map(|one| (one.from.as_ref().map(text), text(&one.to), one.unowned.map(millis))).collect()
    }

    #[test]
    fn a_handover_is_a_claim_with_another_owner() {
        let (board, start) = (LeaseBoard::default(), Instant::now());
        let see = |record: &LeaseRecord, millis| {
            board.seen(record, start + Duration::from_millis(millis), Timestamp::UNIX_EPOCH);
        };
        // The owner at the time of the first list has not just got the shard.
        see(&claim(1, Some("a"), 4), 0);
        board.listed();
        assert_eq!(handovers(&board), []);
        see(&claim(3, None, 4), 100);
        // A reading from before the release is older than the known state.
        see(&claim(2, Some("a"), 4), 110);
        see(&claim(4, Some("b"), 5), 350);
        let drained = (Some("a".to_owned()), "b".to_owned(), Some(250));
        assert_eq!(handovers(&board), std::slice::from_ref(&drained));
        // The own answer and the watch show the same claim.
        see(&claim(4, Some("b"), 5), 360);
        board.synced(ShardId(7), 5, Duration::from_millis(80));
        assert_eq!(board.read().handovers[0].syncing, Some(Duration::from_millis(80)));
        // A replica that is silent releases nothing.
        see(&claim(9, Some("c"), 6), 9_000);
        assert_eq!(handovers(&board), [drained, (Some("b".to_owned()), "c".to_owned(), None)]);
        assert_eq!(board.read().claims[&ShardId(7)].owner.as_deref(), Some("c"));
    }

    #[test]
    fn the_first_claim_of_a_shard_is_from_nobody_and_memory_is_bounded() {
        let board = LeaseBoard::default();
        board.listed();
        board.seen(&claim(1, Some("a"), 1), Instant::now(), Timestamp::UNIX_EPOCH);
        assert_eq!(handovers(&board), [(None, "a".to_owned(), None)]);
        for version in 2..3_000 {
            let owner = if version % 2 == 0 { "b" } else { "a" };
            board.seen(&claim(version, Some(owner), version), Instant::now(), Timestamp::UNIX_EPOCH);
        }
        assert_eq!(board.read().handovers.len(), MAX_HANDOVERS);
        board.gone(&claim(3_000, None, 3_000));
        assert!(board.read().claims.is_empty());
    }

    #[test]
    fn a_replica_is_as_old_as_its_last_new_heartbeat() {
        let (board, start) = (LeaseBoard::default(), Instant::now());
        let beat = |version| {
            LeaseRecord::Heartbeat(Heartbeat {
                holder: Holder { identity: "a".into(), session: "s".into() },
                version,
                lease_duration: Duration::from_secs(15),
                leaving: version == 3,
                loads: None,
            })
        };
        for (version, seconds, renewed) in [(2, 0, 0), (2, 5, 0), (1, 6, 0), (3, 7, 7)] {
            board.seen(&beat(version), start + Duration::from_secs(seconds), Timestamp::UNIX_EPOCH);
            let replica = board.read().replicas["a"].clone();
            assert_eq!(replica.renewed, start + Duration::from_secs(renewed));
            assert_eq!(replica.leaving, version == 3);
        }
        board.gone(&beat(2));
        assert_eq!(board.read().replicas.len(), 1);
        board.gone(&beat(3));
        assert_eq!(board.read().replicas.len(), 0);
    }
}
