//! Overviews of a cluster that does not exist, served with the real page.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::oneshot;
use yardmaster::actors::last_failures::LastFailure;
use yardmaster::actors::overview::{
    GateOverview, HandoverOverview, JobOverview, JobsOverview, Overview, Phase, ReplicaOverview,
    ShardOverview,
};
use yardmaster::telemetry::http::{Access, JobQuery, Live, Overviews, bind, page_router, serve};

use super::live::Indexed;

/// Number of shards.
pub(super) const SHARDS: u32 = 64;

/// The failure of a pod whose author chose the texts.
fn failure(ended: Timestamp, text: &str) -> LastFailure {
    LastFailure {
        pod: text.into(),
        index: Some(3),
        node: Some(text.into()),
        ended,
        exit_code: Some(1),
        reason: Some(text.into()),
        message: Some(text.into()),
    }
}

/// A text that would run if it were parsed.
pub(super) const HOSTILE: &str =
    "<img src=x onerror=\"window.planted = true\"><script>window.planted = true</script>";

/// A page, as long as this exists.
pub(super) struct Model {
    pub(super) url: String,
    state: Arc<State>,
    _end: oneshot::Sender<()>,
}

struct State {
    started: Timestamp,
    jobs: u32,
    /// Whether all names and messages are attacks.
    hostile: bool,
    /// How often all shards have changed hands.
    turns: AtomicU64,
    answers: AtomicU64,
    paused: AtomicBool,
}

impl Model {
    /// A cluster with this many Jobs.
    pub(super) async fn serve(jobs: u32) -> Self {
        Self::with(jobs, false, Live::default()).await
    }

    /// A cluster in which every text that a user can choose is an attack.
    pub(super) async fn hostile() -> Self {
        Self::with(60, true, Live::default()).await
    }

    /// A cluster with this many Jobs, each of which opens as this one.
    pub(super) async fn live(jobs: u32, live: Indexed) -> Self {
        Self::with(jobs, false, Live::of(live)).await
    }

    async fn with(jobs: u32, hostile: bool, live: Live) -> Self {
        let state = Arc::new(State {
            started: Timestamp::now(),
            jobs,
            hostile,
            turns: AtomicU64::new(1),
            answers: AtomicU64::new(0),
            paused: AtomicBool::new(false),
        });
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let (end, ended) = oneshot::channel::<()>();
        let pages = page_router(state.clone(), live, Access::Loopback);
        tokio::spawn(serve(listener, pages, None, async { drop(ended.await) }));
        Self { url, state, _end: end }
    }

    /// All shards change hands, and all Jobs make progress.
    pub(super) fn turn(&self) {
        self.state.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// How many overviews have been asked for.
    pub(super) fn answers(&self) -> u64 {
        self.state.answers.load(Ordering::Relaxed)
    }

    /// Whether overviews are answered late.
    pub(super) fn pause(&self, paused: bool) {
        self.state.paused.store(paused, Ordering::Relaxed);
    }
}

/// A number without a pattern that an eye would see.
fn mixed(number: u32) -> u32 {
    number.wrapping_mul(0x9e37_79b1) >> 11
}

impl State {
    fn replica(&self, number: u64) -> String {
        let name = format!("yardmaster-{}", number % 3);
        if self.hostile { format!("{HOSTILE}{name}") } else { name }
    }

    fn owner(&self, shard: u32, turn: u64) -> String {
        self.replica(u64::from(mixed(shard)) + turn)
    }

    fn job(&self, number: u32, turn: u64) -> JobOverview {
        const PHASES: [Phase; 5] =
            [Phase::Running, Phase::Running, Phase::Waiting, Phase::Suspended, Phase::Running];
        const NAMES: [&str; 5] = ["align-reads", "train-resnet", "wrf-ensemble", "render-frames", "tokenize"];
        const SPACES: [&str; 3] = ["genomics", "ml-training", "climate"];
        let now = Timestamp::now();
        let phase = match number * 10 / self.jobs {
            8 => Phase::Complete,
            9 => Phase::Failed,
            _ => PHASES[mixed(number) as usize % PHASES.len()],
        };
        let completions = [8, 100, 16, 1_000][mixed(number) as usize / 8 % 4];
        let succeeded = match phase {
            Phase::Complete => completions,
            Phase::Suspended => 0,
            _ => (mixed(number) + u32::try_from(turn).unwrap() * 3) % completions,
        };
        let active = if phase == Phase::Running { 1 + mixed(number) % 8 } else { 0 };
        let (reason, message) = match phase {
            Phase::Waiting if !mixed(number).is_multiple_of(4) => (Some("PodBackoff"), None),
            Phase::Waiting => (Some("Refused"), Some("exceeded quota: pods, requested: pods=1")),
            Phase::Failed => {
                (Some("BackoffLimitExceeded"), Some("Job has reached the specified backoff limit"))
            }
            _ => (None, None),
        };
        let planted = |text: &str| if self.hostile { HOSTILE.to_owned() } else { text.to_owned() };
        let ended = matches!(phase, Phase::Complete | Phase::Failed);
        let age = SignedDuration::from_secs(60 + i64::from(mixed(number) % 30_000));
        JobOverview {
            namespace: planted(SPACES[mixed(number) as usize / 16 % SPACES.len()]),
            name: planted(&format!("{}-{number:04}", NAMES[mixed(number) as usize / 32 % NAMES.len()])),
            uid: format!("uid-{number}"),
            shard: number % SHARDS,
            phase,
            completions: Some(completions),
            parallelism: 8,
            succeeded,
            failed: if phase == Phase::Failed { 7 } else { u32::from(mixed(number).is_multiple_of(11)) * 2 },
            active,
            ready: active / 2,
            created: now - age,
            finished: ended.then_some(now),
            reason: reason.map(planted),
            until: (reason == Some("PodBackoff"))
                .then_some(now + SignedDuration::from_secs(i64::from(20 + mixed(number) % 400))),
            message: message.map(planted),
            last_failures: if phase == Phase::Failed {
                // A reason that every object of a browser has, too.
                let evicted = failure(now, &planted("evicted"));
                let evicted = LastFailure { exit_code: None, reason: Some("constructor".into()), ..evicted };
                vec![failure(now, &planted("out of disk")), evicted]
            } else {
                Vec::new()
            },
        }
    }

    fn overview(&self, query: &JobQuery) -> Overview {
        let turn = self.turns.load(Ordering::Relaxed);
        let now = Timestamp::now();
        let mut all: Vec<_> = (0..self.jobs).map(|number| self.job(number, turn)).collect();
        all.sort_by_key(|job| (job.finished.is_some(), job.namespace.clone(), job.name.clone()));
        let mut phases = BTreeMap::new();
        all.iter().for_each(|job| *phases.entry(job.phase).or_insert(0) += 1);
        let handover = |shard: u32| HandoverOverview {
            shard,
            epoch: turn,
            from: (turn > 1).then(|| self.owner(shard, turn - 1)),
            to: self.owner(shard, turn),
            // Each turn has a time of its own.
            at: self.started + SignedDuration::from_secs(i64::try_from(turn).unwrap()),
            unowned_ms: Some(4),
            syncing_ms: Some(60 + u64::from(shard)),
        };
        // It rises and falls with the answers.
        let wave = (self.answers.load(Ordering::Relaxed) % 40).abs_diff(20);
        let gate = |number: u64| GateOverview {
            replica: self.replica(number),
            queued: [
                ("status", 3),
                ("finalizer", 20),
                ("delete", 0),
                ("create", 240),
                ("report", 1),
                ("event", 7),
            ]
            .map(|(priority, count)| (priority.to_owned(), count * wave / 20))
            .into(),
            in_flight: 11 + 7 * number + wave / 4,
            window: 48,
            qps: 0,
            fenced: 0,
        };
        let replica = |number: u64| ReplicaOverview {
            identity: self.replica(number),
            heartbeat_age_ms: 400 + 700 * number,
            lease_duration_ms: 15_000,
            leaving: false,
        };
        let shard = |shard: u32| ShardOverview {
            shard,
            owner: Some(self.owner(shard, turn)),
            epoch: turn,
            state: Some(if shard == 40 { "syncing" } else { "active" }.into()),
            jobs: Some(self.jobs as usize / SHARDS as usize),
        };
        let (total, limit) = (all.len(), query.limit);
        let is_opened = |job: &&JobOverview| format!("{}/{}", job.namespace, job.name) == query.job;
        let job = all.iter().find(is_opened).cloned();
        Overview {
            version: "0.1.0".into(),
            at: now,
            from: vec![self.replica(0)],
            replicas: (0..3).map(replica).collect(),
            shards: (0..SHARDS).map(shard).collect(),
            handovers: (0..SHARDS).map(handover).collect(),
            gates: (0..3).map(gate).collect(),
            jobs: JobsOverview {
                total,
                phases,
                matching: total,
                items: all.into_iter().skip(query.offset).take(limit).collect(),
            },
            job,
        }
    }
}

impl Overviews for State {
    fn overview(&self, query: JobQuery) -> BoxFuture<'_, Value> {
        Box::pin(async move {
            while self.paused.load(Ordering::Relaxed) {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
            self.answers.fetch_add(1, Ordering::Relaxed);
            serde_json::to_value(Self::overview(self, &query)).unwrap()
        })
    }
}
