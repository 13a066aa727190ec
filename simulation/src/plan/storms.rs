//! Storms: several things that go wrong together, or that a user does one after the other. Alone each is in other
//! plans, too; that they meet would take thousands of seeds.

use std::time::Duration;

use super::{Act, Fault, Lag, Plan, Refused, Step, UserAct};
use crate::chance::Chance;
use crate::time::Time;

/// How many of 100 plans have a storm.
const STORMY: u32 = 50;
/// How many of 100 plans have a rare one.
const RARE: u32 = 12;

/// How many of 100 plans have a shard that changes hands at a bad moment.
const HANDED_OVER: u32 = 8;

/// Adds a storm to some plans. Its steps come after all others, which so keep their numbers.
pub(super) fn add(plan: &mut Plan) {
    common(plan);
    rare(plan);
    clearing_away_is_refused(plan);
    handed_over(plan);
}

/// Storms for which the rest of a plan is made to fit.
fn rare(plan: &mut Plan) {
    let mut chance = Chance::new(plan.seed, "rare storm");
    if !chance.percent(RARE) || plan.settings.replicas < 2 {
        return;
    }
    let job = chance.below(plan.jobs.len());
    let created = plan.jobs.get(job).map_or(Time::ZERO, |job| job.created);
    let steps = match chance.below(3) {
        0 => handed_over_while_pods_cannot_be_created(&mut chance, plan, created),
        1 => a_job_without_some_of_its_pods_is_handed_over(&mut chance, plan, job, created),
        _ => a_pod_of_an_unknown_job_loses_its_label(&mut chance, plan, job, created),
    };
    plan.steps.extend(steps);
}

/// A shard changes hands while requests of its owner are not answered.
fn handed_over(plan: &mut Plan) {
    let mut chance = Chance::new(plan.seed, "handed over");
    if !chance.percent(HANDED_OVER) || plan.settings.replicas < 2 {
        return;
    }
    let number = chance.below(plan.jobs.len());
    let Some(job) = plan.jobs.get(number).filter(|job| job.past.is_none()) else { return };
    let created = job.created;
    let steps = match chance.below(2) {
        0 => comes_back_while_pods_cannot_be_created(&mut chance, plan, number),
        _ => told_to_leave_when_a_slow_network_recovers(&mut chance, plan, created),
    };
    plan.steps.extend(steps);
}

fn common(plan: &mut Plan) {
    let mut chance = Chance::new(plan.seed, "storm");
    if !chance.percent(STORMY) {
        return;
    }
    let job = chance.below(plan.jobs.len());
    let created = plan.jobs.get(job).map_or(Time::ZERO, |job| job.created);
    let steps = match chance.below(7) {
        0 => answers_are_lost_and_watches_silent(&mut chance, plan, created),
        1 => pods_vanish_unseen(&mut chance, plan, job, created),
        2 => job_vanishes_unseen(&mut chance, plan, job, created),
        3 => ended_pods_are_deleted_before_a_take_over(&mut chance, plan, job, created),
        4 => handed_over_while_requests_are_held_back(&mut chance, plan),
        5 => deleted_while_pods_are_held(&mut chance, job, created),
        _ => a_node_is_drained(&mut chance, job, created),
    };
    plan.steps.extend(steps);
}

/// The steps of a storm, in order of time.
struct Storm {
    job: usize,
    steps: Vec<Step>,
}

impl Storm {
    fn of(job: usize) -> Self {
        Self { job, steps: Vec::new() }
    }

    fn user(mut self, at: Time, act: UserAct) -> Self {
        self.steps.push(Step { at, act: Act::User { job: self.job, act } });
        self
    }

    fn fault(mut self, at: Time, fault: Fault) -> Self {
        self.steps.push(Step { at, act: Act::Fault(fault) });
        self
    }
}

/// A replica sees its own creations neither in the answer nor by the watch.
fn answers_are_lost_and_watches_silent(chance: &mut Chance, plan: &Plan, created: Time) -> Vec<Step> {
    let replica = chance.below(plan.settings.replicas);
    let time = chance.millis(2_000..=10_000);
    let at = created + chance.millis(0..=3_000);
    let lose = Fault::LoseReplies { replica, time, percent: chance.pick(&[50, 90]) };
    Storm::of(0).fault(at, Fault::HoldWatches { replica, time }).fault(at, lose).steps
}

/// Pods go while a replica sees nothing, and what it missed is no longer to be had.
fn pods_vanish_unseen(chance: &mut Chance, plan: &Plan, job: usize, created: Time) -> Vec<Step> {
    let at = created + chance.millis(300..=5_000);
    let nth = chance.below(64);
    let time = chance.millis(4_000..=9_000);
    let mut storm = Storm::of(job);
    for replica in 0..plan.settings.replicas {
        storm = storm.fault(at, Fault::HoldWatches { replica, time });
    }
    let (strip, delete) = (UserAct::StripFinalizers { nth }, UserAct::DeletePod { nth, force: true });
    storm = storm.user(at + Duration::from_secs(1), strip).user(at + Duration::from_secs(1), delete);
    forgotten(storm, plan, at + time)
}

/// A Job goes while a replica sees nothing, and what it missed is no longer to be had.
fn job_vanishes_unseen(chance: &mut Chance, plan: &Plan, job: usize, created: Time) -> Vec<Step> {
    let at = created + chance.millis(300..=5_000);
    let time = chance.millis(4_000..=9_000);
    let mut storm = Storm::of(job);
    for replica in 0..plan.settings.replicas {
        storm = storm.fault(at, Fault::HoldWatches { replica, time });
    }
    let policy = chance.pick(&["Background", "Orphan"]);
    forgotten(storm.user(at + Duration::from_secs(1), UserAct::Delete(policy)), plan, at + time)
}

/// Just before watches speak again, they break, and the API server has forgotten where they were.
fn forgotten(mut storm: Storm, plan: &Plan, end: Time) -> Vec<Step> {
    let before = |millis| Time::ms(end.millis().saturating_sub(millis));
    storm = storm.fault(before(200), Fault::Compact);
    for replica in 0..plan.settings.replicas {
        storm = storm.fault(before(100), Fault::CutWatches { replica });
    }
    storm.steps
}

/// The next owner finds fewer pods than there have been.
fn ended_pods_are_deleted_before_a_take_over(
    chance: &mut Chance,
    plan: &Plan,
    job: usize,
    created: Time,
) -> Vec<Step> {
    let at = created + chance.millis(3_000..=20_000);
    let mut storm = Storm::of(job).user(at, UserAct::DeleteEnded);
    for replica in 0..plan.settings.replicas {
        let down = chance.millis(200..=2_000);
        storm = storm.fault(at + chance.millis(500..=3_000), Fault::Crash { replica, down });
    }
    storm.steps
}

/// A replica comes back and gets shards from others, whose requests the API server holds back.
fn handed_over_while_requests_are_held_back(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let replica = chance.below(plan.settings.replicas);
    let down = chance.millis(5_000..=20_000);
    let at = Time::ms(chance.number(500..=8_000));
    let back = at + down;
    let what = chance.pick(&[Refused::PodCreates, Refused::PodDeletes, Refused::Statuses]);
    let time = chance.millis(8_000..=20_000);
    let refuse = Fault::Refuse { time, code: 429, percent: 100, what };
    let begin = Time::ms(back.millis().saturating_sub(chance.number(0..=5_000)));
    Storm::of(0).fault(at, Fault::Crash { replica, down }).fault(begin, refuse).steps
}

/// A Job goes only once its pods are gone, which takes a while.
fn deleted_while_pods_are_held(chance: &mut Chance, job: usize, created: Time) -> Vec<Step> {
    let at = created + chance.millis(300..=5_000);
    let mut storm = Storm::of(job);
    for nth in 0..chance.below(3) {
        storm = storm.user(at, UserAct::HoldPod { nth, time: chance.millis(8_000..=30_000) });
    }
    storm.user(at + chance.millis(10..=1_000), UserAct::Delete("Foreground")).steps
}

/// Several pods of a Job are disrupted.
fn a_node_is_drained(chance: &mut Chance, job: usize, created: Time) -> Vec<Step> {
    let at = created + chance.millis(300..=8_000);
    let pods = chance.below(4) + 1;
    (0..pods).fold(Storm::of(job), |storm, nth| storm.user(at, UserAct::Evict { nth })).steps
}

/// A replica comes back and gets shards from others just when these create pods, which the API server holds back.
fn handed_over_while_pods_cannot_be_created(chance: &mut Chance, plan: &Plan, created: Time) -> Vec<Step> {
    let replica = chance.below(plan.settings.replicas);
    let back = created + chance.millis(50..=1_500);
    let at = Time::ms(back.millis().saturating_sub(chance.number(2_000..=15_000)).max(400));
    let refuse = Fault::Refuse {
        time: chance.millis(8_000..=20_000),
        code: 429,
        percent: 100,
        what: Refused::PodCreates,
    };
    let begin = Time::ms(created.millis().saturating_sub(500));
    let crash = Fault::Crash { replica, down: back.since(at) };
    Storm::of(0).fault(at, crash).fault(begin, refuse).steps
}

/// A replica has left in good order, so that others have its shards. When it comes back they hand some over, and the
/// API server turns their creations away for longer than they wait for them.
fn comes_back_while_pods_cannot_be_created(chance: &mut Chance, plan: &mut Plan, job: usize) -> Vec<Step> {
    /// A replica that is told to leave has this time for it before it starts again.
    const GRACE: Duration = Duration::from_secs(10);
    let replica = chance.below(plan.settings.replicas);
    let (leaves, down) = (Time::ms(chance.number(2_000..=8_000)), chance.millis(500..=3_000));
    let back = leaves + GRACE + down;
    // The Job comes just before: its first creations wait while its shard is handed over.
    let created = Time::ms(back.millis().saturating_sub(chance.number(0..=1_000)));
    if let Some(job) = plan.jobs.get_mut(job) {
        job.created = created;
    }
    let time = chance.millis(12_000..=20_000);
    let refuse = Fault::Refuse { time, code: 429, percent: 100, what: Refused::PodCreates };
    let begin = Time::ms(created.millis().saturating_sub(500));
    Storm::of(job).fault(leaves, Fault::Restart { replica, down }).fault(begin, refuse).steps
}

/// A replica leaves while its requests are still in flight through a slow network. Requests that it sends
/// later arrive earlier.
fn told_to_leave_when_a_slow_network_recovers(chance: &mut Chance, plan: &Plan, created: Time) -> Vec<Step> {
    let replica = chance.below(plan.settings.replicas);
    let extra = chance.millis(500..=3_000);
    let begin = Time::ms(created.millis().saturating_sub(100));
    // The watch shows it the Job after `extra`, and its first creations arrive after twice that.
    let recovers = created + extra + chance.millis(50..=extra.as_millis() as u64);
    let slow = Fault::Slow { replica, time: recovers.since(begin), extra };
    let leave = Fault::Restart { replica, down: chance.millis(100..=2_000) };
    Storm::of(0).fault(begin, slow).fault(recovers, leave).steps
}

/// The next owner of a Job finds its running pods, but not its ended ones.
fn a_job_without_some_of_its_pods_is_handed_over(
    chance: &mut Chance,
    plan: &Plan,
    job: usize,
    created: Time,
) -> Vec<Step> {
    let at = created + chance.millis(1_500..=12_000);
    let replica = chance.below(plan.settings.replicas);
    let leaves = at + chance.millis(300..=1_500);
    let restart = Fault::Restart { replica, down: chance.millis(100..=2_000) };
    Storm::of(job).user(at, UserAct::DeleteEnded).fault(leaves, restart).steps
}

/// The leader of the orphan controllers sees a pod without our label before it sees its Job. Nothing else is
/// wrong.
fn a_pod_of_an_unknown_job_loses_its_label(
    chance: &mut Chance,
    plan: &mut Plan,
    job: usize,
    created: Time,
) -> Vec<Step> {
    for step in plan.steps.iter_mut().filter(|step| matches!(step.act, Act::Fault(_))) {
        step.at = Time::NEVER;
    }
    for (replica, lag) in plan.settings.lags.iter_mut().enumerate() {
        // The first replica leads.
        let jobs = if replica == 0 { chance.millis(4_000..=9_000) } else { Duration::ZERO };
        *lag = Lag { jobs, pods: Duration::ZERO };
    }
    let strip = UserAct::StripLabel { nth: chance.below(64) };
    Storm::of(job).user(created + chance.millis(300..=3_000), strip).steps
}

/// A Job fails, and may not delete the failed pods that it does not keep until long after its end.
fn clearing_away_is_refused(plan: &mut Plan) {
    let mut chance = Chance::new(plan.seed, "clearing away");
    let number = chance.below(plan.jobs.len());
    let Some(job) = plan.jobs.get_mut(number).filter(|job| job.past.is_none() && chance.percent(4)) else {
        return;
    };
    job.annotations.insert("yardmaster.dev/failed-pods-limit".into(), "0".into());
    // It ends with its first failure, while nothing else has to be deleted.
    (job.spec["backoffLimit"], job.spec["parallelism"]) = (0.into(), 1.into());
    (job.failing_percent, job.evicted_percent) = (80, 0);
    let (time, code) = (chance.millis(20_000..=40_000), chance.pick(&[403, 500]));
    let refuse = Fault::Refuse { time, code, percent: 100, what: Refused::PodDeletes };
    plan.steps.extend(Storm::of(number).fault(job.created, refuse).steps);
}
