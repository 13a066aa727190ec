//! A plan from a seed.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use yardmaster::job::names::EXTERNAL_CONTROLLER;

use super::{
    Act, Fault, JobPlan, Past, Plan, Refused, Settings, Step, UserAct, WITHOUT_OWNER, extras, later, lost,
    options, order, queued, storms, strangers, tenant, together, wider,
};
use crate::chance::Chance;
use crate::time::Time;

/// When nothing new begins to break any more.
const CALM_FROM: u64 = 120_000;

/// How long the API server of a [`refusing`] plan refuses requests.
const REFUSING: Duration = Duration::from_secs(600);

/// The plan of a seed.
pub fn generate(seed: u64) -> Plan {
    let mut chance = Chance::new(seed, "plan");
    let settings = Settings {
        replicas: chance.pick(&[1, 2, 2, 3, 3]),
        shards: chance.pick(&[1, 2, 4, 8]),
        replaces_built_in: chance.percent(50),
        qps: chance.pick(&[0, 0, 0, 20]),
        streams_lists: chance.percent(50),
        longest_run: chance.millis(500..=20_000),
        calm_from: Time::ms(CALM_FROM),
        without_owner: WITHOUT_OWNER,
        lags: Vec::new(),
        all_own_all: false,
        max_uncounted: None,
    };
    let count = chance.number(1..=5) as usize;
    let jobs: Vec<JobPlan> = (0..count).map(|number| job(&mut chance, &settings, number)).collect();
    let mut steps = Vec::new();
    for _ in 0..chance.number(0..=6) {
        let job = chance.below(jobs.len());
        let act = user_act(&mut chance);
        steps.push(Step { at: Time::ms(chance.number(500..=60_000)), act: Act::User { job, act } });
    }
    for _ in 0..chance.number(0..=8) {
        // While most Jobs run; and troubles seldom come alone.
        let mut at = Time::ms(chance.number(500..=45_000));
        for _ in 0..chance.pick(&[1, 1, 1, 2]) {
            let fault = fault(&mut chance, &settings, &jobs);
            steps.push(Step { at, act: Act::Fault(fault) });
            at += chance.millis(0..=3_000);
        }
    }
    steps.sort_by_key(|step| step.at);
    let mut plan = Plan { seed, settings, jobs, steps };
    extras::add(&mut plan);
    storms::add(&mut plan);
    strangers::add(&mut plan);
    wider::add(&mut plan);
    later::add(&mut plan);
    tenant::add(&mut plan);
    together::add(&mut plan);
    queued::add(&mut plan);
    options::add(&mut plan);
    lost::add(&mut plan);
    order::add(&mut plan);
    plan
}

/// The plan of a seed in which nothing breaks but that the API server refuses some requests for ten minutes, always in the same
/// way.
pub fn refusing(seed: u64, code: u16, what: Refused) -> Plan {
    let mut plan = generate(seed);
    plan.steps.retain(|step| matches!(step.act, Act::User { .. }));
    let fault = Fault::Refuse { time: REFUSING, code, percent: 100, what };
    // A shard is claimed at the start.
    let at = Time::ms(if what == Refused::Claims { 0 } else { 10_000 });
    plan.steps.push(Step { at, act: Act::Fault(fault) });
    plan.steps.sort_by_key(|step| step.at);
    plan.settings.calm_from = Time::ms(10_000) + REFUSING;
    plan
}

fn job(chance: &mut Chance, settings: &Settings, number: usize) -> JobPlan {
    let completions = chance.number(1..=12);
    let parallelism = chance.number(1..=completions.max(2));
    let indexed = chance.percent(50);
    let mut spec =
        json!({"completions": completions, "parallelism": parallelism, "backoffLimit": chance.number(0..=8)});
    if indexed {
        spec["completionMode"] = "Indexed".into();
        if chance.percent(40) {
            spec["backoffLimitPerIndex"] = chance.number(0..=2).into();
        }
        if chance.percent(20) {
            spec["successPolicy"] = json!({"rules": [{"succeededCount": completions.div_ceil(2)}]});
        }
    } else if chance.percent(15) {
        spec.as_object_mut().map(|spec| spec.remove("completions"));
    }
    if !settings.replaces_built_in {
        spec["managedBy"] = EXTERNAL_CONTROLLER.into();
    }
    if chance.percent(20) {
        spec["podReplacementPolicy"] = "Failed".into();
    }
    if chance.percent(20) {
        spec["ttlSecondsAfterFinished"] = chance.number(0..=30).into();
    }
    if chance.percent(10) {
        spec["activeDeadlineSeconds"] = chance.number(5..=60).into();
    }
    let past = (settings.replaces_built_in && chance.percent(25)).then(|| {
        // It never runs more pods than are wanted.
        let running = chance.number(0..=parallelism).min(completions) as u32;
        let succeeded = chance.number(0..=completions.saturating_sub(running.into())) as u32;
        Past { running, succeeded, uncounted: chance.number(0..=u64::from(succeeded)) as u32 }
    });
    JobPlan {
        name: format!("job-{number}"),
        namespace: chance.pick(&["default", "team-a", "team-b"]).to_owned(),
        created: Time::ms(chance.number(0..=20_000)),
        spec: past
            .map_or(spec.clone(), |_| without(&spec, &["ttlSecondsAfterFinished", "activeDeadlineSeconds"])),
        failing_percent: chance.pick(&[0, 0, 20, 60]),
        adopts: past.is_none() && chance.percent(15),
        past,
        annotations: BTreeMap::new(),
        exit_codes: vec![1],
        evicted_percent: 0,
        slow_stop: Duration::ZERO,
        expressions: Vec::new(),
        restarts: false,
        has_env: false,
        needs_memory: None,
        stuck_percent: 0,
        lost_percent: 0,
    }
}

fn without(spec: &Value, fields: &[&str]) -> Value {
    let mut spec = spec.clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.retain(|name, _| !fields.contains(&name.as_str()));
    }
    spec
}

fn user_act(chance: &mut Chance) -> UserAct {
    let nth = chance.below(64);
    match chance.below(12) {
        0 => UserAct::Delete(chance.pick(&["Background", "Foreground", "Orphan"])),
        1 => UserAct::Scale(chance.number(1..=12) as u32),
        2 | 3 => UserAct::Suspend(chance.percent(40)),
        4 => UserAct::DeletePod { nth, force: chance.percent(30) },
        5 => UserAct::StripLabel { nth },
        6 => UserAct::WrongShard { nth },
        7 => UserAct::StripFinalizers { nth },
        8 => UserAct::Annotate,
        9 => UserAct::AddOrphans(chance.number(1..=3) as u32),
        10 => UserAct::AdoptElsewhere { nth },
        _ => UserAct::HoldPod { nth, time: chance.millis(1_000..=30_000) },
    }
}

fn fault(chance: &mut Chance, settings: &Settings, jobs: &[JobPlan]) -> Fault {
    let replica = chance.below(settings.replicas);
    let time = chance.millis(500..=25_000);
    let namespace = chance.pick(&["default", "team-a", "team-b"]).to_owned();
    match chance.below(21) {
        0 | 1 => Fault::Crash { replica, down: chance.millis(100..=20_000) },
        2 => Fault::Restart { replica, down: chance.millis(100..=5_000) },
        // Half of them for longer than a lease.
        3 => Fault::Freeze { replica, time: 2 * time },
        4 => Fault::Suspend { replica, time: chance.millis(1_000..=60_000) },
        5 => Fault::ClockStep { replica, millis: chance.pick(&[-3_600_000, -5_000, 5_000, 3_600_000]) },
        6 => Fault::Partition { replica, time },
        7 => Fault::Unreachable { replica, time },
        8 => Fault::LoseReplies { replica, time, percent: chance.pick(&[5, 30, 90]) },
        9 => {
            Fault::Swallow { replica, requests: chance.number(1..=4) as u32, heartbeats: chance.percent(50) }
        }
        10 => Fault::Slow { replica, time, extra: chance.millis(20..=3_000) },
        11 => Fault::HoldWatches { replica, time },
        12 => Fault::CutWatches { replica },
        13 | 14 => Fault::Refuse {
            time,
            code: chance.pick(&[429, 500, 503, 403]),
            percent: chance.pick(&[10, 50, 100]),
            what: chance.pick(&[
                Refused::All,
                Refused::Writes,
                Refused::PodPatches,
                Refused::PodDeletes,
                Refused::PodCreates,
                Refused::Statuses,
                Refused::Reads,
            ]),
        },
        15 => Fault::Down { time: chance.millis(100..=12_000) },
        16 => Fault::Compact,
        17 => Fault::Webhook { namespace, time },
        18 => Fault::Quota { namespace, pods: chance.number(0..=6) as u32, time },
        19 => match chance.below(3) {
            0 => Fault::Panic { job: chance.below(jobs.len()) },
            1 => Fault::PanicShard { replica },
            _ => Fault::PanicWatch { replica },
        },
        _ => match chance.below(3) {
            0 => Fault::Undecodable { job: chance.below(jobs.len()), time },
            1 => Fault::Restore { age: Duration::from_millis(chance.number(1_000..=15_000)) },
            _ => Fault::Leadership { leaders: chance.pick(&[0, 2]), time },
        },
    }
}
