//! Protobuf, as both readers read it: that of the embedded API server, and that of the controller.

use bytes::BytesMut;
use rand::rngs::SmallRng;
use yardmaster::cluster::watch::read_frame;
use yardmaster::cluster::wire::{Decoder, PodDecoder};
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster_embedded::{decode_protobuf, encode_watch_event};

use crate::driver::{Target, fuzz};
use crate::{mutate, recorded};

/// The kinds that the controller reads in protobuf, and others that the server does.
const KINDS: [(&str, &str); 4] =
    [("v1", "Pod"), ("batch/v1", "Job"), ("coordination.k8s.io/v1", "Lease"), ("v1", "Event")];

/// The first bytes of an object within a frame.
const MAGIC: &[u8] = b"k8s\0";

struct Frames;

impl Target for Frames {
    const NAME: &str = "protobuf";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        mutate::bytes(input, others, random)
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let pods = PodDecoder::new(EXTERNAL_FINALIZER);
        let _ = read_frame(input, |message| PodDecoder::FROM_PROTOBUF.unwrap()(&pods, message));
        let object = input.windows(MAGIC.len()).position(|bytes| bytes == MAGIC).unwrap_or(0);
        let Ok(decoded) = decode_protobuf(&input[object..]) else { return Ok(()) };
        // If an object can be read, it can be written, unless it holds free-form JSON.
        let (version, kind) = (decoded["apiVersion"].as_str().unwrap(), decoded["kind"].as_str().unwrap());
        let mut stored = decoded.as_object().unwrap().clone();
        stored.remove("apiVersion");
        stored.remove("kind");
        let text = serde_json::to_vec(&stored).unwrap();
        let _ = encode_watch_event(&mut BytesMut::new(), "ADDED", version, kind, &text);
        Ok(())
    }
}

#[test]
fn protobuf() {
    let mut seeds = Vec::new();
    for of in KINDS {
        for (_, text) in recorded::objects(of).into_iter().take(100) {
            let mut out = BytesMut::new();
            if encode_watch_event(&mut out, "ADDED", of.0, of.1, text.as_bytes()).is_ok() {
                seeds.push(out[size_of::<u32>()..].to_vec());
            }
        }
    }
    fuzz(&Frames, seeds);
}
