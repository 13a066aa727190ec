//! Plans with rare events: strangers, newer API servers, other controllers and bugs. Only plans of seeds from
//! [`FIRST`] on have them; earlier plans stay as they are.

use std::time::Duration;

use serde_json::json;
use yardmaster::actors::test_hooks::Part;

use super::{Act, Fault, LeaseDamage, LeaseKind, Plan, Rare, Refused, Step, UserAct};
use crate::chance::Chance;
use crate::time::Time;

/// The first seed whose plan has something rare.
const FIRST: u64 = 1_000_000;

/// The name of another controller of Jobs.
const OTHER: &str = "example.com/other";

/// Adds what is rare to some plans. Its steps come after all others.
pub(super) fn add(plan: &mut Plan) {
    if plan.seed < FIRST {
        return;
    }
    let mut chance = Chance::new(plan.seed, "strangers");
    for _ in 0..chance.pick(&[1, 1, 1, 2, 2, 3]) {
        let job = chance.below(plan.jobs.len());
        let steps = match chance.below(16) {
            0..=2 => unreadable_pods(&mut chance, plan, job),
            3 => unknown_mode(&mut chance, plan, job),
            4..=6 => pods_that_are_no_longer_selected(&mut chance, plan, job),
            7..=9 => adoptions(&mut chance, plan, job),
            10 | 11 => damaged_leases(&mut chance),
            12 => another_controller(&mut chance, plan, job),
            13 => changed_ttl(&mut chance, plan, job),
            14 => panics(&mut chance, plan),
            _ => labels_are_refused(&mut chance, plan, job),
        };
        plan.steps.extend(steps);
    }
}

/// When a Job is created.
fn created(plan: &Plan, job: usize) -> Time {
    plan.jobs.get(job).map_or(Time::ZERO, |job| job.created)
}

/// Something rare at a time.
fn rare(at: Time, rare: Rare) -> Step {
    Step { at, act: Act::Rare(rare) }
}

/// A fault that makes a shard or a Job rebuild its state from the API server.
fn starts_over(chance: &mut Chance, plan: &Plan, job: usize, at: Time) -> Step {
    let replica = chance.below(plan.settings.replicas);
    let fault = match chance.below(5) {
        0 => Fault::Crash { replica, down: chance.millis(100..=3_000) },
        1 => Fault::Restart { replica, down: chance.millis(100..=3_000) },
        2 => Fault::CutWatches { replica },
        3 => Fault::PanicShard { replica },
        _ => Fault::Panic { job },
    };
    Step { at, act: Act::Fault(fault) }
}

/// A few pods of a Job cannot be decoded for a while. Meanwhile they or their Job may be deleted, and the
/// owner may start over.
fn unreadable_pods(chance: &mut Chance, plan: &Plan, job: usize) -> Vec<Step> {
    let at = created(plan, job) + chance.millis(100..=8_000);
    let time = chance.millis(3_000..=25_000);
    let first = chance.below(64);
    let pods = 1 + chance.below(3);
    let mut steps: Vec<Step> =
        (first..first + pods).map(|nth| rare(at, Rare::UnreadablePod { job, nth, time })).collect();
    let soon = at + chance.millis(50..=4_000);
    let mut user = |at, act| steps.push(Step { at, act: Act::User { job, act } });
    if chance.percent(30) {
        user(soon, UserAct::DeletePod { nth: first, force: chance.percent(50) });
    }
    if chance.percent(20) {
        user(soon, UserAct::StripLabel { nth: first });
    }
    if chance.percent(25) {
        let policy = chance.pick(&["Background", "Foreground", "Orphan"]);
        user(soon + chance.millis(0..=3_000), UserAct::Delete(policy));
    }
    if chance.percent(60) {
        let at = at + chance.millis(50..=3_000);
        steps.push(starts_over(chance, plan, job, at));
        if chance.percent(30) {
            steps.push(Step { at, act: Act::Fault(Fault::Compact) });
        }
    }
    steps
}

/// An API server shows an unknown completion mode: from the beginning, or later.
fn unknown_mode(chance: &mut Chance, plan: &Plan, job: usize) -> Vec<Step> {
    let created = created(plan, job);
    let at = match chance.percent(50) {
        true => Time::ms(created.millis().saturating_sub(1)),
        false => created + chance.millis(100..=8_000),
    };
    let mut steps = vec![rare(at, Rare::UnknownMode { job, time: chance.millis(3_000..=20_000) })];
    let soon = at + chance.millis(50..=3_000);
    if chance.percent(50) {
        steps.push(starts_over(chance, plan, job, soon));
    }
    if chance.percent(30) {
        let act =
            chance.pick(&[UserAct::Scale(2), UserAct::StripLabel { nth: 0 }, UserAct::Delete("Background")]);
        steps.push(Step { at: soon, act: Act::User { job, act } });
    }
    steps
}

/// Pods lose the labels by which their Job selects them, and may get them back.
fn pods_that_are_no_longer_selected(chance: &mut Chance, plan: &mut Plan, job: usize) -> Vec<Step> {
    if chance.percent(40) {
        adopts(plan, job);
    }
    let at = created(plan, job) + chance.millis(100..=10_000);
    let mut steps = Vec::new();
    for _ in 0..=chance.below(3) {
        let nth = chance.below(64);
        let back = chance.percent(40).then(|| chance.millis(100..=12_000));
        let at = at + chance.millis(0..=2_000);
        steps.push(rare(at, Rare::Unselect { job, nth, all: chance.percent(30), back }));
    }
    if chance.percent(50) {
        let time = chance.millis(2_000..=15_000);
        let begin = Time::ms(at.millis().saturating_sub(200));
        steps.push(Step { at: begin, act: Act::Fault(pod_patches(chance, plan, time)) });
    }
    if chance.percent(30) {
        let policy = chance.pick(&["Background", "Foreground", "Orphan"]);
        let act = UserAct::Delete(policy);
        steps.push(Step { at: at + chance.millis(0..=4_000), act: Act::User { job, act } });
    }
    if chance.percent(30) {
        let at = at + chance.millis(100..=4_000);
        steps.push(starts_over(chance, plan, job, at));
    }
    steps
}

/// Patches of pods are refused, or their answers are lost.
fn pod_patches(chance: &mut Chance, plan: &Plan, time: Duration) -> Fault {
    let what = Refused::PodPatches;
    match chance.below(6) {
        0 => Fault::LoseReplies { replica: chance.below(plan.settings.replicas), time, percent: 60 },
        code => Fault::Refuse {
            time,
            code: [403, 403, 422, 500, 429][code - 1],
            percent: chance.pick(&[50, 100]),
            what,
        },
    }
}

/// The Job has a selector of its own, unless the built-in controller has begun with it.
fn adopts(plan: &mut Plan, job: usize) {
    if let Some(job) = plan.jobs.get_mut(job) {
        job.adopts = job.past.is_none();
    }
}

/// A Job may adopt pods while that is refused; some are being deleted, and some are elsewhere.
fn adoptions(chance: &mut Chance, plan: &mut Plan, job: usize) -> Vec<Step> {
    adopts(plan, job);
    let created = created(plan, job);
    let at = match chance.percent(40) {
        true => Time::ms(created.millis().saturating_sub(chance.number(0..=1_000))),
        false => created + chance.millis(50..=6_000),
    };
    let orphans = UserAct::AddOrphans(chance.number(1..=4) as u32);
    let mut steps = vec![Step { at, act: Act::User { job, act: orphans } }];
    if chance.percent(75) {
        let time = chance.millis(1_000..=20_000);
        let begin = Time::ms(at.millis().saturating_sub(100));
        steps.push(Step { at: begin, act: Act::Fault(pod_patches(chance, plan, time)) });
    }
    if chance.percent(40) {
        let time = chance.millis(1_000..=15_000);
        steps.push(rare(at + Duration::from_millis(7), Rare::DeletingOrphan { job, time }));
    }
    if chance.percent(40) {
        steps.push(rare(at + Duration::from_millis(9), Rare::DistantOrphan { job }));
    }
    let soon = at + chance.millis(20..=5_000);
    if chance.percent(30) {
        steps.push(starts_over(chance, plan, job, soon));
    }
    if chance.percent(30) {
        let act = match chance.below(4) {
            0 => UserAct::Suspend(true),
            1 => UserAct::AdoptElsewhere { nth: chance.below(64) },
            _ => UserAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"])),
        };
        steps.push(Step { at: soon, act: Act::User { job, act } });
    }
    steps
}

/// A stranger deletes Leases, or changes them so that they mean nothing.
fn damaged_leases(chance: &mut Chance) -> Vec<Step> {
    use {LeaseDamage as How, LeaseKind as Kind};
    let mut at = Time::ms(chance.number(2_000..=40_000));
    let mut steps = Vec::new();
    for _ in 0..=chance.below(4) {
        let kind = chance.pick(&[Kind::Claim, Kind::Claim, Kind::Heartbeat, Kind::Layout, Kind::Balance]);
        let how = chance.pick(&[How::Deleted, How::Deleted, How::Unlabelled, How::Relabelled]);
        // A claim or heartbeat without its annotations can be read, and says something that is not true.
        let can_be_read = matches!(kind, Kind::Claim | Kind::Heartbeat);
        let how = if !can_be_read && chance.percent(25) { How::Unannotated } else { how };
        steps.push(rare(at, Rare::Lease { kind, nth: chance.below(64), how }));
        let latest = chance.pick(&[0, 3_000, 20_000]);
        at += chance.millis(0..=latest);
    }
    steps
}

/// A Job belongs to another controller, which finishes it. Only its TTL is our business.
fn another_controller(chance: &mut Chance, plan: &mut Plan, number: usize) -> Vec<Step> {
    let Some(job) = plan.jobs.get_mut(number).filter(|job| job.past.is_none()) else { return Vec::new() };
    job.spec["managedBy"] = OTHER.into();
    job.adopts = false;
    if chance.percent(80) {
        job.spec["ttlSecondsAfterFinished"] = chance.number(0..=15).into();
    }
    let at = job.created + chance.millis(100..=15_000);
    let mut steps = vec![rare(at, Rare::FinishForeign { job: number, failed: chance.percent(30) })];
    if chance.percent(50) {
        let ttl = chance.pick(&[None, Some(0), Some(10), Some(100_000)]);
        steps.push(rare(at + chance.millis(0..=12_000), Rare::SetTtl { job: number, ttl }));
    }
    if chance.percent(40) {
        let fault = match chance.below(3) {
            0 => Fault::Refuse {
                time: Duration::from_secs(15),
                code: 403,
                percent: 100,
                what: Refused::Writes,
            },
            1 => Fault::LoseReplies {
                replica: chance.below(plan.settings.replicas),
                time: Duration::from_secs(10),
                percent: 90,
            },
            _ => Fault::Crash {
                replica: chance.below(plan.settings.replicas),
                down: chance.millis(100..=3_000),
            },
        };
        steps.push(Step { at: at + chance.millis(0..=4_000), act: Act::Fault(fault) });
    }
    steps
}

/// The TTL of a Job is changed while it is about to end, or after that.
fn changed_ttl(chance: &mut Chance, plan: &mut Plan, number: usize) -> Vec<Step> {
    let Some(job) = plan.jobs.get_mut(number).filter(|job| job.past.is_none()) else { return Vec::new() };
    job.spec["ttlSecondsAfterFinished"] = json!(chance.number(1..=15));
    let mut at = job.created + chance.millis(1_000..=20_000);
    let mut steps = Vec::new();
    for _ in 0..=chance.below(3) {
        let ttl = chance.pick(&[None, Some(0), Some(5), Some(30), Some(100_000)]);
        steps.push(rare(at, Rare::SetTtl { job: number, ttl }));
        at += chance.millis(1_000..=10_000);
    }
    steps
}

/// Parts of replicas panic.
fn panics(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let parts = [Part::Feed, Part::Request, Part::StrippedPods, Part::LeaseManager, Part::Replica];
    let mut panic = || {
        let replica = chance.below(plan.settings.replicas);
        let at = Time::ms(chance.number(1_000..=40_000));
        let down = chance.millis(100..=5_000);
        rare(at, Rare::PanicPart { replica, part: chance.pick(&parts), down })
    };
    vec![panic(), panic(), panic()]
}

/// Pods lose their shard label, which cannot be put back for a while, and their shard may change hands meanwhile.
fn labels_are_refused(chance: &mut Chance, plan: &Plan, job: usize) -> Vec<Step> {
    let at = created(plan, job) + chance.millis(200..=8_000);
    let time = chance.millis(3_000..=20_000);
    let begin = Time::ms(at.millis().saturating_sub(100));
    let namespace = plan.jobs.get(job).map_or_else(String::new, |job| job.namespace.clone());
    let mut steps = Vec::new();
    for _ in 0..=chance.below(3) {
        let act = UserAct::StripLabel { nth: chance.below(64) };
        steps.push(Step { at, act: Act::User { job, act } });
    }
    match chance.percent(50) {
        true => steps.push(rare(begin, Rare::Unlabelling { namespace, time })),
        false => {
            let refuse = Fault::Refuse {
                time,
                code: chance.pick(&[403, 422, 500]),
                percent: 100,
                what: Refused::PodPatches,
            };
            steps.push(Step { at: begin, act: Act::Fault(refuse) });
        }
    }
    if chance.percent(60) {
        let at = at + chance.millis(100..=5_000);
        steps.push(starts_over(chance, plan, job, at));
    }
    if chance.percent(20) {
        let act = UserAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"]));
        steps.push(Step { at: at + chance.millis(200..=8_000), act: Act::User { job, act } });
    }
    steps
}
