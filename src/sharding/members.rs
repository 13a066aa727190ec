//! Which replicas are alive, as seen from one of them.
//!
//! Clocks of different machines are never compared. A replica is silent once its heartbeat has been
//! unchanged for the lease duration that the heartbeat states. This replica's own monotonic clock measures
//! that time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Moment;
use super::hash::ShardId;
use super::lease::{Heartbeat, Holder};
use crate::mutants::{Mutant, is};

/// The heartbeats of all replicas.
#[derive(Debug, Default)]
pub(super) struct Members {
    seen: BTreeMap<Arc<str>, Member>,
    /// Holders of claims that have no heartbeat.
    absent: BTreeMap<Holder, Silence>,
    /// Sessions that were seen to leave, and when their heartbeats were seen to be gone. Entries older than
    /// [`LATE`] are forgotten when the next session goes.
    left: BTreeMap<Holder, Moment>,
}

/// How long a renewal may be in flight: it may arrive after its replica has left, and create the heartbeat
/// again. API servers give up on a request after 60 s.
const LATE: Duration = Duration::from_secs(60);

/// A heartbeat, and how long it has been unchanged.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) beat: Heartbeat,
    silence: Silence,
}

/// How long a replica has not renewed its heartbeat.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When this state of the heartbeat, or its absence, was first seen.
    since: Moment,
    proof: Proof,
}

/// Whether it is confirmed that the replica is silent, not that the watch is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// No live read has been sent since the timeout.
    None,
    /// A live read has been sent after the timeout. An earlier read proves nothing.
    Asked,
    /// The answer to that read has shown nothing new.
    Confirmed,
}

/// Whether the holder of a claim is alive, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// The holder may act, at least until this moment.
    Alive(Moment),
    /// The holder has been silent for the timeout; a live read has to confirm that the watch is not behind.
    Silent,
    /// The holder can never act again for this claim.
    Dead,
}

impl Silence {
    fn from(since: Moment) -> Self {
        Self { since, proof: Proof::None }
    }

    fn liveness(self, timeout: Duration, now: Moment) -> Liveness {
        let end = self.since + timeout;
        match self.proof {
            _ if now < end => Liveness::Alive(end),
            Proof::Confirmed => Liveness::Dead,
            _ if is(Mutant::SilentTakenForDead) => Liveness::Dead,
            Proof::None | Proof::Asked => Liveness::Silent,
        }
    }

    fn ask(&mut self, timeout: Duration, now: Moment) {
        if now >= self.since + timeout && self.proof == Proof::None {
            self.proof = Proof::Asked;
        }
    }

    fn prove(&mut self) {
        if self.proof == Proof::Asked {
            self.proof = Proof::Confirmed;
        }
    }
}

impl Member {
    fn timeout(&self, least: Duration) -> Duration {
        self.beat.lease_duration.max(least)
    }
}

impl Members {
    /// Records a heartbeat as observed. Returns whether it was newer than the known one. If its session has
    /// left, the heartbeat was sent before that, and counts as leaving.
    pub(super) fn saw(&mut self, mut beat: Heartbeat, now: Moment) -> bool {
        let known = self.seen.get(&beat.holder.identity);
        if known.is_some_and(|known| known.beat.version >= beat.version) {
            return false;
        }
        self.absent.remove(&beat.holder);
        beat.leaving |= self.left.contains_key(&beat.holder);
        self.seen.insert(beat.holder.identity.clone(), Member { beat, silence: Silence::from(now) });
        true
    }

    /// Records that a heartbeat is gone; `version` is the last version seen, or later.
    pub(super) fn gone(&mut self, identity: &str, version: u64, now: Moment) {
        if self.seen.get(identity).is_some_and(|known| known.beat.version <= version)
            && let Some(known) = self.seen.remove(identity)
        {
            self.left.retain(|_, left| now < *left + LATE);
            if known.beat.leaving {
                self.left.insert(known.beat.holder.clone(), now);
            }
            self.absent.insert(known.beat.holder, Silence::from(now));
        }
    }

    /// Records that a claim has been written in this version. If it is newer than the known heartbeat and of
    /// another session, the heartbeat of that session has not been seen yet. Then the known heartbeat proves
    /// nothing.
    pub(super) fn claimed(&mut self, holder: &Holder, version: u64) {
        if let Some(member) = self.seen.get_mut(&holder.identity)
            && member.beat.holder.session != holder.session
            && member.beat.version < version
        {
            member.silence.proof = Proof::None;
        }
    }

    /// A live read of this heartbeat is being sent.
    pub(super) fn asked(&mut self, identity: &str, least: Duration, now: Moment) {
        if let Some(member) = self.seen.get_mut(identity) {
            member.silence.ask(member.timeout(least), now);
        }
        for (_, silence) in self.absent.iter_mut().filter(|(holder, _)| *holder.identity == *identity) {
            silence.ask(least, now);
        }
    }

    /// Records the result of a live read: if it shows nothing new, it confirms the silence.
    pub(super) fn read(&mut self, identity: &str, found: Option<Heartbeat>, now: Moment) {
        let Some(found) = found else {
            for (_, silence) in self.absent.iter_mut().filter(|(holder, _)| *holder.identity == *identity) {
                silence.prove();
            }
            return self.gone(identity, u64::MAX, now);
        };
        let version = found.version;
        if !self.saw(found, now)
            && let Some(known) = self.seen.get_mut(identity).filter(|known| known.beat.version == version)
        {
            known.silence.prove();
        }
    }

    pub(super) fn get(&self, identity: &str) -> Option<&Member> {
        self.seen.get(identity)
    }

    /// The heartbeat of a replica, if it has been renewed at `since` or later.
    pub(super) fn renewed_since(&self, identity: &str, since: Moment) -> Option<&Heartbeat> {
        self.seen.get(identity).filter(|member| member.silence.since >= since).map(|member| &member.beat)
    }

    /// Whether the holder of a Lease of this version is alive; `least` is the shortest timeout.
    pub(super) fn liveness(
        &mut self,
        holder: &Holder,
        version: u64,
        least: Duration,
        now: Moment,
    ) -> Liveness {
        match self.seen.get(&holder.identity) {
            // A later session has begun: sessions begin only after the one before has ended.
            Some(member) if member.beat.holder.session != holder.session && member.beat.version > version => {
                Liveness::Dead
            }
            Some(member) => member.silence.liveness(member.timeout(least), now),
            None => self.absent.entry(holder.clone()).or_insert(Silence::from(now)).liveness(least, now),
        }
    }

    /// The replicas that report work of a shard as their own, living or not.
    pub(super) fn reporting(&self, shard: ShardId) -> Vec<Holder> {
        let has_work = |beat: &&Heartbeat| beat.loads.as_ref().is_some_and(|loads| loads.of(shard) > 0);
        self.seen
            .values()
            .map(|member| &member.beat)
            .filter(has_work)
            .map(|beat| beat.holder.clone())
            .collect()
    }

    /// Identities of the replicas that are neither silent nor leaving, and when the next heartbeat may time
    /// out.
    pub(super) fn living(&self, least: Duration, now: Moment) -> (Vec<&Arc<str>>, Option<Moment>) {
        let mut next = None;
        let mut living = Vec::new();
        for (identity, member) in &self.seen {
            let end = member.silence.since + member.timeout(least);
            if now < end {
                next = Some(next.map_or(end, |next: Moment| next.min(end)));
                if !member.beat.leaving {
                    living.push(identity);
                }
            }
        }
        (living, next)
    }

    /// Identities and versions of the heartbeats that have not been renewed for their timeout.
    pub(super) fn silent(&self, least: Duration, now: Moment) -> Vec<(Arc<str>, u64)> {
        self.seen
            .iter()
            .filter(|(_, member)| now >= member.silence.since + member.timeout(least))
            .map(|(identity, member)| (identity.clone(), member.beat.version))
            .collect()
    }

    /// Forgets holders without heartbeat that no claim names any longer.
    pub(super) fn tidy(&mut self, is_holder: impl Fn(&Holder) -> bool) {
        self.absent.retain(|holder, _| is_holder(holder));
    }

    /// Whether there may be something to forget.
    pub(super) fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = at(15);

    const fn at(seconds: u64) -> Moment {
        Duration::from_secs(seconds)
    }

    fn beat(version: u64) -> Heartbeat {
        let holder = Holder { identity: "x".into(), session: "s".into() };
        Heartbeat { holder, version, lease_duration: LEASE, leaving: false, loads: None }
    }

    #[test]
    fn a_read_that_was_sent_before_the_timeout_proves_nothing() {
        let mut members = Members::default();
        members.saw(beat(1), at(0));
        for (sent, liveness) in [(14, Liveness::Silent), (15, Liveness::Dead), (16, Liveness::Dead)] {
            members.asked("x", LEASE, at(sent));
            members.read("x", Some(beat(1)), at(16));
            assert_eq!(members.liveness(&beat(1).holder, 1, LEASE, at(16)), liveness, "{sent}");
        }
        members.read("x", Some(beat(2)), at(17));
        assert_eq!(members.liveness(&beat(1).holder, 1, LEASE, at(18)), Liveness::Alive(at(32)));
    }

    /// Its replica would be given shards. A session that has left is forgotten a minute later, when another
    /// one goes.
    #[test]
    fn a_renewal_that_arrives_after_its_replica_has_left_brings_nobody_back() {
        for (leaving, next_gone, living) in [(true, 61, 0), (true, 62, 1), (false, 3, 1)] {
            let mut members = Members::default();
            members.saw(beat(1), at(0));
            members.saw(Heartbeat { leaving, ..beat(2) }, at(1));
            members.gone("x", 2, at(2));
            let other = Holder { identity: "y".into(), session: "s".into() };
            members.saw(Heartbeat { holder: other, ..beat(3) }, at(3));
            members.gone("y", 3, at(next_gone));
            members.saw(beat(4), at(63));
            let found = members.living(LEASE, at(63)).0.len();
            assert_eq!(found, living, "leaving: {leaving}, the next one gone at {next_gone}");
        }
    }

    #[test]
    fn a_replica_that_has_left_comes_back_in_another_session() {
        let mut members = Members::default();
        members.saw(Heartbeat { leaving: true, ..beat(1) }, at(0));
        members.gone("x", 1, at(1));
        let holder = Holder { identity: "x".into(), session: "t".into() };
        members.saw(Heartbeat { holder, ..beat(2) }, at(2));
        assert_eq!(members.living(LEASE, at(2)).0.len(), 1);
    }

    /// The holder would be watched for another timeout if a claim still named it.
    #[test]
    fn a_holder_without_heartbeat_is_forgotten_once_no_claim_names_it() {
        let mut members = Members::default();
        assert!(!members.has_absent());
        let holder = beat(1).holder;
        assert_eq!(members.liveness(&holder, 1, LEASE, at(0)), Liveness::Alive(at(15)));
        members.tidy(|named| *named == holder);
        assert!(members.has_absent());
        assert_eq!(members.liveness(&holder, 1, LEASE, at(15)), Liveness::Silent);
        members.tidy(|named| *named != holder);
        assert!(!members.has_absent());
        assert_eq!(members.liveness(&holder, 1, LEASE, at(20)), Liveness::Alive(at(35)));
    }
}
