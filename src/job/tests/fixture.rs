//! Jobs and pods as the starting points of tests.

use crate::job::uid::UidSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use proptest::test_runner::{Config, RngSeed};
use serde_json::value::RawValue;

use crate::job::limits::Limits;
use crate::job::options::JobOptions;
use crate::job::pod::{IndexFailures, MaxRestarts, Phase, Place, Pod};
use crate::job::pod_name::pod_name;
use crate::job::selector::Selector;
use crate::job::spec::{Completion, Job, JobSpec};
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, ConditionStatus, JobStatus, Uncounted};
use crate::job::template::PodTemplate;
use crate::job::uid::Uid;
use crate::job::verdict::condition;

/// A time in seconds.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

/// A time in milliseconds.
pub(crate) fn at_ms(milliseconds: i64) -> Timestamp {
    Timestamp::from_millisecond(milliseconds).unwrap()
}

/// A Job with completions and parallelism only, created at second 0.
pub(crate) fn job(completion: Completion, parallelism: u32) -> Job {
    let spec = JobSpec {
        parallelism,
        completion,
        suspend: false,
        backoff_limit: 6,
        per_index: None,
        active_deadline: None,
        ttl_after_finished: None,
        pod_failure_policy: None,
        success_policy: Vec::new(),
        replace_only_failed: false,
        selector: Arc::new(Selector::default()),
        template: template("Never"),
    };
    Job {
        namespace: "default".into(),
        name: "work".into(),
        uid: "job-uid".into(),
        created: at(0),
        deleting: false,
        options: JobOptions::default(),
        spec: Arc::new(spec),
        status: JobStatus::default(),
    }
}

/// The Job, complete since second 200.
pub(crate) fn finished(mut job: Job) -> Job {
    job.status.ensure(condition(ConditionKind::Complete, ConditionStatus::True, "", "", at(200)));
    job
}

/// A template of pods with this `restartPolicy`.
pub(crate) fn template(restart_policy: &str) -> PodTemplate {
    let json =
        format!(r#"{{"spec":{{"containers":[{{"name":"main"}}],"restartPolicy":"{restart_policy}"}}}}"#);
    PodTemplate::new(&RawValue::from_string(json).unwrap())
}

/// The Job with a changed `spec`.
pub(crate) fn with(mut job: Job, change: impl FnOnce(&mut JobSpec)) -> Job {
    change(Arc::make_mut(&mut job.spec));
    job
}

/// A tracked pod that nobody has scheduled yet.
pub(crate) fn pod(uid: &str) -> Pod {
    Pod {
        uid: uid.into(),
        name: uid.into(),
        version: 1,
        created: at(0).into(),
        deleting: false,
        forced: false,
        tracked: true,
        applied: false,
        selected: true,
        index: None,
        place: None,
        index_failures: IndexFailures::default(),
        carried: None,
        scheduled: false,
        phase: Phase::Pending,
        ready_since: None,
        restarts: 0,
        max_restarts: MaxRestarts::default(),
        finished: at(0).into(),
        stalled: false,
        outcome: None,
    }
}

/// The pod with something changed.
pub(crate) fn but(mut pod: Pod, change: impl FnOnce(&mut Pod)) -> Pod {
    change(&mut pod);
    pod
}

/// A pod that runs on a node.
pub(crate) fn running(uid: &str) -> Pod {
    but(pod(uid), |p| {
        p.scheduled = true;
        p.phase = Phase::Running;
    })
}

/// The pod at a place that [`job`] has given, with the name that follows from it.
pub(crate) fn placed(pod: Pod, completion: Completion, number: u32, attempt: u32) -> Pod {
    let place = Place { number, attempt };
    let index = completion.indexes().map(|_| number);
    but(pod, |p| {
        (p.index, p.place) = (index, Some(place));
        p.name = pod_name("work", "job-uid", index, place).into();
    })
}

/// A running pod at a completion index, created by us.
pub(crate) fn at_index(uid: &str, index: u32, attempt: u32) -> Pod {
    placed(running(uid), Completion::Indexed(index + 1), index, attempt)
}

/// A running pod at an ordinal, created by us.
pub(crate) fn at_ordinal(uid: &str, number: u32) -> Pod {
    placed(running(uid), Completion::WorkQueue, number, 0)
}

/// The pod, ended at a second.
pub(crate) fn ended(pod: Pod, phase: Phase, second: i64) -> Pod {
    but(pod, |p| {
        p.scheduled = true;
        p.phase = phase;
        p.ready_since = None;
        p.finished = at(second).into();
        p.version += 1;
    })
}

/// The state of a managed Job with these pods, all observed at second 0 and without failure debounce.
pub(crate) fn state(job: Job, pods: impl IntoIterator<Item = Pod>) -> JobState {
    let mut state = JobState::new(job, Limits { debounce_period: Duration::ZERO, ..Limits::default() });
    for pod in pods {
        let latest = [Some(pod.finished.into()), pod.backoff().map(|record| record.last)];
        let seen = latest.into_iter().flatten().max().unwrap_or_default();
        state.observe_pod(pod, seen);
    }
    state.pods_listed(&UidSet::default(), 0);
    state
}

/// UIDs as text, for comparisons.
pub(crate) fn uids<'a>(uids: impl IntoIterator<Item = &'a Uid>) -> Vec<String> {
    uids.into_iter().map(Uid::to_string).collect()
}

/// A configuration with the same random cases in every run. `PROPTEST_RNG_SEED` selects others,
/// `PROPTEST_CASES` more.
pub(crate) fn cases(seed: u64) -> Config {
    let given = Config::default();
    let rng_seed = match given.rng_seed {
        RngSeed::Random => RngSeed::Fixed(seed),
        seed => seed,
    };
    Config { rng_seed, failure_persistence: None, max_shrink_iters: 20_000, ..given }
}

/// The same Job, of which the status has nothing to add: it has started, and has no pods.
pub(crate) fn quiet(job: Job) -> Job {
    let mut job = job;
    job.status.start_time = Some(at(100));
    job.status.uncounted = Some(Uncounted::default());
    (job.status.ready, job.status.terminating) = (Some(0), Some(0));
    job
}
