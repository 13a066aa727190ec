#![allow(clippy::unwrap_used)]
use serde_json::{Value, json};

use super::cycle_search::MOST_FOLLOWED;
use super::wake_round::{PAUSE, PORTION};
use super::*;
use crate::actors::test_api::{job, observed_job};
use crate::job::limits::Limits;
use crate::job::predecessors::Hindrance;

/// A Job after others, with a terminal condition.
fn seen(name: &str, uid: &str, after: &str, end: Option<&str>) -> Arc<ObservedJob> {
    let mut job = job(name, json!({}));
    job["metadata"]["uid"] = uid.into();
    if !after.is_empty() {
        job["metadata"]["annotations"] = json!({"yardmaster.dev/after": after});
    }
    if let Some(end) = end {
        job["status"]["conditions"] = json!([{"type": end, "status": "True"}]);
    }
    observed_job(&job)
}

fn found(index: &JobsByName, job: &ObservedJob) -> Option<(Hindrance, String)> {
    let state = JobState::new(job.job.clone().unwrap(), Limits::default());
    named(&index.look(&state, true))
}

fn named(look: &OrderLook) -> Option<(Hindrance, String)> {
    let obstacle = look.obstacle.as_ref()?;
    Some((obstacle.cause, obstacle.job.to_string()))
}

fn index(jobs: &[&Arc<ObservedJob>]) -> JobsByName {
    let index = JobsByName::default();
    jobs.iter().for_each(|job| index.seen(job, true));
    index.listed();
    index
}

#[test]
fn a_job_waits_for_what_the_watch_shows_under_a_name() {
    let waits = seen("waits", "w", "first, second", None);
    let index = index(&[&waits]);
    let missing = |name: &str| Some((Hindrance::Missing, name.to_owned()));
    assert_eq!(found(&index, &waits), missing("first"));
    index.seen(&seen("first", "1", "", Some("Complete")), false);
    assert_eq!(found(&index, &waits), missing("second"));
    index.seen(&seen("second", "2", "", None), true);
    assert_eq!(found(&index, &waits), Some((Hindrance::Unfinished, "second".into())));
    index.seen(&seen("second", "2", "", Some("Failed")), true);
    assert_eq!(found(&index, &waits), Some((Hindrance::Failed, "second".into())));
    index.seen(&seen("second", "3", "", Some("Complete")), true);
    assert_eq!(found(&index, &waits), None, "it was run again, and has succeeded");
    let id = |uid: &str| JobId::new("n".into(), "second".into(), uid.into());
    index.gone(&id("2"));
    assert_eq!(found(&index, &waits), None, "another Job of the name is gone");
    index.gone(&id("3"));
    assert_eq!(found(&index, &waits), missing("second"));
}

#[test]
fn nothing_is_known_while_a_list_is_in_progress() {
    let (first, waits) = (seen("first", "1", "", Some("Complete")), seen("waits", "w", "first", None));
    let index = index(&[&first, &waits]);
    assert_eq!(found(&index, &waits), None);
    let unfinished = Some((Hindrance::Unfinished, "first".to_owned()));
    index.listing();
    assert_eq!(found(&index, &waits), unfinished);
    index.listed();
    assert_eq!(found(&index, &waits), None);
    index.clear();
    assert_eq!(found(&index, &waits), unfinished);
}

#[test]
fn cycles_are_found_and_their_length_has_a_bound() {
    for length in [1, 2, 3, 40, MOST_FOLLOWED, 1_000] {
        let name = |number: usize| format!("job-{}", number % length);
        let jobs: Vec<_> = (0..length).map(|n| seen(&name(n), &name(n), &name(n + 1), None)).collect();
        let index = index(&jobs.iter().collect::<Vec<_>>());
        let cause = if length > MOST_FOLLOWED { Hindrance::Unfinished } else { Hindrance::Cycle };
        assert_eq!(found(&index, &jobs[0]), Some((cause, name(1))), "{length}");
        let outside = seen("outside", "o", "job-0", None);
        let unfinished = Some((Hindrance::Unfinished, "job-0".to_owned()));
        assert_eq!(found(&index, &outside), unfinished, "a Job behind a cycle is not in it");
    }
}

/// Users who create Jobs choose their names: a search follows no more, however many lead on to others.
#[test]
fn all_predecessors_of_a_job_share_one_search() {
    let names = |from: usize| (from..from + 20).map(|n| format!("job-{n}")).collect::<Vec<_>>().join(",");
    let jobs: Vec<_> =
        (0..2_000).map(|n| seen(&format!("job-{n}"), &format!("{n}"), &names(n + 1), None)).collect();
    let index = index(&jobs.iter().collect::<Vec<_>>());
    let contents = index.contents();
    let jobs = contents.namespaces.get("n");
    let mut search = CycleSearch::new(jobs, "outside");
    assert!(!["job-0", "job-500", "job-1000"].into_iter().any(|name| search.leads_back_from(name)));
    assert_eq!(search.followed, MOST_FOLLOWED);
}

/// All Jobs refer to the same few, so that few names are new.
#[test]
fn names_that_a_search_has_seen_before_count_as_well() {
    let all = (0..20).map(|n| format!("job-{n}")).collect::<Vec<_>>().join(",");
    let jobs: Vec<_> = (0..20).map(|n| seen(&format!("job-{n}"), &format!("{n}"), &all, None)).collect();
    let index = index(&jobs.iter().collect::<Vec<_>>());
    let contents = index.contents();
    let mut search = CycleSearch::new(contents.namespaces.get("n"), "outside");
    assert!(!search.leads_back_from("job-0"));
    assert_eq!(search.followed, MOST_FOLLOWED);
}

/// Users may write the annotation about what a Job has met. Only names are kept that it still waits for.
#[test]
fn a_job_is_known_by_the_names_that_it_still_waits_for() {
    let commas = ",".repeat(2_500);
    for (met, expected) in [("", "a,b,c"), ("b", "a,c"), ("x,c,a,y,b", ""), (&*format!("b{commas}"), "a,c")] {
        let mut waits = job("waits", json!({}));
        waits["metadata"]["annotations"] = json!({
            "yardmaster.dev/after": "a, b", "yardmaster.dev/after-any": "c", "yardmaster.dev/after-met": met,
        });
        let index = index(&[&observed_job(&waits)]);
        let contents = index.contents();
        let awaited: Vec<_> = contents.namespaces["n"].awaited_by("waits").collect();
        assert_eq!(awaited.join(","), expected, "{met:.20}");
    }
}

/// Many Jobs may wait for one that changes often.
#[test]
fn only_a_look_that_is_to_search_finds_a_cycle_and_others_keep_it() {
    let (hen, egg) = (seen("hen", "h", "egg", None), seen("egg", "e", "hen", None));
    let index = index(&[&hen, &egg]);
    let mut state = JobState::new(hen.job.clone().unwrap(), Limits::default());
    let mut look = |searches| {
        let look = index.look(&state, searches);
        let found = named(&look);
        state.order_seen(look);
        found
    };
    let because = |cause| Some((cause, "egg".to_owned()));
    assert_eq!(look(false), because(Hindrance::Unfinished));
    assert_eq!(look(true), because(Hindrance::Cycle));
    assert_eq!(look(false), because(Hindrance::Cycle));
    index.seen(&seen("egg", "e", "chick", None), true);
    assert_eq!(look(false), because(Hindrance::Cycle), "the next search finds the difference");
    index.seen(&seen("egg", "e", "", None), true);
    assert_eq!(look(false), because(Hindrance::Unfinished), "it waits for none");
    index.seen(&egg, true);
    assert_eq!(look(false), because(Hindrance::Unfinished));
    assert_eq!(look(true), because(Hindrance::Cycle));
}

/// Its second predecessor is created again, and after the first Job this time.
#[test]
fn a_job_does_not_wait_for_what_it_has_met() {
    let mut first = job("a", json!({}));
    first["metadata"]["annotations"] =
        json!({"yardmaster.dev/after": "b, c", "yardmaster.dev/after-met": "b"});
    let (first, again) = (observed_job(&first), seen("b", "b2", "a", None));
    let index = index(&[&first, &again]);
    assert_eq!(found(&index, &again), Some((Hindrance::Unfinished, "a".into())));
    assert_eq!(found(&index, &first), Some((Hindrance::Missing, "c".into())));
}

#[test]
fn a_job_that_has_begun_waits_for_none() {
    let (a, mut b) = (seen("a", "a", "b", None), job("b", json!({})));
    b["metadata"]["annotations"] = json!({"yardmaster.dev/after": "a"});
    b["status"]["startTime"] = "2026-01-01T00:00:00Z".into();
    let index = index(&[&a, &observed_job(&b)]);
    assert_eq!(found(&index, &a), Some((Hindrance::Unfinished, "b".into())));
}

#[test]
fn an_actor_is_woken_when_a_predecessor_changes() {
    let waits = seen("waits", "w", "first", None);
    let (index, inbox) = (index(&[&waits]), Inbox::default());
    let mut now = Instant::now();
    let mut woken = || {
        now += PAUSE;
        index.wake_some(now);
        inbox.take().len()
    };
    let followed = index.follow(waits.job.as_ref().unwrap(), &inbox);
    let steps: [(&str, Value, usize); 5] = [
        ("appears", json!({}), 1),
        ("is the same", json!({}), 0),
        ("has more pods", json!({"active": 3}), 0),
        ("ends", json!({"conditions": [{"type": "Complete", "status": "True"}]}), 1),
        ("still has ended", json!({"conditions": [{"type": "Complete", "status": "True"}]}), 0),
    ];
    for (what, status, expected) in steps {
        let mut first = job("first", json!({}));
        first["status"] = status;
        index.seen(&observed_job(&first), true);
        assert_eq!(woken(), expected, "it {what}");
    }
    index.seen(&seen("other", "o", "", None), true);
    assert_eq!(woken(), 0, "another Job");
    index.seen(&seen("first", "2", "", None), true);
    assert_eq!(woken(), 1, "it was created again");
    for after in ["waits", "waits, other", ""] {
        index.seen(&seen("first", "2", after, None), true);
        assert_eq!(woken(), 0, "it waits for others than before: {after}");
    }
    index.listed();
    assert_eq!(woken(), 1);
    drop(followed);
    index.gone(&JobId::new("n".into(), "first".into(), "2".into()));
    assert_eq!(woken(), 0, "it follows none any more");
    assert!(index.contents().namespaces.values().all(|names| names.waiting.is_empty()));
    assert!(index.contents().rounds.is_empty());
}

/// A tenant may have all Jobs of a namespace wait for one, and create and delete that one as often as it likes.
#[tokio::test(start_paused = true)]
async fn however_often_a_job_changes_few_actors_are_woken_at_once() {
    const MANY: usize = 1_000;
    let index = index(&[]);
    let inboxes: Vec<Inbox<JobInput>> = (0..MANY).map(|_| Inbox::default()).collect();
    let waiting: Vec<_> =
        (0..MANY).map(|n| seen(&format!("waits-{n}"), &format!("w{n}"), "first", None)).collect();
    let follows = waiting.iter().zip(&inboxes);
    let followed: Vec<_> =
        follows.map(|(seen, inbox)| index.follow(seen.job.as_ref().unwrap(), inbox)).collect();
    let waking = tokio::spawn(index.clone().wake_waiting());
    let woken = || inboxes.iter().map(|inbox| inbox.take().len()).sum::<usize>();
    let (begun, mut all) = (Instant::now(), 0);
    for number in 0..200 {
        index.seen(&seen("first", &number.to_string(), "", None), true);
        tokio::time::advance(PAUSE / 10).await;
        let now = woken();
        assert!(now <= PORTION, "{now} at once");
        all += now;
    }
    let portions = begun.elapsed().div_duration_f64(PAUSE) + 1.0;
    assert!(all as f64 <= portions * PORTION as f64, "{all} in {portions} pauses");
    index.seen(&seen("first", "last", "", None), true);
    tokio::time::sleep(PAUSE * 30).await;
    assert!(inboxes.iter().all(|inbox| !inbox.take().is_empty()), "all are woken after the last change");
    assert!(index.contents().rounds.is_empty());
    drop(followed);
    waking.abort();
}
