//! A shard as one replica sees it: its lifecycle, its claim, and the pending write of the claim.

use std::time::Duration;

use super::Moment;
use super::action::{Action, Written};
use super::hash::ShardId;
use super::lease::{Claim, Holder};
use super::lifecycle::{ShardCommand, ShardEvent, ShardState};
use super::pauses::Pauses;
use crate::mutants::{Mutant, is};

/// The state of a shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) state: ShardState,
    /// The claim as last seen or written.
    pub(super) claim: Option<Claim>,
    /// The epoch of our claim.
    pub(super) epoch: u64,
    /// The highest epoch of the claims that were deleted or cannot be read: the next one has to be higher.
    gone_epoch: u64,
    /// The version of a claim that cannot be read, which the next write replaces; 0 for none.
    unreadable: u64,
    /// The last writes failed: the pauses after them.
    refusals: Pauses,
    /// Nothing is written before this moment.
    pub(super) retry_at: Option<Moment>,
    /// The claim was deleted while it had a holder: the shard is not claimed before this moment.
    withheld: Option<Moment>,
    /// Failures in a row of its actors, and when this replica may claim the shard again after the last.
    failures: Pauses,
    rests_until: Option<Moment>,
    /// The pending write of the claim.
    write: Write,
    /// Commands that have not been turned into actions yet.
    commands: Vec<ShardCommand>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Write {
    #[default]
    Nothing,
    /// Not sent yet; the holder to write.
    Due(Option<Holder>),
    /// Sent, not answered yet.
    UnderWay,
}

/// Pause before a shard is claimed again whose actors have panicked: the first, and the longest.
const RESTS: (Moment, Moment) = (Moment::from_secs(1), Moment::from_secs(60));
/// A shard that has run for as long as this since its pause is well again.
const WELL: Moment = Moment::from_secs(300);
/// Longest pause after a claim that failed. Heartbeats may succeed while claims are refused, as by a quota.
const LONGEST_RETRY: Moment = Moment::from_secs(30);
/// The same after a release, for which other replicas wait.
const LONGEST_RELEASE_RETRY: Moment = Moment::from_secs(4);

impl Shard {
    pub(super) fn step(&mut self, event: ShardEvent) {
        let (next, command) = self.state.step(event);
        self.state = next;
        self.commands.extend(command);
    }

    /// The current owner.
    pub(super) fn owner(&self) -> Option<&Holder> {
        self.claim.as_ref()?.holder.as_ref()
    }

    /// Records the claim as observed. Returns whether it was newer than the known one.
    pub(super) fn claim_seen(&mut self, claim: Claim, me: &Holder) -> bool {
        if self.claim.as_ref().is_some_and(|known| known.version >= claim.version) {
            return false;
        }
        let taken = claim.holder.as_ref() != Some(me) || claim.epoch != self.epoch;
        self.withheld = None;
        self.claim = Some(claim);
        // Claims are accepted again.
        self.refusals = Pauses::default();
        match self.state {
            _ if !taken => {}
            ShardState::Claiming => {}
            // The watch shows the release, or the next claim, before the answer to the release arrives.
            ShardState::Draining if self.write == Write::UnderWay => self.step(ShardEvent::ReleaseWritten),
            _ => self.taken_away(),
        }
        true
    }

    /// Records that the claim is gone; `version` is the last version seen, or later. Returns whether this was
    /// new.
    pub(super) fn claim_gone(&mut self, version: u64, withheld: Moment) -> bool {
        self.unreadable = 0;
        let Some(known) = self.claim.take_if(|known| known.version <= version) else { return false };
        self.gone_epoch = self.gone_epoch.max(known.epoch);
        if known.holder.is_some() {
            self.withheld = Some(withheld);
        }
        self.taken_away();
        true
    }

    fn highest_epoch(&self) -> u64 {
        self.claim.as_ref().map_or(0, |claim| claim.epoch).max(self.gone_epoch)
    }

    /// Records that the claim exists in this version and epoch, but that the rest of it cannot be read. The
    /// shard may have an owner: unless that is us, the claim is replaced only after `withheld`.
    pub(super) fn claim_unreadable(&mut self, version: u64, epoch: u64, me: &Holder, withheld: Moment) {
        if self.unreadable != version && self.owner() != Some(me) {
            self.withheld = Some(withheld);
        }
        self.unreadable = version;
        self.gone_epoch = self.gone_epoch.max(epoch);
    }

    /// Records that the shard is no longer ours. A write that is still due would overwrite another replica's
    /// claim.
    pub(super) fn taken_away(&mut self) {
        if is(Mutant::LostShardKept) {
            return;
        }
        self.step(ShardEvent::TakenAway);
        self.commands.retain(|command| *command != ShardCommand::Release);
        if matches!(self.write, Write::Due(_)) {
            self.write = Write::Nothing;
        }
    }

    /// A new session begins: the refusals of the last one say nothing about it.
    pub(super) fn forget_refusals(&mut self) {
        (self.refusals, self.retry_at) = (Pauses::default(), None);
    }

    /// Until when the shard must not be claimed; `None` if it may be now.
    pub(super) fn withheld_until(&self, now: Moment) -> Option<Moment> {
        [self.withheld, self.retry_at, self.rests_until]
            .into_iter()
            .flatten()
            .filter(|until| now < *until)
            .max()
    }

    /// Its actors have panicked: it is handed over, and rests for longer with each time in a row.
    pub(super) fn failed(&mut self, now: Moment) {
        let is_well = self.rests_until.is_some_and(|until| now >= until + WELL);
        if is_well {
            self.failures = Pauses::default();
        }
        self.rests_until = Some(now + self.failures.next(RESTS.0, RESTS.1));
        self.step(ShardEvent::Unwant);
    }

    /// Claims the shard, unless a write of its claim is pending.
    pub(super) fn claim_for(&mut self, me: &Holder) {
        if self.write == Write::Nothing {
            self.step(ShardEvent::Want);
            self.write = Write::Due(Some(me.clone()));
        }
    }

    /// Hands the shard over. If it is free but the claim names us, as after a lost answer, the claim is
    /// released at once.
    pub(super) fn hand_over(&mut self, me: &Holder) {
        self.step(ShardEvent::Unwant);
        if self.state == ShardState::Free && self.owner() == Some(me) && self.write == Write::Nothing {
            self.write = Write::Due(None);
        }
    }

    /// Takes the answer to a write of the claim. `valid`: the replica may act, and the holder written is its
    /// present session. `pause`: how long nothing is written after the first failure.
    pub(super) fn claim_written(
        &mut self,
        claim: &Claim,
        written: Written,
        valid: bool,
        (now, pause): (Moment, Duration),
    ) {
        self.write = Write::Nothing;
        if written == Written::Failed {
            let longest = if claim.holder.is_some() { LONGEST_RETRY } else { LONGEST_RELEASE_RETRY };
            self.retry_at = Some(now + self.refusals.next(pause, longest));
        } else {
            self.forget_refusals();
        }
        let Written::As(version) = written else {
            self.step(ShardEvent::ClaimRefused);
            // The release is written again, unless the claim turns out to be another replica's.
            if self.state == ShardState::Draining {
                self.write = Write::Due(None);
            }
            return;
        };
        let is_newest = self.claim.as_ref().is_none_or(|known| known.version <= version);
        if is_newest {
            self.claim = Some(Claim { version, ..claim.clone() });
        }
        match claim.holder {
            None => self.step(ShardEvent::ReleaseWritten),
            Some(_) if is_newest && valid => {
                self.epoch = claim.epoch;
                self.step(ShardEvent::ClaimWritten);
            }
            Some(_) => self.step(ShardEvent::ClaimRefused),
        }
    }

    /// Whether the shard is not free, or a write of its claim is pending.
    pub(super) fn is_busy(&self) -> bool {
        self.state != ShardState::Free || self.write != Write::Nothing
    }

    /// The actions that are due.
    pub(super) fn actions(&mut self, id: ShardId, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        for command in std::mem::take(&mut self.commands) {
            match command {
                // Claims and releases are written below.
                ShardCommand::Claim => {}
                ShardCommand::Release => self.write = Write::Due(None),
                ShardCommand::Start => actions.push(Action::Start(id, self.epoch)),
                ShardCommand::Drain => actions.push(Action::Drain(id)),
                ShardCommand::Drop => actions.push(Action::Drop(id)),
            }
        }
        let may_write = self.retry_at.is_none_or(|at| at <= now);
        if let Write::Due(holder) = &self.write
            && may_write
        {
            let version = self.claim.as_ref().map_or(0, |claim| claim.version).max(self.unreadable);
            let epoch = self.highest_epoch() + u64::from(holder.is_some() && !is(Mutant::EpochNotRaised));
            let holder = holder.clone();
            self.write = Write::UnderWay;
            actions.push(Action::WriteClaim(Claim { shard: id, version, holder, epoch }));
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The version and epoch that the claim is written over and with, at this second.
    fn written(shard: &mut Shard, me: &Holder, second: u64) -> Option<(u64, u64)> {
        let now = Duration::from_secs(second);
        if shard.withheld_until(now).is_none() {
            shard.claim_for(me);
        }
        shard.actions(ShardId(0), now).into_iter().find_map(|action| match action {
            Action::WriteClaim(claim) => Some((claim.version, claim.epoch)),
            _ => None,
        })
    }

    #[test]
    fn a_shard_that_fails_is_handed_over_and_rests_for_longer_each_time() {
        let me = Holder { identity: "me".into(), session: "s".into() };
        let at = Duration::from_secs;
        let mut shard = Shard::default();
        let mut rests = Vec::new();
        for now in [0, 100, 200, 300, 400, 500, 600, 700, 2_000].map(at) {
            shard.claim_for(&me);
            let claims = shard.actions(ShardId(0), now);
            let Some(Action::WriteClaim(claim)) = claims.last() else { panic!("{claims:?}") };
            shard.claim_written(claim, Written::As(claim.version + 1), true, (now, Duration::ZERO));
            let started = shard.actions(ShardId(0), now);
            assert_eq!(started, [Action::Start(ShardId(0), claim.epoch)]);
            shard.failed(now);
            assert_eq!(shard.actions(ShardId(0), now), [Action::Drain(ShardId(0))]);
            shard.step(ShardEvent::Drained);
            let released = shard.actions(ShardId(0), now);
            let [Action::WriteClaim(release)] = &*released else { panic!("{released:?}") };
            assert_eq!((release.holder.as_ref(), release.version), (None, claim.version + 1));
            shard.claim_written(release, Written::As(release.version + 1), true, (now, Duration::ZERO));
            assert_eq!(shard.state, ShardState::Free);
            rests.push(shard.withheld_until(now).map(|until| (until - now).as_secs()));
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 1].map(Some));
    }

    /// A shard whose claim is written, in version 1, and answered if `answered`.
    fn claimed(me: &Holder, answered: bool) -> Shard {
        let mut shard = Shard::default();
        assert!(!shard.is_busy());
        shard.claim_for(me);
        let claims = shard.actions(ShardId(0), Moment::ZERO);
        let [Action::WriteClaim(claim)] = &*claims else { panic!("{claims:?}") };
        if answered {
            shard.claim_written(claim, Written::As(1), true, (Moment::ZERO, Duration::ZERO));
            assert_eq!(shard.actions(ShardId(0), Moment::ZERO), [Action::Start(ShardId(0), 1)]);
        }
        assert!(shard.is_busy());
        shard
    }

    #[test]
    fn a_claim_that_another_has_replaced_before_it_is_answered_starts_nothing() {
        let [me, other] =
            ["me", "other"].map(|identity| Holder { identity: identity.into(), session: "s".into() });
        let mut shard = claimed(&me, false);
        let claim = |version, holder: &Holder, epoch| Claim {
            shard: ShardId(0),
            version,
            holder: Some(holder.clone()),
            epoch,
        };
        shard.claim_seen(claim(5, &other, 2), &me);
        shard.claim_written(&claim(0, &me, 1), Written::As(4), true, (Moment::ZERO, Duration::ZERO));
        assert_eq!((shard.state, shard.owner()), (ShardState::Free, Some(&other)));
        assert_eq!(shard.actions(ShardId(0), Moment::ZERO), []);
    }

    /// The watch may show the release before it is answered.
    #[test]
    fn a_shard_is_handed_over_once_its_release_is_answered_or_shown() {
        let me = Holder { identity: "me".into(), session: "s".into() };
        for shown in [false, true] {
            let mut shard = claimed(&me, true);
            shard.hand_over(&me);
            assert_eq!(shard.actions(ShardId(0), Moment::ZERO), [Action::Drain(ShardId(0))]);
            assert!(shard.is_busy(), "requests are under way");
            shard.step(ShardEvent::Drained);
            let released = shard.actions(ShardId(0), Moment::ZERO);
            let [Action::WriteClaim(release)] = &*released else { panic!("{released:?}") };
            assert!(shard.is_busy(), "it is not answered");
            if shown {
                shard.claim_seen(Claim { version: 2, ..release.clone() }, &me);
                assert_eq!((shard.state, shard.is_busy()), (ShardState::Free, true));
            }
            shard.claim_written(release, Written::As(2), true, (Moment::ZERO, Duration::ZERO));
            assert_eq!((shard.state, shard.is_busy()), (ShardState::Free, false));
            assert_eq!(shard.actions(ShardId(0), Moment::ZERO), [], "nothing has to be dropped");
        }
    }

    /// The pauses after refused writes of the claim, in seconds.
    fn pauses(shard: &mut Shard, holder: Option<&Holder>) -> Vec<u64> {
        let claim = |version| Claim { shard: ShardId(0), version, holder: holder.cloned(), epoch: 1 };
        let refused = |now: u64| {
            let now = Duration::from_secs(now);
            shard.claim_written(&claim(1), Written::Failed, true, (now, Duration::from_secs(1)));
            shard.retry_at.map_or(0, |at| (at - now).as_secs())
        };
        (0..6).map(refused).collect()
    }

    /// Others wait for a release, so its pauses stay short. A claim that is seen shows that claims are accepted.
    #[test]
    fn refused_writes_of_a_claim_pause_for_longer_each_time() {
        let [me, other] =
            ["me", "other"].map(|identity| Holder { identity: identity.into(), session: "s".into() });
        let mut shard = claimed(&me, false);
        assert_eq!(pauses(&mut shard, Some(&me)), [1, 2, 4, 8, 16, 30]);
        shard.claim_seen(Claim { shard: ShardId(0), version: 5, holder: Some(other), epoch: 2 }, &me);
        assert_eq!(pauses(&mut shard, Some(&me))[0], 1);
        let mut leaving = claimed(&me, true);
        assert_eq!(pauses(&mut leaving, None), [1, 2, 4, 4, 4, 4]);
    }

    #[test]
    fn a_claim_that_cannot_be_read_is_replaced_once_its_owner_cannot_be_alive() {
        let me = Holder { identity: "me".into(), session: "s".into() };
        let until = Duration::from_secs(15);
        let mut shard = Shard::default();
        shard.claim_unreadable(900, 7, &me, until);
        // The claim was read again, and is the same.
        shard.claim_unreadable(900, 7, &me, until * 2);
        assert_eq!(written(&mut shard, &me, 14), None, "its owner may be alive");
        assert_eq!(written(&mut shard, &me, 15), Some((900, 8)));
        // Our own claim needs no patience: only its version was unknown.
        let claim = |version| Claim { shard: ShardId(0), version, holder: Some(me.clone()), epoch: 8 };
        shard.claim_written(&claim(900), Written::As(901), true, (until, Duration::ZERO));
        shard.claim_unreadable(950, 0, &me, until * 9);
        assert_eq!(shard.withheld_until(until), None);
        shard.step(ShardEvent::Unwant);
        shard.step(ShardEvent::Drained);
        let released = shard.actions(ShardId(0), until);
        let over = released.iter().find_map(|action| match action {
            Action::WriteClaim(claim) => Some((claim.version, claim.holder.is_none(), claim.epoch)),
            _ => None,
        });
        assert_eq!(over, Some((950, true, 8)));
    }
}
