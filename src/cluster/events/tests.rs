#![allow(clippy::unwrap_used)]

mod encoding;
mod turns;

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream;
use http::{Request, Response};
use serde_json::{Value, json};

use super::*;
use crate::cluster::gate::{GateConfig, WindowLimits};
use crate::cluster::transport::{ByteStream, Transport, TransportError};
use crate::job::tests::protobuf::{envelope, text};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// An API server that stores Events, after a script of refusals.
struct Store {
    latency: Duration,
    /// The answer to writes in protobuf, in place of success.
    to_protobuf: Option<u16>,
    /// Content types of creations.
    formats: Mutex<Vec<String>>,
    refusals: Mutex<VecDeque<u16>>,
    /// Seconds.
    retry_after: Mutex<Option<u32>>,
    /// A namespace whose Events are never answered.
    hangs: Mutex<Option<&'static str>>,
    writes: Mutex<usize>,
    /// Writes of Events with a reason that are in flight, now and at most.
    under_way: Mutex<HashMap<String, (usize, usize)>>,
    events: Mutex<Vec<Value>>,
}

impl Transport for Arc<Store> {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let store = self.clone();
        async move {
            let reason = store.reason(&request);
            {
                let mut under_way = store.under_way.lock().unwrap();
                let (now, most) = under_way.entry(reason.clone()).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
            let hangs = *store.hangs.lock().unwrap();
            if hangs.is_some_and(|namespace| request.uri().path().contains(&format!("/{namespace}/"))) {
                std::future::pending::<()>().await;
            }
            sleep(store.latency).await;
            store.under_way.lock().unwrap().get_mut(&reason).unwrap().0 -= 1;
            *store.writes.lock().unwrap() += 1;
            let code = store.refusals.lock().unwrap().pop_front().unwrap_or_else(|| store.take(&request));
            let reason = match code {
                404 => "NotFound",
                422 => "Invalid",
                _ => "",
            };
            let status = json!({"kind": "Status", "code": code, "reason": reason, "message": "m"});
            let body = stream::iter([Ok(Bytes::from(status.to_string()))]).boxed();
            let mut response = Response::builder().status(code);
            if let Some(seconds) = *store.retry_after.lock().unwrap() {
                response = response.header("retry-after", seconds);
            }
            Ok(response.body(body).unwrap())
        }
        .boxed()
    }
}

impl Store {
    fn take(&self, request: &Request<Bytes>) -> u16 {
        let mut events = self.events.lock().unwrap();
        if request.method() == "POST" {
            let event = created(request);
            let namespace = event["metadata"]["namespace"].as_str().unwrap();
            assert_eq!(*request.uri(), *format!("/api/v1/namespaces/{namespace}/events"));
            let format = request.headers()["content-type"].to_str().unwrap().to_owned();
            let refused = self.to_protobuf.filter(|_| format == PROTOBUF);
            self.formats.lock().unwrap().push(format);
            if refused.is_none() {
                events.push(event);
            }
            return refused.unwrap_or(201);
        }
        match events.iter_mut().find(|event| event["metadata"]["name"] == *last_part(request)) {
            Some(event) => {
                json_patch::merge(event, &serde_json::from_slice(request.body()).unwrap());
                200
            }
            None => 404,
        }
    }

    /// The reason of the Event that a request writes; none if it is to be patched and is not there.
    fn reason(&self, request: &Request<Bytes>) -> String {
        let reason = |event: &Value| event["reason"].as_str().unwrap().to_owned();
        if request.method() == "POST" {
            return reason(&created(request));
        }
        let events = self.events.lock().unwrap();
        let event = events.iter().find(|event| event["metadata"]["name"] == *last_part(request));
        event.map(reason).unwrap_or_default()
    }

    fn most_under_way(&self, reason: &str) -> usize {
        self.under_way.lock().unwrap()[reason].1
    }

    /// (reason, message, count) of all Events.
    fn stored(&self) -> Vec<(String, String, u64)> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let events = self.events.lock().unwrap();
        events.iter().map(|e| (text(e, "reason"), text(e, "message"), e["count"].as_u64().unwrap())).collect()
    }
}

/// The Event that a request creates.
fn created(request: &Request<Bytes>) -> Value {
    match request.headers()["content-type"].to_str().unwrap() {
        PROTOBUF => in_json(request.body()),
        JSON => serde_json::from_slice(request.body()).unwrap(),
        other => panic!("{other}"),
    }
}

fn last_part(request: &Request<Bytes>) -> &str {
    request.uri().path().rsplit('/').next().unwrap()
}

/// The JSON of an Event in protobuf, which has all fields that are named here and no others.
pub(super) fn in_json(body: &[u8]) -> Value {
    let envelope = envelope(body);
    let type_meta = envelope.message(1, &[1, 2]);
    let event = envelope.message(2, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 14]);
    let metadata = event.message(1, &[1, 3]);
    let about = event.message(2, &[1, 2, 3, 4, 5]);
    let time = |number| {
        let second = event.message(number, &[1]).number(1);
        Timestamp::from_second(i64::try_from(second).unwrap()).unwrap().to_string()
    };
    json!({
        "apiVersion": text(type_meta.one(1)), "kind": text(type_meta.one(2)),
        "metadata": {"name": text(metadata.one(1)), "namespace": text(metadata.one(3))},
        "involvedObject": {
            "kind": text(about.one(1)), "namespace": text(about.one(2)), "name": text(about.one(3)),
            "uid": text(about.one(4)), "apiVersion": text(about.one(5)),
        },
        "reason": text(event.one(3)), "message": text(event.one(4)),
        "source": {"component": text(event.message(5, &[1]).one(1))},
        "firstTimestamp": time(6), "lastTimestamp": time(7), "count": event.number(8), "type": text(event.one(9)),
        "reportingComponent": text(event.one(14)),
    })
}

struct Bench {
    store: Arc<Store>,
    recorder: Recorder,
    metrics: Arc<Metrics>,
}

fn bench() -> Bench {
    bench_with(Duration::from_millis(20))
}

/// Eight Events may be in flight.
fn wide() -> GateConfig {
    GateConfig { window: WindowLimits { min: 64, initial: 64, max: 64 }, ..GateConfig::default() }
}

/// A recorder whose API server answers after this time.
fn bench_with(latency: Duration) -> Bench {
    bench_of(latency, None)
}

/// The same, and it answers this to writes in protobuf.
fn bench_of(latency: Duration, to_protobuf: Option<u16>) -> Bench {
    bench_in(wide(), latency, to_protobuf)
}

fn bench_in(config: GateConfig, latency: Duration, to_protobuf: Option<u16>) -> Bench {
    let store = Arc::new(Store {
        latency,
        to_protobuf,
        formats: Mutex::default(),
        refusals: Mutex::default(),
        retry_after: Mutex::default(),
        hangs: Mutex::default(),
        writes: Mutex::default(),
        under_way: Mutex::default(),
        events: Mutex::default(),
    });
    let metrics = Arc::new(Metrics::new());
    let gate = WriteGate::open(Arc::new(store.clone()), config, "f", metrics.clone());
    Bench { store, recorder: Recorder::start(gate, "yardmaster", metrics.clone(), 1), metrics }
}

fn event(reason: &str, message: &str, second: i64) -> Event {
    Event {
        about: JobId::new("n".into(), "j".into(), "u".into()),
        kind: EventType::Normal,
        reason: reason.into(),
        message: message.into(),
        at: Timestamp::from_second(second).unwrap(),
        must: false,
    }
}

/// An Event of a Job of its own.
fn event_of(job: usize, reason: &str, kind: EventType) -> Event {
    let about = JobId::new("n".into(), "j".into(), job.to_string().into());
    Event { about, kind, ..event(reason, "m", 0) }
}

impl Bench {
    fn lost(&self, reason: LostEvent) -> u64 {
        self.metrics.lost_events.get_or_create(&LostEventLabels { reason }).get()
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_names_its_object_reason_and_time() {
    let bench = bench();
    bench.recorder.record(event("Completed", "Job completed", 60));
    bench.recorder.flush().await;
    let mut stored = bench.store.events.lock().unwrap()[0].clone();
    let name = stored["metadata"]["name"].take();
    assert!(name.as_str().unwrap().starts_with("j."), "{name}");
    assert_eq!(
        stored,
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": null, "namespace": "n"},
            "involvedObject": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "n", "name": "j", "uid": "u"},
            "type": "Normal", "reason": "Completed", "message": "Job completed", "count": 1,
            "firstTimestamp": "1970-01-01T00:01:00Z", "lastTimestamp": "1970-01-01T00:01:00Z",
            "source": {"component": "yardmaster"}, "reportingComponent": "yardmaster",
        })
    );
}

#[tokio::test(start_paused = true)]
async fn equal_events_are_counted_in_one() {
    let bench = bench();
    for second in 0..5 {
        bench.recorder.record(event("Created", "Created 500 pods", second));
    }
    bench.recorder.flush().await;
    bench.recorder.record(event("Created", "Created 500 pods", 9));
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored(), [("Created".into(), "Created 500 pods".into(), 6)]);
    assert_eq!(bench.store.events.lock().unwrap()[0]["lastTimestamp"], "1970-01-01T00:00:09Z");
    assert_eq!(*bench.store.writes.lock().unwrap(), 3, "those that came during a write share the next");
}

#[tokio::test(start_paused = true)]
async fn many_similar_events_are_combined() {
    let bench = bench();
    for pod in 0..20 {
        bench.recorder.record(event("SuccessfulCreate", &format!("Created pod: {pod}"), pod));
        bench.recorder.flush().await;
    }
    let stored = bench.store.stored();
    assert_eq!(stored.len(), 10, "{stored:?}");
    assert_eq!(stored[9].1, "(combined from similar events): Created pod: 19");
    assert_eq!(stored[9].2, 11);
}

#[tokio::test(start_paused = true)]
async fn one_object_cannot_flood_the_api_server_and_its_failures_and_its_end_are_still_delivered() {
    let bench = bench();
    for number in 0..40 {
        bench.recorder.record(event(&format!("Reason{number}"), "m", 0));
    }
    let end = Event { must: true, ..event("Completed", "Job completed", 0) };
    bench.recorder.record(end);
    let failure = Event { kind: EventType::Warning, ..event("FailedCreate", "exceeded quota", 0) };
    bench.recorder.record(failure);
    let other = JobId::new("n".into(), "other".into(), "v".into());
    bench.recorder.record(Event { about: other, ..event("Reason", "m", 0) });
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), 25 + 1 + 1 + 1);
    for sent in ["Completed", "FailedCreate"] {
        assert!(bench.store.stored().iter().any(|(reason, ..)| reason == sent), "{sent}");
    }
    assert_eq!(bench.lost(LostEvent::Spam), 15);
    sleep(Duration::from_secs(301)).await;
    bench.recorder.record(event("Later", "m", 301));
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), 29, "one more after five minutes");
}

#[tokio::test(start_paused = true)]
async fn an_end_is_retried_and_a_normal_event_is_not() {
    let bench = bench();
    bench.store.refusals.lock().unwrap().extend([429, 503, 500]);
    bench.recorder.record(Event { must: true, ..event("Completed", "Job completed", 0) });
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), 1);
    bench.store.refusals.lock().unwrap().extend([503]);
    bench.recorder.record(event("Suspended", "Job suspended", 0));
    bench.recorder.flush().await;
    assert_eq!((bench.store.stored().len(), bench.lost(LostEvent::Refused)), (1, 1));
    bench.recorder.record(event("Suspended", "Job suspended", 1));
    bench.recorder.flush().await;
    assert_eq!(
        bench.store.stored()[1],
        ("Suspended".into(), "Job suspended".into(), 2),
        "created again, not patched"
    );
}

/// A failure is mostly recorded once, so a restart of the API server must not cost its Event.
#[tokio::test(start_paused = true)]
async fn a_warning_is_retried_for_a_while() {
    for (refusals, sent) in [(4, 1), (5, 0)] {
        let bench = bench();
        bench.store.refusals.lock().unwrap().extend(vec![503; refusals]);
        let warning = Event { kind: EventType::Warning, ..event("UnreadableJob", "m", 0) };
        bench.recorder.record(warning);
        bench.recorder.flush().await;
        assert_eq!((bench.store.stored().len(), bench.lost(LostEvent::Refused)), (sent, 1 - sent as u64));
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_created_again() {
    let bench = bench();
    bench.recorder.record(event("Created", "m", 0));
    bench.recorder.flush().await;
    bench.store.events.lock().unwrap().clear();
    bench.recorder.record(event("Created", "m", 4000));
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored(), [("Created".into(), "m".into(), 2)]);
    assert_eq!((bench.lost(LostEvent::Refused), bench.lost(LostEvent::Spam)), (0, 0));
}
