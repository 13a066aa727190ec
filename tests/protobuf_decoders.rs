//! Objects decode to the same value from JSON and from protobuf, as the embedded API server writes them.
#![allow(clippy::unwrap_used, missing_docs)]

mod recorded;

use std::fmt::Debug;

use bytes::BytesMut;
use serde_json::Value;
use yardmaster::cluster::watch::{Event, read_frame};
use yardmaster::cluster::wire::{Decoder, PodDecoder};
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster_embedded::encode_watch_event;

/// Decodes all recorded objects of a kind from JSON and from protobuf. Returns how many could be decoded.
fn read_recorded<D: Decoder<Object: Debug>>(decoder: &D, of: (&str, &str)) -> usize {
    let from_protobuf = D::FROM_PROTOBUF.unwrap();
    let mut observed = 0;
    for (json, text) in recorded::objects(of) {
        let mut out = BytesMut::new();
        if encode_watch_event(&mut out, "ADDED", of.0, of.1, text.as_bytes()).is_err() {
            continue;
        }
        let read = read_frame(&out[size_of::<u32>()..], |message| from_protobuf(decoder, message));
        match (decoder.decode(json.to_string().as_bytes()), read) {
            (Ok(from_json), Ok(Event::Applied { kind: "ADDED", object })) => {
                assert_eq!(format!("{from_json:?}"), format!("{object:?}"));
                observed += 1;
            }
            (Err(_), Err(_)) => {}
            (json, protobuf) => panic!("{json:?}, but {protobuf:?}"),
        }
    }
    observed
}

#[test]
fn recorded_objects_read_the_same_in_both_formats() {
    let pods = read_recorded(&PodDecoder::new(EXTERNAL_FINALIZER), ("v1", "Pod"));
    assert!(pods > 300, "{pods} pods");
}

#[test]
fn the_benchmark_reads_the_same_pod_in_both_formats() {
    let line = include_str!("../benches/stages/pod_event.json").replace('\n', "");
    let mut event: Value = serde_json::from_str(&line).unwrap();
    let pod = event["object"].as_object_mut().unwrap();
    pod.remove("kind");
    pod.remove("apiVersion");
    let mut out = BytesMut::new();
    encode_watch_event(&mut out, "MODIFIED", "v1", "Pod", event["object"].to_string().as_bytes()).unwrap();
    assert!(out[size_of::<u32>()..] == include_bytes!("../benches/stages/pod_event.pb")[..]);
}
