//! Whether replicas run, for commands that must not work beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use tokio::time::{Instant, sleep};

use super::lists::objects;
use super::untrusted::Untrusted;
use crate::sharding::lease::{Heartbeat, LONGEST_LEASE, LeaseRecord};

/// Interval between reads of the heartbeats.
const PERIOD: Duration = Duration::from_millis(500);
/// After so long, it is told who is waited for.
const UNTOLD: Duration = Duration::from_secs(30);

/// The heartbeat of a replica.
pub(super) struct Beat {
    /// The namespace of the replica's Leases.
    namespace: String,
    heartbeat: Heartbeat,
}

/// The heartbeats among the selected Leases.
pub(super) async fn heartbeats(leases: &Api<Lease>, selector: &str) -> kube::Result<Vec<Beat>> {
    let listed: Vec<Lease> =
        objects(leases.clone(), &ListParams::default().labels(selector)).try_collect().await?;
    let beat = |lease: &Lease| match LeaseRecord::read(lease)? {
        LeaseRecord::Heartbeat(heartbeat) => {
            Some(Beat { namespace: lease.metadata.namespace.clone().unwrap_or_default(), heartbeat })
        }
        _ => None,
    };
    Ok(listed.iter().filter_map(beat).collect())
}

/// Waits until replicas that leave have left, and until those that have died have been silent for their lease
/// duration, ten minutes at most. Fails if another replica runs, unless it `ends` by itself: asked with the namespace of its Leases.
pub(super) async fn until_no_replica_runs(
    read: impl AsyncFn() -> anyhow::Result<Vec<Beat>>,
    ends: impl AsyncFn(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let mut seen: HashMap<(String, Arc<str>), (u64, Instant)> = HashMap::new();
    let (begun, mut told) = (Instant::now(), false);
    loop {
        let mut waits = false;
        for Beat { namespace, heartbeat } in read().await? {
            let Heartbeat { holder, version, lease_duration, leaving, .. } = heartbeat;
            let replica = (namespace, holder.identity);
            let (known, since) = *seen.entry(replica.clone()).or_insert((version, Instant::now()));
            if known != version {
                anyhow::ensure!(
                    (leaving && begun.elapsed() <= LONGEST_LEASE) || ends(&replica.0).await?,
                    "replica {} runs, with its Leases in namespace {}: stop all replicas first, for example by \
                     scaling their Deployment to 0, or delete its Lease if that is no replica's",
                    Untrusted::from(&*replica.1),
                    Untrusted::from(&*replica.0)
                );
                seen.insert(replica, (version, Instant::now()));
                waits = true;
            } else {
                let is_awaited = since.elapsed() < lease_duration.min(LONGEST_LEASE);
                waits |= is_awaited;
                if is_awaited && begun.elapsed() > UNTOLD && !std::mem::replace(&mut told, true) {
                    let (namespace, identity) = (Untrusted::from(replica.0), Untrusted::from(&*replica.1));
                    tracing::warn!(
                        "waiting until replica {identity}, with its Leases in namespace {namespace}, is silent for long \
                         enough: delete its Lease if that is no replica's"
                    );
                }
            }
        }
        if !waits {
            return Ok(());
        }
        sleep(PERIOD).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::lease::Holder;

    fn beat(version: u64, lease_duration: Duration) -> Beat {
        let holder = Holder { identity: "r".into(), session: "s".into() };
        let heartbeat = Heartbeat { holder, version, lease_duration, leaving: false, loads: None };
        Beat { namespace: "tenant".to_owned(), heartbeat }
    }

    async fn waits_for(lease_duration: Duration) -> u64 {
        let begun = Instant::now();
        let read = async || Ok(vec![beat(1, lease_duration)]);
        assert!(until_no_replica_runs(read, async |_: &str| Ok(false)).await.is_ok());
        begun.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_replica_is_awaited_for_its_lease_but_not_for_ever() {
        assert_eq!(waits_for(Duration::from_secs(15)).await, 15);
        assert_eq!(waits_for(Duration::from_secs(i32::MAX as u64)).await, 600);
    }

    /// It may say that it leaves, and stay.
    #[tokio::test(start_paused = true)]
    async fn one_that_renews_is_named() {
        let (begun, renewals) = (Instant::now(), std::sync::atomic::AtomicU64::new(0));
        let read = async || {
            let version = renewals.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let mut beat = beat(version, Duration::from_secs(15));
            beat.heartbeat.leaving = begun.elapsed() > Duration::ZERO;
            Ok(vec![beat])
        };
        let error = until_no_replica_runs(read, async |_: &str| Ok(false)).await.err().map(|e| e.to_string());
        assert!(
            error.is_some_and(|error| error.contains("replica r runs, with its Leases in namespace tenant"))
        );
    }
}
