#![allow(clippy::unwrap_used)]

mod namespaces;

use std::collections::VecDeque;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::{self, StreamExt};
use http::{Request, Response};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::cluster::boot_clock::AwakeClock;
use crate::cluster::resource::Resource;
use crate::cluster::transport::{ByteStream, TransportError};
use crate::cluster::wire::untrack_patch;
use crate::job::manifest::{Encoding, Maker};
use crate::job::names::EXTERNAL_FINALIZER;
use crate::job::pod::{NewPod, Place};
use crate::job::spec::Completion;
use crate::job::template::PodTemplate;
use crate::job::tests::fixture::{job, with};
use crate::telemetry::metrics::labels::ApiRequestLabels;

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

/// The creation of a pod whose template has this many bytes.
fn create_pod(bytes: usize) -> Write {
    let template = json!({"spec": {"x": "x".repeat(bytes)}}).to_string();
    let template = PodTemplate::new(&RawValue::from_string(template).unwrap());
    let job = with(job(Completion::Count(1), 1), |spec| spec.template = template);
    let maker = Maker::new(&job, EXTERNAL_FINALIZER, 0, None).unwrap();
    let place = Place { number: 0, attempt: 0 };
    Write::CreatePod {
        pod: maker.manifest(NewPod { place, index_failures: None, backoff: None, lineage: None, behind: 0 }),
    }
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
async fn a_reservation_behind_a_closed_fence_is_refused() {
    let bench = bench(one_at_a_time(), []);
    let status = order(Priority::Status, "j");
    let _full = bench.gate.reserve_status(&status, "n".into());
    let (early, late) = [(); 2].map(|()| bench.gate.reserve_status(&status, "n".into())).into();
    status.fence.close();
    sleep(Duration::from_millis(1)).await;
    drop(_full);
    assert_eq!(late.wait().await.unwrap_err(), WriteError::Fenced);
    assert_eq!(early.granted().unwrap_err(), WriteError::Fenced);
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

/// A write rejected with 429 has had no effect. It is sent again, but not before `Retry-After`, and not if
/// the shard is no longer ours by then.
#[tokio::test(start_paused = true)]
async fn a_write_that_a_busy_server_rejects_is_sent_again_after_the_pause() {
    let busy = || (429, json!({"kind": "Status", "code": 429}));
    let mut bench = bench(one_at_a_time(), [busy(), busy()]);
    let started = Instant::now();
    let first = bench.gate.submit(order(Priority::Create, "j"), create("first"));
    let second = bench.gate.submit(order(Priority::Create, "j"), create("second"));
    let ours = Fence::unlimited();
    let lost = Order { fence: ours.clone(), ..order(Priority::Create, "lost") };
    let lost = bench.gate.submit(lost, create("lost"));
    ours.close();
    assert!(first.await.is_ok() && second.await.is_ok());
    assert_eq!(lost.await.unwrap_err(), WriteError::Fenced);
    assert_eq!(bench.bodies(), ["first", "first", "first", "second"]);
    assert!(started.elapsed() >= Duration::from_secs(14), "twice Retry-After: {:?}", started.elapsed());
    assert_eq!(bench.metrics.write_window.get(), 1);
}

/// The API server reads the pod in the second request only.
#[tokio::test(start_paused = true)]
async fn a_pod_is_composed_for_each_request_that_leaves() {
    let mut bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let write = create_pod(16 << 10);
    let composed = String::from_utf8(write.body().to_vec()).unwrap();
    assert!(composed.len() > 16 << 10 && size_of_val(&write) <= 128, "it waits without its body");
    assert!(matches!(bench.one(write).await, Ok(Answer::Pod(_))));
    assert_eq!(bench.bodies(), [composed.clone(), composed]);
}

/// Only the recorder knows whether an Event is still worth writing.
#[tokio::test(start_paused = true)]
async fn events_are_not_kept_for_a_busy_server() {
    let bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let event = Write::CreateEvent {
        namespace: "n".into(),
        body: Bytes::from_static(b"{}"),
        encoding: Encoding::Json,
    };
    let result = bench.gate.submit(order(Priority::Event, "j"), event).await;
    assert_eq!(result.unwrap_err(), WriteError::Busy { retry_after: Some(Duration::from_secs(7)) });
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_once_whatever_the_answer() {
    let status = |code: u16, reason: &str, message: &str| {
        (code, json!({"kind": "Status", "code": code, "reason": reason, "message": message}))
    };
    let invalid = |message: &str, field: &str| {
        let (code, mut refusal) = status(422, "Invalid", message);
        refusal["details"] =
            json!({"causes": [{"reason": "FieldValueInvalid", "message": message, "field": field}]});
        (code, refusal)
    };
    let terminating = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "m",
        "details": {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}});
    let denial = "admission webhook \"w\" denied the request: m";
    for (answer, expected) in [
        (status(403, "Forbidden", "m"), WriteError::Forbidden("m".into())),
        ((403, terminating), WriteError::NamespaceTerminating("m".into())),
        (status(404, "NotFound", "m"), WriteError::NotFound("m".into())),
        (status(409, "AlreadyExists", "m"), WriteError::AlreadyExists("m".into())),
        (status(409, "Conflict", "m"), WriteError::Conflict("m".into())),
        (invalid("m", "spec.templates[0].name"), WriteError::Invalid("m".into())),
        (invalid(denial, "spec.templates[0].name"), WriteError::Forbidden(denial.into())),
        (invalid("of a policy", ""), WriteError::Forbidden("of a policy".into())),
        (status(400, "BadRequest", "m"), WriteError::BadRequest("m".into())),
        (status(415, "UnsupportedMediaType", "m"), WriteError::BadRequest("m".into())),
        ((422, json!("no Status")), WriteError::BadRequest("\"no Status\"".into())),
        (status(400, "BadRequest", denial), WriteError::Forbidden(denial.into())),
        (status(422, "Invalid", denial), WriteError::Forbidden(denial.into())),
        (status(404, "NotFound", denial), WriteError::Forbidden(denial.into())),
        (status(409, "AlreadyExists", denial), WriteError::Forbidden(denial.into())),
        (status(503, "", "m"), WriteError::Server { code: 503, message: "m".into() }),
        ((502, json!("no Status")), WriteError::Server { code: 502, message: "\"no Status\"".into() }),
        ((0, Value::Null), WriteError::Unknown("connection reset".into())),
    ] {
        let mut bench = bench(GateConfig::default(), [answer]);
        assert_eq!(bench.one(create("x")).await.unwrap_err(), expected);
        bench.gate.idle().await;
        assert_eq!(bench.bodies().len(), 1, "{expected:?}");
    }
}

/// The webhook misses another object.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_answers_not_found_leaves_the_pod_there() {
    let denial = "admission webhook \"w\" denied the request: configmaps \"c\" not found";
    for (message, is_there) in [(denial, true), ("pods \"p\" not found", false)] {
        let answer = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": message});
        let bench = bench(GateConfig::default(), [(404, answer)]);
        let result = bench
            .one(Write::PatchPod {
                namespace: "n".into(),
                name: "p".into(),
                body: untrack_patch(&"u".into(), "f"),
            })
            .await;
        assert_eq!(matches!(result, Ok(Answer::Gone)), !is_there, "{result:?}");
        assert_eq!(matches!(result, Err(WriteError::Forbidden(_))), is_there, "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_in_time_is_unknown() {
    let bench = bench(GateConfig { timeout: Duration::from_millis(5), ..GateConfig::default() }, []);
    assert!(matches!(bench.one(create("x")).await, Err(WriteError::Unknown(_))));
    let lost = ApiRequestLabels { verb: "create", resource: "pods", code: 0 };
    assert_eq!(bench.metrics.api_requests.get_or_create(&lost).get(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_object_that_does_not_exist_is_answered_gone() {
    let absent = || (404, json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "m"}));
    let other_uid = (
        422,
        json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "m",
        "details": {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}}),
    );
    let precondition = (
        409,
        json!({"kind": "Status", "code": 409, "reason": "Conflict",
        "message": "the UID in the precondition (a) does not match the UID in record (b)"}),
    );
    let deleted_at_once = (200, json!({"kind": "Status", "status": "Success"}));
    let patch =
        || Write::PatchPod { namespace: "n".into(), name: "p".into(), body: untrack_patch(&"u".into(), "f") };
    let delete =
        || Write::DeletePod { namespace: "n".into(), name: "p".into(), uid: "u".into(), grace_seconds: None };
    for (answer, write) in [
        (absent(), patch()),
        (absent(), delete()),
        (other_uid, patch()),
        (precondition, delete()),
        (deleted_at_once, delete()),
    ] {
        let bench = bench(GateConfig::default(), [answer.clone()]);
        assert!(matches!(bench.one(write).await, Ok(Answer::Gone)), "{answer:?}");
    }
    // A proxy knows no way to the API server: nothing is known of the pod.
    let bench = bench(GateConfig::default(), [(404, json!("no route"))]);
    assert!(matches!(bench.one(patch()).await, Err(WriteError::NotFound(_))));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_closes_stops_waiting_writes_but_not_those_in_flight() {
    let mut bench = bench(one_at_a_time(), []);
    let fence = Fence::unlimited();
    let fenced = || Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let first = tokio::spawn(bench.gate.submit(fenced(), create("first")));
    let second = bench.gate.submit(fenced(), create("second"));
    let foreign = tokio::spawn(bench.gate.submit(order(Priority::Create, "other"), create("other")));
    bench.seen.recv().await.unwrap();
    fence.close();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
    assert!(foreign.await.unwrap().is_ok());
    assert_eq!(bench.bodies(), ["other"]);
    assert_eq!(bench.metrics.fenced_writes.get(), 1);
}

/// Writes in flight are answered, and other writes of the shard leave.
#[tokio::test(start_paused = true)]
async fn a_part_of_a_right_that_is_withdrawn_stops_its_waiting_writes_only() {
    let mut bench = bench(one_at_a_time(), []);
    let fence = Fence::unlimited();
    let part = fence.part();
    let through = |fence: &Fence| Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let first = tokio::spawn(bench.gate.submit(through(&part), create("first")));
    let second = bench.gate.submit(through(&part), create("second"));
    let later = tokio::spawn(bench.gate.submit(through(&fence.part()), create("later")));
    bench.seen.recv().await.unwrap();
    part.withdraw();
    assert!(first.await.unwrap().is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
    assert!(later.await.unwrap().is_ok());
    let too_late = bench.gate.submit(through(&part), create("too late")).await;
    assert_eq!(too_late.unwrap_err(), WriteError::Fenced);
    assert_eq!((bench.bodies(), bench.metrics.fenced_writes.get()), (vec!["later".to_owned()], 0));
}

/// A write that the API server has turned away is not awaited, and is no sign of a lost claim.
#[tokio::test(start_paused = true)]
async fn a_shard_that_is_handed_over_waits_for_no_write_that_was_put_back() {
    let mut bench = bench(one_at_a_time(), [(429, json!({"kind": "Status", "code": 429}))]);
    let fence = Fence::unlimited();
    let order = Order { fence: fence.clone(), ..order(Priority::Create, "ours") };
    let write = tokio::spawn(bench.gate.submit(order, create("first")));
    bench.seen.recv().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    let began = Instant::now();
    fence.hand_over();
    assert_eq!(write.await.unwrap().unwrap_err(), WriteError::Fenced);
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_secs(60)).await;
    assert_eq!((bench.bodies().len(), bench.metrics.fenced_writes.get()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_expires_while_a_write_waits_for_the_rate_stops_it() {
    let config = GateConfig { qps: 1, burst: 1, ..GateConfig::default() };
    let bench = bench(config, []);
    let fence = Fence::until(Instant::now() + Duration::from_millis(500), Arc::new(AwakeClock));
    let submit =
        || bench.gate.submit(Order { fence: fence.clone(), ..order(Priority::Create, "j") }, create("x"));
    let (first, second) = (submit(), submit());
    assert!(first.await.is_ok());
    assert_eq!(second.await.unwrap_err(), WriteError::Fenced);
}

/// The right may be renewed while an answer is awaited. Once it has ended, the answer is no longer
/// awaited.
#[tokio::test(start_paused = true)]
async fn an_answer_is_awaited_no_longer_than_the_right_lasts() {
    for (renewed, expected) in [(false, Duration::from_secs(2)), (true, Duration::from_secs(6))] {
        let (sender, _seen) = mpsc::unbounded_channel();
        let network = Arc::new(Scripted {
            latency: Duration::from_secs(3600),
            script: Mutex::default(),
            seen: sender,
            in_flight: Mutex::default(),
        });
        let gate = WriteGate::open(
            Arc::new(network),
            GateConfig::default(),
            EXTERNAL_FINALIZER,
            Arc::new(Metrics::new()),
        );
        let started = Instant::now();
        let at = |seconds| started + Duration::from_secs(seconds);
        let fence = Fence::until(at(2), Arc::new(AwakeClock));
        let write = gate.submit(Order { fence: fence.clone(), ..order(Priority::Create, "j") }, create("x"));
        let renewal = async {
            sleep(Duration::from_secs(1)).await;
            if renewed {
                fence.extend(at(6));
            }
            fence.close();
        };
        let (result, ()) = futures::join!(write, renewal);
        assert!(matches!(result, Err(WriteError::Unknown(_))), "{result:?}");
        assert_eq!(started.elapsed().as_secs(), expected.as_secs());
    }
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

#[tokio::test(start_paused = true)]
async fn writes_become_the_requests_that_kubernetes_expects() {
    let mut bench = bench(GateConfig::default(), []);
    let (namespace, body) = (|| Arc::<str>::from("n"), || Bytes::from_static(b"{}"));
    let pod_body = serde_json::from_slice(&create_pod(1).body()).unwrap();
    let cases = [
        (create("{}"), "POST /api/v1/namespaces/n/pods", json!({})),
        (create_pod(1), "POST /api/v1/namespaces/default/pods", pod_body),
        (
            Write::PatchPod { namespace: namespace(), name: "p".into(), body: body() },
            "PATCH /api/v1/namespaces/n/pods/p?fieldValidation=Ignore",
            json!({}),
        ),
        (
            Write::DeletePod {
                namespace: namespace(),
                name: "p".into(),
                uid: "u".into(),
                grace_seconds: None,
            },
            "DELETE /api/v1/namespaces/n/pods/p",
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "u"}}),
        ),
        (
            Write::PatchJobStatus { namespace: namespace(), name: "j".into(), body: body() },
            "PATCH /apis/batch/v1/namespaces/n/jobs/j/status",
            json!({}),
        ),
        (
            Write::DeleteJob {
                namespace: namespace(),
                name: "j".into(),
                uid: "u".into(),
                version: "7".into(),
            },
            "DELETE /apis/batch/v1/namespaces/n/jobs/j",
            json!({"kind": "DeleteOptions", "apiVersion": "v1",
                "preconditions": {"uid": "u", "resourceVersion": "7"}, "propagationPolicy": "Foreground"}),
        ),
        (
            Write::CreateEvent { namespace: namespace(), body: body(), encoding: Encoding::Json },
            "POST /api/v1/namespaces/n/events",
            json!({}),
        ),
    ];
    for (write, line, expected) in cases {
        // The answer does not matter here.
        let _ = bench.one(write).await;
        let (seen, body) = bench.seen.try_recv().unwrap();
        assert_eq!((&*seen, serde_json::from_slice::<Value>(&body).unwrap()), (line, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_name_is_too_long_for_a_path_is_refused_and_not_sent() {
    let mut bench = bench(GateConfig::default(), []);
    let write =
        Write::PatchPod { namespace: "n".into(), name: "a".repeat(70_000).into(), body: Bytes::new() };
    assert!(matches!(bench.one(write).await, Err(WriteError::Invalid(_))));
    bench.gate.idle().await;
    assert!(bench.bodies().is_empty());
}
