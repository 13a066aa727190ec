//! Jobs that wait for the ends of others.

use super::fixture::{at, job, running, state, with};
use crate::job::options::{JobOptions, Predecessors};
use crate::job::plan::{Plan, Urgency, Wait};
use crate::job::predecessors::{Hindrance, JobOutcome, Obstacle, OrderLook};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus, Uncounted};
use crate::job::verdict::condition;

fn after(options: &[(&str, &str)]) -> Job {
    let mut job = job(Completion::Count(1), 1);
    job.options = JobOptions::read(options.iter().copied());
    job
}

fn waiting() -> JobState {
    state(after(&[("yardmaster.dev/after", "first")]), [])
}

fn by(cause: Hindrance) -> Option<Obstacle> {
    Some(Obstacle { cause, job: "first".into() })
}

/// A look at the only predecessor.
fn look(obstacle: Option<Obstacle>) -> OrderLook {
    OrderLook { met: obstacle.is_none().then(|| "first".into()), obstacle }
}

#[test]
fn the_obstacle_that_needs_somebody_to_act_is_shown() {
    use JobOutcome::{Failed, Succeeded, Unfinished};
    let names = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
    for (succeeded, finished, outcomes, expected) in [
        (&["a"][..], &[][..], &[("a", Succeeded)][..], None),
        (&["a"], &[], &[("a", Unfinished)], Some((Hindrance::Unfinished, "a"))),
        (&["a"], &[], &[("a", Failed)], Some((Hindrance::Failed, "a"))),
        (&[], &["a"], &[("a", Failed)], None),
        (&[], &["a"], &[("a", Succeeded)], None),
        (&[], &["a"], &[("a", Unfinished)], Some((Hindrance::Unfinished, "a"))),
        (&["a"], &["a"], &[("a", Failed)], Some((Hindrance::Failed, "a"))),
        (&["a"], &[], &[], Some((Hindrance::Missing, "a"))),
        (&["a", "b"], &[], &[("a", Succeeded), ("b", Unfinished)], Some((Hindrance::Unfinished, "b"))),
        (&["a", "b"], &[], &[("a", Unfinished), ("b", Unfinished)], Some((Hindrance::Unfinished, "a"))),
        (&["a", "b"], &[], &[("a", Unfinished)], Some((Hindrance::Missing, "b"))),
        (&["a", "b"], &["c"], &[("b", Failed), ("c", Unfinished)], Some((Hindrance::Failed, "b"))),
        (&["loop", "b"], &[], &[("loop", Unfinished)], Some((Hindrance::Cycle, "loop"))),
        (&["loop", "b"], &[], &[("loop", Unfinished), ("b", Failed)], Some((Hindrance::Failed, "b"))),
        (&["loop"], &[], &[("loop", Succeeded)], None),
    ] {
        let after = Predecessors { succeeded: names(succeeded), finished: names(finished) };
        let outcome =
            |name: &str| outcomes.iter().find(|(known, _)| *known == name).map(|(_, outcome)| *outcome);
        let found = OrderLook::new(&after, |_| false, outcome, |name| name == "loop").obstacle;
        let found = found.as_ref().map(|found| (found.cause, &*found.job));
        assert_eq!(found, expected, "{succeeded:?} {finished:?} {outcomes:?}");
    }
}

/// A predecessor may be gone when the last one ends, and the owner of the Job another one.
#[test]
fn predecessors_that_have_ended_are_remembered() {
    use JobOutcome::{Failed, Succeeded, Unfinished};
    let mut state =
        state(after(&[("yardmaster.dev/after", "a, b"), ("yardmaster.dev/after-any", "a, c")]), []);
    let mut look_at = |outcomes: &[(&str, JobOutcome)], second| {
        let outcome =
            |name: &str| outcomes.iter().find(|(known, _)| *known == name).map(|(_, outcome)| *outcome);
        let after = state.job.options.after.clone().unwrap();
        let met = state.names_met();
        let look = OrderLook::new(&after, |name| met.contains(name), outcome, |_| false);
        state.order_seen(look);
        let plan = step(&mut state, second);
        (plan.status.is_some(), state.job.status.after_met.as_deref().map(str::to_owned), plan.creates.len())
    };
    let met = |names: &str| Some(names.to_owned());
    let all = [("a", Unfinished), ("b", Unfinished), ("c", Unfinished)];
    assert_eq!(look_at(&all, 100), (false, None, 0));
    assert_eq!(look_at(&[("a", Failed), all[1], all[2]], 101), (false, None, 0), "it has to succeed, too");
    assert_eq!(look_at(&[("a", Succeeded), all[1], all[2]], 102), (true, met("a"), 0));
    assert_eq!(look_at(&[("a", Succeeded), all[1], all[2]], 103), (false, met("a"), 0), "once");
    assert_eq!(look_at(&[all[1], ("c", Failed)], 104), (true, met("a,c"), 0));
    assert_eq!(look_at(&[("a", Unfinished), all[1]], 105), (false, met("a,c"), 0), "another Job of the name");
    let (_, _, created) = look_at(&[("b", Succeeded)], 106);
    assert_eq!(created, 1);
    assert_eq!(state.job.status.start_time, None, "the start is written later");
    assert_eq!(state.predecessors_met().map(|met| &**met), Some("a,b,c"));
}

/// The last predecessor ends and is gone before a status names it: the first still counts.
#[test]
fn an_end_that_no_status_names_yet_is_remembered() {
    let mut state = state(after(&[("yardmaster.dev/after", "a, b")]), []);
    let after = state.job.options.after.clone().unwrap();
    for (ended, obstacle) in [("a", Some((Hindrance::Missing, "b"))), ("b", None)] {
        let outcome = |name: &str| (name == ended).then_some(JobOutcome::Succeeded);
        let met = state.names_met();
        let look = OrderLook::new(&after, |name| met.contains(name), outcome, |_| false);
        let found = look.obstacle.as_ref().map(|found| (found.cause, &*found.job));
        assert_eq!(found, obstacle, "after the end of {ended}");
        state.order_seen(look);
        assert!(state.job.status.after_met.is_none());
    }
    assert_eq!(reconcile(&state, at(100)).creates.len(), 1);
}

/// Another owner may look next, and the predecessor may be gone.
#[test]
fn an_end_of_a_predecessor_does_not_wait_behind_progress() {
    let mut state = state(after(&[("yardmaster.dev/after", "a, b")]), []);
    let after = state.job.options.after.clone().unwrap();
    let outcome = |name: &str| (name == "a").then_some(JobOutcome::Succeeded);
    state.order_seen(OrderLook::new(&after, |_| false, outcome, |_| false));
    let write = reconcile(&state, at(100)).status.unwrap();
    assert_eq!(write.urgency, Urgency::Step);
}

/// Plans at this second, and lets the API server take the status.
fn step(state: &mut JobState, second: i64) -> Plan {
    let plan = reconcile(state, at(second));
    state.begin(&plan, at(second));
    if let Some(write) = &plan.status {
        state.observe_job(Job { status: write.status.clone(), ..state.job.clone() });
        state.status_written(at(second));
    }
    plan
}

#[test]
fn nothing_happens_before_the_predecessors_have_ended() {
    let mut state = waiting();
    for obstacle in [None, by(Hindrance::Unfinished), by(Hindrance::Missing), by(Hindrance::Failed)] {
        // Before the first look nothing is known.
        let expected = obstacle.clone().or(by(Hindrance::Unfinished));
        if obstacle.is_some() {
            state.order_seen(look(obstacle));
        }
        let plan = step(&mut state, 100);
        assert_eq!(plan.waiting, expected.map(Wait::After));
        assert_eq!((plan.size(), plan.status_waits), (0, false), "{:?}", plan.waiting);
    }
    assert_eq!(state.started, None, "deadlines count from the beginning");
    state.order_seen(look(None));
    let plan = step(&mut state, 500);
    assert_eq!((plan.creates.len(), plan.waiting), (1, None));
    assert_eq!(state.started, Some(at(500)));
}

#[test]
fn a_job_without_pods_ends_after_its_predecessors() {
    let mut job = after(&[("yardmaster.dev/after-any", "first")]);
    job = with(job, |spec| spec.completion = Completion::Count(0));
    let mut state = state(job, []);
    state.order_seen(look(by(Hindrance::Unfinished)));
    assert!(step(&mut state, 100).status.is_none());
    state.order_seen(look(None));
    assert!(step(&mut state, 200).status.is_some_and(|write| write.status.announces_end()));
}

#[test]
fn a_job_that_has_begun_waits_no_more() {
    type Beginning = (&'static str, fn(&mut Job));
    let begun: [Beginning; 4] = [
        ("started", |job| job.status.start_time = Some(at(50))),
        ("counted", |job| job.status.failed = 1),
        ("has named pods", |job| job.status.names_used = 1),
        ("has recorded pods", |job| {
            job.status.uncounted = Some(Uncounted { succeeded: vec!["gone".into()], failed: Vec::new() });
        }),
    ];
    for (what, begin) in begun {
        let mut job = after(&[("yardmaster.dev/after", "first")]);
        begin(&mut job);
        let mut state = state(job, []);
        state.order_seen(look(by(Hindrance::Missing)));
        assert!(!state.awaits_order(), "{what}");
        assert!(!matches!(step(&mut state, 100).waiting, Some(Wait::After(_))), "{what}");
    }
    let with_pod = state(after(&[("yardmaster.dev/after", "first")]), [running("a")]);
    assert!(!with_pod.awaits_order());
    let mut created = waiting();
    created.order_seen(look(None));
    step(&mut created, 100);
    created.order_seen(look(by(Hindrance::Missing)));
    assert!(!created.awaits_order(), "a creation is in flight");
}

#[test]
fn only_jobs_that_may_begin_are_after_others() {
    let others: [fn(&mut Job); 3] = [
        |job| job.deleting = true,
        |job| *job = with(job.clone(), |spec| spec.suspend = true),
        |job| job.options = JobOptions::default(),
    ];
    for change in others {
        let mut job = after(&[("yardmaster.dev/after", "first")]);
        change(&mut job);
        assert!(!state(job, []).awaits_order());
    }
}

/// A queue creates Jobs suspended, and resumes them.
#[test]
fn a_resumed_job_starts_after_its_predecessors() {
    let mut job = after(&[("yardmaster.dev/after", "first")]);
    job.status.uncounted = Some(Uncounted::default());
    (job.status.ready, job.status.terminating) = (Some(0), Some(0));
    job.status.ensure(condition(ConditionKind::Suspended, ConditionStatus::True, "", "", at(50)));
    let mut state = state(job, []);
    state.order_seen(look(by(Hindrance::Unfinished)));
    let plan = step(&mut state, 100);
    assert_eq!((plan.size(), plan.waiting), (0, by(Hindrance::Unfinished).map(Wait::After)));
    state.order_seen(look(None));
    assert_eq!(step(&mut state, 200).creates.len(), 1);
}

/// Any Job on the way may close a cycle. Many Jobs may wait, so they search seldom.
#[test]
fn searches_for_cycles_follow_at_growing_distances() {
    let mut state = waiting();
    let mut searched = Vec::new();
    for second in 100..=400 {
        if state.begins_cycle_search(at(second)) {
            searched.push(second);
        }
        state.order_seen(look(by(Hindrance::Unfinished)));
        let next = step(&mut state, second).wake_at;
        assert!(next.is_some_and(|next| next > at(second) && next <= at(second + 60)), "{next:?}");
    }
    assert_eq!(searched, [100, 110, 120, 140, 180, 240, 300, 360]);
    assert!(!state.begins_cycle_search(at(401)));
    state.order_changed();
    assert!(state.begins_cycle_search(at(401)), "its own predecessors have changed");
    assert!(!state.begins_cycle_search(at(402)));
    assert!(state.begins_cycle_search(at(50)), "the clock was set back");
}

#[test]
fn an_obstacle_that_lasts_has_one_event() {
    let reasons = |plan: &Plan| plan.events.iter().map(|event| event.reason.to_string()).collect::<Vec<_>>();
    let none = Vec::<String>::new();
    let mut state = waiting();
    for (second, cause, expected) in [
        (100, Hindrance::Unfinished, &[][..]),
        (120, Hindrance::Unfinished, &[]),
        (121, Hindrance::Missing, &[]),
        (130, Hindrance::Missing, &[]),
        (131, Hindrance::Missing, &["AfterMissing"]),
        (150, Hindrance::Missing, &[]),
        (151, Hindrance::Failed, &[]),
        (152, Hindrance::Unfinished, &[]),
        (153, Hindrance::Failed, &[]),
        (163, Hindrance::Failed, &["AfterFailed"]),
    ] {
        state.order_seen(look(by(cause)));
        let plan = step(&mut state, second);
        assert_eq!(reasons(&plan), expected, "{second}");
        let looks_again = cause != Hindrance::Unfinished && [121, 130, 151, 153].contains(&second);
        assert_eq!(plan.wake_at.is_some(), looks_again, "{second}");
    }
    let mut soon = waiting();
    soon.order_seen(look(by(Hindrance::Missing)));
    assert_eq!(reasons(&step(&mut soon, 100)), none, "Jobs that are created together come in any order");
}
