//! Tables: names of the API, and values that other rooms compare, count or show.

use jiff::Timestamp;

use super::fixture::{at, at_ms, but, ended, job, pod, running, state};
use crate::job::counting::{Next, compose};
use crate::job::index_set::IndexSet;
use crate::job::plan::{BackoffUpdate, GangRequest, JobEvent, Plan, PodDeletion, StatusWrite, Urgency, Wait};
use crate::job::pod::{Behind, NewPod, Phase, Place, PodRef};
use crate::job::predecessors::{Hindrance, Obstacle};
use crate::job::spec::Completion;
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::uid::Uid;
use crate::job::verdict::condition;

#[test]
fn conditions_have_the_values_of_the_api() {
    for (name, status) in [
        ("True", ConditionStatus::True),
        ("False", ConditionStatus::False),
        ("Unknown", ConditionStatus::Unknown),
    ] {
        assert_eq!(status.as_str(), name);
        assert_eq!(ConditionStatus::named(name), Some(status));
    }
    assert_eq!(["true", "", "maybe"].map(ConditionStatus::named), [None; 3]);
    let ends = ["Suspended", "FailureTarget", "SuccessCriteriaMet", "Failed", "Complete", "Other"]
        .map(|name| ConditionKind::named(name).map(ConditionKind::is_end));
    assert_eq!(ends, [Some(false), Some(false), Some(false), Some(true), Some(true), None]);
}

#[test]
fn of_several_conditions_of_one_type_one_that_is_true_decides() {
    use ConditionKind::{Complete, Failed, FailureTarget, Suspended};
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let status = |conditions: &[(ConditionKind, ConditionStatus)]| {
        let mut status = JobStatus::default();
        for (second, (kind, value)) in (1..).zip(conditions) {
            status.note(condition(*kind, *value, "", "", at(second)));
        }
        status
    };
    for kind in [Complete, Failed] {
        for (values, finished) in [([no, yes], true), ([yes, no], true), ([no, no], false)] {
            let status = status(&values.map(|value| (kind, value)));
            assert_eq!(status.finished().is_some(), finished, "{kind:?}: {values:?}");
        }
    }
    for first in [Complete, Failed] {
        for conditions in [
            vec![(first, yes), (Complete, yes), (Failed, yes)],
            vec![(Complete, no), (Failed, no), (first, yes), (Complete, yes), (Failed, yes)],
        ] {
            let end = status(&conditions).finished().map(|end| end.kind);
            assert_eq!(end, Some(first), "the first one that is True of {conditions:?}");
        }
    }
    assert!(status(&[(FailureTarget, no), (FailureTarget, yes)]).announces_end());

    let mut status = status(&[
        (Suspended, no),
        (FailureTarget, no),
        (Suspended, yes),
        (Suspended, yes),
        (FailureTarget, no),
    ]);
    let known: Vec<_> =
        status.conditions.iter().map(|c| (c.kind, c.status, c.last_transition_time)).collect();
    assert_eq!(known, [(FailureTarget, no, Some(at(2))), (Suspended, yes, Some(at(3)))]);
    assert!(!status.ensure(condition(Suspended, yes, "", "", at(9))));
    assert!(status.ensure(condition(Suspended, no, "", "", at(9))));
    assert!(status.holding(Suspended).is_none(), "nothing is left that contradicts it");
}

/// A Job has its status in several places.
#[test]
fn copies_of_a_status_share_the_texts_of_conditions() {
    let mut status = JobStatus::default();
    let kind = ConditionKind::Suspended;
    status.ensure(condition(kind, ConditionStatus::True, "y".repeat(1_000), "z".repeat(1_000), at(1)));
    let (one, other) = (&status.conditions[0], &status.clone().conditions[0]);
    assert!(std::sync::Arc::ptr_eq(&one.reason, &other.reason));
    assert!(std::sync::Arc::ptr_eq(&one.message, &other.message));
}

#[test]
fn a_condition_changes_with_its_status_reason_or_message_and_not_with_the_time() {
    let suspended = |value, reason: &str, message: &str, second| {
        condition(ConditionKind::Suspended, value, reason, message, at(second))
    };
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    let mut status = JobStatus::default();
    assert!(!status.ensure(suspended(no, "JobResumed", "", 1)), "it was never suspended");
    assert_eq!(status, JobStatus::default());
    for (new, changed, since) in [
        (suspended(yes, "JobSuspended", "", 10), true, 10),
        (suspended(yes, "JobSuspended", "", 20), false, 10),
        (suspended(yes, "JobSuspended", "by hand", 30), true, 30),
        (suspended(yes, "Quota", "by hand", 40), true, 40),
        (suspended(no, "Quota", "by hand", 50), true, 50),
        (suspended(no, "Quota", "by hand", 60), false, 50),
    ] {
        assert_eq!(status.ensure(new.clone()), changed, "{new:?}");
        let [known] = &status.conditions[..] else { panic!("{status:?}") };
        assert_eq!(known.last_transition_time, Some(at(since)), "{new:?}");
    }
}

fn uncounted(succeeded: &[&str], failed: &[&str]) -> Uncounted {
    let [succeeded, failed] = [succeeded, failed].map(|uids| uids.iter().map(|uid| (*uid).into()).collect());
    Uncounted { succeeded, failed }
}

#[test]
fn pods_that_are_not_counted_yet_are_those_of_both_lists() {
    for (succeeded, failed, len) in
        [(&[][..], &[][..], 0), (&["a"], &[], 1), (&[], &["b"], 1), (&["a", "c", "d"], &["b", "e"], 5)]
    {
        let uncounted = uncounted(succeeded, failed);
        assert_eq!((uncounted.len(), uncounted.is_empty()), (len, len == 0));
    }
}

/// A status that was written by somebody else is compared with ours.
#[test]
fn two_statuses_count_alike_if_all_that_counts_pods_is_equal() {
    let status = JobStatus {
        succeeded: 2,
        failed: 1,
        uncounted: Some(uncounted(&["a"], &["b"])),
        completed_indexes: [0, 3].into_iter().collect(),
        failed_indexes: Some([1].into_iter().collect()),
        ..JobStatus::default()
    };
    let but = |change: fn(&mut JobStatus)| {
        let mut other = status.clone();
        change(&mut other);
        (status.counts_as(&other), other.counts_as(&status))
    };
    let same = (true, true);
    assert_eq!(but(|_| {}), same);
    assert_eq!(but(|other| other.active = 9), same);
    assert_eq!(but(|other| other.start_time = Some(at(1))), same);
    let different = (false, false);
    assert_eq!(but(|other| other.succeeded = 3), different);
    assert_eq!(but(|other| other.failed = 0), different);
    assert_eq!(but(|other| other.uncounted = Some(uncounted(&["a"], &[]))), different);
    assert_eq!(but(|other| other.uncounted = None), different);
    assert_eq!(but(|other| other.completed_indexes = IndexSet::new()), different);
    assert_eq!(but(|other| other.failed_indexes = None), different);
    let [empty, none] =
        [Some(Uncounted::default()), None].map(|uncounted| JobStatus { uncounted, ..status.clone() });
    assert!(empty.counts_as(&none), "the API server stores no empty list");
}

#[test]
fn times_are_stored_in_whole_seconds() {
    let mut status = JobStatus {
        start_time: Some(at_ms(1_999)),
        completion_time: Some(at_ms(7_001)),
        ..JobStatus::default()
    };
    status.ensure(condition(ConditionKind::Complete, ConditionStatus::True, "", "", at_ms(8_500)));
    status.succeeded = 3;
    let stored = status.stored();
    let times = |condition: &crate::job::status::Condition| {
        [condition.last_probe_time, condition.last_transition_time]
    };
    assert_eq!((stored.start_time, stored.completion_time, stored.succeeded), (Some(at(1)), Some(at(7)), 3));
    assert_eq!(stored.conditions.iter().map(times).collect::<Vec<_>>(), [[Some(at(8)); 2]]);
}

/// A plan in which everything is asked for.
fn everything() -> Plan {
    let refs = |uids: &[&str]| uids.iter().map(|uid| PodRef::from(&pod(uid))).collect::<Vec<_>>();
    let new = |number| NewPod {
        place: Place { number, attempt: 0 },
        index_failures: None,
        backoff: None,
        lineage: None,
        behind: Behind::default(),
    };
    let write =
        StatusWrite { status: JobStatus::default(), urgency: Urgency::Step, events: Vec::<JobEvent>::new() };
    Plan {
        creates: vec![new(0), new(1)],
        withdraw: true,
        deletes: refs(&["a", "b", "c"])
            .into_iter()
            .map(|pod| PodDeletion { pod, forget: true, grace: None })
            .collect(),
        releases: refs(&["d", "e", "f", "g"]),
        gang: Some(GangRequest::Ensure),
        status: Some(write),
        status_queued: Some(Urgency::Progress),
        delete_job: true,
        backoff_update: Some(BackoffUpdate { streak: None }),
        status_waits: true,
        wake_at: Some(at(9)),
        waiting: Some(Wait::Gang),
        events: Vec::new(),
    }
}

#[test]
fn the_size_of_a_plan_is_its_number_of_requests() {
    let all = everything();
    assert_eq!((all.size(), all.is_idle()), (2 + 3 + 4 + 3, false));
    let none = Plan::default();
    for (plan, size) in [
        (none.clone(), 0),
        (Plan { wake_at: Some(at(9)), waiting: Some(Wait::Gang), status_waits: true, ..none.clone() }, 0),
        (Plan { creates: all.creates, ..none.clone() }, 2),
        (Plan { deletes: all.deletes, ..none.clone() }, 3),
        (Plan { releases: all.releases, ..none.clone() }, 4),
        (Plan { gang: all.gang, ..none.clone() }, 1),
        (Plan { status: all.status, ..none.clone() }, 1),
        (Plan { delete_job: true, ..none }, 1),
    ] {
        assert_eq!((plan.size(), plan.is_idle()), (size, size == 0), "{plan:?}");
    }
}

/// Nobody will run the Job any more, but its pods must be counted.
#[test]
fn the_part_of_a_plan_that_counts_pods_creates_and_deletes_nothing() {
    let counting = everything().counting();
    let without = Plan {
        creates: Vec::new(),
        deletes: Vec::new(),
        gang: None,
        delete_job: false,
        waiting: None,
        ..everything()
    };
    assert_eq!(counting, without);
}

#[test]
fn each_wait_has_a_reason_of_its_own_and_an_end_if_that_is_known() {
    let end: Timestamp = at(9);
    let after = |cause| Wait::After(Obstacle { cause, job: "before".into() });
    let waits = [
        (Wait::Suspended, None),
        (after(Hindrance::Unfinished), None),
        (after(Hindrance::Missing), None),
        (after(Hindrance::Cycle), None),
        (after(Hindrance::Failed), None),
        (Wait::Deleting, None),
        (Wait::PodBackoff(end), Some(end)),
        (Wait::IndexBackoff(end), Some(end)),
        (Wait::Refused(end), Some(end)),
        (Wait::Gang, None),
        (Wait::Adopting, None),
        (Wait::PodsUnknown, None),
        (Wait::Terminating, None),
        (Wait::FailureDebounce(end), Some(end)),
        (Wait::Restarting, None),
        (Wait::Finishing, None),
    ];
    assert_eq!(waits.each_ref().map(|(wait, _)| wait.reason()), Wait::REASONS);
    for (wait, until) in waits {
        assert_eq!(wait.until(), until, "{wait:?}");
    }
}

#[test]
fn a_status_shows_how_many_pods_are_active_ready_and_terminating() {
    let ready = but(running("ready"), |pod| pod.ready_since = Some(at(5).into()));
    let pods = [
        but(ready.clone(), |pod| pod.uid = "ready too".into()),
        ready.clone(),
        running("runs"),
        pod("pending"),
        but(ready, |pod| (pod.uid, pod.deleting) = ("goes".into(), true)),
        ended(running("done"), Phase::Succeeded, 9),
    ];
    let next = Next { managed: true, ..Next::default() };
    let status = compose(&state(job(Completion::Count(9), 5), pods), &next, at(10)).status;
    assert_eq!((status.active, status.ready, status.terminating), (4, Some(2), Some(1)));
}

#[test]
fn a_uid_is_shown_as_its_text() {
    for text in ["5f9c8a52-0c1e-4bb0-9f5a-3a6d1f7e2b90", "uid-1"] {
        assert_eq!(
            (format!("{:?}", Uid::from(text)), Uid::from(text).to_string()),
            (text.into(), text.into())
        );
    }
}
