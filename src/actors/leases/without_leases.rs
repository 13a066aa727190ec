//! A replica that acts for all shards without Leases, as after a bug in the lease manager. With it, tests
//! show that two owners at once create no pod twice and count none twice.

use std::collections::BTreeMap;

use actix::Recipient;

use super::{LeaseManager, View};
use crate::actors::messages::protocol::{ShardCommand, ShardProgress};
use crate::cluster::gate::Fence;
use crate::sharding::{ShardId, ShardState};

impl LeaseManager {
    /// Starts all shards, and ends once all are drained after [`ShardProgress::Leave`].
    pub(super) async fn run_without_leases(mut self, replica: Recipient<ShardCommand>) {
        let shards: Vec<_> = self.cx.config.shards.shards().collect();
        let mut states: BTreeMap<_, _> = shards.iter().map(|shard| (*shard, ShardState::Syncing)).collect();
        for shard in &shards {
            self.start_without_lease(*shard, 0, &replica);
        }
        let mut left = 0;
        while let Some(report) = self.reports.recv().await {
            match report {
                ShardProgress::Synced(shard, _) => _ = states.insert(shard, ShardState::Active),
                ShardProgress::Leave => {
                    shards.iter().for_each(|shard| replica.do_send(ShardCommand::Drain(*shard)))
                }
                ShardProgress::Drained(_) => left += 1,
                ShardProgress::Failed(shard, epoch) => {
                    states.insert(shard, ShardState::Syncing);
                    self.close(shard);
                    replica.do_send(ShardCommand::Drop(shard));
                    self.start_without_lease(shard, epoch + 1, &replica);
                }
                ShardProgress::Dropped(_) => {}
            }
            if left == shards.len() {
                return self.end(None);
            }
            let ready = states.values().all(|state| *state == ShardState::Active);
            let states = states.iter().map(|(shard, state)| (*shard, *state, 0));
            let view = View::of(ready, None, None, states);
            self.view.send_modify(|shown| *shown = view);
        }
    }

    fn start_without_lease(&mut self, shard: ShardId, epoch: u64, replica: &Recipient<ShardCommand>) {
        let fence = Fence::unlimited();
        self.fences.insert(shard, fence.clone());
        replica.do_send(ShardCommand::Start { shard, epoch, fence, version: 0 });
    }
}
