//! The open streams: each is a watch that reads and decodes in a task of its own.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::vec::Drain;

use tokio::sync::mpsc;

use super::Services;
use crate::cluster::resource::Resource;
use crate::cluster::watch::{Selection, Step, watch_steps};
use crate::cluster::wire::ObservedPod;

/// Most steps that are taken from a stream at once.
pub(super) const MAX_STEPS: usize = 256;

/// The number of a stream. Later ones have larger ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StreamId(pub(super) u64);

/// A step of a stream of pods.
pub(super) type PodStep = Step<Box<ObservedPod>>;

/// The open streams.
#[derive(Default)]
pub(super) struct Streams {
    open: BTreeMap<StreamId, mpsc::Receiver<PodStep>>,
    next: u64,
    /// The stream that was read last: the others have their turn first.
    last: Option<StreamId>,
    /// The steps that were read.
    steps: Vec<PodStep>,
}

impl Streams {
    /// Opens a watch of the pods that this label selector selects, after a version or with a list.
    pub(super) fn open(&mut self, services: &Services, after: Option<u64>, selector: String) -> StreamId {
        let id = StreamId(self.next);
        self.next += 1;
        let steps = watch_steps(
            after,
            services.transport.clone(),
            Selection::all(Resource::PODS).labelled(selector),
            services.decoder.clone(),
            services.metrics.clone(),
            services.seeds.fetch_add(1, Ordering::Relaxed),
        );
        self.open.insert(id, steps);
        id
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.open.remove(&stream);
    }

    /// The next stream that has brought something, or has ended.
    pub(super) async fn ready(&mut self) -> StreamId {
        poll_fn(|task| {
            let turns = self.open.len();
            for _ in 0..turns {
                let after = self.last.map_or(0, |last| last.0 + 1);
                let next = self.open.range(StreamId(after)..).next().or_else(|| self.open.iter().next());
                let Some(id) = next.map(|(id, _)| *id) else { break };
                self.last = Some(id);
                let Some(steps) = self.open.get_mut(&id) else { break };
                if steps.poll_recv_many(task, &mut self.steps, MAX_STEPS).is_ready() {
                    return Poll::Ready(id);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The steps of the stream that was ready; `None` if it has ended.
    pub(super) fn steps(&mut self) -> Option<Drain<'_, PodStep>> {
        (!self.steps.is_empty()).then(|| self.steps.drain(..))
    }
}
