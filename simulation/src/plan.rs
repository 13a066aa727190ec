//! The plan of a world: its Jobs, the acts of users, and the faults. A plan follows from its seed alone.

mod extras;
mod fault;
mod generate;
mod later;
pub(crate) mod lost;
mod news;
pub(crate) mod options;
pub(crate) mod order;
pub(crate) mod queued;
mod rare;
mod storms;
mod strangers;
pub(crate) mod tenant;
mod together;
pub(crate) mod wider;
mod wider_steps;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::time::Time;

pub use self::fault::{Fault, Refused};
pub use self::generate::{generate, refusing};
pub use self::rare::{LeaseDamage, LeaseKind, Rare};
pub use self::tenant::{Claim, Dress, ShardMark, StatusEdge, TenantAct};

/// The longest time for which a shard may be without owner: the lease, its detection, and the claim.
pub(crate) const WITHOUT_OWNER: Duration = Duration::from_secs(45);

/// The plan of a world.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of all chance in this world.
    pub seed: u64,
    /// How the controller and its surroundings are set up.
    pub settings: Settings,
    /// The Jobs, in the order of their numbers.
    pub jobs: Vec<JobPlan>,
    /// Acts of users and faults, by time.
    pub steps: Vec<Step>,
}

/// How the controller and its surroundings are set up.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of replicas.
    pub replicas: usize,
    /// Number of shards.
    pub shards: u32,
    /// Whether the controller replaces the built-in one.
    pub replaces_built_in: bool,
    /// Writes per second; 0 for no limit.
    pub qps: u32,
    /// Whether the API server serves streaming lists.
    pub streams_lists: bool,
    /// Longest time that a container runs.
    pub longest_run: Duration,
    /// From then on nothing breaks any more.
    pub calm_from: Time,
    /// The longest time for which a shard may be without owner.
    pub without_owner: Duration,
    /// How much later than others each replica sees changes: the API server that it watches has a slow cache.
    pub lags: Vec<Lag>,
    /// Whether every replica acts for all shards without Leases, as after a bug in them: counts stay exact.
    pub all_own_all: bool,
    /// Most UIDs in `status.uncountedTerminatedPods`, if they are fewer than usual.
    pub max_uncounted: Option<usize>,
}

impl Settings {
    /// Whether a replica sees the pods of other owners late.
    pub(crate) fn hears_late_of_others(&self, replica: usize) -> bool {
        self.all_own_all && self.lags.get(replica).is_some_and(|lag| lag.pods > Duration::ZERO)
    }

    /// How late the latest watch is.
    pub(crate) fn lag(&self) -> Duration {
        self.lags.iter().map(|lag| lag.longest()).max().unwrap_or_default()
    }

    /// How late the latest watch of these replicas is.
    pub(crate) fn lag_of(&self, replicas: &BTreeSet<usize>) -> Duration {
        let lags = replicas.iter().filter_map(|replica| self.lags.get(*replica));
        lags.map(|lag| lag.longest()).max().unwrap_or_default()
    }
}

/// How late watches are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lag {
    /// Delay of watches of Jobs.
    pub jobs: Duration,
    /// Delay of watches of pods.
    pub pods: Duration,
}

impl Lag {
    fn longest(self) -> Duration {
        self.jobs.max(self.pods)
    }
}

/// A planned Job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// When a user creates it.
    pub created: Time,
    /// The `spec`, without template.
    pub spec: serde_json::Value,
    /// Exit codes: how many of 100 containers fail.
    pub failing_percent: u32,
    /// Pods that the built-in controller has made before the first replica starts.
    pub past: Option<Past>,
    /// Whether it has a selector of its own (`manualSelector`), and so may adopt pods.
    pub adopts: bool,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Exit codes of containers that fail.
    pub exit_codes: Vec<i32>,
    /// How many of 100 pods their node evicts while they run.
    pub evicted_percent: u32,
    /// How much longer than others its containers may take to stop.
    pub slow_stop: Duration,
    /// `matchExpressions` of its own selector.
    pub expressions: Vec<serde_json::Value>,
    /// Whether containers that fail are started again (`restartPolicy: OnFailure`).
    pub restarts: bool,
    /// Whether its containers have environment variables of their own.
    pub has_env: bool,
    /// With less memory than these binary megabytes, its containers are killed.
    pub needs_memory: Option<u64>,
    /// How many of 100 pods never start.
    pub stuck_percent: u32,
    /// How many of 100 pods are on a node that goes.
    pub lost_percent: u32,
}

/// The pods of a Job that the built-in controller has left.
#[derive(Clone, Copy, Debug)]
pub struct Past {
    /// Pods that still run.
    pub running: u32,
    /// Pods that have succeeded, and that are not counted.
    pub succeeded: u32,
    /// How many succeeded pods are in `status.uncountedTerminatedPods`.
    pub uncounted: u32,
}

/// Something that happens at a certain time.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub at: Time,
    /// What.
    pub act: Act,
}

/// An event of a plan.
#[derive(Clone, Debug)]
pub enum Act {
    /// A user does something to a Job.
    User {
        /// Number of the Job.
        job: usize,
        /// What.
        act: UserAct,
    },
    /// Something breaks.
    Fault(Fault),
    /// Something that happens rarely.
    Rare(Rare),
    /// A tenant does something in its namespace.
    Tenant(TenantAct),
}

/// An act of a user on a Job.
#[derive(Clone, Debug)]
pub enum UserAct {
    /// Deletes it, with this propagation policy.
    Delete(&'static str),
    /// Sets `spec.parallelism`.
    Scale(u32),
    /// Sets `spec.suspend`.
    Suspend(bool),
    /// Deletes one of its pods; by force: without a grace period.
    DeletePod {
        /// Which of the pods that there are then.
        nth: usize,
        /// Without a grace period.
        force: bool,
    },
    /// Deletes its ended pods.
    DeleteEnded,
    /// Deletes its pods with the condition that they are disrupted: a drained node.
    Evict {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// Takes labels off one of its pods.
    StripLabel {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// Sets another shard label on one of its pods.
    WrongShard {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// Sets the label of this shard on one of its pods.
    OtherShard {
        /// Which of the pods that there are then.
        nth: usize,
        /// The number of the shard.
        shard: u32,
    },
    /// Changes labels of one of its pods, so that a selector of the Job's own does not select it any more.
    Relabel {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// Takes all finalizers off one of its pods.
    StripFinalizers {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// Sets an annotation that means nothing.
    Annotate,
    /// Sets an option of ours, or takes it away.
    SetOption {
        /// Its name, without prefix.
        name: &'static str,
        /// Its value, which may be wrong.
        value: Option<&'static str>,
    },
    /// Sets `spec.completions` and `spec.parallelism` to the same number, as an elastic Job allows.
    Resize(u32),
    /// Pods are created by hand that a Job with a selector of its own may adopt.
    AddOrphans(u32),
    /// Another controller takes one of them.
    AdoptElsewhere {
        /// Which of the pods that there are then.
        nth: usize,
    },
    /// A pod gets a foreign finalizer, which is removed later.
    HoldPod {
        /// Which of the pods that there are then.
        nth: usize,
        /// For how long.
        time: Duration,
    },
}

impl UserAct {
    /// Whether the Job changes, or which pods it can see: what replicas do next may still follow from before.
    pub(crate) fn changes_job(&self) -> bool {
        match self {
            Self::Delete(_)
            | Self::Scale(_)
            | Self::Suspend(_)
            | Self::StripLabel { .. }
            | Self::WrongShard { .. }
            | Self::OtherShard { .. }
            | Self::Relabel { .. }
            | Self::Resize(_)
            | Self::StripFinalizers { .. }
            | Self::AddOrphans(_)
            | Self::AdoptElsewhere { .. } => true,
            Self::DeletePod { .. }
            | Self::DeleteEnded
            | Self::Evict { .. }
            | Self::Annotate
            | Self::SetOption { .. }
            | Self::HoldPod { .. } => false,
        }
    }
}

impl Plan {
    /// The longest time until a replica knows of a change, while no fault of [`Fault::disturbs`] is active.
    /// Returns `None` if the plan has other faults that may hide a change.
    pub(crate) fn settles(&self, replica: usize) -> Option<Duration> {
        const QUICK: Duration = Duration::from_secs(5);
        let deafens = |step: &Step| {
            let fault = match &step.act {
                Act::Fault(fault) => fault,
                Act::Rare(rare) => return step.at < Time::NEVER && rare.deafens(),
                Act::User { .. } | Act::Tenant(_) => return false,
            };
            step.at < Time::NEVER
                && matches!(
                    fault,
                    Fault::Swallow { .. }
                        | Fault::Undecodable { .. }
                        | Fault::Panic { .. }
                        | Fault::PanicShard { .. }
                        | Fault::PanicWatch { .. }
                )
        };
        if self.steps.iter().any(deafens) {
            return None;
        }
        let lag = self.settings.lags.get(replica).copied().unwrap_or_default();
        Some(QUICK + lag.longest())
    }

    /// The plan without these steps and Jobs.
    pub fn without(&self, steps: &[usize]) -> Self {
        let kept = self.steps.iter().enumerate().filter(|(number, _)| !steps.contains(number));
        Self { steps: kept.map(|(_, step)| step.clone()).collect(), ..self.clone() }
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User { job, act } => write!(f, "user: {act:?} of job-{job}"),
            Self::Fault(fault) => write!(f, "fault: {fault:?}"),
            Self::Rare(rare) => write!(f, "rare: {rare:?}"),
            Self::Tenant(act) => write!(f, "tenant: {act:?}"),
        }
    }
}
