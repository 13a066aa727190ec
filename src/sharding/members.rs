//! Which replicas live, as seen from one of them.
//!
//! Clocks of machines are never compared: a heartbeat is silent once this replica has seen it unchanged for as long as
//! its owner says that it holds, by this replica's own monotonic clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Moment;
use super::lease::{Heartbeat, Holder};

/// The heartbeats of all replicas.
#[derive(Debug, Default)]
pub(super) struct Members {
    seen: BTreeMap<Arc<str>, Member>,
    /// Holders of claims that have no heartbeat.
    absent: BTreeMap<Holder, Silence>,
}

/// A heartbeat, and how long it has been what it is.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) beat: Heartbeat,
    silence: Silence,
}

/// How long nothing has been heard.
#[derive(Clone, Copy, Debug)]
struct Silence {
    /// When that was first known.
    since: Moment,
    proof: Proof,
}

/// Whether the silence is one of the replica, and not of a watch that is behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Nobody has asked since patience has ended.
    None,
    /// A live read has been sent after that. One that was sent before proves nothing.
    Asked,
    /// Its answer has shown nothing new.
    Given,
}

/// What is known of the holder of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Liveness {
    /// It may act, at least until this moment.
    Alive(Moment),
    /// It has been silent for long enough; a live read is to confirm that the watch is not behind.
    Silent,
    /// It can never act again for this claim.
    Dead,
}

impl Silence {
    fn from(since: Moment) -> Self {
        Self { since, proof: Proof::None }
    }

    fn standing(self, patience: Duration, now: Moment) -> Liveness {
        let end = self.since + patience;
        match self.proof {
            _ if now < end => Liveness::Alive(end),
            Proof::Given => Liveness::Dead,
            Proof::None | Proof::Asked => Liveness::Silent,
        }
    }

    fn ask(&mut self, patience: Duration, now: Moment) {
        if now >= self.since + patience && self.proof == Proof::None {
            self.proof = Proof::Asked;
        }
    }

    fn prove(&mut self) {
        if self.proof == Proof::Asked {
            self.proof = Proof::Given;
        }
    }
}

impl Member {
    fn patience(&self, least: Duration) -> Duration {
        self.beat.lease_duration.max(least)
    }
}

impl Members {
    /// Takes in a heartbeat as it stands. Whether it was news.
    pub(super) fn saw(&mut self, beat: Heartbeat, now: Moment) -> bool {
        let known = self.seen.get(&beat.holder.identity);
        if known.is_some_and(|known| known.beat.version >= beat.version) {
            return false;
        }
        self.absent.remove(&beat.holder);
        self.seen.insert(beat.holder.identity.clone(), Member { beat, silence: Silence::from(now) });
        true
    }

    /// Takes in that a heartbeat is gone, in the version `version` or later.
    pub(super) fn gone(&mut self, identity: &str, version: u64, now: Moment) {
        if self.seen.get(identity).is_some_and(|known| known.beat.version <= version)
            && let Some(known) = self.seen.remove(identity)
        {
            self.absent.insert(known.beat.holder, Silence::from(now));
        }
    }

    /// Takes in that a claim has been written in this version. If it is newer than the heartbeat known, and by another
    /// life, then the heartbeat of that life has not been seen yet, and what is known of the replica proves nothing.
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
            member.silence.ask(member.patience(least), now);
        }
        for (_, silence) in self.absent.iter_mut().filter(|(holder, _)| *holder.identity == *identity) {
            silence.ask(least, now);
        }
    }

    /// Takes in what a live read has found: nothing new confirms the silence.
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

    /// The heartbeat of a replica, if it has been renewed since then.
    pub(super) fn renewed_since(&self, identity: &str, since: Moment) -> Option<&Heartbeat> {
        self.seen.get(identity).filter(|member| member.silence.since >= since).map(|member| &member.beat)
    }

    /// What is known of the holder of a Lease of this version; `least` is the shortest patience.
    pub(super) fn standing(
        &mut self,
        holder: &Holder,
        version: u64,
        least: Duration,
        now: Moment,
    ) -> Liveness {
        match self.seen.get(&holder.identity) {
            // Another life has begun since: it does so only after this one has ended.
            Some(member) if member.beat.holder.session != holder.session && member.beat.version > version => {
                Liveness::Dead
            }
            Some(member) => member.silence.standing(member.patience(least), now),
            None => self.absent.entry(holder.clone()).or_insert(Silence::from(now)).standing(least, now),
        }
    }

    /// Identities of replicas that are not silent and do not leave, and when the first of them may fall silent.
    pub(super) fn living(&self, least: Duration, now: Moment) -> (Vec<&Arc<str>>, Option<Moment>) {
        let mut next = None;
        let mut living = Vec::new();
        for (identity, member) in &self.seen {
            let end = member.silence.since + member.patience(least);
            if now < end {
                next = Some(next.map_or(end, |next: Moment| next.min(end)));
                if !member.beat.leaving {
                    living.push(identity);
                }
            }
        }
        (living, next)
    }

    /// Heartbeats that nobody has renewed for as long as they hold.
    pub(super) fn silent(&self, least: Duration, now: Moment) -> Vec<(Arc<str>, u64)> {
        self.seen
            .iter()
            .filter(|(_, member)| now >= member.silence.since + member.patience(least))
            .map(|(identity, member)| (identity.clone(), member.beat.version))
            .collect()
    }

    /// Forgets holders without heartbeat that no claim names any more.
    pub(super) fn tidy(&mut self, is_holder: impl Fn(&Holder) -> bool) {
        self.absent.retain(|holder, _| is_holder(holder));
    }

    /// Whether there may be something to forget.
    pub(super) fn has_absent(&self) -> bool {
        !self.absent.is_empty()
    }
}
