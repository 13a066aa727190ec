//! Lessons that pods carry on, and pods that do not start.

use super::fixture::{at, at_index, at_ordinal, but, ended, job, pod, state, with};
use crate::job::lineage::Lineage;
use crate::job::options::{JobOptions, PodFacts};
use crate::job::overlay::{HostAvoidance, ResourceList};
use crate::job::pod::{Carried, ContainerExit, NewPod, Outcome, Phase, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::{Completion, Job};
use crate::job::state::JobState;
use crate::job::status::Uncounted;
use crate::job::template::PodTemplate;
use serde_json::value::RawValue;

fn with_options(completion: Completion, options: &[(&str, &str)]) -> Job {
    let keys = options.iter().map(|(name, value)| (format!("yardmaster.dev/{name}"), *value));
    let mut job = job(completion, 1);
    job.options = JobOptions::read(keys.collect::<Vec<_>>().iter().map(|(key, value)| (&**key, *value)));
    assert_eq!(job.options.rejected, []);
    job.status.start_time = Some(at(0));
    job.status.uncounted = Some(Uncounted::default());
    job
}

/// The pod, failed on this node at this second. Its container `main` has ended with this code.
fn failed(pod: Pod, node: &str, second: i64, exit_code: i32) -> Pod {
    let exit = |name: &str, out_of_memory| ContainerExit { name: name.into(), exit_code, out_of_memory };
    let containers = vec![exit("main", exit_code == 137), exit("side", false)];
    let outcome = Outcome { containers, node: Some(node.into()), ..Outcome::default() };
    but(ended(pod, Phase::Failed, second), |pod| pod.outcome = Some(Box::new(outcome)))
}

fn carrying(pod: Pod, lineage: &str) -> Pod {
    let lineage = Lineage::read(lineage);
    but(pod, |pod| pod.carried = Some(Box::new(Carried::of(None, &lineage))))
}

/// The first pod that is created a while later.
fn next(state: &JobState, second: i64) -> NewPod {
    reconcile(state, at(second)).creates.first().expect("a pod is created").clone()
}

fn lineage(new: &NewPod) -> String {
    new.lineage.as_ref().map(|lineage| lineage.to_string()).unwrap_or_default()
}

const AVOID: (&str, &str) = ("retry-avoid-node", "required");

#[test]
fn a_retry_avoids_the_nodes_of_its_index() {
    let two = Completion::Indexed(2);
    let avoids = |options: &[(&str, &str)], pods: Vec<Pod>| {
        lineage(&next(&state(with_options(two, options), pods), 300))
    };
    let first = || failed(at_index("a", 0, 0), "node-a", 150, 1);
    let other_index = failed(at_index("b", 1, 0), "node-b", 150, 1);
    assert_eq!(avoids(&[AVOID], vec![first()]), "nodes=node-a@150");
    assert_eq!(avoids(&[], vec![first()]), "");
    assert_eq!(avoids(&[AVOID], vec![first(), other_index]), "nodes=node-a@150");
    let second = carrying(failed(at_index("c", 0, 1), "node-c", 170, 1), "nodes=node-a@150");
    assert_eq!(
        avoids(&[AVOID], vec![second.clone()]),
        "nodes=node-a@150,node-c@170",
        "its predecessor is gone"
    );
    assert_eq!(avoids(&[AVOID, ("retry-avoid-nodes-max", "1")], vec![second.clone()]), "nodes=node-c@170");
    assert_eq!(avoids(&[AVOID, ("retry-avoid-for", "140s")], vec![second]), "nodes=node-c@170");
    let counted = but(first(), |pod| pod.tracked = false);
    assert_eq!(avoids(&[AVOID], vec![counted]), "nodes=node-a@150", "a failure that is counted");
    let removed = but(first(), |pod| (pod.tracked, pod.deleting) = (false, true));
    assert_eq!(avoids(&[AVOID], vec![removed]), "", "a pod that we have removed");
}

#[test]
fn without_indexes_a_retry_avoids_the_nodes_of_the_job() {
    let job = with_options(Completion::Count(9), &[AVOID]);
    let pods = [("a", "node-a", 150), ("b", "node-b", 160)];
    let pods = pods.into_iter().zip(0..).map(|((uid, node, at), n)| failed(at_ordinal(uid, n), node, at, 1));
    assert_eq!(lineage(&next(&state(job, pods), 400)), "nodes=node-a@150,node-b@160");
}

#[test]
fn an_overlay_says_how_strictly_nodes_are_avoided() {
    for (mode, required) in [("preferred", false), ("required", true)] {
        let job = with_options(Completion::Indexed(1), &[("retry-avoid-node", mode)]);
        let lineage = Lineage::read("nodes=n1@5,n2@7");
        let overlay =
            job.options.overlay(&PodFacts { lineage: Some(&lineage), ..PodFacts::default() }).unwrap();
        let hosts = vec!["n1".into(), "n2".into()];
        assert_eq!(overlay.avoidance, Some(HostAvoidance { required, hosts }));
        assert_eq!(overlay.annotations, [("yardmaster.dev/lineage", "nodes=n1@5,n2@7".into())]);
    }
}

#[test]
fn after_running_out_of_memory_an_index_asks_for_more() {
    const FACTOR: (&str, &str) = ("oom-memory-factor", "2");
    let raises = |options: &[(&str, &str)], pods: Vec<Pod>| {
        lineage(&next(&state(with_options(Completion::Indexed(1), options), pods), 300))
    };
    let first = |code| vec![failed(at_index("a", 0, 0), "n", 150, code)];
    assert_eq!(raises(&[FACTOR], first(137)), "memory=main:1");
    assert_eq!(raises(&[FACTOR], first(1)), "");
    assert_eq!(raises(&[], first(137)), "");
    assert_eq!(raises(&[FACTOR, ("oom-exit-codes", "9, 1")], first(1)), "memory=main:1,side:1");
    assert_eq!(raises(&[FACTOR, ("oom-memory-container", "side")], first(137)), "");
    let third = carrying(failed(at_index("c", 0, 2), "n", 170, 137), "memory=main:2");
    assert_eq!(raises(&[FACTOR], vec![third.clone()]), "memory=main:3", "its predecessors are gone");
    let by_another_cause = carrying(failed(at_index("c", 0, 2), "n", 170, 1), "memory=main:2");
    assert_eq!(raises(&[FACTOR], vec![by_another_cause]), "memory=main:2");
    let mut seen_again = state(with_options(Completion::Indexed(1), &[FACTOR]), [third.clone()]);
    seen_again.observe_pod(but(third, |pod| pod.version += 1), at(180));
    assert_eq!(lineage(&next(&seen_again, 300)), "memory=main:3");
}

#[test]
fn requests_and_limits_are_raised_alike_up_to_the_most() {
    let main = |resources: &str| {
        let json = format!(r#"{{"spec":{{"containers":[{{"name":"main","resources":{resources}}}]}}}}"#);
        PodTemplate::new(&RawValue::from_string(json).unwrap())
    };
    let both = r#"{"limits":{"memory":"1Gi","cpu":1},"requests":{"memory":"512Mi"}}"#;
    for (options, resources, raises, limit, request) in [
        (&[("oom-memory-factor", "2")][..], both, 1, Some("2Gi"), Some("1Gi")),
        (&[("oom-memory-factor", "1.5")], both, 2, Some("2304Mi"), Some("1152Mi")),
        (&[("oom-memory-factor", "2"), ("oom-memory-max", "3Gi")], both, 2, Some("3Gi"), Some("2Gi")),
        (&[("oom-memory-factor", "2"), ("oom-memory-max", "3Gi")], both, 9, Some("3Gi"), Some("3Gi")),
        (&[("oom-memory-factor", "2"), ("oom-memory-max", "100Mi")], both, 3, Some("1Gi"), Some("512Mi")),
        (&[("oom-memory-factor", "2")], r#"{"limits":{"memory":1000}}"#, 1, Some("2k"), None),
        (&[("oom-memory-factor", "2")], r#"{"requests":{"memory":"1Mi"}}"#, 1, None, Some("2Mi")),
        (&[("oom-memory-factor", "2")], "{}", 1, None, None),
        (&[("oom-memory-factor", "2")], "null", 1, None, None),
    ] {
        let (job, template) = (with_options(Completion::Indexed(1), options), main(resources));
        let lineage = Lineage::read(&format!("memory=main:{raises}"));
        let facts = PodFacts { template: Some(&template), lineage: Some(&lineage), ..PodFacts::default() };
        let overlay = job.options.overlay(&facts).unwrap();
        let asked = |list| {
            let mut found = overlay.quantities.iter().filter(|quantity| quantity.list == list);
            found.next().map(|quantity| (&*quantity.container, quantity.resource, &*quantity.amount))
        };
        let of = |amount: Option<&'static str>| amount.map(|amount| ("main", "memory", amount));
        assert_eq!(asked(ResourceList::Limits), of(limit), "{options:?} {resources} {raises}");
        assert_eq!(asked(ResourceList::Requests), of(request), "{options:?} {resources} {raises}");
    }
}

/// The next owner reads from failed pods what it did not see.
#[test]
fn failed_pods_stay_until_the_pods_that_learn_from_them_exist() {
    let options = [("oom-memory-factor", "2"), ("failed-pods-limit", "0")];
    let job = with(with_options(Completion::Indexed(2), &options), |spec| spec.parallelism = 2);
    let counted = |uid, index| but(failed(at_index(uid, index, 0), "n", 150, 137), |pod| pod.tracked = false);
    let state = state(job, [counted("a", 0), counted("b", 1)]);
    assert_eq!(reconcile(&state, at(151)).deletes, [], "their replacements wait");
}

#[test]
fn a_pod_that_does_not_start_in_time_counts_as_failed() {
    let waiting = |second: i64| but(pod("p"), |pod| (pod.stalled, pod.finished) = (true, at(second).into()));
    let job = with_options(Completion::Count(1), &[("start-deadline", "60s")]);
    let started = but(waiting(0), |pod| pod.stalled = false);
    for (pod, now, deleted, wakes) in [
        (waiting(100), 159, false, Some(at(160))),
        (waiting(100), 160, true, None),
        (but(waiting(100), |pod| pod.deleting = true), 900, false, None),
        (started, 900, false, None),
    ] {
        let plan = reconcile(&state(job.clone(), [pod.clone()]), at(now));
        let counts = plan.deletes.iter().filter(|deletion| !deletion.forget).count();
        assert_eq!((counts, plan.deletes.len()), (usize::from(deleted), usize::from(deleted)), "{pod:?}");
        assert_eq!(plan.events.len(), usize::from(deleted));
        assert!(wakes.is_none_or(|at| plan.wake_at.is_some_and(|wake| wake <= at)), "{:?}", plan.wake_at);
    }
    let without = reconcile(&state(with_options(Completion::Count(1), &[]), [waiting(100)]), at(9_000));
    assert_eq!(without.deletes, []);
    let suspended = with(job, |spec| spec.suspend = true);
    let plan = reconcile(&state(suspended, [waiting(100)]), at(900));
    let uncounted: Vec<_> = plan.deletes.iter().map(|deletion| deletion.forget).collect();
    assert_eq!(uncounted, [true], "a suspended Job removes it uncounted");
}

/// A deadline that a user sets or takes back applies to the pods that wait already.
#[test]
fn a_deadline_set_late_applies_to_pods_that_wait() {
    let waiting = but(pod("p"), |pod| (pod.stalled, pod.finished) = (true, at(100).into()));
    let mut state = state(with_options(Completion::Count(1), &[]), [waiting]);
    state.observe_job(with_options(Completion::Count(1), &[("start-deadline", "1m")]));
    assert_eq!(reconcile(&state, at(170)).deletes.len(), 1);
}

/// The shard shows all pods again to a Job whose options need more of them.
#[test]
fn an_option_that_is_added_to_another_learns_from_pods_that_were_there_before() {
    let count = Completion::Indexed(1);
    let before = with_options(count, &[AVOID]);
    let memory = with_options(count, &[AVOID, ("oom-memory-factor", "2")]);
    let restarts = with_options(count, &[AVOID, ("restart-together", "true")]);
    for (after, expected) in
        [(memory, "nodes=node-a@150 memory=main:1"), (restarts, "attempt=1 nodes=node-a@150")]
    {
        assert!(after.options.needs().exceeds(before.options.needs()));
        let pod = failed(at_index("a", 0, 0), "node-a", 150, 137);
        let mut state = state(before.clone(), [pod.clone()]);
        assert_eq!(lineage(&next(&state, 300)), "nodes=node-a@150");
        state.observe_job(after);
        state.observe_pod(pod, at(300));
        assert_eq!(lineage(&next(&state, 300)), expected);
    }
}

#[test]
fn a_limit_of_the_whole_pod_bounds_those_of_its_containers() {
    for (of_pod, expected) in [
        (r#""resources":{"limits":{"memory":"96Mi"}},"#, &["limits 96Mi", "requests 96Mi"][..]),
        (r#""resources":{"limits":{"memory":"96Mi"},"requests":{"memory":"80Mi"}},"#, &["limits 96Mi"]),
        ("", &["limits 128Mi", "requests 128Mi"]),
    ] {
        let resources = r#"{"limits":{"memory":"64Mi"},"requests":{"memory":"64Mi"}}"#;
        let text =
            format!(r#"{{"spec":{{{of_pod}"containers":[{{"name":"main","resources":{resources}}}]}}}}"#);
        let template = PodTemplate::new(&RawValue::from_string(text).unwrap());
        let options = with_options(Completion::Indexed(1), &[("oom-memory-factor", "2")]).options;
        let lineage = Lineage::read("memory=main:1");
        let facts = PodFacts { template: Some(&template), lineage: Some(&lineage), ..PodFacts::default() };
        let overlay = options.overlay(&facts).unwrap();
        let list = |list| if list == ResourceList::Limits { "limits" } else { "requests" };
        let quantities =
            overlay.quantities.iter().map(|quantity| format!("{} {}", list(quantity.list), quantity.amount));
        assert_eq!(quantities.collect::<Vec<_>>(), expected, "{of_pod}");
    }
}
