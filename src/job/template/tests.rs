//! The parts of a template that are kept, serialized and shared.

#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::memory_asked::MOST_CONTAINERS;
use super::*;
use crate::job::memory::MemoryAmount;
use crate::job::spec::{Completion, Job};
use crate::job::status::{ConditionKind, ConditionStatus};
use crate::job::tests::fixture::{at, job, with};
use crate::job::verdict::condition;

#[test]
fn parts_are_serialized_on_first_use_and_shared_by_clones() {
    let template = RawValue::from_string(json!({"spec": {}}).to_string()).unwrap();
    let template = PodTemplate::new(&template);
    let written = |template: &PodTemplate| {
        (template.written.plain.get().is_some(), template.written.indexed.get().is_some())
    };
    let job = with(job(Completion::Count(1), 1), |spec| spec.template = template.clone());
    assert_eq!(written(&template), (false, false));
    job.spec.template.parts(false).unwrap();
    assert_eq!(written(&template), (true, false));
    assert!(!template.names_scheduling_group());
}

#[test]
fn a_template_that_is_not_kept_answers_the_rules_and_makes_no_pods() {
    for (spec, restarts, group) in [
        (json!({"restartPolicy": "OnFailure"}), true, false),
        (json!({"restartPolicy": "Never", "schedulingGroup": {"podGroupName": "g"}}), false, true),
        (json!({"schedulingGroup": null}), false, false),
    ] {
        let text = RawValue::from_string(json!({"spec": spec}).to_string()).unwrap();
        let kept = PodTemplate::new(&text);
        for template in [kept.clone(), kept.dropped(), PodTemplate::unkept(&text)] {
            assert_eq!(
                (template.restarts_on_failure(), template.names_scheduling_group()),
                (restarts, group)
            );
        }
        assert!(kept.is_kept() && kept.same_text(&PodTemplate::new(&text)));
        let dropped = kept.dropped();
        assert!(!dropped.is_kept() && !dropped.same_text(&dropped));
        assert_eq!(dropped.parts(false).unwrap_err(), TemplateError::NotKept);
    }
}

#[test]
fn readings_of_a_job_share_the_selector_and_until_it_is_finished_the_template() {
    let reading = |template: &str| {
        let template = RawValue::from_string(template.into()).unwrap();
        with(job(Completion::Count(1), 1), |spec| spec.template = PodTemplate::new(&template))
    };
    let shared = |a: &PodTemplate, b: &PodTemplate| {
        (
            a.text.as_ref().zip(b.text.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b)),
            Arc::ptr_eq(&a.written, &b.written),
        )
    };
    let known = reading("{}").spec;
    let finished = |mut job: Job| {
        let complete = ConditionKind::Complete;
        job.status.ensure(condition(complete, ConditionStatus::True, "", "", at(1)));
        job
    };
    for (mut job, expected) in [
        (reading("{}"), (true, true)),
        (finished(reading("{}")), (false, false)),
        (reading(r#"{"spec":{}}"#), (false, false)),
    ] {
        job.share_parts(&known);
        assert_eq!(shared(&job.spec.template, &known.template), expected);
        assert!(Arc::ptr_eq(&job.spec.selector, &known.selector));
    }
}

/// A template whose containers `c0`, `c1`, … ask for 1, 2, … bytes, after one that asks for none.
fn of_containers(number: usize) -> PodTemplate {
    let asks = |number: usize| json!({"name": format!("c{number}"), "resources": {"limits": {"memory": number + 1}}});
    let containers: Vec<_> = [json!({"name": "plain"})].into_iter().chain((0..number).map(asks)).collect();
    let text = json!({"spec": {"containers": containers}}).to_string();
    PodTemplate::new(&RawValue::from_string(text).unwrap())
}

/// Each of many pods may name 32 containers.
#[test]
fn a_template_is_read_once_for_the_memory_of_all_pods() {
    let template = of_containers(3);
    let read = |template: &PodTemplate| template.written.memory.get().map(std::ptr::from_ref);
    assert_eq!(read(&template), None, "no pod has asked");
    let first = MemoryAsked { limit: MemoryAmount::parse("1"), ..MemoryAsked::default() };
    assert_eq!(template.memory_of("c0"), first);
    let (known, of_next_pod) = (read(&template), template.clone());
    assert_eq!(of_next_pod.memory_of("c2").limit, MemoryAmount::parse("3"));
    assert_eq!(of_next_pod.memory_of("plain"), MemoryAsked::default());
    assert!(known.is_some() && read(&of_next_pod) == known);
    assert_eq!(template.dropped().memory_of("c0"), MemoryAsked::default());
}

#[test]
fn of_too_many_containers_the_memory_of_the_first_is_known() {
    let template = of_containers(MOST_CONTAINERS + 1);
    let known = |number: usize| template.memory_of(&format!("c{number}")).limit.is_some();
    assert_eq!([known(0), known(MOST_CONTAINERS - 1), known(MOST_CONTAINERS)], [true, true, false]);
}
