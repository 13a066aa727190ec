//! Settings of one controller replica.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::threads::half_the_cores;
use crate::cluster::answer_time::AnswerTime;
use crate::cluster::wire::ObservedJob;
use crate::job::exponential::Exponential;
use crate::job::limits::Limits;
use crate::job::names;
use crate::job::options::{DefaultOption, PodBackoff};
use crate::sharding::ShardCount;
use crate::telemetry::http::{Live, Secret, TlsFiles};
use crate::telemetry::traces::JobTraces;

/// Settings of one controller replica.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Jobs whose `spec.managedBy` is this name are ours. [`names::BUILT_IN_CONTROLLER`] means replacement
    /// mode: then Jobs without `managedBy` are ours, too.
    pub controller_name: String,
    /// Name of this replica, unique among the replicas.
    pub identity: String,
    /// Distinguishes this process from earlier ones with the same identity.
    pub process: Uuid,
    /// Number of shards; the same for all replicas.
    pub shards: ShardCount,
    /// Namespace of the Leases.
    pub lease_namespace: String,
    /// How long a claim holds without renewal.
    pub lease_duration: Duration,
    /// How long a renewal may be late before the owner stops by itself.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub retry_period: Duration,
    /// Where the HTTP pages are served, if anywhere.
    pub listen: Option<SocketAddr>,
    /// The certificate of the HTTP pages; without one they are served in clear.
    pub tls: Option<TlsFiles>,
    /// The readers of `/metrics`.
    pub metrics_access: MetricsAccess,
    /// The readers of `/` and `/debug`.
    pub debug_access: DebugAccess,
    /// The source of the page for everything about one Job that only the API server knows.
    pub live: Live,
    /// Writes per second; 0: no limit.
    pub kube_api_qps: u32,
    /// Writes that may leave at once under a limit.
    pub kube_api_burst: u32,
    /// Longest time a status change may wait for others to join it.
    pub batch_period: Duration,
    /// Back-off after the first failed pod.
    pub pod_failure_backoff: Duration,
    /// Longest back-off after failed pods.
    pub pod_failure_backoff_max: Duration,
    /// Shortest back-off after failed pods that a Job may ask for.
    pub pod_failure_backoff_min: Duration,
    /// Back-off after the first refused request.
    pub api_backoff: Duration,
    /// Longest back-off after refused requests.
    pub api_backoff_max: Duration,
    /// Most UIDs in `status.uncountedTerminatedPods`.
    pub max_uncounted_pods: usize,
    /// Most pods of one Job that are created, or removed by scaling down, at once.
    pub max_pods_per_sync: usize,
    /// Whether pods that have ended keep their `metadata.managedFields` when their finalizer is removed.
    pub keep_managed_fields: bool,
    /// Whether finished Jobs are deleted after their TTL.
    pub ttl_controller: bool,
    /// Options of Jobs that do not set them.
    pub default_options: Arc<[DefaultOption]>,
    /// Features that are off by default.
    pub feature_gates: FeatureGates,
    /// Threads that Job actors run on; 0: half as many as there are cores, rounded up.
    pub arbiters: usize,
    /// The seed of everything that varies by chance.
    pub seed: u64,
    /// How quickly the API server answers: the threads for the network are to be built with the same.
    pub answer_time: AnswerTime,
    /// Where traces of Jobs go.
    pub traces: JobTraces,
    /// Faults that tests inject into the replica.
    #[cfg(feature = "test-hooks")]
    pub test_hooks: super::test_hooks::TestHooks,
}

/// The rule for reading `/metrics`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MetricsAccess {
    /// Every client that reaches the port.
    #[default]
    Everyone,
    /// Clients that send the bearer token of a user with the right to `get` the path.
    Authorized,
}

/// The rule for reading `/` and `/debug`.
#[derive(Clone, Debug, Default)]
pub enum DebugAccess {
    /// Processes of this host, `kubectl port-forward` included.
    #[default]
    Loopback,
    /// Clients that send this secret as a bearer token.
    Secret(Secret),
    /// Clients that send the bearer token of a user with the right to `get` the path.
    Authorized,
    /// Nobody.
    Off,
}

/// Features that are off by default, by their Kubernetes names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// `WorkloadWithJob`: Indexed Jobs whose pods all run at once are scheduled as a gang.
    pub workload_with_job: bool,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        let limits = Limits::default();
        Self {
            controller_name: names::EXTERNAL_CONTROLLER.to_owned(),
            identity: "yardmaster".to_owned(),
            process: Uuid::new_v4(),
            shards: ShardCount::default(),
            lease_namespace: "default".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            listen: None,
            tls: None,
            metrics_access: MetricsAccess::default(),
            debug_access: DebugAccess::default(),
            live: Live::default(),
            kube_api_qps: 0,
            kube_api_burst: 0,
            batch_period: limits.batch_period,
            pod_failure_backoff: limits.pod_failure_backoff.default.initial,
            pod_failure_backoff_max: limits.pod_failure_backoff.default.max,
            pod_failure_backoff_min: limits.pod_failure_backoff.least,
            api_backoff: limits.api_backoff.initial,
            api_backoff_max: limits.api_backoff.max,
            max_uncounted_pods: limits.max_uncounted_pods,
            max_pods_per_sync: limits.max_pods_per_sync,
            keep_managed_fields: false,
            ttl_controller: limits.ttl_controller,
            default_options: Arc::default(),
            feature_gates: FeatureGates::default(),
            arbiters: 0,
            seed: 0,
            answer_time: AnswerTime::default(),
            traces: JobTraces::default(),
            #[cfg(feature = "test-hooks")]
            test_hooks: super::test_hooks::TestHooks::default(),
        }
    }
}

impl ControllerConfig {
    /// Whether this controller replaces the one built into Kubernetes.
    pub fn replaces_built_in(&self) -> bool {
        self.controller_name == names::BUILT_IN_CONTROLLER
    }

    /// Whether Jobs with this `spec.managedBy` are ours.
    pub fn manages(&self, managed_by: Option<&str>) -> bool {
        match managed_by {
            None => self.replaces_built_in(),
            Some(name) => name == self.controller_name,
        }
    }

    /// Whether this Job is ours.
    pub fn manages_job(&self, job: &ObservedJob) -> bool {
        self.manages(job.managed_by.as_deref())
    }

    /// The finalizer on pods that are not counted yet. The built-in finalizer is reserved for the built-in
    /// controller and its replacements.
    pub fn finalizer(&self) -> &'static str {
        if self.replaces_built_in() { names::BUILT_IN_FINALIZER } else { names::EXTERNAL_FINALIZER }
    }

    /// `source.component` of events.
    pub fn event_source(&self) -> &'static str {
        if self.replaces_built_in() { "job-controller" } else { "yardmaster" }
    }

    /// Threads that Job actors run on.
    pub fn arbiter_count(&self) -> usize {
        match self.arbiters {
            0 => half_the_cores(),
            count => count,
        }
    }

    /// The settings that the rules need.
    pub fn limits(&self) -> Limits {
        Limits {
            pod_failure_backoff: PodBackoff {
                default: Exponential { initial: self.pod_failure_backoff, max: self.pod_failure_backoff_max },
                least: self.pod_failure_backoff_min,
            },
            api_backoff: Exponential { initial: self.api_backoff, max: self.api_backoff_max },
            max_uncounted_pods: self.max_uncounted_pods,
            max_pods_per_sync: self.max_pods_per_sync,
            batch_period: self.batch_period,
            ttl_controller: self.ttl_controller,
            gang_scheduling: self.feature_gates.workload_with_job,
            ..Limits::default()
        }
    }
}
