//! Whether replicas run, for commands that must not work beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Resource;
use kube::api::{Api, ListParams};
use tokio::time::{Instant, sleep};

use super::lists::views;
use super::untrusted::Untrusted;
use crate::sharding::lease::{Heartbeat, LONGEST_LEASE, LeaseRecord};

/// Interval between reads of the heartbeats.
const PERIOD: Duration = Duration::from_millis(500);
/// A replica that has died just before is silent for long enough by then.
const LONGEST_WAIT: Duration = LONGEST_LEASE.saturating_add(Duration::from_secs(60));
/// After so long, it is told who is waited for.
const UNTOLD: Duration = Duration::from_secs(30);

/// The heartbeat of a replica.
pub(super) struct Beat {
    /// The namespace of the replica's Leases.
    namespace: String,
    heartbeat: Heartbeat,
}

/// The heartbeats among the selected Leases.
pub(super) async fn heartbeats<K: Resource + Clone>(
    leases: &Api<K>,
    selector: &str,
) -> kube::Result<Vec<Beat>> {
    let listed: Vec<Lease> =
        views(leases.clone(), &ListParams::default().labels(selector)).try_collect().await?;
    let beat = |lease: &Lease| match LeaseRecord::read(lease)? {
        LeaseRecord::Heartbeat(heartbeat) => {
            Some(Beat { namespace: lease.metadata.namespace.clone().unwrap_or_default(), heartbeat })
        }
        _ => None,
    };
    Ok(listed.iter().filter_map(beat).collect())
}

/// The replicas that were seen, each with its heartbeat and since when that is the same.
pub(super) struct Silence {
    seen: HashMap<(String, Arc<str>), (u64, Instant)>,
    begun: Instant,
    told: bool,
}

impl Silence {
    /// No replica was seen until now.
    pub(super) fn begin() -> Self {
        Self { seen: HashMap::new(), begun: Instant::now(), told: false }
    }

    /// Waits until replicas that leave have left, and until those that have died have been silent for their lease
    /// duration. Fails if another replica runs, unless it `ends` by itself: asked with the namespace of its Leases. Fails as
    /// well if one is not silent eleven minutes after the beginning, so that no writer of Leases makes it wait for ever.
    pub(super) async fn until_no_replica_runs(
        &mut self,
        read: impl AsyncFn() -> anyhow::Result<Vec<Beat>>,
        ends: impl AsyncFn(&str) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        loop {
            let mut waits = false;
            for Beat { namespace, heartbeat } in read().await? {
                let Heartbeat { holder, version, lease_duration, leaving, .. } = heartbeat;
                let replica = (namespace, holder.identity);
                let (known, since) = *self.seen.entry(replica.clone()).or_insert((version, Instant::now()));
                let is_renewed = known != version;
                if !is_renewed && since.elapsed() >= lease_duration.min(LONGEST_LEASE) {
                    continue;
                }
                anyhow::ensure!(
                    self.begun.elapsed() < LONGEST_WAIT
                        && (!is_renewed || leaving || ends(&replica.0).await?),
                    "replica {} runs, with its Leases in namespace {}: stop all replicas first, for example by \
                     scaling their Deployment to 0, or delete its Lease if that is no replica's",
                    Untrusted::from(&*replica.1),
                    Untrusted::from(&*replica.0)
                );
                if self.begun.elapsed() > UNTOLD && !std::mem::replace(&mut self.told, true) {
                    let (namespace, identity) = (Untrusted::from(&*replica.0), Untrusted::from(&*replica.1));
                    tracing::warn!(
                        "waiting until replica {identity}, with its Leases in namespace {namespace}, is silent for long \
                         enough: delete its Lease if that is no replica's"
                    );
                }
                if is_renewed {
                    self.seen.insert(replica, (version, Instant::now()));
                }
                waits = true;
            }
            if !waits {
                return Ok(());
            }
            sleep(PERIOD).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::sharding::lease::Holder;

    fn beat(version: u64, lease_duration: Duration) -> Beat {
        let holder = Holder { identity: "r".into(), session: "s".into() };
        let heartbeat = Heartbeat { holder, version, lease_duration, leaving: false, loads: None };
        Beat { namespace: "tenant".to_owned(), heartbeat }
    }

    async fn waits(
        silence: &mut Silence,
        read: impl AsyncFn() -> anyhow::Result<Vec<Beat>>,
    ) -> (u64, String) {
        let begun = Instant::now();
        let result = silence.until_no_replica_runs(read, async |_: &str| Ok(false)).await;
        (begun.elapsed().as_secs(), result.err().map(|e| e.to_string()).unwrap_or_default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_replica_is_awaited_for_its_lease_once_but_not_for_ever() {
        for (lease, awaited) in [(15, 15), (i32::MAX as u64, 600)] {
            let mut silence = Silence::begin();
            let read = async || Ok(vec![beat(1, Duration::from_secs(lease))]);
            assert_eq!(waits(&mut silence, read).await, (awaited, String::new()));
            assert_eq!(waits(&mut silence, read).await, (0, String::new()));
        }
    }

    /// It may say that it leaves, and stay.
    #[tokio::test(start_paused = true)]
    async fn one_that_renews_is_named() {
        let (begun, renewals) = (Instant::now(), AtomicU64::new(0));
        let read = async || {
            let mut beat = beat(renewals.fetch_add(1, Ordering::Relaxed), Duration::from_secs(15));
            beat.heartbeat.leaving = begun.elapsed() > Duration::ZERO;
            Ok(vec![beat])
        };
        let (waited, error) = waits(&mut Silence::begin(), read).await;
        assert!(error.contains("replica r runs, with its Leases in namespace tenant"), "{error}");
        assert!((0..=660).contains(&waited), "{waited}");
    }

    /// The identity is what the author of the Lease says.
    #[tokio::test(start_paused = true)]
    async fn one_that_has_another_name_each_time_is_not_awaited_for_ever() {
        let names = AtomicU64::new(0);
        let read = async || {
            let mut beat = beat(1, Duration::from_secs(15));
            beat.heartbeat.holder.identity = names.fetch_add(1, Ordering::Relaxed).to_string().into();
            Ok(vec![beat])
        };
        let (waited, error) = waits(&mut Silence::begin(), read).await;
        assert!(error.contains("runs, with its Leases in namespace tenant"), "{error}");
        assert_eq!(waited, 660);
    }
}
