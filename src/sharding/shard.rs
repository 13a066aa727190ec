//! One shard as its replica sees it: its place in the lifecycle, its claim, and the write of the claim under way.

use super::Moment;
use super::coordinator::{Action, Written};
use super::hash::ShardId;
use super::lease::{Claim, Holder};
use super::lifecycle::{ShardCommand, ShardEvent, ShardState};

/// One shard.
#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) state: ShardState,
    /// The claim as last seen or written.
    pub(super) claim: Option<Claim>,
    /// The epoch of our claim.
    pub(super) epoch: u64,
    /// The epoch of a claim that is gone: the next one is higher, too.
    gone_epoch: u64,
    /// Nothing is written before, since the last write failed.
    pub(super) retry_at: Option<Moment>,
    /// The claim was deleted while somebody held it: nobody takes the shard before.
    withheld: Option<Moment>,
    /// What is to be written to the claim, and when it has left.
    write: Write,
    /// What is to be done and has not been asked for.
    commands: Vec<ShardCommand>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Write {
    #[default]
    Nothing,
    /// To be written, with this holder.
    Due(Option<Holder>),
    /// Under way.
    UnderWay,
}

impl Shard {
    pub(super) fn step(&mut self, event: ShardEvent) {
        let (next, command) = self.state.step(event);
        self.state = next;
        self.commands.extend(command);
    }

    /// Who owns it.
    pub(super) fn owner(&self) -> Option<&Holder> {
        self.claim.as_ref()?.holder.as_ref()
    }

    /// Takes in the claim as it stands. Whether it was news.
    pub(super) fn claim_seen(&mut self, claim: Claim, me: &Holder) -> bool {
        if self.claim.as_ref().is_some_and(|known| known.version >= claim.version) {
            return false;
        }
        let taken = claim.holder.as_ref() != Some(me) || claim.epoch != self.epoch;
        self.withheld = None;
        self.claim = Some(claim);
        match self.state {
            _ if !taken => {}
            ShardState::Claiming => {}
            // The watch shows the release, or the claim that has followed it, before its answer comes.
            ShardState::Draining if self.write == Write::UnderWay => self.step(ShardEvent::ReleaseWritten),
            _ => self.taken_away(),
        }
        true
    }

    /// Takes in that the claim is gone, in this version or a later one. Whether it was news.
    pub(super) fn claim_gone(&mut self, version: u64, withheld: Moment) -> bool {
        let Some(known) = self.claim.take_if(|known| known.version <= version) else { return false };
        self.gone_epoch = known.epoch;
        if known.holder.is_some() {
            self.withheld = Some(withheld);
        }
        self.taken_away();
        true
    }

    /// Takes in that it is no longer ours. What was to be written would now be written over somebody else's claim.
    pub(super) fn taken_away(&mut self) {
        self.step(ShardEvent::TakenAway);
        self.commands.retain(|command| *command != ShardCommand::Release);
        if matches!(self.write, Write::Due(_)) {
            self.write = Write::Nothing;
        }
    }

    /// Until when nobody takes it, if not now.
    pub(super) fn withheld_until(&self, now: Moment) -> Option<Moment> {
        [self.withheld, self.retry_at].into_iter().flatten().filter(|until| now < *until).max()
    }

    /// Claims it, unless something is being written.
    pub(super) fn claim_for(&mut self, me: &Holder) {
        if self.write == Write::Nothing {
            self.step(ShardEvent::Want);
            self.write = Write::Due(Some(me.clone()));
        }
    }

    /// Gives it away. A claim of ours that nobody knows of is released at once.
    pub(super) fn give_away(&mut self, me: &Holder) {
        self.step(ShardEvent::Unwant);
        if self.state == ShardState::Free && self.owner() == Some(me) && self.write == Write::Nothing {
            self.write = Write::Due(None);
        }
    }

    /// Takes in the answer to a write of the claim; `valid` if it is by the replica in its present life.
    pub(super) fn claim_written(&mut self, claim: &Claim, written: Written, valid: bool, retry_at: Moment) {
        self.write = Write::Nothing;
        self.retry_at = (written == Written::Failed).then_some(retry_at);
        let Written::As(version) = written else {
            self.step(ShardEvent::ClaimRefused);
            // The claim is given up in the end, unless it turns out to be another's.
            if self.state == ShardState::Draining {
                self.write = Write::Due(None);
            }
            return;
        };
        let stands = self.claim.as_ref().is_none_or(|known| known.version <= version);
        if stands {
            self.claim = Some(Claim { version, ..claim.clone() });
        }
        match claim.holder {
            None => self.step(ShardEvent::ReleaseWritten),
            Some(_) if stands && valid => {
                self.epoch = claim.epoch;
                self.step(ShardEvent::ClaimWritten);
            }
            Some(_) => self.step(ShardEvent::ClaimRefused),
        }
    }

    /// Whether anything is under way.
    pub(super) fn is_busy(&self) -> bool {
        self.state != ShardState::Free || self.write != Write::Nothing
    }

    /// What is to be done.
    pub(super) fn actions(&mut self, id: ShardId, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        for command in std::mem::take(&mut self.commands) {
            match command {
                // Both are written below.
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
            let (version, epoch) =
                self.claim.as_ref().map_or((0, self.gone_epoch), |claim| (claim.version, claim.epoch));
            let epoch = epoch + u64::from(holder.is_some());
            let holder = holder.clone();
            self.write = Write::UnderWay;
            actions.push(Action::WriteClaim(Claim { shard: id, version, holder, epoch }));
        }
        actions
    }
}
