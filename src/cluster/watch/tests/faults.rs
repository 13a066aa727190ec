//! A fault of a decoder, which the author of an object has found.

use http::{HeaderMap, HeaderValue, header};

use super::protobuf::frame;
use super::*;
use crate::cluster::list::{ListBody, NotRead};
use crate::cluster::test_protobuf::{self, object, pod_list};
use crate::cluster::watch::framing::Framing;
use crate::cluster::wire::protobuf::Message as _;
use crate::cluster::wire::{Bare, DecodeError, FromProtobuf};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// A decoder that ends in a panic at objects named `bad`.
#[derive(Clone)]
struct Faulty;

fn name(Bare { metadata }: &Bare<'_>) -> String {
    let name = metadata.name.as_deref().unwrap();
    assert_ne!(name, "bad");
    name.to_owned()
}

impl Decoder for Faulty {
    type Wire<'a> = Bare<'a>;
    type Object = String;

    fn observe(&self, wire: Bare<'_>) -> Result<String, DecodeError> {
        Ok(name(&wire))
    }

    const FROM_PROTOBUF: Option<FromProtobuf<Self>> = Some(|_, message| Ok(name(&Bare::read(message)?)));

    fn version(_: &String) -> u64 {
        1
    }
}

fn headers(format: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(format))])
}

fn in_json(name: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "namespace": "n"}})
}

#[test]
fn a_watch_and_a_list_read_on_after_an_object_whose_decoding_panics() {
    let names = ["a", "bad", "b"];
    let lines = names.map(|name| format!("{}\n", json!({"type": "ADDED", "object": in_json(name)})));
    let frames = names.map(|name| frame("ADDED", &object("Pod", &test_protobuf::pod(name, 1))));
    for (format, body) in [(JSON, lines.concat().into_bytes()), (PROTOBUF, frames.concat())] {
        let mut framing = Framing::of(&headers(format)).unwrap();
        framing.push(body.into());
        for name in names {
            let event = framing.next(&Faulty).unwrap().unwrap().unwrap();
            match event {
                Event::Applied { object, .. } => assert_eq!((&*object, object == "bad"), (name, false)),
                Event::Unreadable(found) => assert_eq!((&*found.name, name), ("bad", "bad")),
                other => panic!("{other:?}"),
            }
        }
    }
    let list = json!({"items": names.map(in_json), "metadata": {"resourceVersion": "2"}}).to_string();
    let pods = names.map(|name| test_protobuf::pod(name, 1));
    for (format, body) in [(JSON, list.into_bytes()), (PROTOBUF, pod_list(2, &pods))] {
        let mut list = ListBody::of(&headers(format)).unwrap();
        list.push(body.into());
        let mut shown = Vec::new();
        while let Some(item) = list.next(&Faulty).unwrap() {
            shown.push(match item {
                Ok(name) => name,
                Err(NotRead { object, .. }) => format!("not {}", object.unwrap().name),
            });
        }
        assert_eq!((shown, list.end().unwrap()), (vec!["a".into(), "not bad".into(), "b".into()], 2));
    }
    let answer = in_json("bad").to_string();
    assert!(matches!(Faulty.decode(answer.as_bytes()), Err(DecodeError::Fault)));
}
