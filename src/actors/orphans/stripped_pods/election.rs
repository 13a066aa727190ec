//! Elects the replica that looks for pods without labels: the one that holds a Lease, by `kube-leader-election`.
//!
//! The crate compares wall clocks and writes without the version that it read, so two replicas may be elected
//! for a while. This election suits only work that two replicas may do; shards have claims of another kind
//! ([`crate::sharding`]).

use std::sync::Arc;
use std::time::Duration;

use kube_leader_election::{Error, LeaseLock, LeaseLockParams, LeaseLockResult};
use tokio::task::AbortHandle;

use super::StrippedPods;
use crate::actors::config::ControllerConfig;
use crate::cluster::supervision::supervised;
use crate::job::names;
use crate::sharding::lease::LeaseCodec;

/// Shortest duration of the Lease, which counts whole seconds.
const MIN_LEASE_TTL: Duration = Duration::from_secs(1);

/// A candidate, until it steps down or is abandoned.
pub struct Election {
    candidate: AbortHandle,
    lock: LeaseLock,
}

impl Election {
    /// Starts a candidate on the current tokio runtime. It reports to `to` whether this replica is the
    /// leader.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(client: kube::Client, config: &ControllerConfig, to: StrippedPods) -> Self {
        let lease_ttl = config.lease_duration.max(MIN_LEASE_TTL);
        let lock = || {
            let params = LeaseLockParams {
                holder_id: config.identity.clone(),
                lease_name: LeaseCodec::new(&config.controller_name, names::EXTERNAL_CONTROLLER)
                    .housekeeper_name(),
                lease_ttl,
            };
            LeaseLock::new(client.clone(), &config.lease_namespace, params)
        };
        let (candidate, own) = (Arc::new(lock()), lock());
        let run = move || run(candidate.clone(), lease_ttl / 3, to.clone());
        let candidate = tokio::spawn(supervised("the election", run)).abort_handle();
        Self { candidate, lock: own }
    }

    /// Steps down, so that another replica need not wait for the Lease to expire.
    pub async fn step_down(self) {
        self.candidate.abort();
        if let Err(error) = self.lock.step_down().await {
            tracing::debug!(%error, "not stepped down as the replica that looks for pods without labels");
        }
    }

    /// Ends without stepping down, as a crash would.
    pub fn abandon(self) {
        self.candidate.abort();
    }
}

async fn run(lock: Arc<LeaseLock>, period: Duration, to: StrippedPods) {
    let mut beat = tokio::time::interval(period);
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        // Without an answer another replica may be the leader by now. A while without any leader does no
        // harm.
        let elected = match lock.try_acquire_or_renew().await {
            Ok(result) => matches!(result, LeaseLockResult::Acquired(_)),
            // Another candidate was faster.
            Err(Error::CreateLease(kube::Error::Api(status))) if status.is_already_exists() => false,
            Err(error) => {
                tracing::warn!(%error, "the election of the replica that looks for pods without labels failed");
                false
            }
        };
        to.lead(elected);
    }
}
