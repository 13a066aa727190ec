//! The shards that a replica owns, for readers outside the lease manager.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::Incompatibility;
use crate::sharding::{ShardId, ShardState};

/// The phase of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplicaPhase {
    /// The replica has no valid heartbeat, or is about to take shards over.
    #[default]
    Starting,
    /// Its heartbeat is valid, and all shards that it owns are synced.
    Ready,
    /// The replica has ended.
    Ended(Option<Incompatibility>),
}

/// The shards that a replica owns, and its heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// The phase of the replica.
    pub phase: ReplicaPhase,
    /// Until when its heartbeat is valid.
    acts_until: Option<Instant>,
    /// When the last acknowledged heartbeat was sent.
    renewed: Option<Instant>,
    /// The shards that it owns, acquires or releases.
    shards: BTreeMap<ShardId, (ShardState, u64)>,
}

impl View {
    pub(super) fn of(
        ready: bool,
        acts_until: Option<Instant>,
        renewed: Option<Instant>,
        shards: impl Iterator<Item = (ShardId, ShardState, u64)>,
    ) -> Self {
        let shards = shards.filter(|(_, state, _)| *state != ShardState::Free);
        Self {
            phase: if ready { ReplicaPhase::Ready } else { ReplicaPhase::Starting },
            acts_until,
            renewed,
            shards: shards.map(|(id, state, epoch)| (id, (state, epoch))).collect(),
        }
    }

    pub(super) fn ended(refused: Option<Incompatibility>) -> Self {
        Self { phase: ReplicaPhase::Ended(refused), ..Self::default() }
    }

    /// How many shards it owns.
    pub fn owned(&self) -> usize {
        self.shards.values().filter(|(state, _)| state.is_owned()).count()
    }

    /// The state of a shard that it owns, acquires or releases.
    pub fn state(&self, shard: ShardId) -> Option<ShardState> {
        self.shards.get(&shard).map(|(state, _)| *state)
    }

    /// Whether the heartbeat is valid.
    pub fn is_alive(&self, now: Instant) -> bool {
        self.acts_until.is_some_and(|until| now < until)
    }

    /// When the last acknowledged heartbeat was sent.
    pub fn renewed(&self) -> Option<Instant> {
        self.renewed
    }
}
