#![allow(clippy::unwrap_used)]

mod dead;
mod faults;
mod protobuf;

use std::collections::VecDeque;
use std::sync::Mutex;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::cluster::resource::Resource;
use crate::cluster::transport::{ByteStream, TransportError};
use crate::cluster::wire::{JobDecoder, ObservedPod, PodDecoder};
use crate::job::names::EXTERNAL_FINALIZER;

/// The code of a request that is never answered.
const HUNG: u16 = 1;

/// The API server's answer to one request.
struct Scene {
    code: u16,
    content_type: &'static str,
    pieces: Vec<Result<Bytes, TransportError>>,
    /// Whether the answer stays open after its pieces.
    open: bool,
    /// Otherwise, how long it stays open before it breaks.
    lasts: Duration,
    /// The time before each piece.
    pause: Duration,
    /// `Retry-After`, in seconds.
    retry_after: u32,
}

/// An API server that answers one scene per request, and no request after the last scene.
struct Script {
    scenes: Mutex<VecDeque<Scene>>,
    requests: Mutex<Vec<String>>,
    accepts: Mutex<Vec<String>>,
}

impl Script {
    fn of(scenes: impl IntoIterator<Item = Scene>) -> Arc<Self> {
        let scenes = Mutex::new(scenes.into_iter().collect());
        Arc::new(Self { scenes, requests: Mutex::default(), accepts: Mutex::default() })
    }
}

impl Transport for Arc<Script> {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        self.requests.lock().unwrap().push(request.uri().query().unwrap_or_default().to_owned());
        self.accepts.lock().unwrap().push(request.headers()["accept"].to_str().unwrap().to_owned());
        let Some(scene) = self.scenes.lock().unwrap().pop_front() else {
            return futures::future::pending().boxed();
        };
        if scene.code == HUNG {
            return futures::future::pending().boxed();
        }
        if scene.code == 0 {
            return futures::future::ready(Err(TransportError("refused".into()))).boxed();
        }
        // On a real connection another task must run before a piece is available.
        let pieces = stream::iter(scene.pieces).then(move |piece| async move {
            tokio::task::yield_now().await;
            if !scene.pause.is_zero() {
                sleep(scene.pause).await;
            }
            piece
        });
        let end = match (scene.open, scene.lasts) {
            (true, _) => stream::pending().boxed(),
            (false, Duration::ZERO) => stream::empty().boxed(),
            (false, lasts) => stream::once(async move {
                sleep(lasts).await;
                Err(TransportError("cut".into()))
            })
            .boxed(),
        };
        let body = pieces.chain(end).boxed();
        let answer = Response::builder().status(scene.code).header("content-type", scene.content_type);
        let answer = answer.header("retry-after", scene.retry_after);
        futures::future::ready(Ok(answer.body(body).unwrap())).boxed()
    }
}

fn pod(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(),
        "creationTimestamp": "2026-01-01T00:00:00Z"}})
}

fn event(kind: &str, object: &Value) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = if ends_list { json!({"k8s.io/initial-events-end": "true"}) } else { Value::Null };
    event(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}),
    )
}

fn list(names: &[&str], version: u64) -> Scene {
    let items: Vec<Value> = names.iter().map(|name| pod(name, version)).collect();
    let metadata = json!({"resourceVersion": version.to_string(), "continue": ""});
    closed(200, [json!({"kind": "PodList", "items": items, "metadata": metadata}).to_string()])
}

fn refused(code: u16) -> Scene {
    closed(code, [json!({"kind": "Status", "code": code, "message": "m"}).to_string()])
}

fn closed<const N: usize>(code: u16, pieces: [String; N]) -> Scene {
    let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece))).collect();
    Scene {
        code,
        content_type: "application/json",
        pieces,
        open: false,
        lasts: Duration::ZERO,
        pause: Duration::ZERO,
        retry_after: 0,
    }
}

fn open<const N: usize>(pieces: [String; N]) -> Scene {
    Scene { open: true, ..closed(200, pieces) }
}

fn watched(script: &Arc<Script>) -> impl Stream<Item = Change<Box<ObservedPod>>> + Unpin {
    let selection = Selection::all(Resource::PODS).labelled("a in (b,c)");
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    watch(Arc::new(script.clone()), selection, decoder, Arc::new(Metrics::new()), 7)
}

/// Runs a watch until it falls silent. Returns its changes as short texts, and the queries it made.
async fn play(scenes: impl IntoIterator<Item = Scene>) -> (Vec<String>, Vec<String>) {
    let script = Script::of(scenes);
    let mut changes = watched(&script);
    let mut seen = Vec::new();
    while let Ok(Some(change)) = timeout(Duration::from_secs(120), changes.next()).await {
        seen.push(match change {
            Change::Restarted => "restarted".to_owned(),
            Change::Listed(object) => format!("listed {}", object.pod.name),
            Change::Synced { version } => format!("synced {version}"),
            Change::Applied(object) => format!("applied {}", object.pod.name),
            Change::Unreadable(object) if object.has_left => format!("unreadable {}, left", object.name),
            Change::Unreadable(object) => format!("unreadable {}", object.name),
            Change::Deleted(object) => format!("deleted {}", object.pod.name),
        });
    }
    let requests = script.requests.lock().unwrap().clone();
    (seen, requests)
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_continues_as_a_watch() {
    let (seen, requests) = play([open([
        event("ADDED", &pod("a", 3)),
        bookmark(4, false),
        event("ADDED", &pod("b", 2)),
        bookmark(5, true),
        event("MODIFIED", &pod("a", 6)),
        event("DELETED", &pod("b", 7)),
    ])])
    .await;
    assert_eq!(seen, ["restarted", "listed a", "listed b", "synced 5", "applied a", "deleted b"]);
    assert!(requests[0].starts_with("labelSelector=a+in+%28b%2Cc%29&watch=true"), "{requests:?}");
    assert!(requests[0].contains("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"), "{requests:?}");
    assert!(!requests[0].contains("resourceVersion="), "{requests:?}");
}

/// A pod that is counted and dropped would be taken for one that is to be counted.
#[tokio::test(start_paused = true)]
async fn what_comes_once_more_is_no_news() {
    let again =
        [event("MODIFIED", &pod("a", 6)), bookmark(7, false), event("DELETED", &pod("a", 8))].concat();
    let (seen, requests) = play([
        refused(422),
        list(&["a", "b"], 5),
        closed(200, [again.clone(), again.clone()]),
        open([again, event("MODIFIED", &pod("b", 9))]),
    ])
    .await;
    assert_eq!(seen[4..], ["applied a", "deleted a", "applied b"], "{seen:?}");
    assert!(requests[3].ends_with("&resourceVersion=8"), "{requests:?}");
}

/// A client that may write statuses chooses their length.
#[tokio::test(start_paused = true)]
async fn no_more_than_one_large_object_waits_for_the_consumer() {
    let job = |name: &str, indexes: u32| {
        let indexes: Vec<String> = (0..indexes).map(|index| (2 * index).to_string()).collect();
        let mut job = pod(name, 3);
        job["spec"] = json!({"template": {"spec": {}}});
        job["status"] = json!({"completedIndexes": indexes.join(",")});
        job
    };
    let jobs = [job("a", 9), job("b", 20_000), job("c", 9), job("d", 20_000), job("e", 9)];
    let list = json!({"items": jobs, "metadata": {"resourceVersion": "5"}});
    let script = Script::of([refused(422), closed(200, [list.to_string()]), open([])]);
    let (transport, jobs) = (Arc::new(script), Selection::all(Resource::JOBS));
    let metrics = Arc::new(Metrics::new());
    let mut steps = watch_steps(None, transport, jobs, JobDecoder::new(), metrics, 7);
    let mut waiting = Vec::new();
    while let Some(step) = timeout(Duration::from_secs(1), steps.recv()).await.unwrap() {
        // Reading goes on meanwhile.
        sleep(Duration::from_secs(1)).await;
        waiting.push(steps.len());
        if matches!(step, Step::Change(Change::Synced { .. })) {
            break;
        }
    }
    // Each of the two comes once all before it have been taken.
    assert_eq!(waiting, [1, 2, 1, 3, 2, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_told_of_and_the_others_are_read() {
    let odd = |name: &str, version: u64| {
        let mut odd = pod(name, version);
        odd["status"] = json!({"phase": {"nested": true}});
        odd
    };
    let list = json!({"items": [odd("a", 3), pod("b", 2)], "metadata": {"resourceVersion": "5"}});
    let (seen, _) = play([
        refused(422),
        closed(200, [list.to_string()]),
        open([
            event("ADDED", &odd("c", 6)),
            event("MODIFIED", &pod("c", 7)),
            event("DELETED", &odd("b", 8)),
            event("ADDED", &json!({"metadata": 7})),
            event("MODIFIED", &pod("b", 9)),
        ]),
    ])
    .await;
    let told = [
        "restarted",
        "unreadable a",
        "listed b",
        "synced 5",
        "unreadable c",
        "applied c",
        "unreadable b, left",
        "applied b",
    ];
    assert_eq!(seen, told);
}

#[tokio::test(start_paused = true)]
async fn changes_accumulate_while_the_consumer_is_busy() {
    let events: [String; 100] = std::array::from_fn(|number| event("ADDED", &pod("a", number as u64 + 1)));
    let script = Script::of([open(events)]);
    let mut changes = watched(&script).ready_chunks(BUFFER);
    let first = changes.next().await.unwrap();
    sleep(Duration::from_millis(1)).await;
    let second = changes.next().await.unwrap();
    assert_eq!(first.len() + second.len(), 101, "the restart, and the objects");
}

#[tokio::test(start_paused = true)]
async fn lists_come_in_one_piece_where_streaming_lists_are_not_served() {
    let (seen, requests) =
        play([refused(422), list(&["a", "b"], 9), open([event("ADDED", &pod("c", 10))])]).await;
    assert_eq!(seen, ["restarted", "listed a", "listed b", "synced 9", "applied c"]);
    assert_eq!(requests[1], "labelSelector=a+in+%28b%2Cc%29", "at the newest version");
    assert!(requests[2].ends_with("&resourceVersion=9"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_comes_in_one_piece_where_caches_are_too_late_for_a_streaming_one() {
    let late = json!({"code": 504, "reason": "Timeout", "message": "Timeout: Too large resource version: 9, current: 8"});
    let old = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let (seen, requests) = play([
        closed(200, [event("ERROR", &late)]),
        list(&["a"], 9),
        open([event("ADDED", &pod("c", 10)), event("ERROR", &old)]),
        open([bookmark(12, true)]),
    ])
    .await;
    let expected = ["restarted", "restarted", "listed a", "synced 9", "applied c", "restarted", "synced 12"];
    assert_eq!(seen, expected);
    assert_eq!(requests[1], "labelSelector=a+in+%28b%2Cc%29", "at the newest version");
    assert!(requests[3].contains("sendInitialEvents=true"), "the next one streams: {requests:?}");
}

/// An API server that has begun a list may take minutes for it, but must not fall silent.
#[tokio::test(start_paused = true)]
async fn a_list_may_take_long_but_not_fall_silent() {
    let text = json!({"metadata": {"resourceVersion": "9"}, "items": [pod("a", 3), pod("b", 4)]}).to_string();
    let slow = text.as_bytes().chunks(20).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let slow = Scene { pieces: slow, pause: Duration::from_secs(10), ..closed(200, []) };
    let silent = open([text[..text.len() - 5].to_owned()]);
    let began = Instant::now();
    let script = Script::of([refused(422), silent, slow, open([])]);
    let mut changes = watched(&script);
    let mut seen = Vec::new();
    while !matches!(seen.last(), Some(Change::Synced { .. })) {
        seen.push(changes.next().await.unwrap());
    }
    assert_eq!(seen.iter().filter(|change| matches!(change, Change::Restarted)).count(), 2);
    let took = began.elapsed().as_secs();
    assert!(took > 15 + 60, "silent for 15 s, and then in pieces: {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_part_of_a_list_is_no_list() {
    let paged = json!({"metadata": {"resourceVersion": "9", "continue": "next"}, "items": [pod("a", 3)]});
    let status = json!({"kind": "Status", "metadata": {}, "status": "Failure", "message": "cannot encode"});
    let items = json!([pod("a", 3), pod("b", 4)]);
    let text = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":{items}}}"#);
    let (seen, _) = play([
        refused(422),
        closed(200, [paged.to_string()]),
        closed(200, [text[..text.len() - 2].to_owned()]),
        // The answer of an API server that fails after it has begun.
        closed(200, [text[..text.len() - 30].to_owned(), status.to_string()]),
        list(&["a", "b"], 11),
        open([]),
    ])
    .await;
    let told = [
        &["restarted", "listed a"][..],
        &["restarted", "listed a", "listed b"],
        &["restarted", "listed a"],
        &["restarted", "listed a", "listed b", "synced 11"],
    ];
    assert_eq!(seen, told.concat());
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_resumes_from_the_last_version() {
    let (seen, requests) = play([
        closed(200, [event("ADDED", &pod("a", 3)), bookmark(5, true), event("MODIFIED", &pod("a", 8))]),
        closed(0, []),
        closed(200, [bookmark(12, false)]),
        Scene {
            pieces: vec![Ok(event("ADDED", &pod("b", 13)).into()), Err(TransportError("reset".into()))],
            ..closed(200, [])
        },
        open([event("DELETED", &pod("b", 14))]),
    ])
    .await;
    assert_eq!(seen, ["restarted", "listed a", "synced 5", "applied a", "applied b", "deleted b"]);
    let versions: Vec<_> = requests[1..5].iter().map(|q| q.rsplit('=').next().unwrap()).collect();
    assert_eq!(versions, ["8", "8", "12", "13"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_on_a_dead_connection_is_reopened() {
    let (seen, requests) = play([open([bookmark(5, true)]), open([event("ADDED", &pod("a", 6))])]).await;
    assert_eq!(seen, ["restarted", "synced 5", "applied a"]);
    assert!(requests[1].ends_with("&resourceVersion=5"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_leads_to_a_relist() {
    let gone =
        event("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}));
    let (seen, _) = play([
        closed(200, [bookmark(5, true), gone]),
        closed(200, [event("ADDED", &pod("a", 20)), bookmark(21, true)]),
        refused(410),
        open([bookmark(30, true)]),
    ])
    .await;
    assert_eq!(
        seen,
        ["restarted", "synced 5", "restarted", "listed a", "synced 21", "restarted", "synced 30"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_breaks_off_is_repeated() {
    let (seen, _) = play([
        closed(200, [event("ADDED", &pod("a", 3))]),
        open([event("ADDED", &pod("a", 3)), bookmark(4, true)]),
    ])
    .await;
    assert_eq!(seen, ["restarted", "listed a", "restarted", "listed a", "synced 4"]);
}

#[tokio::test(start_paused = true)]
async fn lines_may_be_cut_anywhere_and_fields_may_come_in_any_order() {
    let text = [
        bookmark(1, true),
        format!("{{\"object\":{},\"type\":\"ADDED\"}}\n", pod("a", 2)),
        "not JSON\n".to_owned(),
        event("ADDED", &json!({"metadata": {"name": "no uid"}})),
        event("MODIFIED", &pod("b", 3)),
    ]
    .concat();
    let bytes = text.chars().map(|c| Ok(c.to_string().into())).collect();
    let (seen, _) = play([Scene { pieces: bytes, ..open([]) }]).await;
    assert_eq!(seen, ["restarted", "synced 1", "applied a", "applied b"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_fails_gets_fewer_than_sixty_requests_in_ten_minutes() {
    let script = Script::of((0..1000).map(|_| refused(500)));
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let selection = Selection::all(Resource::PODS);
    let mut changes = watch(Arc::new(script.clone()), selection, decoder, Arc::new(Metrics::new()), 7);
    assert!(timeout(Duration::from_secs(600), changes.next()).await.is_err());
    let requests = script.requests.lock().unwrap().len();
    assert!((10..60).contains(&requests), "{requests} requests in ten minutes");
}
