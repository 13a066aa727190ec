//! Merges the overviews of several replicas.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::jobs::{Place, interest, page};
use super::{
    HandoverOverview, JobOverview, JobsOverview, MAX_HANDOVERS, Overview, ReplicaOverview, ShardOverview,
};
use crate::telemetry::http::JobQuery;

/// Puts the overviews of several replicas together. Each must list the Jobs of the query from its first one
/// to the last one of the page: see [`whole_pages`].
pub fn merge(parts: Vec<Overview>, query: &JobQuery) -> Overview {
    let mut replicas: BTreeMap<String, ReplicaOverview> = BTreeMap::new();
    let mut shards: BTreeMap<u32, ShardOverview> = BTreeMap::new();
    let mut handovers: BTreeMap<(u32, u64), HandoverOverview> = BTreeMap::new();
    let (mut from, mut gates, mut jobs) = (Vec::new(), Vec::new(), Vec::new());
    let mut opened = BTreeMap::new();
    let version = parts.first().map(|part| part.version.clone());
    for part in parts {
        for replica in part.replicas {
            let known = replicas.entry(replica.identity.clone()).or_insert_with(|| replica.clone());
            if replica.heartbeat_age_ms < known.heartbeat_age_ms {
                *known = replica;
            }
        }
        for shard in part.shards {
            let known = shards.entry(shard.shard).or_insert_with(|| shard.clone());
            if news(&shard) > news(known) {
                *known = shard;
            }
        }
        for handover in part.handovers {
            let known = handovers.entry((handover.shard, handover.epoch)).or_insert_with(|| handover.clone());
            known.syncing_ms = known.syncing_ms.or(handover.syncing_ms);
            known.unowned_ms = known.unowned_ms.or(handover.unowned_ms);
        }
        from.extend(part.from);
        gates.extend(part.gates);
        jobs.push(part.jobs);
        part.job.into_iter().for_each(|job| merge_job(&mut opened, job));
    }
    let mut handovers: Vec<_> = handovers.into_values().collect();
    handovers.sort_by_key(|handover| (std::cmp::Reverse(handover.at), handover.shard));
    handovers.truncate(MAX_HANDOVERS);
    let shards: Vec<_> = shards.into_values().collect();
    Overview {
        version: version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
        at: Timestamp::now(),
        from,
        replicas: replicas.into_values().collect(),
        jobs: merge_jobs(jobs, query),
        // A Job of the same name that came later has another UID.
        job: opened.into_values().max_by_key(|job| job.created),
        shards,
        handovers,
        gates,
    }
}

/// The query for each of several replicas whose overviews are merged.
pub fn whole_pages(query: &JobQuery) -> JobQuery {
    JobQuery { offset: 0, limit: query.offset.saturating_add(query.limit), ..query.clone() }
}

/// The later claim is the news; of the same claim its owner knows most.
fn news(shard: &ShardOverview) -> (u64, bool, bool) {
    (shard.epoch, shard.state.is_some(), shard.jobs.is_some())
}

/// Every replica sees all Jobs, but one that has just started. Why a Job waits is known to one of them.
fn merge_jobs(parts: Vec<JobsOverview>, query: &JobQuery) -> JobsOverview {
    let mut items = BTreeMap::<String, JobOverview>::new();
    let mut merged = JobsOverview::default();
    for JobsOverview { total, phases, matching, items: seen } in parts {
        if total > merged.total {
            merged = JobsOverview { total, phases, matching, items: Vec::new() };
        }
        seen.into_iter().for_each(|job| merge_job(&mut items, job));
    }
    let now = Timestamp::now();
    let order = |one: &JobOverview, other: &JobOverview| place(one, now).cmp(&place(other, now));
    merged.items = page(items.into_values().collect(), query, order);
    merged
}

/// Adds what one replica knows of a Job, by its UID.
fn merge_job(jobs: &mut BTreeMap<String, JobOverview>, job: JobOverview) {
    let known = jobs.entry(job.uid.clone()).or_insert_with(|| job.clone());
    // An earlier owner knows failures that the owner of now has not seen.
    let last_failures = match (known.last_failures.first(), job.last_failures.first()) {
        (own, Some(other)) if own.is_none_or(|own| own.ended < other.ended) => job.last_failures.clone(),
        _ => std::mem::take(&mut known.last_failures),
    };
    if known.reason.is_none() {
        *known = job;
    }
    known.last_failures = last_failures;
}

fn place(job: &JobOverview, now: Timestamp) -> Place<'_> {
    Place {
        interest: interest(job.phase, job.finished, job.failed, now),
        finished: job.finished,
        namespace: &job.namespace,
        name: &job.name,
        shard: job.shard,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::actors::pages::overview::Phase;

    fn job(name: &str, shard: u32, reason: Option<&str>) -> JobOverview {
        JobOverview {
            namespace: "n".into(),
            name: name.into(),
            uid: format!("uid-{name}"),
            shard,
            phase: Phase::Waiting,
            completions: Some(3),
            parallelism: 1,
            succeeded: 0,
            failed: 0,
            active: 0,
            ready: 0,
            created: Timestamp::UNIX_EPOCH,
            finished: None,
            reason: reason.map(str::to_owned),
            until: None,
            message: None,
            last_failures: Vec::new(),
        }
    }

    /// The overview of a replica that owns one of two shards.
    fn part(identity: &str, own: u32, jobs: Vec<JobOverview>) -> Overview {
        let age = |of: &str| if of == identity { 10 } else { 900 };
        let replica = |of: &str| ReplicaOverview {
            identity: of.into(),
            heartbeat_age_ms: age(of),
            lease_duration_ms: 15_000,
            leaving: false,
        };
        let shard = |shard: u32| ShardOverview {
            shard,
            owner: Some(["a", "b"][shard as usize].into()),
            epoch: 1,
            state: (shard == own).then(|| "active".into()),
            jobs: (shard == own).then_some(jobs.len()),
        };
        let handover = HandoverOverview {
            shard: 1,
            epoch: 1,
            from: Some("a".into()),
            to: "b".into(),
            at: Timestamp::UNIX_EPOCH,
            unowned_ms: Some(5),
            syncing_ms: (own == 1).then_some(80),
        };
        Overview {
            version: "1".into(),
            at: Timestamp::UNIX_EPOCH,
            from: vec![identity.into()],
            replicas: ["a", "b"].map(replica).into(),
            shards: [0, 1].map(shard).into(),
            handovers: vec![handover],
            gates: Vec::new(),
            jobs: JobsOverview {
                total: jobs.len(),
                phases: BTreeMap::from([(Phase::Waiting, jobs.len())]),
                matching: jobs.len(),
                items: jobs,
            },
            job: None,
        }
    }

    #[test]
    fn what_each_knows_is_put_together() {
        let query = JobQuery { offset: 1, limit: 2, ..JobQuery::default() };
        assert_eq!(whole_pages(&query), JobQuery { limit: 3, ..JobQuery::default() });
        let all = |reasons: [Option<&str>; 4]| {
            let jobs = ["j", "k", "l", "m"].into_iter().zip([1, 0, 1, 0]).zip(reasons);
            jobs.map(|((name, shard), reason)| job(name, shard, reason)).collect::<Vec<_>>()
        };
        let a = part("a", 0, all([None; 4]));
        let b = part("b", 1, all([None, None, Some("Refused"), None]));
        for parts in [vec![a.clone(), b.clone()], vec![b, a]] {
            let whole = merge(parts, &query);
            assert_eq!(whole.replicas.iter().map(|one| one.heartbeat_age_ms).collect::<Vec<_>>(), [10, 10]);
            assert!(whole.shards.iter().all(|shard| shard.state.is_some() && shard.jobs == Some(4)));
            let handovers: Vec<_> = whole.handovers.iter().map(|one| one.syncing_ms).collect();
            assert_eq!(handovers, [Some(80)], "both have seen the same one");
            let jobs = whole.jobs;
            assert_eq!((jobs.total, jobs.matching, jobs.phases[&Phase::Waiting]), (4, 4, 4));
            assert_eq!(jobs.items.iter().map(|job| &*job.name).collect::<Vec<_>>(), ["k", "l"]);
        }
    }

    #[test]
    fn jobs_that_several_replicas_see_count_once() {
        let query = JobQuery { limit: 9, ..JobQuery::default() };
        let seen = |reasons: [Option<&str>; 2]| vec![job("k", 0, reasons[0]), job("l", 1, reasons[1])];
        let a = part("a", 0, seen([Some("PodBackoff"), None]));
        let b = part("b", 1, seen([None, Some("Refused")]));
        let jobs = merge(vec![a, b], &query).jobs;
        assert_eq!((jobs.total, jobs.matching, jobs.phases[&Phase::Waiting]), (2, 2, 2));
        let reasons: Vec<_> = jobs.items.iter().map(|job| job.reason.as_deref()).collect();
        assert_eq!(reasons, [Some("PodBackoff"), Some("Refused")]);
    }

    #[test]
    fn the_opened_job_has_the_wait_that_one_replica_knows() {
        let with = |reason| Overview { job: Some(job("k", 0, reason)), ..part("a", 0, Vec::new()) };
        for parts in [[None, Some("Refused")], [Some("Refused"), None]] {
            let whole = merge(parts.map(with).into(), &JobQuery::default());
            assert_eq!(whole.job.unwrap().reason.as_deref(), Some("Refused"));
        }
        assert_eq!(merge(vec![part("a", 0, Vec::new())], &JobQuery::default()).job, None);
    }

    #[test]
    fn without_replicas_nothing_is_known() {
        let whole = merge(Vec::new(), &JobQuery::default());
        assert!(whole.from.is_empty() && whole.shards.is_empty() && whole.jobs.items.is_empty());
    }
}
