//! The replicas under attack: their memory, their requests, and their health pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use crate::replicas::Probe;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(250);

/// Observations so far.
#[derive(Default)]
struct Seen {
    probes: Vec<Probe>,
    /// Whether the replicas may say that they are not ready: shards change hands.
    handing_over: bool,
    /// Resident bytes of each replica now.
    rss: BTreeMap<String, u64>,
    /// Most resident bytes of each replica since its start.
    peaks: BTreeMap<String, u64>,
    /// Requests of each replica to the API server.
    requests: BTreeMap<String, u64>,
    /// Bad answers, each with its number.
    ill: BTreeMap<String, u64>,
    /// Seconds since the begin, and the resident bytes of the largest replica.
    memory: Vec<(f64, f64)>,
}

/// Looks at the replicas until it is dropped.
pub(super) struct Health {
    seen: Arc<Mutex<Seen>>,
    looking: JoinHandle<()>,
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // A panic leaves no harmful partial update, so a poisoned lock is usable.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Each page has to answer within the limit.
    pub(super) fn watch(probes: Vec<Probe>, limit: Duration) -> Self {
        let seen = Arc::new(Mutex::new(Seen { probes, ..Seen::default() }));
        let looking = tokio::spawn(look(Arc::clone(&seen), limit));
        Self { seen, looking }
    }

    /// From now on these replicas run. While shards change hands, a replica need not be ready.
    pub(super) fn replicas(&self, probes: Vec<Probe>, handing_over: bool) {
        let mut seen = lock(&self.seen);
        seen.rss.retain(|name, _| probes.iter().any(|probe| probe.identity == *name));
        (seen.probes, seen.handing_over) = (probes, handing_over);
    }

    /// Resident bytes of the largest replica that runs.
    pub(super) fn rss(&self) -> u64 {
        lock(&self.seen).rss.values().copied().max().unwrap_or_default()
    }

    /// Most resident bytes that a replica has had.
    pub(super) fn peak(&self) -> u64 {
        lock(&self.seen).peaks.values().copied().max().unwrap_or_default()
    }

    /// Requests of all replicas so far.
    pub(super) async fn requests(&self) -> u64 {
        let probes = lock(&self.seen).probes.clone();
        for probe in probes {
            if let Some(requests) = probe.requests().await {
                lock(&self.seen).requests.insert(probe.identity, requests);
            }
        }
        lock(&self.seen).requests.values().sum()
    }

    /// Bad answers, each with its number.
    pub(super) fn ill(&self) -> BTreeMap<String, u64> {
        lock(&self.seen).ill.clone()
    }

    /// Seconds since the begin, and the resident bytes of the largest replica.
    pub(super) fn memory(&self) -> Vec<(f64, f64)> {
        lock(&self.seen).memory.clone()
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

async fn look(seen: Arc<Mutex<Seen>>, limit: Duration) {
    let begun = Instant::now();
    loop {
        let probes = lock(&seen).probes.clone();
        for probe in &probes {
            if let Some(usage) = probe.usage() {
                let mut seen = lock(&seen);
                seen.rss.insert(probe.identity.clone(), usage.rss_bytes);
                seen.peaks.insert(probe.identity.clone(), usage.peak_rss_bytes);
            }
        }
        futures::future::join_all(probes.iter().map(|probe| ask(probe, &seen, limit))).await;
        let largest = lock(&seen).rss.values().copied().max().unwrap_or_default();
        lock(&seen).memory.push((begun.elapsed().as_secs_f64(), largest as f64));
        tokio::time::sleep(PERIOD).await;
    }
}

async fn ask(probe: &Probe, seen: &Mutex<Seen>, limit: Duration) {
    for page in ["/healthz", "/readyz"] {
        let Err(answer) = probe.is_well(page, limit).await else { continue };
        let mut seen = lock(seen);
        // A replica that was killed meanwhile does not count, nor one that is taking shards over.
        let runs = seen.probes.iter().any(|known| known.identity == probe.identity);
        if runs && !(seen.handing_over && page == "/readyz") {
            *seen.ill.entry(format!("{} {page} {answer}", probe.identity)).or_default() += 1;
        }
    }
}
