//! Bounds for the requests of a Job: settings that hold for all, and the pace that the write gate allows.

use std::time::Duration;

use super::exponential::Exponential;
use super::options::PodBackoff;

/// Settings that hold for all Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Back-off between failed pods.
    pub pod_failure_backoff: PodBackoff,
    /// Back-off after refused requests.
    pub api_backoff: Exponential,
    /// Most UIDs that a status may list in `uncountedTerminatedPods`.
    pub max_uncounted_pods: usize,
    /// Most creations of one Job under way at once, and as many other requests about its pods.
    pub max_pods_per_sync: usize,
    /// Longest time that a status change may wait for others to share its write.
    pub batch_period: Duration,
    /// How long a failed pod waits for others to be evaluated together with it, while some are active that may
    /// end the Job. Failing the Job or starting a replacement cannot be undone.
    pub debounce_period: Duration,
    /// Whether finished Jobs are deleted after their TTL.
    pub ttl_controller: bool,
    /// Whether Jobs whose pods all run at once are scheduled as a gang.
    pub gang_scheduling: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pod_failure_backoff: PodBackoff::default(),
            api_backoff: Exponential::API_REQUEST,
            max_uncounted_pods: 500,
            max_pods_per_sync: 500,
            batch_period: Duration::from_secs(1),
            debounce_period: Duration::from_secs(1),
            ttl_controller: false,
            gang_scheduling: false,
        }
    }
}

/// How much one Job may request while it shares the write gate with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Creations under way at once, and as many other requests about pods.
    pub at_once: usize,
    /// Least time between two statuses that report progress or record pods, unless the end of the Job waits for them.
    pub status_period: Duration,
    /// How long the start of a Job waits for what follows. A Job that ends within that time needs one write less.
    pub start_period: Duration,
}

/// Divisor of the batch period: the start of a Job waits for this share of it at least.
const START_SHARE: u32 = 5;

impl Pace {
    /// The pace of a Job that has the gate to itself.
    pub(super) fn free(limits: Limits) -> Self {
        Self {
            at_once: limits.max_pods_per_sync,
            status_period: limits.batch_period,
            start_period: limits.batch_period / START_SHARE,
        }
    }
}
