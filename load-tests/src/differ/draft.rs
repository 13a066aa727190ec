//! Drafts of scenarios: a plan in the format of `tests/data/scenarios`, without expectations.

use serde_json::{Value, json};

use super::class::{Class, OWNER_LABEL};
use super::plan::{Change, End, Pick, Plan, What, job_name};
use crate::exact::FINALIZERS;

/// Seconds since the end of a container whose back-off is over.
const PAST: u32 = 3_600;

/// The draft of a plan whose picks are classes. Returns `None` if the format lacks its acts, or allows fewer
/// Jobs.
pub(super) fn draft(plan: &Plan, about: &str) -> Option<Value> {
    let created: Vec<usize> = (0..plan.jobs.len())
        .filter(|job| plan.acts().any(|what| *what == What::Create { job: *job }))
        .collect();
    let which = |job: usize| match created.iter().position(|created| *created == job)? {
        0 => Some("job"),
        1 => Some("job2"),
        _ => None,
    };
    let mut scenario = json!({
        "name": format!("differ-{}", plan.seed), "topic": "differ", "about": about, "gates": [],
        "deferJob": true,
    });
    for job in &created {
        scenario[which(*job)?] = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job_name(*job)},
            "spec": plan.jobs.get(*job)?,
        });
    }
    let mut steps = Vec::new();
    let mut known = Vec::new();
    for step in &plan.steps {
        for act in &step.0 {
            if let What::Create { job } = act.what {
                let again = known.contains(&job);
                known.push(job);
                steps.push(match again {
                    false => json!({"create": which(job)?}),
                    true => json!({"job": {"recreate": true, "which": which(job)?}}),
                });
                continue;
            }
            steps.push(act_of(&act.what, &which)?);
        }
        steps.push(json!({"settle": true}));
    }
    scenario["steps"] = json!(steps);
    Some(scenario)
}

fn act_of(what: &What, which: &impl Fn(usize) -> Option<&'static str>) -> Option<Value> {
    Some(match what {
        What::Patch { job, patch } => json!({"job": {"patch": patch, "which": which(*job)?}}),
        What::Delete { job, propagation } => {
            json!({"job": {"delete": {"propagationPolicy": propagation}, "which": which(*job)?}})
        }
        What::Pods { pick: Pick::Class(class), count, change } => {
            let mut pods = changed(change)?;
            pods["select"] = selection(class, *count, which);
            json!({ "pods": pods })
        }
        What::Quota { pods: Some(pods) } => json!({"quota": {"hard": {"pods": pods.to_string()}}}),
        What::Restart { .. } => json!({"controller": "restart"}),
        What::Create { .. } | What::Pods { .. } | What::Quota { pods: None } | What::Refuse { .. } => {
            return None;
        }
    })
}

fn selection(class: &Class, count: u32, which: &impl Fn(usize) -> Option<&'static str>) -> Value {
    let mut select = json!({
        "phase": class.phase, "terminating": class.terminating, "ready": class.ready, "count": count,
    });
    if let Some(index) = class.index.as_ref().and_then(|index| index.parse::<u32>().ok()) {
        select["index"] = json!(index);
    }
    let owner = (0..3).find(|job| job_name(*job) == class.job).and_then(which);
    if let Some(owner) = owner.filter(|_| class.owned) {
        select["owner"] = json!(owner);
    }
    select
}

/// A change of pods, without their selection.
fn changed(change: &Change) -> Option<Value> {
    let ago = |end: End| if end == End::Now { 0 } else { PAST };
    Some(match change {
        Change::Schedule => json!({"set": {"node": "n1"}}),
        Change::Run { ready, restarts } => {
            json!({"set": {"phase": "Running", "ready": ready, "readyAgo": PAST, "restartCount": restarts}})
        }
        Change::Succeed(end) => json!({"set": {"phase": "Succeeded", "finishedAgo": ago(*end)}}),
        Change::Fail { code, init, condition, end } => {
            let mut set = json!({"phase": "Failed", "exitCode": code, "finishedAgo": ago(*end)});
            if *end == End::Unknown {
                set = json!({"phase": "Failed", "noStatuses": true});
            } else if *init > 0 {
                set["initContainers"] = json!({"i": {"exitCode": init}});
            }
            if let Some(name) = condition {
                set["conditions"] = json!([{"type": name, "status": "True"}]);
            }
            json!({ "set": set })
        }
        Change::Condition(name) => json!({"set": {"conditions": [{"type": name, "status": "True"}]}}),
        Change::Delete { forced: true } => json!({"delete": {"gracePeriodSeconds": 0}}),
        Change::Delete { forced: false } => json!({"delete": {}}),
        Change::Release => json!({"removeFinalizer": FINALIZERS[0]}),
        Change::Disown => json!({"removeOwner": true}),
        Change::Unlabel => json!({"labels": {OWNER_LABEL: null}}),
        Change::Index(index) => json!({"annotations": {super::class::INDEX: index}}),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::differ::plan::{Act, Propagation, Step};

    fn plan(acts: Vec<What>) -> Plan {
        let steps = acts.into_iter().map(|what| Step(vec![Act { after_ms: 0, what }])).collect();
        Plan { seed: 7, jobs: vec![json!({"parallelism": 1}); 2], steps }
    }

    #[test]
    fn a_draft_has_the_steps_of_the_plan() {
        let class = Class {
            job: "j2".into(),
            index: Some("0".into()),
            phase: "Running".into(),
            owned: true,
            ..Class::default()
        };
        let fail = Change::Fail { code: 3, init: 0, condition: None, end: End::Past };
        let acts = vec![
            What::Create { job: 1 },
            What::Pods { pick: Pick::Class(class), count: 2, change: fail },
            What::Delete { job: 1, propagation: Propagation::Foreground },
            What::Create { job: 1 },
        ];
        let draft = draft(&plan(acts), "why").unwrap();
        assert_eq!((&draft["name"], &draft["job"]["metadata"]["name"]), (&json!("differ-7"), &json!("j2")));
        assert!(draft["job2"].is_null(), "only Jobs that are created");
        let select = json!({
            "phase": "Running", "terminating": false, "ready": false, "count": 2, "index": 0, "owner": "job",
        });
        let settle = json!({"settle": true});
        let steps = json!([
            {"create": "job"}, settle,
            {"pods": {"set": {"phase": "Failed", "exitCode": 3, "finishedAgo": 3600}, "select": select}}, settle,
            {"job": {"delete": {"propagationPolicy": "Foreground"}, "which": "job"}}, settle,
            {"job": {"recreate": true, "which": "job"}}, settle,
        ]);
        assert_eq!(draft["steps"], steps);
    }

    #[test]
    fn what_the_format_lacks_has_no_draft() {
        assert!(draft(&plan(vec![What::Create { job: 0 }, What::Refuse { pods: true }]), "why").is_none());
    }
}
