//! Feeds actors from watches: changes that are ready arrive as one message, and the watch waits while the
//! actor is busy.
//!
//! A single change is delivered at once. Only changes in a stream are collected for a moment, since each
//! message wakes a shard and its Jobs.

use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant};

use actix::prelude::SendError;
use actix::{Message, Recipient};
use futures::{Stream, StreamExt};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::actors::context::ReplicaContext;
use crate::actors::messages::subscription::{Subscription, SubscriptionId};
#[cfg(feature = "test-hooks")]
use crate::actors::test_hooks::Part;
use crate::cluster::reads::{PodList, ReadError};
use crate::cluster::resource::Resource;
use crate::cluster::supervision::supervised;
use crate::cluster::watch::{Change, Selection, watch};
use crate::cluster::wire::{ObservedJob, ObservedPod, PodDecoder};
use crate::job::selector::Selector;

/// Most changes in one message.
const MAX_CHANGES: usize = 256;

/// Most changes in a message that need not be handled before the next one is sent.
const BACKPRESSURE_THRESHOLD: usize = 16;

/// How long changes in a stream are collected.
const DEBOUNCE: Duration = Duration::from_millis(2);
/// A change that comes this long after the last one is not part of a stream.
const IDLE_GAP: Duration = Duration::from_millis(10);

/// Changes of Jobs.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Jobs {
    /// The subscription that sends them.
    pub from: SubscriptionId,
    /// When the watch brought them.
    pub arrived: StdInstant,
    /// The changes.
    pub changes: Vec<Change<Arc<ObservedJob>>>,
}

/// Feeds the Jobs of the cluster to an actor until the subscription is dropped or the actor is gone.
pub fn feed_jobs(cx: &ReplicaContext, to: Recipient<Jobs>) -> Subscription {
    let decoder = cx.job_decoder();
    let id = cx.next_subscription();
    let (transport, metrics, seed) = (cx.transport.clone(), cx.metrics.clone(), cx.seed());
    #[cfg(feature = "test-hooks")]
    let config = cx.config.clone();
    // A feed that has panicked begins with a list.
    let follow = move || {
        let (transport, metrics) = (transport.clone(), metrics.clone());
        let (decoder, to) = (decoder.clone(), to.clone());
        #[cfg(feature = "test-hooks")]
        let config = config.clone();
        async move {
            let jobs = Selection::all(Resource::JOBS);
            let changes = watch(transport, jobs, decoder, metrics, seed);
            forward(changes, |changes| {
                #[cfg(feature = "test-hooks")]
                config.test_hooks.pass(Part::Feed);
                let few = changes.len() <= BACKPRESSURE_THRESHOLD;
                deliver(&to, Jobs { from: id, arrived: StdInstant::now(), changes }, few)
            })
            .await;
        }
    };
    let task = cx.runtime.spawn(supervised("the feed of an actor", follow));
    Subscription::new(id, AbortOnDropHandle::new(task))
}

/// All pods of a namespace that a Job's selector selects, of any shard, and when the list began. Retries until they are listed. Each such list of a
/// namespace rests in proportion to its time.
pub async fn list_selected(
    cx: &ReplicaContext,
    namespace: &Arc<str>,
    selector: &Selector,
) -> (PodList, Instant) {
    let selection = Selection { namespace: Some((**namespace).into()), ..Selection::all(Resource::PODS) };
    let selection = selection.labelled(selector.to_string());
    let decoder = pod_decoder(cx);
    list_in_turn(cx, namespace, || cx.reads.list_pods(&decoder, &selection)).await
}

/// The metadata of those pods of a namespace that are to be kept, as [`list_selected`] lists.
pub async fn list_namespace_metadata(
    cx: &ReplicaContext,
    namespace: &Arc<str>,
    keep: impl Fn(&ObservedPod) -> bool,
) -> PodList {
    let selection = Selection { namespace: Some((**namespace).into()), ..Selection::all(Resource::PODS) };
    list_in_turn(cx, namespace, || cx.reads.list_pod_metadata(&selection, &keep)).await.0
}

/// Lists until that succeeds.
async fn list_in_turn<F: Future<Output = Result<PodList, ReadError>>>(
    cx: &ReplicaContext,
    namespace: &Arc<str>,
    list: impl Fn() -> F,
) -> (PodList, Instant) {
    let mut backoff = cx.api_backoff();
    loop {
        match cx.in_turn(namespace, Duration::ZERO, list()).await {
            (Ok(list), begun) => return (list, begun),
            (Err(error), _) => tracing::warn!(%namespace, %error, "the pods of a namespace were not listed"),
        }
        backoff.pause().await;
    }
}

/// Reads the parts of pods that this replica needs.
pub fn pod_decoder(cx: &ReplicaContext) -> PodDecoder {
    PodDecoder::new(cx.config.finalizer()).reading_runs(cx.config.traces.is_on())
}

/// Forwards all changes, in order, until there are no more or the actor has ended. `deliver` sends changes
/// that go together to the actor.
async fn forward<T, G: Future<Output = Result<(), Gone>>>(
    changes: impl Stream<Item = T> + Unpin,
    mut deliver: impl FnMut(Vec<T>) -> G,
) {
    let mut changes = changes.ready_chunks(MAX_CHANGES);
    let mut delivered_at = Instant::now();
    // Under tokio's cooperative budget of a task, changes beyond the budget would seem not ready yet. The
    // size of a chunk bounds the work instead.
    while let Some(chunk) = unconstrained(changes.next()).await {
        let gather = chunk.len() < MAX_CHANGES && delivered_at.elapsed() < IDLE_GAP;
        if deliver(chunk).await.is_err() {
            return;
        }
        delivered_at = Instant::now();
        if gather {
            sleep(DEBOUNCE).await;
        }
    }
}

/// The actor has ended.
struct Gone;

/// Sends a message to an actor, and waits until it is handled, so that messages do not pile up. A message of
/// `few` changes needs only room in the mailbox.
async fn deliver(to: &Recipient<Jobs>, message: Jobs, few: bool) -> Result<(), Gone> {
    let sent = if few { to.try_send(message) } else { Err(SendError::Full(message)) };
    match sent {
        Ok(()) => Ok(()),
        Err(SendError::Full(message)) => to.send(message).await.map_err(|_| Gone),
        Err(SendError::Closed(_)) => Err(Gone),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{future, stream};
    use tokio::sync::mpsc;

    /// Sends one change at each of these times, in milliseconds. Returns the deliveries: the time of each,
    /// and its changes.
    async fn deliveries(coming: impl IntoIterator<Item = u64> + Send + 'static) -> Vec<(u64, Vec<u64>)> {
        let began = Instant::now();
        let at = move |ms| began + Duration::from_millis(ms);
        let (come, mut changes) = mpsc::unbounded_channel();
        let coming: Vec<u64> = coming.into_iter().collect();
        let comes = async move {
            for ms in coming {
                tokio::time::sleep_until(at(ms)).await;
                // The other side lasts until everything is delivered.
                let _ = come.send(ms);
            }
        };
        // Unconstrained, so that changes of the same time are ready together.
        let _source = AbortOnDropHandle::new(tokio::spawn(unconstrained(comes)));
        let mut delivered = Vec::new();
        let deliver = |chunk| {
            delivered.push((began.elapsed().as_millis() as u64, chunk));
            future::ready(Ok(()))
        };
        forward(stream::poll_fn(move |task| changes.poll_recv(task)), deliver).await;
        delivered
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_change_is_delivered_at_once() {
        let alone = [20, 40, 60];
        assert_eq!(deliveries(alone).await, alone.map(|ms| (ms, vec![ms])));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_a_stream_are_delivered_together_and_soon() {
        let delivered = deliveries(100..1_100).await;
        assert!(delivered.len() <= 510, "{} messages", delivered.len());
        let longest = DEBOUNCE + Duration::from_millis(1);
        for (at, chunk) in &delivered {
            let waited = chunk.first().map(|first| Duration::from_millis(at - first));
            assert!(waited <= Some(longest), "{waited:?}");
        }
        assert!(delivered.into_iter().flat_map(|(_, chunk)| chunk).eq(100..1_100), "in order, each once");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_that_are_ready_are_delivered_without_a_pause() {
        let delivered = deliveries(std::iter::repeat_n(50, 10 * MAX_CHANGES)).await;
        assert!(delivered.iter().all(|(at, chunk)| *at == 50 && chunk.len() == MAX_CHANGES));
        assert_eq!(delivered.len(), 10);
    }
}
