//! Who keeps house: the replica that holds one Lease, by `kube-leader-election`.
//!
//! It compares wall clocks and writes without the version that it read, so two replicas may be elected for a while. That is
//! good enough for work that two may do, and for nothing else: shards have claims of another kind ([`crate::sharding`]).

use std::time::Duration;

use actix::Recipient;
use kube_leader_election::{LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::task::AbortHandle;

use crate::actors::config::ControllerConfig;
use crate::actors::protocol::LeadershipChanged;
use crate::job::names;
use crate::sharding::lease::LeaseWriter;

/// Shortest time that the Lease can hold: it counts whole seconds.
const SHORTEST: Duration = Duration::from_secs(1);

/// Runs for the office while it lives.
pub struct Election {
    candidate: AbortHandle,
    lock: LeaseLock,
}

impl Election {
    /// Runs for the office on the current tokio runtime, and tells `to` whether it is held.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(client: kube::Client, config: &ControllerConfig, to: Recipient<LeadershipChanged>) -> Self {
        let lease_ttl = config.lease_duration.max(SHORTEST);
        let lock = || {
            let params = LeaseLockParams {
                holder_id: config.identity.clone(),
                lease_name: LeaseWriter::new(&config.controller_name, names::EXTERNAL_CONTROLLER)
                    .housekeeper_name(),
                lease_ttl,
            };
            LeaseLock::new(client.clone(), &config.lease_namespace, params)
        };
        let candidate = tokio::spawn(run(lock(), lease_ttl / 3, to)).abort_handle();
        Self { candidate, lock: lock() }
    }

    /// Steps down, so that another replica need not wait.
    pub async fn step_down(self) {
        self.candidate.abort();
        if let Err(error) = self.lock.step_down().await {
            tracing::debug!(%error, "not stepped down as housekeeper");
        }
    }

    /// Disappears without a word, as in a crash.
    pub fn abandon(self) {
        self.candidate.abort();
    }
}

async fn run(lock: LeaseLock, period: Duration, to: Recipient<LeadershipChanged>) {
    let mut beat = tokio::time::interval(period);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        // Without an answer the office may be another's by now; nobody is harmed if it is left for a while.
        let elected = match lock.try_acquire_or_renew().await {
            Ok(result) => matches!(result, LeaseLockResult::Acquired(_)),
            Err(error) => {
                tracing::warn!(%error, "the housekeepers' election failed");
                false
            }
        };
        if to.send(LeadershipChanged(elected)).await.is_err() {
            return;
        }
    }
}
