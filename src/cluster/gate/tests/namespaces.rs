//! The effect of one namespace's writes on those of others.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::JoinSet;

use super::*;
use crate::job::manifest::Encoding;

type Behaviour = dyn Fn(&str, &str) -> (Duration, u16, Value) + Send + Sync;

/// An API server whose latency and answer follow from method and path.
#[derive(Clone)]
struct Api {
    behaviour: Arc<Behaviour>,
    requests: Arc<AtomicUsize>,
}

impl Transport for Api {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let (latency, code, body) = (self.behaviour)(request.method().as_str(), request.uri().path());
        async move {
            sleep(latency).await;
            let body = stream::iter([Ok(Bytes::from(body.to_string()))]).boxed();
            Ok(Response::builder().status(code).body(body).unwrap())
        }
        .boxed()
    }
}

struct World {
    gate: WriteGate,
    metrics: Arc<Metrics>,
    requests: Arc<AtomicUsize>,
}

fn world(behaviour: impl Fn(&str, &str) -> (Duration, u16, Value) + Send + Sync + 'static) -> World {
    world_of(GateConfig::default(), behaviour)
}

fn world_of(
    config: GateConfig,
    behaviour: impl Fn(&str, &str) -> (Duration, u16, Value) + Send + Sync + 'static,
) -> World {
    let api = Api { behaviour: Arc::new(behaviour), requests: Arc::default() };
    let (metrics, requests) = (Arc::new(Metrics::new()), api.requests.clone());
    let gate = WriteGate::open(Arc::new(api), config, EXTERNAL_FINALIZER, metrics.clone());
    World { gate, metrics, requests }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "code": code, "reason": reason, "message": message})
}

fn created() -> (u16, Value) {
    (201, pod())
}

fn webhook_fails() -> (u16, Value) {
    let message = "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: \
        Post \"https://w.example.svc:443/?timeout=10s\": context deadline exceeded";
    (500, status(500, "InternalError", message))
}

fn job_status(namespace: &str) -> Write {
    Write::PatchJobStatus { namespace: namespace.into(), name: "j".into(), body: Bytes::from_static(b"{}") }
}

/// Clients that each send one write after the other until this is dropped, and how long these took.
#[derive(Default)]
struct Clients {
    times: Arc<Mutex<Vec<(Instant, Duration)>>>,
    tasks: JoinSet<()>,
}

impl World {
    /// Clients that send this write again and again, each for a Job of its own.
    fn clients(&self, count: usize, priority: Priority, write: &Write) -> Clients {
        let mut clients = Clients::default();
        for client in 0..count {
            let (gate, write, times) = (self.gate.clone(), write.clone(), clients.times.clone());
            let flow = format!("{:?}-{client}", write.namespace());
            clients.tasks.spawn(async move {
                loop {
                    let sent = Instant::now();
                    // The answer does not matter here.
                    let _ = gate.submit(order(priority, &flow), write.clone()).await;
                    times.lock().unwrap().push((Instant::now(), sent.elapsed()));
                }
            });
        }
        clients
    }
}

/// The times of all writes that were answered after an instant, shortest first.
fn since(clients: &Clients, start: Instant) -> Vec<Duration> {
    let times = clients.times.lock().unwrap();
    let mut times: Vec<_> = times.iter().filter(|(at, _)| *at > start).map(|(_, took)| *took).collect();
    times.sort();
    times
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn creations_that_take_longer_than_status_writes_reach_what_their_delay_allows() {
    for create_takes in [60, 200] {
        let world = world(move |method, _| {
            let (code, body) = created();
            (ms(if method == "POST" { create_takes } else { 4 }), code, body)
        });
        let _creates = world.clients(400, Priority::Create, &create("x"));
        let statuses = world.clients(20, Priority::Status, &job_status("n"));
        sleep(ms(20 * create_takes)).await;
        let (before, start) = (world.requests.load(Ordering::Relaxed), Instant::now());
        sleep(ms(2000)).await;
        let statuses = since(&statuses, start);
        let creates = world.requests.load(Ordering::Relaxed) - before - statuses.len();
        let allowed = 256 * 2000 / create_takes as usize;
        assert!(creates * 10 >= allowed * 8, "{creates} of {allowed} at {create_takes} ms");
        assert!(p99(&statuses) <= ms(8), "a status write waits for {:?}", p99(&statuses));
    }
}

/// A webhook that lets each creation of one namespace fail after 10 s, however often these are sent again.
#[tokio::test(start_paused = true)]
async fn a_failing_webhook_of_one_namespace_does_not_slow_down_others() {
    let run = |disturbed: bool| async move {
        let world = world(|_, path| match path.contains("/bad/") {
            true => (ms(10_000), webhook_fails().0, webhook_fails().1),
            false => (ms(5), created().0, created().1),
        });
        let bad = if disturbed { 300 } else { 0 };
        let _bad = world.clients(bad, Priority::Create, &create_in("bad", "x"));
        sleep(ms(5000)).await;
        let start = Instant::now();
        let good = world.clients(4, Priority::Create, &create_in("good", "x"));
        sleep(ms(8_000)).await;
        let good = since(&good, start);
        (p99(&good), good.len(), world)
    };
    let (alone, most, _) = run(false).await;
    let (disturbed, some, world) = run(true).await;
    assert!(disturbed * 2 <= alone * 3, "p99 {disturbed:?}, and {alone:?} alone");
    assert!(some * 10 >= most * 8, "{some} of {most} writes");
    assert!(world.metrics.write_window.get() >= 16, "{}", world.metrics.write_window.get());
    assert_eq!(world.metrics.throttled_namespaces.get(), 1);
}

/// A webhook that has been fast and then hangs, while its namespace holds as much as one may.
#[tokio::test(start_paused = true)]
async fn a_namespace_whose_calls_hang_holds_neither_all_slots_nor_its_own_status() {
    let start = Instant::now();
    let hangs_from = start + ms(500);
    let world = world(move |method, path| match (method, path.contains("/bad/")) {
        ("POST", true) if Instant::now() >= hangs_from => (ms(30_000), webhook_fails().0, webhook_fails().1),
        _ => (ms(5), created().0, created().1),
    });
    let _bad = world.clients(500, Priority::Create, &create_in("bad", "x"));
    sleep(ms(1000)).await;
    assert!(world.metrics.writes_in_flight.get() >= 200, "all slots that it may hold");
    let begin = Instant::now();
    let others = [
        (Priority::Create, create_in("good", "x")),
        (Priority::Status, job_status("bad")),
        (Priority::Status, job_status("good")),
    ];
    let others = others.map(|(priority, write)| world.clients(4, priority, &write));
    sleep(ms(1000)).await;
    for times in others {
        let times = since(&times, begin);
        assert!(times.len() >= 700 && p99(&times) <= ms(8), "{} in {:?}", times.len(), p99(&times));
    }
    // Its failures leave it a small share.
    sleep(ms(60_000)).await;
    assert!(world.metrics.writes_in_flight.get() < 20, "{}", world.metrics.writes_in_flight.get());
}

/// Webhooks that let every creation succeed, but after a while; all at the same time, and again and again.
#[tokio::test(start_paused = true)]
async fn namespaces_whose_calls_are_held_up_leave_the_slots_to_others() {
    let start = Instant::now();
    for (held_up, most) in [(240, 256), (990, 384), (4_900, 8), (20_000, 8)] {
        let world = world(move |_, path| match path.contains("/bad-") {
            true => {
                let period = u128::from(held_up as u64);
                let rest = period - start.elapsed().as_millis() % period;
                (ms(rest as u64), created().0, created().1)
            }
            false => (ms(5), created().0, created().1),
        });
        let _bad = ["bad-1", "bad-2", "bad-3"]
            .map(|name| world.clients(300, Priority::Create, &create_in(name, "x")));
        let mut times = Vec::new();
        // A client that writes now and then.
        for _ in 0..400 {
            sleep(ms(170)).await;
            let sent = Instant::now();
            assert!(world.gate.submit(order(Priority::Create, "j"), create("x")).await.is_ok());
            times.push(sent.elapsed());
        }
        times.sort();
        assert!(p99(&times) <= ms(8), "{:?} beside calls that take {held_up} ms", p99(&times));
        let in_flight = world.metrics.writes_in_flight.get();
        assert!(in_flight <= most, "{in_flight} calls that take {held_up} ms");
    }
}

/// Statuses that only show progress leave, although the creations hang and hold all slots that they may,
/// and although nothing else happens.
#[tokio::test(start_paused = true)]
async fn a_namespace_whose_creations_hang_shows_its_progress() {
    let hangs_from = Instant::now() + ms(500);
    let world = world(move |method, _| match method {
        "POST" if Instant::now() >= hangs_from => (ms(30_000), webhook_fails().0, webhook_fails().1),
        _ => (ms(5), created().0, created().1),
    });
    let _creations = world.clients(500, Priority::Create, &create("x"));
    sleep(ms(600)).await;
    let begin = Instant::now();
    let progress = world.gate.submit(order(Priority::Progress, "j"), job_status("n"));
    assert!(progress.await.is_ok());
    assert!(begin.elapsed() < ms(3000), "{:?}", begin.elapsed());
}

/// A thousand Jobs wait for a webhook that hangs, and their Events as well.
#[tokio::test(start_paused = true)]
async fn jobs_of_a_namespace_that_is_stuck_do_not_slow_down_the_pace_of_others() {
    let world = world(|_, path| match path.contains("/bad/") {
        true => (ms(30_000), webhook_fails().0, webhook_fails().1),
        false => (ms(5), created().0, created().1),
    });
    let _creates = world.clients(1000, Priority::Create, &create_in("bad", "x"));
    let event = Write::CreateEvent {
        namespace: "bad".into(),
        body: Bytes::from_static(b"{}"),
        encoding: Encoding::Json,
    };
    let _events = world.clients(1000, Priority::Event, &event);
    sleep(ms(1000)).await;
    let pace = |namespace: &str| world.gate.pace(&namespace.into()).at_once;
    assert_eq!(pace("bad"), FEWEST_WRITES);
    assert_eq!(pace("good"), WRITES_AHEAD * WindowLimits::default().max);
}

/// The more Jobs of a namespace wait, the fewer writes each may have.
#[tokio::test(start_paused = true)]
async fn the_writes_of_a_namespace_that_wait_are_bounded_however_many_jobs_it_has() {
    for (jobs, most) in [(300, 8), (2_400, 3), (10_000, 1)] {
        let world = world(|_, _| (ms(30_000), webhook_fails().0, webhook_fails().1));
        let _creations = world.clients(jobs, Priority::Create, &create_in("bad", "x"));
        sleep(ms(1000)).await;
        assert_eq!(world.gate.pace(&"bad".into()).at_once, most, "{jobs}");
    }
}

/// A namespace has many Jobs, and many others have one each: only the existing Jobs count.
#[tokio::test(start_paused = true)]
async fn the_pace_counts_no_more_jobs_than_there_are() {
    let config = GateConfig { qps: 50, ..GateConfig::default() };
    let world = world_of(config, |_, _| (ms(5), created().0, created().1));
    let names = (0..100).map(|number| format!("small-{number}"));
    let _small: Vec<_> =
        names.map(|name| world.clients(1, Priority::Create, &create_in(&name, "x"))).collect();
    let _large = world.clients(400, Priority::Create, &create_in("large", "x"));
    sleep(ms(1000)).await;
    let pace = world.gate.pace(&"large".into()).status_period;
    assert!(pace <= ms(500 * 1000 * 4 / 50), "{pace:?}");
}

#[tokio::test(start_paused = true)]
async fn failures_count_for_all_when_most_namespaces_have_them() {
    for (failing, shrinks) in [(&["a"][..], false), (&["a", "b"], false), (&["a", "b", "c"], true)] {
        let paths: Vec<String> = failing.iter().map(|name| format!("/{name}/")).collect();
        let failed = Arc::new(AtomicUsize::new(0));
        let (fails, timeout) = (failed.clone(), "request did not complete within requested timeout");
        let world = world(move |_, path| {
            let is_failing =
                fails.load(Ordering::Relaxed) > 0 && paths.iter().any(|name| path.contains(name));
            match is_failing {
                true => (ms(5), 504, status(504, "Timeout", timeout)),
                false => (ms(5), created().0, created().1),
            }
        });
        let load = world.clients(300, Priority::Create, &create_in("d", "x"));
        sleep(ms(1000)).await;
        drop(load);
        let open = world.metrics.write_window.get();
        assert!(open > 64, "{open}");
        failed.store(1, Ordering::Relaxed);
        for _ in 0..10 {
            for namespace in ["d", "a", "b", "c"] {
                // A write that fails once is not sent again here.
                let write = create_in(namespace, "x");
                drop(world.gate.submit(order(Priority::Create, namespace), write).await);
            }
        }
        assert_eq!(world.metrics.write_window.get(), if shrinks { 16 } else { open }, "{failing:?}");
    }
}

/// Its code does not make it the API server's: nothing pauses, and nothing is repeated.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_refuses_with_429_is_its_writers_refusal() {
    let message = "admission webhook \"w.example.com\" denied the request: too many";
    let world = world(move |_, path| match path.contains("/bad/") {
        true => (ms(5), 429, status(429, "TooManyRequests", message)),
        false => (ms(5), created().0, created().1),
    });
    let started = Instant::now();
    let refused = world.gate.submit(order(Priority::Create, "j"), create_in("bad", "x")).await;
    assert_eq!(refused.unwrap_err(), WriteError::Forbidden(message.into()));
    assert!(world.gate.submit(order(Priority::Create, "j"), create("x")).await.is_ok());
    assert!(started.elapsed() < ms(100), "{:?}", started.elapsed());
    assert_eq!(world.requests.load(Ordering::Relaxed), 2);
    assert_eq!(world.metrics.write_window.get(), 16);
}

/// An API server that refuses this many writes of paths that contain this, each of which it has not read.
fn refusing(refusals: usize, of: &'static str) -> World {
    let refused = AtomicUsize::new(0);
    world(move |_, path| {
        let is_meant = path.contains(of) && refused.load(Ordering::Relaxed) < refusals;
        if !is_meant {
            return (ms(5), created().0, created().1);
        }
        refused.fetch_add(1, Ordering::Relaxed);
        (ms(5), 429, status(429, "TooManyRequests", "too many requests, please try again later"))
    })
}

/// If priority and fairness queues requests by namespace, one is refused while others are served.
#[tokio::test(start_paused = true)]
async fn what_is_refused_pauses_alone() {
    let world = refusing(1, "/bad/");
    let create = |namespace: &str| world.gate.submit(order(Priority::Create, "j"), create_in(namespace, "x"));
    let started = Instant::now();
    let bad = ["bad"; 2].map(|bad| tokio::spawn(create(bad)));
    sleep(ms(10)).await;
    for _ in 0..10 {
        assert!(create("good").await.is_ok());
    }
    assert!(started.elapsed() < ms(100), "{:?}", started.elapsed());
    assert_eq!(world.metrics.write_window.get(), 16);
    let status = world.gate.submit(order(Priority::Status, "z"), job_status("bad"));
    assert!(status.await.is_ok() && started.elapsed() < ms(100), "{:?}", started.elapsed());
    assert!(join_all(bad).await.into_iter().all(|bad| bad.unwrap().is_ok()));
    assert!((ms(1000)..ms(1100)).contains(&started.elapsed()), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_while_nothing_is_read() {
    let world = refusing(6, "");
    let started = Instant::now();
    assert!(world.gate.submit(order(Priority::Create, "j"), create("x")).await.is_ok());
    assert_eq!(started.elapsed().as_secs(), 1 + 2 + 4 + 8 + 8 + 8);
}

#[tokio::test(start_paused = true)]
async fn all_pause_when_most_are_refused() {
    let world = refusing(4, "");
    let create = |namespace| world.gate.submit(order(Priority::Create, "j"), create_in(namespace, "x"));
    let started = Instant::now();
    let refused = ["a", "b", "c", "d"].map(|namespace| tokio::spawn(create(namespace)));
    sleep(ms(10)).await;
    assert!(create("e").await.is_ok() && started.elapsed() >= ms(1000), "{:?}", started.elapsed());
    assert!(join_all(refused).await.into_iter().all(|refused| refused.unwrap().is_ok()));
}

#[tokio::test(start_paused = true)]
async fn events_neither_shrink_the_window_nor_hold_much_of_it() {
    for (code, priority) in
        [(429, Priority::Report), (503, Priority::Report), (429, Priority::Event), (503, Priority::Event)]
    {
        let world = world(move |_, path| match path.ends_with("/events") {
            true => (ms(1000), code, status(code, "", "m")),
            false => (ms(5), created().0, created().1),
        });
        let _events = ["a", "b"].map(|namespace| {
            let event = Write::CreateEvent {
                namespace: namespace.into(),
                body: Bytes::from_static(b"{}"),
                encoding: Encoding::Json,
            };
            world.clients(50, priority, &event)
        });
        sleep(ms(100)).await;
        assert_eq!(world.metrics.writes_in_flight.get(), 3);
        let start = Instant::now();
        let creates = world.clients(8, Priority::Create, &create("x"));
        sleep(ms(3000)).await;
        assert!(p99(&since(&creates, start)) <= ms(6), "{code}");
        assert!(world.metrics.write_window.get() >= 16);
    }
}
