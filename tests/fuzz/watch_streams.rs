//! Lists and watch streams of hostile content, cut anywhere, in both formats.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use http::{Request, Response};
use rand::Rng as _;
use rand::rngs::SmallRng;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use yardmaster::cluster::resource::Resource;
use yardmaster::cluster::transport::{ByteStream, Transport, TransportError};
use yardmaster::cluster::watch::{Selection, watch};
use yardmaster::cluster::wire::{JobDecoder, PodDecoder};
use yardmaster::job::names::EXTERNAL_FINALIZER;
use yardmaster::telemetry::metrics::Metrics;
use yardmaster_embedded::{encode_list, encode_watch_event};

use crate::driver::{Target, fuzz};
use crate::{mutate, recorded};

/// How long a watcher is looked at, in virtual time: long enough for retries.
const PATIENCE: Duration = Duration::from_secs(5);
/// The input begins with the format, and the length of the pieces in which the rest arrives.
const HEAD: usize = 2;
/// Added to the format: the rest is a list.
const LISTS: u8 = 4;

/// An API server that gives the same answer to every request. If it has no streaming lists, it refuses them.
struct Answer {
    pieces: Mutex<Vec<Bytes>>,
    content_type: &'static str,
    has_streaming_lists: bool,
}

impl Transport for Answer {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let asks_for_streaming_list = request.uri().query().unwrap_or_default().contains("sendInitialEvents");
        if asks_for_streaming_list && !self.has_streaming_lists {
            let refusal = Response::builder().status(422).body(stream::empty().boxed());
            return futures::future::ready(Ok(refusal.unwrap())).boxed();
        }
        let pieces: Vec<_> = self.pieces.lock().unwrap().iter().cloned().map(Ok).collect();
        let pieces = stream::iter(pieces).then(|piece| async {
            tokio::task::yield_now().await;
            piece
        });
        let answer = Response::builder().header("content-type", self.content_type);
        futures::future::ready(Ok(answer.body(pieces.boxed()).unwrap())).boxed()
    }
}

struct WatchStreams(RefCell<Runtime>);

impl Target for WatchStreams {
    const NAME: &str = "watch_streams";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let mut out = input.to_vec();
        if out.len() >= HEAD && random.random_ratio(1, 5) {
            out[random.random_range(0..HEAD)] = random.random();
            return out;
        }
        mutate::bytes(&out, others, random)
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let Some((&[format, size], body)) = input.split_first_chunk::<HEAD>() else { return Ok(()) };
        let pieces = body.chunks(usize::from(size).max(1)).map(Bytes::copy_from_slice).collect();
        let content_type = match format % 2 {
            0 => "application/json",
            _ => "application/vnd.kubernetes.protobuf;stream=watch",
        };
        let has_streaming_lists = (format / LISTS).is_multiple_of(2);
        let answer = Arc::new(Answer { pieces: Mutex::new(pieces), content_type, has_streaming_lists });
        let metrics = Arc::new(Metrics::default());
        let runtime = self.0.borrow_mut();
        macro_rules! read {
            ($resource:expr, $decoder:expr) => {
                runtime.block_on(async {
                    let transport = Arc::clone(&answer) as Arc<dyn Transport>;
                    let changes =
                        watch(transport, Selection::all($resource), $decoder, Arc::clone(&metrics), 1);
                    // Many changes are as good as endless ones.
                    let _ = timeout(PATIENCE, changes.take(30).collect::<Vec<_>>()).await;
                })
            };
        }
        match format / 2 % 2 {
            0 => read!(Resource::PODS, PodDecoder::new(EXTERNAL_FINALIZER)),
            _ => read!(Resource::JOBS, JobDecoder::new()),
        }
        Ok(())
    }
}

/// Streams of three events, in both formats, and of a bookmark that ends the list; and lists of the same objects.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (decoder, of) in [(0, ("v1", "Pod")), (2, ("batch/v1", "Job"))] {
        for objects in recorded::objects(of).chunks(3).take(40) {
            let (mut lines, mut frames) = (vec![decoder, 100], vec![decoder + 1, 100]);
            for ((json, text), kind) in objects.iter().zip(["ADDED", "MODIFIED", "DELETED"]) {
                lines.extend(format!("{}\n", json!({"type": kind, "object": json})).bytes());
                let mut out = BytesMut::new();
                if encode_watch_event(&mut out, kind, of.0, of.1, text.as_bytes()).is_ok() {
                    frames.extend_from_slice(&out);
                }
            }
            let end = json!({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9",
                "annotations": {"k8s.io/initial-events-end": "true"}}}});
            lines.extend(format!("{end}\n").bytes());
            let items: Vec<_> = objects.iter().map(|(json, _)| json).collect();
            let metadata = json!({"resourceVersion": "5", "continue": ""});
            let list = json!({"kind": "List", "metadata": metadata, "items": items}).to_string();
            seeds.extend([lines, frames, [vec![decoder + LISTS, 255], list.into_bytes()].concat()]);
            let mut list = BytesMut::from(&[decoder + 1 + LISTS, 255][..]);
            let write = |out: &mut BytesMut, (_, text): &(_, String)| out.extend_from_slice(text.as_bytes());
            if encode_list(&mut list, of, metadata.to_string().as_bytes(), objects, write).is_ok() {
                seeds.push(list.to_vec());
            }
        }
    }
    seeds
}

#[test]
fn watch_streams() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    fuzz(&WatchStreams(RefCell::new(runtime)), seeds());
}
