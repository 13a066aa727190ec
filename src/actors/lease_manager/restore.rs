//! Consequences of a restore of etcd, and where a restore could hide.
//!
//! A heartbeat that is stored shows each restore to a backup from before the heartbeat
//! before it ([`super::history`]). A restore can take back, unseen, knowledge from after
//! the last heartbeat of a replica, or from before its first one.

use actix::Recipient;
use tokio::time::{Duration, Instant, timeout};

use super::echo::Echo;
use super::history::History;
use super::{Answer, LeaseManager, READ_TIMEOUT};
use crate::actors::protocol::ShardCommand;
use crate::sharding::ShardId;
use crate::telemetry::metrics::labels::Handover;

/// A restore takes longer than this: a list of Leases that was complete so shortly before a heartbeat is of the same
/// history.
const FRESH: Duration = Duration::from_secs(2);

/// Resources to list again, since they may be of another history than the last heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// Leases, Jobs and pods: no shard is owned yet.
    All,
    /// Leases: no heartbeat was stored for a while, in which others may have written theirs, and etcd been restored.
    Leases,
}

/// Whether the last list of Leases is of the history of the heartbeats.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// When the Leases were last listed, by the boot clock.
    at: Option<Instant>,
    /// The last session of which a heartbeat was stored.
    confirmed: Option<u32>,
    doubt: Option<Doubt>,
    /// A list because of a doubt is not complete.
    is_awaited: bool,
}

impl Listing {
    /// A list of Leases is complete.
    pub(super) fn listed(&mut self, now: Instant) {
        (self.at, self.is_awaited) = (Some(now), false);
    }

    /// A heartbeat of the replica was stored, in the session with this number.
    pub(super) fn confirmed(&mut self, session: u32, now: Instant) {
        let is_first = self.confirmed.replace(session) != Some(session);
        if is_first && self.at.is_none_or(|listed| now >= listed + FRESH) {
            self.doubt = Some(Doubt::All);
        }
    }

    /// A heartbeat was stored after a silence. If every heartbeat takes long, so does a
    /// list: a list in progress is not begun again.
    fn silence_ended(&mut self) {
        self.doubt = self.doubt.or((!self.is_awaited).then_some(Doubt::Leases));
    }

    /// Takes the resources that must be listed again, if there are any.
    pub(super) fn take_doubt(&mut self) -> Option<Doubt> {
        self.is_awaited |= self.doubt.is_some();
        self.doubt.take()
    }
}

impl LeaseManager {
    /// The API server shows an earlier history. Known state and requests in flight are
    /// dropped: Leases, Jobs and pods are read again.
    pub(super) fn begin_anew(&mut self, replica: &Recipient<ShardCommand>) {
        tracing::error!(
            "the API server shows another history, as after a restore of etcd: everything is read anew"
        );
        let shards: Vec<ShardId> = self.fences.keys().copied().collect();
        for shard in shards {
            self.close(shard);
            self.count(Handover::Lost);
            replica.do_send(ShardCommand::Drop(shard));
        }
        replica.do_send(ShardCommand::Forget);
        self.answers.clear();
        self.claimed.clear();
        self.board.forget();
        self.coordinator = self.coordinator.reborn();
        self.session = self.coordinator.session();
        self.history = History::default();
        self.echo = Echo::default();
        self.listing = Listing::default();
        self.cx.self_writes.clear();
        self.cx.vigil.forget();
        self.cx.rewinds.rewound();
    }

    /// A heartbeat was stored that was sent at this time. After a silence in which etcd
    /// may have been restored, Leases are listed again, and the last written status is
    /// read. If that status is there, so is everything before it.
    pub(super) fn renewed(&mut self, sent: Instant) {
        let before = self.renewed.replace(sent);
        let silence = before.map(|before| sent.saturating_duration_since(before)).unwrap_or_default();
        if silence <= 2 * self.cx.config.retry_period {
            return;
        }
        self.listing.silence_ended();
        let Some(known) = self.cx.self_writes.newest() else { return };
        let (reads, rewinds) = (self.cx.reads.clone(), self.cx.rewinds.clone());
        self.answers.push(Box::pin(async move {
            let id = known.id();
            let read = reads.find_job(&id);
            // Without an answer nothing is known, as before.
            if let Ok(Ok(Some(read))) = timeout(READ_TIMEOUT, read).await {
                rewinds.compare(&known, &read);
            }
            Answer::Nothing
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_from_long_before_the_first_heartbeat_of_a_session_is_doubtful() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut listing = Listing::default();
        for (listed, session, heartbeat, doubtful) in [
            (Some(0), 0, 1, None),
            (None, 0, 60, None),
            (None, 1, 75, Some(Doubt::All)),
            (None, 1, 77, None),
            (Some(90), 2, 91, None),
            (None, 3, 92, Some(Doubt::All)),
        ] {
            listed.into_iter().for_each(|listed| listing.listed(at(listed)));
            listing.confirmed(session, at(heartbeat));
            assert_eq!(listing.take_doubt(), doubtful, "session {session} at {heartbeat}");
            assert_eq!(listing.take_doubt(), None, "it is told once");
        }
    }

    #[test]
    fn leases_are_listed_again_after_a_silence_unless_all_is() {
        let now = Instant::now();
        let mut listing = Listing::default();
        listing.listed(now);
        listing.confirmed(0, now);
        listing.silence_ended();
        assert_eq!(listing.take_doubt(), Some(Doubt::Leases));
        listing.silence_ended();
        assert_eq!(listing.take_doubt(), None, "the list goes on");
        listing.listed(now);
        listing.silence_ended();
        listing.confirmed(1, now + FRESH);
        assert_eq!(listing.take_doubt(), Some(Doubt::All));
        listing.listed(now);
        listing.confirmed(2, now + FRESH);
        listing.silence_ended();
        assert_eq!(listing.take_doubt(), Some(Doubt::All));
    }
}
