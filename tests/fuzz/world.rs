//! A controller with an embedded API server, the nodes of a victim, and the objects of a tenant. All run in
//! virtual time on one thread.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::System;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body_util::BodyExt as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Handle};
use tokio::time::{Instant, sleep};
use yardmaster::actors::clock::{Clock, Clocks};
use yardmaster::actors::{ControllerConfig, Replica, ReplicaContext};
use yardmaster::cluster::boot_clock::AwakeClock;
use yardmaster::cluster::transport::{ByteStream, Transport, TransportError};
use yardmaster::job::names::BUILT_IN_CONTROLLER;
use yardmaster::sharding::ShardCount;
use yardmaster::telemetry::metrics::Metrics;
use yardmaster_embedded::{InProcess, InProcessConfig, decode_protobuf, is_in_protobuf};

use crate::cost::{Cost, Excused, measure};
use crate::hostile::VICTIM;
use crate::objects::{NAMESPACE, is_valid_name};
use crate::tenants::Step;

/// The namespace of the victim.
const GOOD: &str = "good";
/// Pods that the tenant's quota admits.
const QUOTA: usize = 20;
/// How long the tenant's objects are there after the last has been stored.
const STAY: Duration = Duration::from_secs(150);
/// How long the controller may take to forget them.
const FORGETTING: Duration = Duration::from_secs(120);
/// Most lines of [`Seen::sent`].
const LINES: usize = 20_000;

/// The observations in a world.
pub(crate) struct Seen {
    /// For each of the victim's Jobs, the seconds that it took, its status without times, and the number of its pods.
    pub(crate) victims: Vec<(u64, Value, usize)>,
    /// Requests about the tenant's objects by minute, Events aside.
    pub(crate) requests: BTreeMap<u64, usize>,
    /// The same, as method and path.
    pub(crate) sent: Vec<String>,
    /// Requests that no client should send.
    pub(crate) malformed: Vec<String>,
    pub(crate) cost: Cost,
}

/// A world that goes on.
pub(crate) struct World {
    api: Arc<InProcess>,
    log: Arc<Log>,
    /// The victim's Jobs, with their beginnings and ends.
    victims: Vec<(String, Instant, Option<u64>)>,
}

#[derive(Default)]
struct Log {
    origin: Mutex<Option<Instant>>,
    requests: Mutex<BTreeMap<u64, usize>>,
    sent: Mutex<Vec<String>>,
    malformed: Mutex<Vec<String>>,
    pods: Mutex<usize>,
    /// Pods that were created since the tenant's nodes have looked.
    created: Mutex<usize>,
}

impl World {
    /// Lets a tenant take these steps.
    ///
    /// # Errors
    /// If a Job of the victim does not end.
    pub(crate) fn run(steps: &[Step]) -> Result<Seen, String> {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let runner = System::with_tokio_rt(|| runtime);
        let (mut world, _replica) = runner.block_on(Self::start());
        // A first Job makes the allocations that all Jobs share, before anything is measured.
        runner.block_on(async {
            world.victim("first").await;
            world.pass(Duration::from_secs(30)).await;
            world.leave().await;
        });
        let (result, cost) = measure(|| runner.block_on(world.host(steps)));
        result?;
        let take = |lock: &Mutex<Vec<String>>| std::mem::take(&mut *lock.lock().unwrap());
        Ok(Seen {
            victims: runner.block_on(world.ends()),
            requests: world.log.requests.lock().unwrap().clone(),
            sent: take(&world.log.sent),
            malformed: take(&world.log.malformed),
            cost,
        })
    }

    async fn start() -> (Self, Replica) {
        let clock = Arc::new(VirtualClock(Instant::now()));
        let api = Arc::new(InProcess::new(InProcessConfig::default(), clock.clone()).unwrap());
        let log = Arc::new(Log::default());
        *log.origin.lock().unwrap() = Some(Instant::now());
        let config = ControllerConfig {
            controller_name: BUILT_IN_CONTROLLER.into(),
            shards: ShardCount::new(2).unwrap(),
            arbiters: 1,
            process: uuid::Uuid::from_u64_pair(1, 1),
            ..ControllerConfig::default()
        };
        let clocks = Clocks { wall: clock, boot: Arc::new(AwakeClock) };
        let transport = Arc::new(Network { api: api.clone(), log: log.clone() });
        let cx = ReplicaContext::new(config, transport, Arc::new(Metrics::new()), Handle::current(), clocks);
        let replica = Replica::start(cx).unwrap();
        let world = Self { api, log, victims: Vec::new() };
        for namespace in [GOOD, NAMESPACE] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            world.call("POST", "/api/v1/namespaces", Some(&body)).await;
        }
        sleep(Duration::from_secs(20)).await;
        replica.lead(true);
        assert!(replica.is_ready(), "the replica has not started");
        (world, replica)
    }

    /// The time that a tenant's objects are there, and afterwards.
    async fn host(&mut self, steps: &[Step]) -> Result<(), String> {
        *self.log.origin.lock().unwrap() = Some(Instant::now());
        self.log.requests.lock().unwrap().clear();
        self.log.sent.lock().unwrap().clear();
        self.victim("early").await;
        for step in steps {
            self.pass(step.wait).await;
            self.api.store_unchecked(step.plural, step.object.clone());
            if step.listed {
                self.api.compact();
            }
        }
        self.pass(Duration::from_secs(5)).await;
        self.victim("late").await;
        self.pass(STAY / 2).await;
        // Each is seen to change.
        for step in steps {
            self.touch(step).await;
        }
        self.pass(STAY / 2).await;
        self.leave().await;
        Ok(())
    }

    /// Everything goes away, and the controller forgets it.
    async fn leave(&mut self) {
        for (namespace, plural) in
            [(NAMESPACE, "pods"), (NAMESPACE, "jobs"), (NAMESPACE, "events"), (GOOD, "events")]
        {
            self.clear(namespace, plural).await;
        }
        self.pass(Duration::from_secs(5)).await;
        self.api.compact();
        self.pass(FORGETTING).await;
        self.clear(NAMESPACE, "events").await;
        self.api.compact();
    }

    async fn clear(&self, namespace: &str, plural: &str) {
        let path = path(namespace, plural);
        for object in self.list(&path).await {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            self.api.remove_unchecked(plural, namespace, name);
        }
    }

    async fn touch(&self, step: &Step) {
        let (namespace, name) = (NAMESPACE, step.object["metadata"]["name"].as_str().unwrap_or_default());
        let path = format!("{}/{name}", path(namespace, step.plural));
        let mut object = self.call("GET", &path, None).await;
        if object["metadata"]["uid"].is_string() {
            object["metadata"]["labels"]["touched"] = "x".into();
            self.api.store_unchecked(step.plural, object);
        }
    }

    /// A Job of the victim begins: one of its pods fails.
    async fn victim(&mut self, name: &str) {
        let job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": name, "namespace": GOOD},
            "spec": {
                "parallelism": 2, "completions": 3, "completionMode": "Indexed",
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "i"}]}},
            },
        });
        // With the API server's defaults, and with a UID that the tenant knows.
        let job = self.call("POST", &format!("{}?dryRun=All", path(GOOD, "jobs")), Some(&job)).await;
        let uid = if name == "early" { VICTIM.to_owned() } else { format!("uid-of-{name}") };
        let text = job.to_string().replace(job["metadata"]["uid"].as_str().unwrap(), &uid);
        self.api.store_unchecked("jobs", serde_json::from_str(&text).unwrap());
        self.victims.push((name.to_owned(), Instant::now(), None));
    }

    /// The victim's nodes work for this long.
    async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            sleep(Duration::from_secs(1)).await;
            let pods = path(GOOD, "pods");
            for pod in self.list(&pods).await {
                let name = pod["metadata"]["name"].as_str().unwrap();
                let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
                let first = index == "0" && pod["metadata"]["annotations"]["yardmaster.dev/place"] == "0/0";
                let phase = match pod["status"]["phase"].as_str() {
                    Some("Running") if first => "Failed",
                    Some("Running") => "Succeeded",
                    Some("Succeeded" | "Failed") => continue,
                    _ => "Running",
                };
                let body = json!({"status": {"phase": phase}});
                self.call("PATCH", &format!("{pods}/{name}/status"), Some(&body)).await;
            }
            self.fail_pods().await;
            for (name, since, end) in &mut self.victims {
                if end.is_none() {
                    let path = format!("{}/{name}", path(GOOD, "jobs"));
                    let job = call(&self.api, "GET", &path, None).await;
                    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
                    if conditions.into_iter().any(|condition| condition["type"] == "Complete") {
                        *end = Some(since.elapsed().as_secs());
                    }
                }
            }
        }
    }

    /// The pods that the controller has created for the tenant fail.
    async fn fail_pods(&self) {
        let created = std::mem::take(&mut *self.log.created.lock().unwrap());
        if created == 0 {
            return;
        }
        let pods = path(NAMESPACE, "pods");
        for pod in self.list(&pods).await {
            if pod["metadata"]["annotations"]["yardmaster.dev/place"].is_string()
                && pod["status"]["phase"] == "Pending"
            {
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let body = json!({"status": {"phase": "Failed"}});
                self.call("PATCH", &format!("{pods}/{name}/status"), Some(&body)).await;
            }
        }
    }

    /// How the victim's Jobs have ended.
    async fn ends(&self) -> Vec<(u64, Value, usize)> {
        let pods = self.list(&path(GOOD, "pods")).await;
        let mut ends = Vec::new();
        for (name, _, end) in &self.victims {
            let job = self.call("GET", &format!("{}/{name}", path(GOOD, "jobs")), None).await;
            let own = |pod: &&Value| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == **name;
            let status = &job["status"];
            let counts = json!([status["succeeded"], status["failed"], status["completedIndexes"]]);
            ends.push((end.unwrap_or(u64::MAX), counts, pods.iter().filter(own).count()));
        }
        ends
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        match self.call("GET", path, None).await["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }
    }

    async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        call(&self.api, method, path, body).await
    }
}

async fn call(api: &InProcess, method: &str, path: &str, body: Option<&Value>) -> Value {
    let format = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", format);
    let answer = Excused(Box::pin(api.respond(request.body(Bytes::from(body)).unwrap()))).await;
    let read = async {
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&body).unwrap_or_default()
    };
    Excused(Box::pin(read)).await
}

fn path(namespace: &str, plural: &str) -> String {
    let group = if plural == "jobs" { "apis/batch/v1" } else { "api/v1" };
    format!("/{group}/namespaces/{namespace}/{plural}")
}

/// The API server as the controller reaches it.
struct Network {
    api: Arc<InProcess>,
    log: Arc<Log>,
}

impl Transport for Network {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        if self.log.refuses(&request) {
            let body = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
                "message": "pods is forbidden: exceeded quota: own, requested: pods=1, used: pods=20, limited: pods=20",
            });
            let body = stream::iter([Ok(Bytes::from(body.to_string()))]).boxed();
            return futures::future::ready(Ok(Response::builder().status(403).body(body).unwrap())).boxed();
        }
        let api = self.api.clone();
        async move {
            // An answer takes a moment, so that nothing goes round without time.
            sleep(Duration::from_millis(2)).await;
            let answer = Excused(Box::pin(api.respond(request))).await;
            Ok(answer.map(|body| {
                let pieces = Excused(body.into_data_stream());
                pieces.map(|piece| piece.map_err(|never| match never {})).boxed()
            }))
        }
        .boxed()
    }
}

impl Log {
    /// Notes a request. Returns whether the tenant's quota refuses it.
    fn refuses(&self, request: &Request<Bytes>) -> bool {
        let path = request.uri().path();
        if let Err(problem) = check(request) {
            self.malformed.lock().unwrap().push(problem);
        }
        if !path.contains("/namespaces/evil/") || path.contains("/events") {
            return false;
        }
        let origin = self.origin.lock().unwrap();
        let minute = origin.map_or(0, |origin| origin.elapsed().as_secs() / 60);
        *self.requests.lock().unwrap().entry(minute).or_default() += 1;
        let mut sent = self.sent.lock().unwrap();
        if sent.len() < LINES {
            let query = request.uri().query().unwrap_or_default();
            sent.push(format!("{} {path} {}", request.method(), query.chars().take(80).collect::<String>()));
        }
        let creates = request.method() == Method::POST && path.ends_with("/pods");
        let mut pods = self.pods.lock().unwrap();
        *pods += usize::from(creates);
        let is_refused = *pods > QUOTA;
        *self.created.lock().unwrap() += usize::from(creates && !is_refused);
        creates && is_refused
    }
}

/// # Errors
/// If a request has a path that no object has, or a body that is neither JSON nor protobuf.
fn check(request: &Request<Bytes>) -> Result<(), String> {
    let uri = request.uri();
    let mut segments = uri.path().split('/').skip(1);
    let is_api = match segments.next() {
        Some("api") => segments.next() == Some("v1"),
        Some("apis") => segments.next().is_some() && segments.next().is_some(),
        Some("version") => true,
        _ => false,
    };
    let rest: Vec<&str> = segments.collect();
    let rest = match &rest[..] {
        ["namespaces", namespace, rest @ ..] if is_valid_name(namespace) => rest,
        rest => rest,
    };
    let is_object = match rest {
        [] | [_] => true,
        [_, name] | [_, name, "status" | "binding"] => is_valid_name(name),
        _ => false,
    };
    if !is_api || !is_object {
        return Err(format!("{} {uri}: no path of an object", request.method()));
    }
    let body = request.body();
    let is_body = body.is_empty()
        || if is_in_protobuf(body) {
            decode_protobuf(body).is_ok()
        } else {
            serde_json::from_slice::<Value>(body).is_ok()
        };
    if is_body {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
    Err(format!("{} {uri} has neither JSON nor protobuf: {shown}", request.method()))
}

#[derive(Debug)]
struct VirtualClock(Instant);

impl VirtualClock {
    fn time(&self) -> Timestamp {
        Timestamp::constant(1_800_000_000, 0) + SignedDuration::try_from(self.0.elapsed()).unwrap()
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl yardmaster_embedded::Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}
