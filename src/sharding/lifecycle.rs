//! The life of one shard at one replica.
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

/// What a shard is to this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ShardState {
    /// Not ours.
    #[default]
    Free,
    /// A claim has been sent.
    Claiming,
    /// Ours; its Jobs and pods are being listed.
    Syncing,
    /// Ours, and being worked for.
    Active,
    /// Ours until what is under way has ended; then it is released.
    Draining,
    /// No longer ours: nothing may leave for it, and its actors are being ended.
    Lost,
}

impl ShardState {
    /// The name in `/debug/shards`.
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

/// What happens to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardEvent {
    /// It is to be ours, and nobody has it.
    Want,
    /// It is to be somebody else's.
    Unwant,
    /// The claim was written.
    ClaimWritten,
    /// The claim was not written, or nobody knows.
    ClaimRefused,
    /// Its Jobs and pods are listed.
    Synced,
    /// Nothing is under way for it any more.
    Drained,
    /// The claim was given up.
    ReleaseWritten,
    /// The claim is somebody else's, or gone, or we have lost the right to all claims.
    TakenAway,
    /// Its actors have ended.
    Dropped,
}

/// What is to be done about a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShardCommand {
    /// Write a claim.
    Claim,
    /// Start its actors.
    Start,
    /// Let its actors finish what is under way.
    Drain,
    /// Give the claim up.
    Release,
    /// End its actors at once.
    Drop,
}

impl ShardState {
    /// The next state, and what is to be done.
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
