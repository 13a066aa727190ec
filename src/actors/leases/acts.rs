//! Carries out the decisions of the coordinator: reads and writes Leases, and commands the replica.

use actix::Recipient;

use super::LeaseManager;
use super::answers::Answer;
use super::live::LiveLeases;
use crate::actors::messages::protocol::ShardCommand;
use crate::cluster::gate::Fence;
use crate::sharding::lease::{Balance, Claim, Heartbeat};
use crate::sharding::{Action, ShardId};
use crate::telemetry::metrics::labels::Handover;

impl LeaseManager {
    pub(super) fn act(&mut self, action: Action, replica: &Recipient<ShardCommand>) {
        match action {
            Action::WriteHeartbeat(heartbeat) => self.write_heartbeat(heartbeat),
            Action::ReadHeartbeat(identity) => {
                let (live, name) = (self.live(), self.codec.heartbeat_name(&identity));
                let known = self.coordinator.heartbeat_version(&identity);
                self.answers.push(Box::pin(async move {
                    let found = live.read(&name, known).await;
                    Answer::Read(identity, found)
                }));
            }
            Action::DeleteHeartbeat(identity, version) => {
                let (leases, name) = (self.leases.clone(), self.codec.heartbeat_name(&identity));
                self.answers.push(Box::pin(async move {
                    if let Err(error) = leases.delete(&name, version).await {
                        tracing::debug!(%error, name, "a heartbeat was not deleted");
                    }
                    Answer::Nothing
                }));
            }
            Action::WriteClaim(claim) => self.write_claim(claim),
            Action::WriteBalance(balance) => self.write_balance(balance),
            Action::Start(shard, epoch) => {
                let until = self.coordinator.acts_until().map_or(self.origin, |until| self.origin + until);
                let fence = Fence::until(until, self.cx.boot_clock.clone());
                self.fences.insert(shard, fence.clone());
                self.count(Handover::Acquired);
                let version = self.history.newest();
                replica.do_send(ShardCommand::Start { shard, epoch, fence, version });
            }
            Action::Drain(shard) => replica.do_send(ShardCommand::Drain(shard)),
            Action::Drop(shard) => {
                self.close(shard);
                self.count(Handover::Lost);
                tracing::warn!(%shard, "a shard was lost");
                replica.do_send(ShardCommand::Drop(shard));
            }
            Action::Left => {}
        }
    }

    fn live(&self) -> LiveLeases {
        LiveLeases { client: self.leases.clone(), codec: self.codec.clone(), history: self.history.clone() }
    }

    pub(super) fn close(&mut self, shard: ShardId) {
        self.claimed.remove(&shard);
        if let Some(fence) = self.fences.remove(&shard) {
            fence.close();
        }
    }

    fn write_heartbeat(&mut self, heartbeat: Heartbeat) {
        let (live, sent, leaving) = (self.live(), self.instant(), heartbeat.leaving);
        let lease = self.codec.heartbeat(&heartbeat, self.cx.clock.now());
        self.answers.push(Box::pin(async move {
            let (written, found) = live.write(&lease).await;
            Answer::Heartbeat { sent, leaving, found, written }
        }));
    }

    fn write_claim(&mut self, claim: Claim) {
        if claim.holder.is_none() {
            self.close(claim.shard);
        } else {
            self.claimed.insert(claim.shard, self.instant());
        }
        let live = self.live();
        let lease = self.codec.claim(&claim, self.cx.config.lease_duration, self.cx.clock.now());
        self.answers.push(Box::pin(async move {
            let (written, found) = live.write(&lease).await;
            Answer::Claim { claim, found, written }
        }));
    }

    fn write_balance(&self, balance: Balance) {
        tracing::info!(shards = balance.moves.len(), "shards change places: work is spread unevenly");
        let (live, lease) = (self.live(), self.codec.balance(&balance));
        self.answers.push(Box::pin(async move {
            let (written, found) = live.write(&lease).await;
            Answer::Balance { balance, found, written }
        }));
    }
}
