//! Chooses the Jobs that a query asks for, at a cost that does not depend on where in the list they are.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{Interest, JobEnd, JobOverview, JobsOverview, Phase};
use crate::actors::known_jobs::waiting_jobs::WaitingJob;
use crate::actors::shards::replica_actor::SeenJobs;
use crate::job::plan::Wait;
use crate::job::short_text::{short, short_word};
use crate::job::spec::Job;
use crate::sharding::ShardId;
use crate::telemetry::http::JobQuery;

/// Most Jobs that one overview lists.
const MAX_LISTED: usize = 10_000;

/// The place of a Job in the list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Place<'a> {
    pub(super) interest: Interest,
    pub(super) finished: Option<Timestamp>,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) shard: u32,
}

impl Ord for Place<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_name =
            || (self.namespace, self.name, self.shard).cmp(&(other.namespace, other.name, other.shard));
        let newest_first = || other.finished.cmp(&self.finished);
        self.interest.cmp(&other.interest).then_with(newest_first).then_with(by_name)
    }
}

impl PartialOrd for Place<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The items from `offset` to `limit`, of a list that is not sorted yet.
pub(super) fn page<T>(mut all: Vec<T>, query: &JobQuery, order: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
    let limit = query.limit.min(MAX_LISTED);
    let end = query.offset.saturating_add(limit);
    if end < all.len() {
        all.select_nth_unstable_by(end, &order);
        all.truncate(end);
    }
    all.sort_unstable_by(order);
    all.drain(..query.offset.min(all.len()));
    all
}

/// The Jobs that a query asks for.
pub(in crate::actors) struct Selected {
    /// A part of the list.
    pub(in crate::actors) jobs: JobsOverview,
    /// The Job that the query names.
    pub(in crate::actors) job: Option<JobOverview>,
    /// The number of Jobs of each shard.
    pub(in crate::actors) by_shard: BTreeMap<u32, usize>,
}

/// Selects the Jobs that a query asks for at `now`.
pub(in crate::actors) fn select(seen: &SeenJobs, query: &JobQuery, now: Timestamp) -> Selected {
    let named = query.job.split_once('/');
    let mut opened = None;
    let search = query.search.to_lowercase();
    let mut by_shard = BTreeMap::new();
    let mut phases = BTreeMap::new();
    let mut matching = Vec::new();
    let mut total = 0;
    for (shard, seen) in &seen.jobs {
        let Ok(job) = &seen.job else { continue };
        total += 1;
        *by_shard.entry(shard.0).or_default() += 1;
        if named == Some((&*job.namespace, &*job.name)) {
            opened = Some((*shard, job));
        }
        if !finds(job, &search) {
            continue;
        }
        let phase = phase(job);
        *phases.entry(phase).or_default() += 1;
        if query.phase.is_empty() || query.phase == phase.as_str() {
            matching.push((*shard, job));
        }
    }
    let found = matching.len();
    let listed = page(matching, query, |one, other| place(one, now).cmp(&place(other, now)));
    let waiting = |job: &Job| seen.waits.iter().find_map(|waits| waits.of(job));
    let whole = |(shard, job): (ShardId, &Job)| JobOverview {
        last_failures: seen.failures.of(&job.id()),
        ..outline(shard, job, waiting(job).as_ref())
    };
    let items = listed.into_iter().map(whole).collect();
    let jobs = JobsOverview { total, phases, matching: found, items };
    Selected { jobs, job: opened.map(whole), by_shard }
}

fn finds(job: &Job, search: &str) -> bool {
    if search.is_empty() {
        return true;
    }
    // Names of Kubernetes are in lower case.
    match search.split_once('/') {
        Some((namespace, name)) => job.namespace.ends_with(namespace) && job.name.starts_with(name),
        None => job.name.contains(search) || job.namespace.contains(search),
    }
}

fn place<'a>((shard, job): &(ShardId, &'a Job), now: Timestamp) -> Place<'a> {
    Place {
        interest: interest(phase(job), finished(job), job.status.failed, now),
        finished: finished(job),
        namespace: &job.namespace,
        name: &job.name,
        shard: shard.0,
    }
}

fn finished(job: &Job) -> Option<Timestamp> {
    Some(job.status.finished()?.last_transition_time.unwrap_or(job.created))
}

/// The interest in a Job of this phase with this number of failed pods.
pub(super) fn interest(phase: Phase, finished: Option<Timestamp>, failed: u32, now: Timestamp) -> Interest {
    let has_failed = phase == Phase::Failed;
    let end = (has_failed || phase == Phase::Complete).then_some(JobEnd { at: finished, has_failed });
    Interest::of(end, phase == Phase::Suspended, phase == Phase::Waiting || failed > 0, now)
}

impl Phase {
    /// The name in queries.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Suspended => "suspended",
            Self::Failed => "failed",
            Self::Complete => "complete",
        }
    }
}

fn phase(job: &Job) -> Phase {
    match job.status.finished() {
        Some(end) if end.kind.as_str() == "Complete" => Phase::Complete,
        Some(_) => Phase::Failed,
        None if job.status.active > 0 => Phase::Running,
        None if job.spec.suspend => Phase::Suspended,
        None => Phase::Waiting,
    }
}

fn outline(shard: ShardId, job: &Job, wait: Option<&WaitingJob>) -> JobOverview {
    let (status, phase) = (&job.status, phase(job));
    let text = |text: &str| Some(text).filter(|text| !text.is_empty()).map(str::to_owned);
    let failure = status.finished().filter(|_| phase == Phase::Failed);
    let (reason, until, message) = match (failure, wait) {
        (Some(end), _) => (text(&short_word(&end.reason)), None, text(&short(&end.message))),
        // The phase says it already.
        (None, Some(wait)) if wait.reason == Wait::Suspended.reason() => (None, None, None),
        (None, Some(wait)) => (text(wait.reason), wait.until, wait.message.as_deref().and_then(text)),
        (None, None) => (None, None, None),
    };
    JobOverview {
        namespace: job.namespace.to_string(),
        name: job.name.to_string(),
        uid: job.uid.to_string(),
        shard: shard.0,
        phase,
        completions: job.spec.completion.wanted(),
        parallelism: job.spec.parallelism,
        succeeded: status.succeeded,
        failed: status.failed,
        active: status.active,
        ready: status.ready.unwrap_or_default(),
        created: job.created,
        finished: finished(job),
        reason,
        until,
        message,
        last_failures: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::actors::known_jobs::last_failures::LastFailures;
    use crate::actors::known_jobs::waiting_jobs::WaitingJobs;
    use crate::cluster::wire::{Decoder as _, JobDecoder, ObservedJob};

    fn seen(name: &str, suspend: bool, status: &Value) -> (ShardId, Arc<ObservedJob>) {
        let job = json!({
            "metadata": {"name": name, "namespace": "team-a", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "parallelism": 2, "completions": 9, "completionMode": "NonIndexed", "suspend": suspend,
                "selector": {}, "template": {"spec": {}},
            },
            "status": status,
        });
        (ShardId(3), JobDecoder::new().decode(job.to_string().as_bytes()).unwrap())
    }

    fn ended(kind: &str, at: &str) -> Value {
        json!({"conditions": [{"type": kind, "status": "True", "reason": "Because", "message": "of <b>this</b>",
            "lastTransitionTime": at}]})
    }

    fn jobs() -> SeenJobs {
        let jobs = vec![
            seen("old", false, &ended("Complete", "2026-01-01T01:00:00Z")),
            seen("zeta", false, &json!({"active": 2, "ready": 1, "succeeded": 3})),
            seen("new", false, &ended("Failed", "2026-01-01T02:00:00Z")),
            seen("held", true, &json!({})),
            seen("alpha", false, &json!({"failed": 1})),
        ];
        let waits = WaitingJobs::new(&crate::telemetry::metrics::Metrics::new());
        for (_, job) in &jobs {
            let job = job.job.as_ref().unwrap();
            match &*job.name {
                "alpha" => {
                    let wait = Wait::Refused("2026-01-01T00:09:00Z".parse().unwrap());
                    waits.write(job, Some(&wait), Some(&"exceeded quota".into()));
                }
                "held" => waits.write(job, Some(&Wait::Suspended), None),
                _ => {}
            }
        }
        SeenJobs { jobs, waits: vec![waits], failures: LastFailures::default() }
    }

    fn selected(query: &JobQuery) -> Selected {
        select(&jobs(), query, "2026-01-01T02:30:00Z".parse().unwrap())
    }

    fn names(query: &JobQuery) -> Vec<String> {
        selected(query).jobs.items.into_iter().map(|job| job.name).collect()
    }

    #[test]
    fn a_query_may_ask_for_each_phase() {
        let phases = [Phase::Running, Phase::Waiting, Phase::Suspended, Phase::Failed, Phase::Complete];
        assert_eq!(phases.map(Phase::as_str), crate::telemetry::http::PHASES);
    }

    #[test]
    fn failures_and_trouble_come_first_and_pages_continue_each_other() {
        let all = ["new", "alpha", "zeta", "held", "old"];
        assert_eq!(names(&JobQuery { limit: 9, ..JobQuery::default() }), all);
        for (offset, limit, expected) in [
            (0, 2, &all[..2]),
            (2, 2, &all[2..4]),
            (4, 2, &all[4..]),
            (5, 2, &[]),
            (usize::MAX, usize::MAX, &[]),
        ] {
            assert_eq!(names(&JobQuery { offset, limit, ..JobQuery::default() }), expected);
        }
    }

    #[test]
    fn the_job_that_is_named_comes_besides_and_no_other_does() {
        for (job, expected) in
            [("team-a/new", Some("new")), ("team-a/ne", None), ("a/new", None), ("new", None), ("", None)]
        {
            let query = JobQuery { job: job.into(), limit: 0, ..JobQuery::default() };
            let Selected { jobs, job, .. } = selected(&query);
            assert_eq!(job.as_ref().map(|job| &*job.name), expected);
            assert!(jobs.items.is_empty());
        }
    }

    #[test]
    fn search_and_phase_choose_jobs() {
        let numbers = |search: &str, phase: &str| {
            let query =
                JobQuery { search: search.into(), phase: phase.into(), limit: 9, ..JobQuery::default() };
            let jobs = selected(&query).jobs;
            (jobs.total, jobs.phases.values().sum::<usize>(), jobs.matching, jobs.items.len())
        };
        assert_eq!(numbers("", ""), (5, 5, 5, 5));
        assert_eq!(numbers("TEAM-A", ""), (5, 5, 5, 5));
        assert_eq!(numbers("team-a/al", ""), (5, 1, 1, 1));
        assert_eq!(numbers("l", "waiting"), (5, 3, 1, 1));
        assert_eq!(numbers("", "failed"), (5, 5, 1, 1));
        assert_eq!(numbers("nobody", ""), (5, 0, 0, 0));
        assert_eq!(numbers("", "unheard-of"), (5, 5, 0, 0));
    }

    #[test]
    fn a_job_says_why_it_waits_or_has_failed() {
        let Selected { jobs, by_shard, .. } = selected(&JobQuery { limit: 9, ..JobQuery::default() });
        assert_eq!(by_shard, BTreeMap::from([(3, 5)]));
        let said: Vec<_> = jobs
            .items
            .iter()
            .map(|job| (&*job.name, job.phase, job.reason.as_deref(), job.message.as_deref()))
            .collect();
        assert_eq!(
            said,
            [
                ("new", Phase::Failed, Some("Because"), Some("of <b>this</b>")),
                ("alpha", Phase::Waiting, Some("Refused"), Some("exceeded quota")),
                ("zeta", Phase::Running, None, None),
                ("held", Phase::Suspended, None, None),
                ("old", Phase::Complete, None, None),
            ]
        );
        let zeta = &jobs.items[2];
        assert_eq!((zeta.completions, zeta.succeeded, zeta.active, zeta.ready), (Some(9), 3, 2, 1));
    }
}
