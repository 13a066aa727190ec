//! Known defects of the controller. Plans leave out their causes, so that other defects show. Each defect has
//! seeds whose plans contain its cause alone and still break a promise. Once it is mended, it belongs to
//! [`Defect::MENDED`], and any plan may contain its cause.

use std::time::Duration;

use crate::chance::Chance;
use crate::plan::{Act, Fault, Past, Plan, Refused, Step, UserAct, WITHOUT_OWNER, generate};
use crate::time::Time;

/// How long the other replica is away while a watch waits for an answer.
const UNANSWERED: Duration = Duration::from_secs(60);

/// A known defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Defect {
    /// The first plan for a Job is made before the pods of its past are labelled: surplus pods, and wrong counts.
    TakeOver,
    /// A pod whose label could not be patched once is not looked at again.
    LabelPatchedOnce,
    /// A pod with the label of another shard is not seen by its Job.
    WrongShardLabel,
    /// A Job that cannot be decoded is taken for deleted.
    Undecodable,
    /// If the connection of one heartbeat hangs, the replica loses all its shards.
    HungHeartbeat,
    /// A shard whose actor or watch has panicked stays dead.
    DeadShard,
    /// A pod whose deletion is refused holds back `Suspended`.
    RefusedDelete,
    /// A replica whose machine was suspended believes to own its shards for as long as before.
    SuspendedMachine,
    /// If the opening of a watch is not answered, the replica retries only after a minute. Shards that others
    /// release meanwhile stay without owner.
    HungWatch,
}

impl Defect {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::TakeOver,
        Self::LabelPatchedOnce,
        Self::WrongShardLabel,
        Self::Undecodable,
        Self::HungHeartbeat,
        Self::DeadShard,
        Self::RefusedDelete,
        Self::SuspendedMachine,
        Self::HungWatch,
    ];

    /// Mended defects, whose causes any plan may contain.
    pub const MENDED: &[Self] = &Self::ALL;

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::TakeOver => "take-over",
            Self::LabelPatchedOnce => "label-patched-once",
            Self::WrongShardLabel => "wrong-shard-label",
            Self::Undecodable => "undecodable",
            Self::HungHeartbeat => "hung-heartbeat",
            Self::DeadShard => "dead-shard",
            Self::RefusedDelete => "refused-delete",
            Self::SuspendedMachine => "suspended-machine",
            Self::HungWatch => "hung-watch",
        }
    }

    /// Whether a step may bring it about, in a plan with faults or without.
    fn is_caused_by(self, step: &Step, with_faults: bool) -> bool {
        match (self, &step.act) {
            (Self::LabelPatchedOnce, Act::User { act: UserAct::StripLabel { .. }, .. }) => with_faults,
            (Self::WrongShardLabel, Act::User { act: UserAct::WrongShard { .. }, .. })
            | (Self::Undecodable, Act::Fault(Fault::Undecodable { .. }))
            | (Self::SuspendedMachine, Act::Fault(Fault::Suspend { .. }))
            | (Self::DeadShard, Act::Fault(Fault::PanicShard { .. } | Fault::PanicWatch { .. }))
            | (Self::RefusedDelete, Act::Fault(Fault::Refuse { what: Refused::PodDeletes, .. })) => true,
            (Self::HungHeartbeat, Act::Fault(Fault::Swallow { requests, .. })) => *requests == 1,
            _ => false,
        }
    }

    /// A plan with the cause of this defect, and no fault besides.
    pub fn provoke(self, seed: u64) -> Plan {
        let mut chance = Chance::new(seed, self.name());
        let mut plan = plan(seed, &[]);
        plan.steps.retain(|step| matches!(step.act, Act::User { .. }));
        let replica = chance.below(plan.settings.replicas);
        let job = chance.below(plan.jobs.len());
        let created = plan.jobs.get(job).map_or(Time::ZERO, |job| job.created);
        let soon = created + chance.millis(100..=8_000);
        let nth = chance.below(64);
        let user = |act| Act::User { job, act };
        let refuse = |what, code, time| {
            Act::Fault(Fault::Refuse { time: Duration::from_secs(time), code, percent: 100, what })
        };
        let acts = match self {
            Self::TakeOver => {
                plan.settings.replaces_built_in = true;
                for job in &mut plan.jobs {
                    job.spec.as_object_mut().map(|spec| spec.remove("managedBy"));
                    let completions = job.spec["completions"].as_u64().unwrap_or(1) as u32;
                    let running = (job.spec["parallelism"].as_u64().unwrap_or(1) as u32).min(completions);
                    let succeeded = completions - running;
                    job.past = Some(Past { running, succeeded, uncounted: succeeded / 2 });
                    job.adopts = false;
                }
                vec![]
            }
            Self::LabelPatchedOnce => {
                vec![refuse(Refused::PodPatches, 500, 4), user(UserAct::StripLabel { nth })]
            }
            Self::WrongShardLabel => vec![user(UserAct::WrongShard { nth })],
            Self::Undecodable => {
                let time = chance.millis(5_000..=20_000);
                let cut = Act::Fault(Fault::CutWatches { replica });
                vec![Act::Fault(Fault::Undecodable { job, time }), Act::Fault(Fault::Compact), cut]
            }
            Self::HungHeartbeat => {
                vec![Act::Fault(Fault::Swallow { replica, requests: 1, heartbeats: true })]
            }
            Self::DeadShard if chance.percent(50) => vec![Act::Fault(Fault::PanicShard { replica })],
            Self::DeadShard => vec![Act::Fault(Fault::PanicWatch { replica })],
            Self::SuspendedMachine => {
                // Work is left when it wakes, and that its time is over comes late.
                plan.settings.replicas = 2;
                plan.jobs.iter_mut().for_each(|job| job.failing_percent = 60);
                let time = Duration::from_secs(chance.pick(&[40, 300]));
                plan.settings.calm_from += time;
                let held = Fault::HoldWatches { replica, time: time + time / 8 };
                vec![Act::Fault(held), Act::Fault(Fault::Suspend { replica, time })]
            }
            Self::RefusedDelete => {
                plan.steps.clear();
                vec![refuse(Refused::PodDeletes, 403, 40), user(UserAct::Suspend(true))]
            }
            Self::HungWatch => {
                // A replica waits for an answer to its watches while the other hands everything over. Both
                // replicas live, so no take-over may wait for a Lease to expire.
                plan.settings.without_owner = Duration::from_secs(20);
                (plan.settings.replicas, plan.settings.shards) = (2, 1);
                let requests = chance.number(1..=4) as u32;
                vec![
                    Act::Fault(Fault::Swallow { replica: 0, requests, heartbeats: false }),
                    Act::Fault(Fault::CutWatches { replica: 0 }),
                    Act::Fault(Fault::Restart { replica: 1, down: UNANSWERED }),
                ]
            }
        };
        let step = |(number, act)| Step { at: soon + Duration::from_millis(20 * number as u64), act };
        plan.steps.extend(acts.into_iter().enumerate().map(step));
        plan.steps.sort_by_key(|step| step.at);
        plan
    }

    /// Takes what may bring it about out of a plan.
    fn leave_out(self, plan: &mut Plan) {
        let happens = |step: &Step| step.at < Time::NEVER;
        let with_faults = plan.steps.iter().any(|step| happens(step) && matches!(step.act, Act::Fault(_)));
        // Steps keep their numbers, whatever is known.
        let caused = plan.steps.iter_mut().filter(|step| self.is_caused_by(step, with_faults));
        caused.for_each(|step| step.at = Time::NEVER);
        match self {
            Self::TakeOver => plan.jobs.iter_mut().for_each(|job| job.past = None),
            Self::HungWatch => plan.settings.without_owner = WITHOUT_OWNER + UNANSWERED,
            _ => {}
        }
    }
}

/// The plan of a seed, without what brings about known defects other than these.
pub fn plan(seed: u64, with: &[Defect]) -> Plan {
    let mut plan = generate(seed);
    let left_out =
        Defect::ALL.iter().filter(|defect| !with.contains(defect) && !Defect::MENDED.contains(defect));
    left_out.for_each(|defect| defect.leave_out(&mut plan));
    plan
}
