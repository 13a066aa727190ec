#![allow(clippy::unwrap_used)]

mod answers;
mod fences;
mod namespaces;
mod requests;

use std::collections::VecDeque;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::cluster::resource::Resource;
use crate::cluster::transport::{ByteStream, TransportError};
use crate::job::names::EXTERNAL_FINALIZER;

/// A network that answers each request with the next answer of a script after a latency, and with success
/// after the last one.
struct Scripted {
    latency: Duration,
    script: Mutex<VecDeque<(u16, Value)>>,
    /// (`METHOD path`, body) of each request, when it arrives.
    seen: mpsc::UnboundedSender<(String, Bytes)>,
    in_flight: Mutex<(usize, usize)>,
}

impl Transport for Arc<Scripted> {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let network = self.clone();
        async move {
            let line = format!("{} {}", request.method(), request.uri());
            network.seen.send((line, request.body().clone())).unwrap();
            {
                let (now, most) = &mut *network.in_flight.lock().unwrap();
                *now += 1;
                *most = (*most).max(*now);
            }
            sleep(network.latency).await;
            network.in_flight.lock().unwrap().0 -= 1;
            let scripted = network.script.lock().unwrap().pop_front();
            let (code, body) = scripted.unwrap_or_else(|| (201, pod()));
            if code == 0 {
                return Err(TransportError("connection reset".into()));
            }
            let body = stream::iter([Ok(Bytes::from(body.to_string()))]).boxed();
            Ok(Response::builder().status(code).header("retry-after", "7").body(body).unwrap())
        }
        .boxed()
    }
}

fn pod() -> Value {
    json!({"kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5",
        "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

struct Bench {
    gate: WriteGate,
    network: Arc<Scripted>,
    seen: mpsc::UnboundedReceiver<(String, Bytes)>,
    metrics: Arc<Metrics>,
}

fn bench(config: GateConfig, script: impl IntoIterator<Item = (u16, Value)>) -> Bench {
    let (sender, seen) = mpsc::unbounded_channel();
    let network = Arc::new(Scripted {
        latency: Duration::from_millis(10),
        script: Mutex::new(script.into_iter().collect()),
        seen: sender,
        in_flight: Mutex::default(),
    });
    let metrics = Arc::new(Metrics::new());
    let gate = WriteGate::open(Arc::new(network.clone()), config, EXTERNAL_FINALIZER, metrics.clone());
    Bench { gate, network, seen, metrics }
}

fn one_at_a_time() -> GateConfig {
    GateConfig { window: WindowLimits { min: 1, initial: 1, max: 1 }, ..GateConfig::default() }
}

fn order(priority: Priority, flow: &str) -> Order {
    Order::new(priority, flow.into(), Fence::unlimited())
}

fn create(tag: &str) -> Write {
    create_in("n", tag)
}

fn create_in(namespace: &str, tag: &str) -> Write {
    let body = Bytes::copy_from_slice(tag.as_bytes());
    Write::Create { resource: Resource::PODS, namespace: namespace.into(), body }
}

impl Bench {
    /// Bodies of all requests so far, in the order of their arrival.
    fn bodies(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.seen.try_recv().ok())
            .map(|(_, body)| String::from_utf8(body.to_vec()).unwrap())
            .collect()
    }

    async fn one(&self, write: Write) -> Result<Answer, WriteError> {
        self.gate.submit(order(Priority::Create, "j"), write).await
    }
}

#[tokio::test(start_paused = true)]
async fn status_goes_before_finalizers_deletions_creations_and_events() {
    let mut bench = bench(one_at_a_time(), []);
    let submit = |priority, tag| bench.gate.submit(order(priority, "j"), create(tag));
    // The first write finds room and need not wait.
    let mut writes = vec![submit(Priority::Event, "first")];
    writes.extend(Priority::ALL.into_iter().rev().map(|priority| submit(priority, priority.as_str())));
    join_all(writes).await;
    assert_eq!(
        bench.bodies(),
        ["first", "status", "finalizer", "delete", "create", "progress", "report", "event"]
    );
}

#[tokio::test(start_paused = true)]
async fn progress_and_reports_wait_for_creations_but_not_for_ever() {
    let mut bench = bench(one_at_a_time(), []);
    for (creations, priority, position) in [
        (100, Priority::Progress, 100..=100),
        (1000, Priority::Progress, 200..=210),
        (100, Priority::Report, 100..=100),
        (1000, Priority::Report, 500..=510),
        (1000, Priority::Event, 1000..=1000),
    ] {
        let submit = |priority, tag| bench.gate.submit(order(priority, "j"), create(tag));
        let mut writes: Vec<_> = (0..creations).map(|_| submit(Priority::Create, "create")).collect();
        writes.push(submit(priority, "waits"));
        join_all(writes).await;
        let found = bench.bodies().iter().position(|tag| tag == "waits").unwrap();
        assert!(position.contains(&found), "{priority:?} after {found} creations that take 10 ms each");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_in_a_turn_is_decided_when_it_has_come() {
    let mut bench = bench(one_at_a_time(), []);
    let status = order(Priority::Status, "j");
    let reserve = || bench.gate.reserve_status(&status, "n".into()).granted().unwrap();
    let (turn, next) = (reserve().unwrap(), reserve().unwrap_err());
    let sent = bench.gate.submit_in(turn, status.clone(), create("first"), CallTrace::default());
    let (first, turn) = tokio::join!(sent, next.wait());
    assert!(first.is_ok());
    let (mut other, mut sent) = (Box::pin(bench.one(create("other"))), None);
    assert!(other.as_mut().now_or_never().is_none(), "a turn has room in the window");
    _ = sent.insert(turn.unwrap());
    drop(sent);
    assert!(other.await.is_ok(), "an unused turn makes room");
    assert_eq!(bench.bodies(), ["first", "other"]);
}

#[tokio::test(start_paused = true)]
async fn turns_and_writes_that_are_dropped_leave_the_queue() {
    let bench = bench(one_at_a_time(), []);
    let _full = bench.gate.reserve_status(&order(Priority::Status, "first"), "n".into());
    let flows = |kind| (0..1000).map(move |flow| order(Priority::Status, &format!("{kind}-{flow}")));
    let turns: Vec<_> = flows("turn").map(|order| bench.gate.reserve_status(&order, "n".into())).collect();
    let writes: Vec<_> = flows("write").map(|order| bench.gate.submit(order, create("x"))).collect();
    let waiting = || bench.gate.shared.lock().queue.len(Priority::Status);
    assert_eq!(waiting(), 2000);
    drop(turns);
    assert_eq!(waiting(), 1000);
    drop(writes);
    assert_eq!(waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_huge_job_does_not_starve_small_ones() {
    let mut bench = bench(one_at_a_time(), []);
    for (of_huge, rounds) in [(Priority::Create, 1), (Priority::Finalizer, 5)] {
        let writes = |priority, flow: &str, count: usize| {
            let (gate, flow) = (bench.gate.clone(), flow.to_owned());
            (0..count).map(move |_| gate.submit(order(priority, &flow), create(&flow))).collect::<Vec<_>>()
        };
        let mut waiting = writes(of_huge, "huge", 1000);
        for small in 0..10 {
            waiting.extend(writes(Priority::Create, &format!("small-{small}"), 1));
        }
        join_all(waiting).await;
        let order = bench.bodies();
        assert_eq!(order.len(), 1010);
        let last_small = order.iter().rposition(|flow| flow.starts_with("small")).unwrap();
        assert!(last_small <= 11 * rounds, "small Jobs wait for {last_small} writes of the huge one");
    }
}

/// Jobs that wait share the number of writes in flight, and the small part of a limited rate that goes to
/// statuses.
#[tokio::test(start_paused = true)]
async fn the_pace_follows_the_number_of_jobs_that_wait() {
    for (qps, period) in [(0, 0), (100, 7)] {
        let bench = bench(GateConfig { qps, ..one_at_a_time() }, []);
        assert_eq!(
            bench.gate.pace(&"n".into()),
            Pace { at_once: FEWEST_WRITES, status_period: Duration::ZERO, start_period: Duration::ZERO }
        );
        let waiting: Vec<_> = (0..10)
            .map(|job| bench.gate.submit(order(Priority::Create, &format!("{job}")), create("")))
            .collect();
        assert_eq!(bench.gate.pace(&"n".into()).status_period, Duration::from_secs(period));
        join_all(waiting).await;
    }
    let wide = bench(GateConfig { qps: 100, ..GateConfig::default() }, []);
    assert_eq!(wide.gate.pace(&"n".into()).at_once, WRITES_AHEAD * GateConfig::default().window.max);
    let waiting = ["a", "b"].map(|job| wide.gate.submit(order(Priority::Create, job), create("")));
    assert_eq!(wide.gate.pace(&"n".into()).at_once, GateConfig::default().window.max);
    join_all(waiting).await;
}

#[tokio::test(start_paused = true)]
async fn the_window_bounds_the_writes_in_flight_and_two_namespaces_that_fail_do_not_shrink_it() {
    let limits = WindowLimits { min: 1, initial: 8, max: 32 };
    let bench = bench(
        GateConfig { window: limits, ..GateConfig::default() },
        std::iter::repeat_n((503, json!({"kind": "Status", "code": 503})), 4),
    );
    let creates = (0..4).map(|n| bench.one(create_in(["a", "b"][n % 2], "x")));
    for result in join_all(creates).await {
        assert!(matches!(result, Err(WriteError::Server { code: 503, .. })));
    }
    assert_eq!(bench.metrics.write_window.get(), 8);
    assert_eq!(bench.metrics.throttled_namespaces.get(), 2);
    join_all((0..3000).map(|n| bench.one(create_in(["a", "b"][n % 2], "x")))).await;
    assert_eq!(bench.metrics.write_window.get(), 32);
    assert_eq!(*bench.network.in_flight.lock().unwrap(), (0, 24), "some slots are not for creations");
    assert_eq!(bench.metrics.writes_in_flight.get(), 0);
    assert_eq!(bench.metrics.throttled_namespaces.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_kept_after_the_burst() {
    let bench = bench(GateConfig { qps: 10, burst: 5, ..GateConfig::default() }, []);
    let started = Instant::now();
    join_all((0..25).map(|_| bench.one(create("x")))).await;
    let seconds = started.elapsed().as_secs_f64();
    assert!((1.9..2.2).contains(&seconds), "5 at once and 20 at 10 per second: {seconds}");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_future_is_dropped_does_not_leave() {
    let mut bench = bench(one_at_a_time(), []);
    let first = bench.gate.submit(order(Priority::Create, "j"), create("first"));
    drop(bench.gate.submit(order(Priority::Create, "j"), create("dropped")));
    let last = bench.gate.submit(order(Priority::Create, "j"), create("last"));
    join_all([first.boxed(), last.boxed()]).await;
    assert_eq!(bench.bodies(), ["first", "last"]);
}
