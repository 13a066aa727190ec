//! The world: it runs replicas, carries their messages, plays all other clients, and checks the replicas'
//! acts.
//!
//! Everything happens in one thread. The world goes from one event to the next. Before it does, each replica runs up to
//! that time on its own clock; what a replica sends earlier comes first. So the order of all messages is the
//! world's choice, and follows from the seed.

mod caches;
mod faults;
mod namespaces;
mod players;
mod rare;
mod replicas;
mod tenant;
mod traffic;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::channel::mpsc;
use http::{Method, Request, Response, StatusCode, Uri};
use serde_json::Value;
use tokio::sync::oneshot;
use yardmaster::job::names::CONTROLLER_UID_LABEL;
use yardmaster_embedded::{InProcessConfig, Snapshot};

use crate::agenda::Agenda;
use crate::chance::Chance;
use crate::checks::{Checks, Violation};
use crate::kubelet::{Duty, Kubelet};
use crate::ledger::{Ledger, PodFacts};
use crate::link::Link;
use crate::log::Log;
use crate::network::{Answer, Sent};
use crate::plan::{Act, Fault, Plan};
use crate::replica::Life;
use crate::server::{ApiServer, Reply, WatchId};
use crate::tally;
use crate::time::Time;

/// Virtual time in which everything must have reached its end once nothing breaks any more.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time between two searches for pods that have lost the labels of their Job (`actors::orphans::stripped_pods`).
const HOUR: Duration = Duration::from_secs(3_600);
/// Time between looks at the whole.
const LOOK: Duration = Duration::from_secs(1);

/// The cause of objects that exist when the world begins, or after a restore.
const NOBODY: &str = "etcd";
/// The message of a panic that a plan has asked for.
const PANIC: &str = "a bug that the simulation has put in";

/// Something that is going to happen.
pub(crate) enum Event {
    /// A request arrives at the API server.
    Arrives { from: usize, life: u32, sent_at: Time, sent: Sent },
    /// An answer arrives at a replica.
    Answers { to: usize, life: u32, uri: Uri, reply: oneshot::Sender<Answer>, answer: Answer },
    /// A piece of a watch arrives at a replica; `None` is the end.
    Piece { watch: WatchId, piece: Option<Bytes> },
    /// A step of the plan.
    Step(usize),
    /// A user creates a Job.
    Create(usize),
    /// A node does its duty.
    Kubelet { pod: String, duty: Duty },
    /// The garbage collector looks at a Job.
    Collect(String),
    /// The garbage collector looks at a pod whose owner does not exist.
    CollectPod(String),
    /// A foreign finalizer is removed.
    Unhold(String),
    /// Something rare ends.
    RareEnd(rare::End),
    /// A replica starts.
    Start(usize),
    /// A frozen or suspended replica runs again.
    Thaw { replica: usize, stood_still: Option<Duration> },
    /// A replica is sent to another API server.
    CutWatches(usize),
    /// The API server is there again.
    Up,
    /// A backup is made for a restore that comes later.
    Backup(usize),
    /// A quota goes away.
    Unquota(String),
    /// The namespace controller empties a namespace.
    Empty(String),
    /// It is chosen who looks for pods without labels.
    Elect,
    /// A look at the whole.
    Look,
}

/// A replica, alive or not.
pub(crate) struct Slot {
    pub(crate) life: Option<Life>,
    /// How often it has started.
    pub(crate) lives: u32,
    pub(crate) link: Link,
    /// It does not run until it thaws.
    pub(crate) frozen: bool,
    pub(crate) skew: i64,
    pub(crate) leads: bool,
    /// It has been told to leave.
    pub(crate) leaving: bool,
}

/// An open watch.
struct Open {
    to: usize,
    life: u32,
    pieces: mpsc::UnboundedSender<Result<Bytes, Broken>>,
    last: Time,
    /// Of Jobs: pieces may have to be made unreadable.
    of_jobs: bool,
    /// Of the pods of a shard.
    of_pods: bool,
    /// How late its API server is.
    lag: Duration,
}

/// A watch of the world's own.
struct OwnWatch {
    path: &'static str,
    /// The beginning of an event, the rest of which has not arrived.
    rest: Vec<u8>,
}

/// Why a watch breaks.
enum Broken {
    /// The connection was reset.
    Reset,
    /// The reader panics, as after a bug in it.
    Panic,
}

/// A world.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) now: Time,
    agenda: Agenda<Event>,
    chance: Chance,
    /// Where lists are cut.
    cuts: Chance,
    server: ApiServer,
    watches: BTreeMap<WatchId, Open>,
    /// The world's own watches.
    own_watches: BTreeMap<WatchId, OwnWatch>,
    slots: Vec<Slot>,
    pub(crate) ledger: Ledger,
    kubelet: Kubelet,
    checks: Checks,
    pub(crate) log: Log,
    /// It was given an hour more to come to rest.
    has_waited: bool,
    /// Connections on which nothing happens any more.
    hung: Vec<oneshot::Sender<Answer>>,
    backups: BTreeMap<usize, Snapshot>,
    conditions: Conditions,
    /// Names of Jobs at whose next look the actor panics, and marks of shards.
    panics: Arc<Mutex<BTreeSet<String>>>,
    /// The cause of the current changes, if no replica causes them.
    caller: &'static str,
}

/// The faults of the API server that are active.
#[derive(Default)]
struct Conditions {
    down_until: Time,
    /// When etcd was last restored. Requests from before do not arrive.
    restored_at: Time,
    refusals: Vec<(Time, Fault)>,
    webhooks: BTreeMap<String, Time>,
    undecodable: BTreeMap<String, Time>,
    /// Namespaces that are being deleted, each since when.
    ending: BTreeMap<String, Time>,
    leaders: Option<(Time, usize)>,
    rare: rare::Conditions,
    slow_reads: tenant::SlowReads,
}

/// The outcome of a world.
pub struct Outcome {
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// The log.
    pub log: Log,
    /// How much virtual time has passed.
    pub time: Time,
    /// Requests of all replicas.
    pub requests: u64,
    /// By minute: the most requests of one kind for one object that a replica has sent, without heartbeats and Events.
    pub repeats: BTreeMap<u64, (u32, String)>,
    /// Pods that existed.
    pub pods: usize,
    /// Number of Jobs by what their conditions say.
    pub reached: BTreeMap<String, u64>,
}

impl World {
    /// The world of a plan. Its log has lines if `keeps_log`.
    ///
    /// # Errors
    /// When the operating system gives no runtime.
    pub fn new(plan: Plan, keeps_log: bool) -> std::io::Result<Self> {
        let server = ApiServer::new(InProcessConfig {
            seed: plan.seed,
            feature_gates: [("WatchList".to_owned(), plan.settings.streams_lists)].into(),
            ..InProcessConfig::default()
        })?;
        let slot = |_| Slot {
            life: None,
            lives: 0,
            link: Link::default(),
            frozen: false,
            skew: 0,
            leads: false,
            leaving: false,
        };
        let mut world = Self {
            now: Time::ZERO,
            agenda: Agenda::new(),
            chance: Chance::new(plan.seed, "world"),
            cuts: Chance::new(plan.seed, "cut lists"),
            server,
            watches: BTreeMap::new(),
            own_watches: BTreeMap::new(),
            slots: (0..plan.settings.replicas).map(slot).collect(),
            ledger: Ledger::default(),
            kubelet: Kubelet::new(&plan),
            checks: Checks::new(&plan),
            log: Log::new(keeps_log),
            has_waited: false,
            hung: Vec::new(),
            backups: BTreeMap::new(),
            conditions: Conditions::default(),
            panics: Arc::default(),
            caller: NOBODY,
            plan,
        };
        world.begin();
        Ok(world)
    }

    /// Watches everything, makes the past, and puts the plan on the agenda.
    fn begin(&mut self) {
        self.watch_everything();
        self.make_past();
        for (number, job) in self.plan.jobs.iter().enumerate() {
            if job.past.is_none() {
                self.agenda.add(job.created, Event::Create(number));
            }
        }
        for (number, step) in self.plan.steps.iter().enumerate() {
            if let Act::Fault(Fault::Restore { age }) = &step.act {
                let at = Time::ms(step.at.millis().saturating_sub(age.as_millis() as u64));
                self.agenda.add(at, Event::Backup(number));
            }
            self.agenda.add(step.at, Event::Step(number));
        }
        for replica in 0..self.slots.len() {
            let at = Time::ms(self.chance.number(0..=300));
            self.agenda.add(at, Event::Start(replica));
        }
        self.agenda.add(Time::ms(1_000), Event::Elect);
        self.agenda.add(Time::ZERO + LOOK, Event::Look);
    }

    /// The world's own watches: they see what every client could see.
    fn watch_everything(&mut self) {
        for path in ["/api/v1/pods", "/apis/batch/v1/jobs", "/apis/coordination.k8s.io/v1/leases"] {
            self.watch(path, 0);
        }
        self.pump(None);
    }

    fn watch(&mut self, path: &'static str, after: u64) {
        let request = Request::get(format!("{path}?watch=true&resourceVersion={after}")).body(Bytes::new());
        // A path of letters is always valid.
        let Ok(request) = request else { return };
        match self.server.handle(request) {
            Reply::Watch(id, _) => _ = self.own_watches.insert(id, OwnWatch { path, rest: Vec::new() }),
            Reply::Whole(_) => self.checks.broken(self.now, format!("the world cannot watch {path}")),
        }
    }

    /// etcd was restored: the world drops its ledger and watches everything again.
    fn begin_anew(&mut self) {
        self.ledger = Ledger::default();
        self.checks.doubt(self.now);
        self.kubelet.forget();
        self.watch_everything();
    }

    /// Lets the world go on until everything has reached its end, or something is wrong.
    pub fn run(mut self) -> Outcome {
        let mut limit = self.plan.settings.calm_from + PATIENCE;
        while !self.checks.failed() {
            let Some(mut next) = self.agenda.next_at() else { break };
            next = next.max(self.now);
            for replica in 0..self.slots.len() {
                next = self.let_run(replica, next);
            }
            self.now = next.max(self.now);
            self.server.advance(self.now);
            self.pump(None);
            while let Some(event) = self.agenda.pop(self.now) {
                self.happens(event);
            }
            if self.now > limit {
                match self.more_patience() {
                    Some(more) => limit = self.now + more,
                    None => self.checks.never_ends(self.now, &self.plan, &self.ledger),
                }
            }
            if self.checks.is_over() {
                break;
            }
        }
        let (violation, requests, repeats) = self.checks.finish();
        let (pods, reached) = (self.ledger.pods.len(), tally::reached(&self.ledger));
        Outcome { violation, log: self.log, time: self.now, requests, repeats, pods, reached }
    }

    /// How much longer the world may take to come to rest. Each reason counts once.
    fn more_patience(&mut self) -> Option<Duration> {
        // A pod that no watch shows is looked for. Where lists take long, that is once an hour.
        let is_bare = |pod: &PodFacts| {
            pod.is_tracked() && !pod.object["metadata"]["labels"][CONTROLLER_UID_LABEL].is_string()
        };
        let waits = self.ledger.pods.values().any(is_bare);
        (waits && !std::mem::replace(&mut self.has_waited, true)).then_some(HOUR + PATIENCE)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Arrives { from, life, sent_at, sent } => self.arrives(from, life, sent_at, sent),
            Event::Answers { to, life, uri, reply, answer } => {
                self.checks.settled(to, &uri);
                if self.slots.get(to).is_some_and(|slot| slot.lives == life) {
                    // A replica that has given up does not care.
                    let _ = reply.send(answer);
                }
            }
            Event::Piece { watch, piece } => self.piece(watch, piece),
            Event::Step(number) => self.step(number),
            Event::Create(number) => self.create(number),
            Event::Kubelet { pod, duty } => self.node(&pod, duty),
            Event::Collect(job) => self.collect(&job),
            Event::CollectPod(pod) => self.collect_pod(&pod),
            Event::Unhold(pod) => self.unhold(&pod),
            Event::RareEnd(end) => self.rare_ends(end),
            Event::Start(replica) => self.start(replica),
            Event::Thaw { replica, stood_still } => self.thaw(replica, stood_still),
            Event::CutWatches(replica) => self.cut_watches(Some(replica)),
            Event::Up => self.log.tell(self.now, "API server", format_args!("is up")),
            Event::Backup(step) => {
                self.backups.insert(step, self.server.snapshot());
            }
            Event::Unquota(namespace) => self.unquota(&namespace),
            Event::Empty(namespace) => self.empty(&namespace),
            Event::Elect => self.elect(),
            Event::Look => self.look(),
        }
    }

    /// Looks at the whole.
    fn look(&mut self) {
        for replica in 0..self.slots.len() {
            let ended = self
                .slots
                .get(replica)
                .and_then(|slot| slot.life.as_ref())
                .is_some_and(|life| life.with(yardmaster::actors::Replica::has_ended).unwrap_or(true));
            let leaving = self.slots.get(replica).is_some_and(|slot| slot.leaving);
            if ended && !leaving {
                self.checks.broken(self.now, format!("replica-{replica} has ended by itself"));
            }
        }
        self.hung.retain(|reply| !reply.is_closed());
        let closed: Vec<WatchId> =
            self.watches.iter().filter(|(_, open)| open.pieces.is_closed()).map(|(id, _)| *id).collect();
        for id in closed {
            self.watches.remove(&id);
            self.server.close(id);
        }
        let refuses = self.conditions.refusals.iter().any(|(_, fault)| fault.disturbs().is_some());
        if self.now < self.conditions.down_until || refuses {
            self.checks.forgive();
        }
        self.checks.look(self.now, &self.plan, &self.ledger, &self.slots, !self.hung.is_empty());
        self.agenda.add(self.now + LOOK, Event::Look);
    }
}

/// Builds a request of a client other than the replicas.
fn outside(request: &crate::kubelet::Request) -> Option<Request<Bytes>> {
    let content = match (request.method, request.path.ends_with("/status")) {
        ("PATCH", true) => "application/strategic-merge-patch+json",
        ("PATCH", false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let body = serde_json::to_vec(&request.body).ok()?;
    let uri: Uri = request.path.parse().ok()?;
    let method = Method::from_bytes(request.method.as_bytes()).ok()?;
    Request::builder().method(method).uri(uri).header("content-type", content).body(body.into()).ok()
}

/// The JSON of an answer.
fn json(answer: &Response<Bytes>) -> Value {
    serde_json::from_slice(answer.body()).unwrap_or_default()
}

/// An answer that the API server's machinery gives in place of the API.
fn refusal(code: u16, reason: &str, message: &str) -> Response<Bytes> {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    let mut answer = Response::new(Bytes::from(status.to_string()));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}
