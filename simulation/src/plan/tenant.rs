//! A hostile tenant: a user who may create, change and delete Jobs and pods in one namespace. Tenants are in the plans of
//! the seeds from [`FIRST`] on: the plans of all seeds before stay as they are.

use std::time::Duration;

use super::{Act, Fault, Plan, Step, UserAct, together};
use crate::chance::Chance;
use crate::time::Time;

/// The first seed whose plan may have a tenant.
pub(crate) const FIRST: u64 = 5_000_000;
/// The tenant's namespace.
pub(crate) const TENANT: &str = "tenant";

/// An act of the tenant, in its namespace unless the variant says otherwise.
#[derive(Clone, Debug)]
pub enum TenantAct {
    /// Creates pods that name another user's Job as their controller.
    Claim {
        /// The number of that Job.
        job: usize,
        /// How they name it.
        how: Claim,
        /// How many pods.
        pods: u32,
        /// Their other fields.
        dress: Dress,
    },
    /// Creates pods whose controllers have never existed, each with a name and a UID of its own.
    NameNobody {
        /// How many pods.
        pods: u32,
        /// Whether no Job can have these names.
        impossible: bool,
        /// Their other fields.
        dress: Dress,
    },
    /// Creates Jobs.
    Create {
        /// The number of the first.
        first: u32,
        /// How many.
        jobs: u32,
        /// Whether their options are at extremes.
        extreme: bool,
    },
    /// Deletes all of its Jobs.
    Delete(&'static str),
    /// Suspends or resumes all of its Jobs.
    Suspend(bool),
    /// Sets an annotation of ours, or of Kubernetes, on the pods of its Jobs.
    Annotate {
        /// The key.
        key: &'static str,
        /// The value, which may be at an extreme or wrong.
        value: &'static str,
    },
    /// Sets the shard label of the pods of its Jobs.
    Label(ShardMark),
    /// Writes the statuses of its Jobs.
    WriteStatuses(StatusEdge),
    /// Writes the phases of the pods of its Jobs.
    WritePhases(&'static str),
    /// Deletes the pods of its Jobs.
    DeletePods,
    /// Gives its Jobs and their pods a finalizer that never goes.
    Hold,
    /// The API server takes long to read what is in the namespace.
    SlowReads {
        /// For how long this lasts.
        time: Duration,
        /// How long each read takes.
        takes: Duration,
    },
}

/// How a pod names a Job that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// With the right name and UID, from the tenant's namespace.
    OtherNamespace,
    /// With the right UID, in the Job's namespace, and with another name: a careless user has copied it.
    OtherName,
    /// With its labels alone, from the tenant's namespace.
    LabelsOnly,
}

/// The fields of a pod besides its controller.
#[derive(Clone, Copy, Debug)]
pub struct Dress {
    /// Whether it has the tracking finalizer.
    pub tracked: bool,
    /// Its shard label.
    pub shard: ShardMark,
    /// The phase that its author writes; `None` leaves it to the node.
    pub phase: Option<&'static str>,
    /// Whether its author deletes it at once.
    pub deleted: bool,
}

/// A shard label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardMark {
    /// None.
    Absent,
    /// The number of a shard.
    Number(u32),
    /// Something that names no shard.
    Garbage,
}

/// A status at the edges of its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusEdge {
    /// The largest numbers.
    Largest,
    /// UIDs that are no pods.
    Phantoms,
    /// A start in the far future.
    Future,
    /// An end.
    Complete,
}

impl TenantAct {
    /// How long it lasts.
    pub(crate) fn duration(&mut self) -> Option<&mut Duration> {
        match self {
            Self::SlowReads { time, .. } => Some(time),
            _ => None,
        }
    }

    /// For how long after its begin it keeps replicas from what they have to do for the tenant's own objects.
    pub(crate) fn slows(&self) -> Option<Duration> {
        match self {
            Self::SlowReads { time, takes } => Some(*time + *takes),
            _ => None,
        }
    }
}

impl Plan {
    /// Whether a tenant does anything.
    pub(crate) fn has_tenant(&self) -> bool {
        self.steps.iter().any(|step| step.at < Time::NEVER && matches!(step.act, Act::Tenant(_)))
    }

    /// Until when reads of the tenant's objects take long because of what has begun by now.
    pub(crate) fn tenant_slow_until(&self, now: Time) -> Time {
        let slow = self.steps.iter().filter(|step| step.at <= now).filter_map(|step| match &step.act {
            Act::Tenant(act) => act.slows().map(|time| step.at + time),
            _ => None,
        });
        slow.max().unwrap_or(Time::ZERO)
    }
}

/// Adds a tenant to some plans. Its steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST || together::has_no_tenant(plan.seed) {
        return;
    }
    let mut chance = Chance::new(plan.seed, "tenant");
    if !chance.percent(80) {
        return;
    }
    // If nothing else breaks, all harm to others comes from the tenant.
    if chance.percent(60) {
        let breaks = |step: &&mut Step| matches!(step.act, Act::Fault(_) | Act::Rare(_));
        plan.steps.iter_mut().filter(breaks).for_each(|step| step.at = Time::NEVER);
    }
    for _ in 0..chance.number(2..=6) {
        let steps = match chance.below(10) {
            0..=3 => claims(&mut chance, plan),
            4 => nobodies(&mut chance, plan),
            5 | 6 => slow_reads(&mut chance, plan),
            7 => floods(&mut chance),
            8 => loops(&mut chance),
            _ => extremes(&mut chance, plan),
        };
        plan.steps.extend(steps);
    }
}

fn step(at: Time, act: TenantAct) -> Step {
    Step { at, act: Act::Tenant(act) }
}

fn shard_mark(chance: &mut Chance, plan: &Plan) -> ShardMark {
    match chance.below(5) {
        0 => ShardMark::Absent,
        1 => ShardMark::Garbage,
        _ => ShardMark::Number(chance.below(plan.settings.shards as usize) as u32),
    }
}

fn dress(chance: &mut Chance, plan: &Plan) -> Dress {
    Dress {
        tracked: chance.percent(85),
        shard: shard_mark(chance, plan),
        phase: chance.pick(&[None, Some("Running"), Some("Succeeded"), Some("Succeeded"), Some("Failed")]),
        deleted: chance.percent(20),
    }
}

/// Pods that claim another user's Job, while it runs or after its end.
fn claims(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let job = chance.below(plan.jobs.len());
    let mut at = plan.jobs.get(job).map_or(Time::ZERO, |job| job.created);
    let mut steps = Vec::new();
    for _ in 0..chance.number(1..=3) {
        at += chance.millis(5..=6_000);
        let how = match chance.below(10) {
            0..=5 => Claim::OtherNamespace,
            6..=8 => Claim::OtherName,
            _ => Claim::LabelsOnly,
        };
        let (pods, dress) = (chance.number(1..=6) as u32, dress(chance, plan));
        steps.push(step(at, TenantAct::Claim { job, how, pods, dress }));
    }
    if chance.percent(40) {
        let policy = chance.pick(&["Background", "Foreground", "Orphan"]);
        let at = at + chance.millis(100..=8_000);
        steps.push(Step { at, act: Act::User { job, act: UserAct::Delete(policy) } });
    }
    steps
}

/// Pods whose controllers have never existed.
fn nobodies(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let at = Time::ms(chance.number(500..=40_000));
    let (pods, impossible) = (chance.number(5..=40) as u32, chance.percent(60));
    let dress = dress(chance, plan);
    vec![step(at, TenantAct::NameNobody { pods, impossible, dress })]
}

/// Many reads of the tenant's objects take long, while users delete Jobs of others, or a replica crashes.
fn slow_reads(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let mut at = Time::ms(chance.number(2_000..=25_000));
    let time = chance.millis(20_000..=60_000);
    let takes = Duration::from_secs(chance.pick(&[5, 29, 29, 40]));
    let mut steps = vec![step(at, TenantAct::SlowReads { time, takes })];
    for _ in 0..chance.number(1..=3) {
        at += chance.millis(10..=1_000);
        let dress = Dress { tracked: true, ..dress(chance, plan) };
        let pods = chance.number(40..=120) as u32;
        steps.push(step(at, TenantAct::NameNobody { pods, impossible: false, dress }));
    }
    at += chance.millis(500..=5_000);
    for job in 0..plan.jobs.len() {
        if chance.percent(50) {
            let policy = chance.pick(&["Background", "Background", "Foreground", "Orphan"]);
            let at = at + chance.millis(0..=10_000);
            steps.push(Step { at, act: Act::User { job, act: UserAct::Delete(policy) } });
        }
    }
    if plan.settings.replicas > 1 && chance.percent(30) {
        let fault =
            Fault::Crash { replica: chance.below(plan.settings.replicas), down: chance.millis(100..=20_000) };
        steps.push(Step { at: at + chance.millis(0..=3_000), act: Act::Fault(fault) });
    }
    steps
}

/// Jobs that are created and deleted in floods.
fn floods(chance: &mut Chance) -> Vec<Step> {
    let mut at = Time::ms(chance.number(500..=30_000));
    let mut steps = Vec::new();
    for _ in 0..chance.number(2..=5) {
        let (first, jobs) = (10, chance.number(5..=25) as u32);
        steps.push(step(at, TenantAct::Create { first, jobs, extreme: chance.percent(30) }));
        at += chance.millis(20..=3_000);
        let policy = chance.pick(&["Background", "Foreground", "Orphan"]);
        steps.push(step(at, TenantAct::Delete(policy)));
        at += chance.millis(20..=2_000);
    }
    steps
}

/// Jobs that are suspended and resumed in a loop.
fn loops(chance: &mut Chance) -> Vec<Step> {
    let mut at = Time::ms(chance.number(500..=30_000));
    let mut steps = vec![step(at, TenantAct::Create { first: 0, jobs: 3, extreme: false })];
    let pause = chance.pick(&[50, 400, 2_000]);
    for turn in 0..2 * chance.number(3..=12) {
        at += chance.millis(1..=pause);
        steps.push(step(at, TenantAct::Suspend(turn % 2 == 0)));
    }
    steps
}

/// Jobs of its own with options, annotations, statuses and finalizers at extremes.
fn extremes(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    const PLACES: &[&str] =
        &["0/4294967295", "4294967295/0", "4294967295/4294967295", "1/4294967294", "-1/0", "x"];
    const COUNTS: &[&str] = &["2147483647", "4294967295", "-1", "x"];
    const BACKOFFS: &[&str] = &[
        "4294967295@9999-12-30T00:00:00Z",
        "2147483647@1970-01-01T00:00:00Z",
        "0@x",
        "7@2027-01-15T08:00:00Z",
    ];
    const NOTES: &[(&str, &[&str])] = &[
        ("yardmaster.dev/place", PLACES),
        ("yardmaster.dev/place", PLACES),
        ("yardmaster.dev/backoff", BACKOFFS),
        ("batch.kubernetes.io/job-index-failure-count", COUNTS),
        ("batch.kubernetes.io/job-index-ignored-failure-count", COUNTS),
        ("batch.kubernetes.io/job-completion-index", COUNTS),
    ];
    let mut at = Time::ms(chance.number(500..=30_000));
    let mut steps = vec![step(at, TenantAct::Create { first: 0, jobs: 5, extreme: chance.percent(60) })];
    let writes_statuses = chance.percent(40);
    for _ in 0..chance.number(2..=6) {
        at += chance.millis(50..=4_000);
        let act = match chance.below(8) {
            0..=2 => {
                let (key, values) = chance.pick(NOTES);
                TenantAct::Annotate { key, value: chance.pick(values) }
            }
            3 => TenantAct::Label(shard_mark(chance, plan)),
            4 => TenantAct::DeletePods,
            5 if chance.percent(50) => TenantAct::Hold,
            5 | 6 if writes_statuses => TenantAct::WriteStatuses(chance.pick(&[
                StatusEdge::Largest,
                StatusEdge::Phantoms,
                StatusEdge::Future,
                StatusEdge::Complete,
            ])),
            _ if writes_statuses => {
                TenantAct::WritePhases(chance.pick(&["Succeeded", "Failed", "Failed", "Running", "Unknown"]))
            }
            _ => TenantAct::Suspend(chance.percent(50)),
        };
        steps.push(step(at, act));
    }
    if chance.percent(40) {
        let at = at + chance.millis(100..=10_000);
        steps.push(step(at, TenantAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"]))));
    }
    steps
}
