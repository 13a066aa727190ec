//! Further acts of users and faults in the plans of later seeds. Each kind has a source of chance of its own.
//! The steps come last, so that others keep their numbers.

use std::time::Duration;

use super::{Act, Fault, Plan, Refused, Step, UserAct};
use crate::chance::Chance;
use crate::time::Time;

/// The steps of one kind for a plan, by chance.
type Kind = fn(&mut Chance, &Plan) -> Vec<Step>;

/// Adds steps.
pub(super) fn add(plan: &mut Plan) {
    let kinds: [(&str, Kind); 10] = [
        ("other shards", other_shards),
        ("options that change", options_that_change),
        ("sizes that change", sizes_that_change),
        ("adopted pods", adopted_pods),
        ("clocks far back", clocks_far_back),
        ("young backups", young_backups),
        ("no protobuf", no_protobuf),
        ("ends of namespaces", ends_of_namespaces),
        ("releases refused", removals_while_releases_are_refused),
        ("panics before deletions", panics_before_deletions),
    ];
    for (purpose, steps) in kinds {
        let steps = steps(&mut Chance::new(plan.seed, purpose), plan);
        plan.steps.extend(steps);
    }
}

/// A Job by chance, and when it is created.
fn some_job(chance: &mut Chance, plan: &Plan) -> (usize, Time) {
    let job = chance.below(plan.jobs.len());
    (job, plan.jobs.get(job).map_or(Time::ZERO, |job| job.created))
}

fn user(at: Time, job: usize, act: UserAct) -> Step {
    Step { at, act: Act::User { job, act } }
}

fn fault(at: Time, fault: Fault) -> Step {
    Step { at, act: Act::Fault(fault) }
}

/// Pods get the label of another shard, some of them several times.
fn other_shards(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    if plan.settings.shards < 2 || !chance.percent(25) {
        return Vec::new();
    }
    let (job, created) = some_job(chance, plan);
    let (nth, mut at) = (chance.below(64), created + chance.millis(300..=8_000));
    let mut steps = Vec::new();
    for _ in 0..chance.number(1..=4) {
        let shard = chance.number(0..=u64::from(plan.settings.shards) - 1) as u32;
        steps.push(user(at, job, UserAct::OtherShard { nth, shard }));
        at += chance.millis(1..=1_500);
    }
    if chance.percent(25) {
        steps.push(user(at, job, UserAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"]))));
    }
    steps
}

/// Options that are set while a Job runs, or after its end.
fn options_that_change(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    const OPTIONS: [(&str, &[Option<&str>]); 5] = [
        ("failed-pods-limit", &[Some("0"), Some("1"), Some("2"), Some("none"), None]),
        ("prune-succeeded", &[Some("true"), Some("true"), Some("false"), Some("1"), None]),
        ("backoff-initial", &[Some("50ms"), Some("3s"), Some("-1s"), None]),
        ("backoff-max", &[Some("200ms"), Some("8s"), Some("long"), None]),
        ("propagate-trace", &[Some("true"), Some("false"), Some("on"), None]),
    ];
    if !chance.percent(25) {
        return Vec::new();
    }
    let (job, created) = some_job(chance, plan);
    let steps = (0..chance.number(1..=4)).map(|_| {
        let late = chance.pick(&[3_000, 15_000, 90_000]);
        let at = created + chance.millis(200..=late);
        let (name, values) = chance.pick(&OPTIONS[..]);
        user(at, job, UserAct::SetOption { name, value: chance.pick(values) })
    });
    steps.collect()
}

/// Elastic Jobs that grow and shrink.
fn sizes_that_change(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, job) in plan.jobs.iter().enumerate() {
        let spec = &job.spec;
        let is_elastic = spec["completionMode"] == "Indexed"
            && spec["completions"] == spec["parallelism"]
            && job.past.is_none();
        if !is_elastic || !chance.percent(80) {
            continue;
        }
        let mut at = job.created;
        for _ in 0..chance.number(1..=4) {
            at += chance.millis(100..=8_000);
            steps.push(user(at, number, UserAct::Resize(chance.number(0..=14) as u32)));
        }
    }
    steps
}

/// Pods that a Job may adopt or not, and some of its own that it does not select any more.
fn adopted_pods(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, job) in plan.jobs.iter().enumerate().filter(|(_, job)| !job.expressions.is_empty()) {
        if chance.percent(70) {
            let at = Time::ms((job.created + chance.millis(0..=8_000)).millis().saturating_sub(2_000));
            steps.push(user(at, number, UserAct::AddOrphans(chance.number(2..=4) as u32)));
        }
        if chance.percent(30) {
            let at = job.created + chance.millis(300..=8_000);
            steps.push(user(at, number, UserAct::Relabel { nth: chance.below(64) }));
        }
    }
    steps
}

/// A clock that is set back by more than an hour, some of them after a step ahead.
fn clocks_far_back(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    const MINUTE: i64 = 60_000;
    if !chance.percent(12) {
        return Vec::new();
    }
    let replica = chance.below(plan.settings.replicas);
    let at = Time::ms(chance.number(1_000..=40_000));
    let back = fault(at, Fault::ClockStep { replica, millis: -chance.pick(&[61, 90, 1_500]) * MINUTE });
    let before = Time::ms(at.millis().saturating_sub(chance.number(1..=5_000)));
    let ahead = Fault::ClockStep { replica, millis: chance.pick(&[20, 600]) * MINUTE };
    if chance.percent(40) { vec![fault(before, ahead), back] } else { vec![back] }
}

/// etcd is restored from a backup that is younger than the last heartbeats.
fn young_backups(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    if plan.settings.all_own_all || !chance.percent(10) {
        return Vec::new();
    }
    let (_, created) = some_job(chance, plan);
    let restore = Fault::Restore { age: chance.millis(20..=900) };
    vec![fault(created + chance.millis(1_200..=15_000), restore)]
}

/// Something on the way to the API server does not read protobuf.
fn no_protobuf(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let is_large = |number: &usize| plan.jobs[*number].spec["completions"].as_u64() >= Some(40);
    let large = (0..plan.jobs.len()).find(is_large);
    if !chance.percent(if large.is_some() { 50 } else { 4 }) {
        return Vec::new();
    }
    let created = large.map_or(Time::ZERO, |job| plan.jobs[job].created);
    let (time, code, percent) =
        (chance.millis(3_000..=60_000), chance.pick(&[415, 400]), chance.pick(&[30, 100]));
    vec![fault(created, Fault::Refuse { time, code, percent, what: Refused::Protobuf })]
}

/// A user deletes a namespace while Jobs run in it.
fn ends_of_namespaces(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    let (job, created) = some_job(chance, plan);
    let namespace = plan.jobs[job].namespace.clone();
    // The API server keeps the namespace `default`.
    if namespace == "default" || !chance.percent(10) {
        return Vec::new();
    }
    vec![fault(created + chance.millis(200..=20_000), Fault::EndNamespace { namespace })]
}

/// A Job is scaled down or suspended while pods cannot be released, and its pods are deleted meanwhile.
fn removals_while_releases_are_refused(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    if !chance.percent(12) {
        return Vec::new();
    }
    let (job, created) = some_job(chance, plan);
    let mut at = created + chance.millis(200..=6_000);
    let (time, percent) = (chance.millis(1_000..=10_000), chance.pick(&[50, 100]));
    let code = chance.pick(&[409, 404, 500]);
    let refuse = Fault::Refuse { time, code, percent, what: Refused::PodPatches };
    let mut steps = vec![fault(at, refuse)];
    at += chance.millis(50..=1_000);
    let fewer = if chance.percent(50) { UserAct::Suspend(true) } else { UserAct::Scale(1) };
    steps.push(user(at, job, fewer));
    for _ in 0..chance.below(3) {
        let delete = UserAct::DeletePod { nth: chance.below(64), force: chance.percent(60) };
        steps.push(user(at + chance.millis(1..=3_000), job, delete));
    }
    if chance.percent(20) {
        steps.push(user(at + chance.millis(1..=3_000), job, UserAct::Delete("Foreground")));
    }
    let more = if chance.percent(50) { UserAct::Suspend(false) } else { UserAct::Scale(6) };
    steps.push(user(at + chance.millis(500..=8_000), job, more));
    steps
}

/// The actor of a Job panics several times, so that it is rebuilt later each time, and the Job is deleted meanwhile.
fn panics_before_deletions(chance: &mut Chance, plan: &Plan) -> Vec<Step> {
    if !chance.percent(8) {
        return Vec::new();
    }
    let (job, created) = some_job(chance, plan);
    let mut at = created + chance.millis(100..=4_000);
    let mut steps = Vec::new();
    for _ in 0..chance.number(1..=4) {
        steps.push(fault(at, Fault::Panic { job }));
        // The Job is looked at again, and so panics.
        steps.push(user(at + Duration::from_millis(1), job, UserAct::Annotate));
        at += chance.millis(100..=1_500);
    }
    let policy = chance.pick(&["Background", "Foreground", "Orphan"]);
    steps.push(user(at, job, UserAct::Delete(policy)));
    steps
}
