//! The lifecycle of one shard at one replica.
//!
//! ```text
//!         Want              ClaimWritten           Synced
//!  Free ────────> Claiming ─────────────> Syncing ────────> Active
//!   ^  ClaimRefused  │                       │ Unwant         │ Unwant
//!   ├────────────────┘                       v                v
//!   ├──────────────────────────────────── Draining <──────────┘
//!   │               ReleaseWritten           │
//!   │ Dropped                                │ TakenAway, also from Syncing and Active
//!   └──────────── Lost <─────────────────────┘
//! ```

/// The state of a shard at this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShardState {
    /// Not ours.
    #[default]
    Free,
    /// A claim has been sent.
    Claiming,
    /// Ours; its Jobs and pods are being listed.
    Syncing,
    /// Ours; its Jobs are being run.
    Active,
    /// Ours until the requests in flight have ended; then it is released.
    Draining,
    /// No longer ours: no write may leave for it, and its actors are being stopped.
    Lost,
}

impl ShardState {
    /// The state's name in `/debug/shards`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Claiming => "claiming",
            Self::Syncing => "syncing",
            Self::Active => "active",
            Self::Draining => "draining",
            Self::Lost => "lost",
        }
    }

    /// Whether this replica owns it.
    pub fn is_owned(self) -> bool {
        matches!(self, Self::Syncing | Self::Active | Self::Draining)
    }
}

/// An event in the lifecycle of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardEvent {
    /// This replica should own the free shard.
    Want,
    /// Another replica should own it.
    Unwant,
    /// The claim was written.
    ClaimWritten,
    /// The claim was not written, or that is unknown.
    ClaimRefused,
    /// Its Jobs and pods have been listed.
    Synced,
    /// No request is in flight for it any longer.
    Drained,
    /// The claim was released.
    ReleaseWritten,
    /// Another replica holds the claim, or the claim is gone, or our heartbeat has expired and with it all
    /// our claims.
    TakenAway,
    /// Its actors have stopped.
    Dropped,
}

/// A command that follows from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardCommand {
    /// Write a claim.
    Claim,
    /// Start its actors.
    Start,
    /// Let its actors finish the requests in flight.
    Drain,
    /// Release the claim.
    Release,
    /// Stop its actors at once.
    Drop,
}

impl ShardState {
    /// The next state, and the command that leads there.
    pub(super) fn step(self, event: ShardEvent) -> (Self, Option<ShardCommand>) {
        use ShardCommand as Do;
        use ShardEvent as On;
        match (self, event) {
            (Self::Free, On::Want) => (Self::Claiming, Some(Do::Claim)),
            (Self::Claiming, On::ClaimWritten) => (Self::Syncing, Some(Do::Start)),
            (Self::Claiming, On::ClaimRefused | On::TakenAway) => (Self::Free, None),
            (Self::Syncing, On::Synced) => (Self::Active, None),
            (Self::Syncing | Self::Active, On::Unwant) => (Self::Draining, Some(Do::Drain)),
            (Self::Draining, On::Drained) => (Self::Draining, Some(Do::Release)),
            (Self::Draining, On::ReleaseWritten) => (Self::Free, None),
            (Self::Syncing | Self::Active | Self::Draining, On::TakenAway) => (Self::Lost, Some(Do::Drop)),
            (Self::Lost, On::Dropped) => (Self::Free, None),
            (state, _) => (state, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_owned_from_its_claim_to_its_release() {
        use ShardState::{Active, Claiming, Draining, Free, Lost, Syncing};
        let owned = [Free, Claiming, Syncing, Active, Draining, Lost].map(ShardState::is_owned);
        assert_eq!(owned, [false, false, true, true, true, false]);
    }
}
