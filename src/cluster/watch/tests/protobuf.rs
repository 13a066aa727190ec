//! Lists and watches answered in protobuf.

use super::*;
use crate::cluster::test_protobuf::{self, field, object, pod_list};
use crate::cluster::wire::JobDecoder;

pub(super) fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let event = [field(1, event.as_bytes()), field(2, &field(1, object))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

fn added(name: &str, version: u64) -> Vec<u8> {
    frame("ADDED", &object("Pod", &test_protobuf::pod(name, version)))
}

fn bookmark(version: u64, ends_list: bool) -> Vec<u8> {
    let end = [field(1, b"k8s.io/initial-events-end"), field(2, b"true")].concat();
    let annotations = if ends_list { field(12, &end) } else { Vec::new() };
    let metadata = [field(1, b""), field(6, version.to_string().as_bytes()), annotations];
    let pod = [field(1, &metadata.concat()), field(2, b""), field(3, b"")];
    frame("BOOKMARK", &object("Pod", &pod.concat()))
}

fn status(code: u16) -> Vec<u8> {
    let code = [6 << 3, (code & 0x7f) as u8 | 0x80, (code >> 7) as u8];
    object("Status", &[&field(2, b"Failure")[..], &field(3, b"m"), &field(4, b"Expired"), &code].concat())
}

fn protobuf(scene: Scene, pieces: impl IntoIterator<Item = Vec<u8>>) -> Scene {
    let pieces = pieces.into_iter().map(|piece| Ok(piece.into())).collect();
    Scene { content_type: "application/vnd.kubernetes.protobuf;stream=watch", pieces, ..scene }
}

#[tokio::test(start_paused = true)]
async fn frames_may_be_cut_anywhere() {
    let bytes = [
        added("a", 2),
        bookmark(3, false),
        bookmark(4, true),
        frame("ADDED", &object("Pod", &field(1, &field(1, b"no uid")))),
        frame("WHAT", &object("Pod", b"")),
        frame("ADDED", b"{}"),
        added("b", 5),
    ]
    .concat();
    for size in [1, 2, 3, 5, 7, 64, 333, bytes.len()] {
        let pieces = bytes.chunks(size).map(<[u8]>::to_vec);
        let (seen, _) = play([protobuf(open([]), pieces)]).await;
        assert_eq!(seen, ["restarted", "listed a", "synced 4", "applied b"], "in pieces of {size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_from_the_last_version_in_either_format() {
    let cut = added("c", 30);
    let (seen, requests) = play([
        protobuf(closed(200, []), [bookmark(5, true), added("a", 8)]),
        closed(200, [event("MODIFIED", &pod("a", 9))]),
        protobuf(closed(200, []), [bookmark(12, false), cut[..cut.len() - 1].to_vec()]),
        protobuf(closed(200, []), [b"<html>".to_vec()]),
        protobuf(open([]), [added("b", 13)]),
    ])
    .await;
    assert_eq!(seen, ["restarted", "synced 5", "applied a", "applied a", "applied b"]);
    let versions: Vec<_> = requests[1..5].iter().map(|q| q.rsplit('=').next().unwrap()).collect();
    assert_eq!(versions, ["8", "9", "12", "12"]);
}

#[tokio::test(start_paused = true)]
async fn a_refusal_in_protobuf_is_read_like_one_in_json() {
    let (seen, requests) = play([
        protobuf(closed(200, []), [bookmark(5, true), frame("ERROR", &status(410))]),
        protobuf(closed(410, []), [status(410)]),
        protobuf(closed(422, []), [status(422)]),
        list(&["a"], 9),
        protobuf(open([]), [added("b", 10)]),
    ])
    .await;
    assert_eq!(seen, ["restarted", "synced 5", "restarted", "listed a", "synced 9", "applied b"]);
    assert!(requests[4].ends_with("&resourceVersion=9"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_in_protobuf_that_breaks_off_is_repeated() {
    let pods = [test_protobuf::pod("a", 3), test_protobuf::pod("b", 4)];
    let whole = pod_list(9, &pods);
    let unreadable = field(1, &[field(1, b"c"), field(3, b"n"), field(5, b"c")].concat());
    let (seen, requests) = play([
        refused(422),
        protobuf(closed(200, []), [whole[..whole.len() - 20].to_vec()]),
        Scene { lasts: Duration::from_secs(1), ..protobuf(closed(200, []), [whole[..500].to_vec()]) },
        protobuf(closed(200, []), [pod_list(12, &[pods[1].clone(), unreadable.clone(), pods[0].clone()])]),
        protobuf(open([]), [added("d", 13), frame("DELETED", &object("Pod", &unreadable))]),
    ])
    .await;
    let told = [
        &["restarted", "listed a"][..],
        &["restarted", "listed a"],
        &[
            "restarted",
            "listed b",
            "unreadable c",
            "listed a",
            "synced 12",
            "applied d",
            "unreadable c, left",
        ],
    ];
    assert_eq!(seen, told.concat());
    assert!(requests[4].ends_with("&resourceVersion=12"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn protobuf_is_requested_only_for_kinds_that_are_read_in_it() {
    let pods = Script::of([refused(422), list(&[], 9)]);
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let selection = Selection::all(Resource::PODS);
    let mut changes = watch(Arc::new(pods.clone()), selection, decoder, Arc::new(Metrics::new()), 7);
    while timeout(Duration::from_secs(5), changes.next()).await.is_ok() {}
    assert_eq!(*pods.accepts.lock().unwrap(), ["application/vnd.kubernetes.protobuf, application/json"; 3]);

    // Protobuf was not requested, and the decoder cannot read it.
    let jobs = Script::of([
        protobuf(open([]), [added("a", 1)]),
        refused(422),
        protobuf(open([]), [pod_list(9, &[])]),
    ]);
    let selection = Selection::all(Resource::JOBS);
    let metrics = Arc::new(Metrics::new());
    let mut changes = watch(Arc::new(jobs.clone()), selection, JobDecoder::new(), metrics, 7);
    assert!(matches!(timeout(Duration::from_secs(5), changes.next()).await, Ok(Some(Change::Restarted))));
    assert!(timeout(Duration::from_secs(5), changes.next()).await.is_err());
    assert_eq!(*jobs.accepts.lock().unwrap(), ["application/json"; 4]);
}
