//! From a watch to an actor: what is ready arrives as one message, and the watch waits while the actor has much to do.
//!
//! Nothing waits for nothing: what comes alone is told at once. Only what comes in a stream is gathered for a moment, for
//! each message wakes a shard and its Jobs.

use std::sync::Arc;
use std::time::Duration;

use actix::prelude::SendError;
use actix::{Message, Recipient};
use futures::{Stream, StreamExt, future};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::context::ReplicaContext;
use super::subscription::{Subscription, SubscriptionId};
use crate::cluster::resource::Resource;
use crate::cluster::watch::{Change, Selection, watch};
use crate::cluster::wire::{
    Decoder, JobDecoder, JobOutline, ObservedJob, ObservedPod, OutlineDecoder, PodDecoder,
};
use crate::job::names::SHARD_LABEL;
use crate::job::selector::Selector;
use crate::sharding::ShardId;

/// Most changes in one message.
const CHUNK: usize = 256;

/// Changes in one message that need not have been handled before the next one is sent.
const BACKPRESSURE_THRESHOLD: usize = 16;

/// How long a stream of changes is gathered.
const DEBOUNCE: Duration = Duration::from_millis(2);
/// What comes so long after the last change comes alone.
const IDLE_GAP: Duration = Duration::from_millis(10);

/// Changes of pods.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Pods {
    /// The subscription that sends them.
    pub from: SubscriptionId,
    /// The changes.
    pub changes: Vec<Change<Box<ObservedPod>>>,
}

/// Changes of Jobs.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Jobs {
    /// The shard that was asked for; `None` for all.
    pub of: Option<ShardId>,
    /// The subscription that sends them.
    pub from: SubscriptionId,
    /// The changes.
    pub changes: Vec<Change<Arc<ObservedJob>>>,
}

/// Changes of outlines of Jobs.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Outlines {
    /// The subscription that sends them.
    pub from: SubscriptionId,
    /// The changes.
    pub changes: Vec<Change<JobOutline>>,
}

/// Feeds the Jobs of the cluster, or of one shard of it, to an actor until aborted or the actor is gone. Only an API server that
/// serves `shardSelector` tells no other Jobs than those of the shard.
pub fn feed_jobs(cx: &ReplicaContext, of: Option<ShardId>, to: Recipient<Jobs>) -> Subscription {
    let selection = Selection {
        shards: of.map(|shard| cx.config.shards.selector(shard).into()),
        ..Selection::all(Resource::JOBS)
    };
    let decoder = JobDecoder::knowing(cx.self_writes.clone());
    feed(cx, selection, decoder, to, move |from, changes| Jobs { of, from, changes })
}

/// Feeds outlines of all Jobs of the cluster to an actor.
pub fn feed_outlines(cx: &ReplicaContext, to: Recipient<Outlines>) -> Subscription {
    let decoder = OutlineDecoder::default();
    feed(cx, Selection::all(Resource::JOBS), decoder, to, |from, changes| Outlines { from, changes })
}

/// Feeds the pods of one shard to an actor.
pub fn feed_shard(cx: &ReplicaContext, shard: ShardId, to: Recipient<Pods>) -> Subscription {
    feed_pods(cx, format!("{SHARD_LABEL}={shard}"), to)
}

/// All pods of a namespace that a Job's selector selects, whatever shard they are of.
pub async fn list_selected(
    cx: &ReplicaContext,
    namespace: &str,
    selector: &Selector,
) -> Vec<Box<ObservedPod>> {
    let selection = Selection { namespace: Some(namespace.into()), ..Selection::all(Resource::PODS) };
    let selection = selection.labelled(selector.to_string());
    let decoder = PodDecoder::new(cx.config.finalizer());
    let changes = watch(cx.transport.clone(), selection, decoder, cx.metrics.clone(), cx.seed());
    let mut pods = Vec::new();
    let mut list = changes.take_while(|change| future::ready(!matches!(change, Change::Synced { .. })));
    while let Some(change) = list.next().await {
        match change {
            Change::Restarted => pods.clear(),
            Change::Listed(pod) | Change::Applied(pod) => pods.push(pod),
            Change::Deleted(_) | Change::Synced { .. } => {}
        }
    }
    pods
}

/// Feeds the pods that are of no shard to an actor.
pub fn feed_unlabelled(cx: &ReplicaContext, to: Recipient<Pods>) -> Subscription {
    feed_pods(cx, format!("!{SHARD_LABEL}"), to)
}

fn feed_pods(cx: &ReplicaContext, labels: String, to: Recipient<Pods>) -> Subscription {
    let decoder = PodDecoder::new(cx.config.finalizer());
    feed(cx, Selection::all(Resource::PODS).labelled(labels), decoder, to, |from, changes| Pods {
        from,
        changes,
    })
}

fn feed<D: Decoder, M>(
    cx: &ReplicaContext,
    selection: Selection,
    decoder: D,
    to: Recipient<M>,
    message: impl Fn(SubscriptionId, Vec<Change<D::Object>>) -> M + Send + 'static,
) -> Subscription
where
    D::Object: Send,
    M: Message<Result = ()> + Send + 'static,
{
    let id = cx.next_subscription();
    let (transport, metrics, seed) = (cx.transport.clone(), cx.metrics.clone(), cx.seed());
    let task = cx.runtime.spawn(async move {
        let changes = watch(transport, selection, decoder, metrics, seed);
        let to = &to;
        forward(changes, move |chunk| {
            let few = chunk.len() <= BACKPRESSURE_THRESHOLD;
            deliver(to, message(id, chunk), few)
        })
        .await
    });
    Subscription::new(id, AbortOnDropHandle::new(task))
}

/// Tells all changes, in order, until there are no more or the actor has ended. `give` brings what is told together to the
/// actor.
async fn forward<T, G: Future<Output = Result<(), Gone>>>(
    changes: impl Stream<Item = T> + Unpin,
    mut deliver: impl FnMut(Vec<T>) -> G,
) {
    let mut changes = changes.ready_chunks(CHUNK);
    let mut told = Instant::now();
    // A chunk has an end. If it ended with tokio's budget of a task, what is left would seem not to have come yet.
    while let Some(chunk) = unconstrained(changes.next()).await {
        let gather = chunk.len() < CHUNK && told.elapsed() < IDLE_GAP;
        if deliver(chunk).await.is_err() {
            return;
        }
        told = Instant::now();
        if gather {
            sleep(DEBOUNCE).await;
        }
    }
}

/// The actor has ended.
struct Gone;

/// Gives a message to an actor, and waits until it has been handled, lest what is read meanwhile piles up. Unless it is of `few`
/// changes: then it is enough that there is room for it.
async fn deliver<M>(to: &Recipient<M>, message: M, few: bool) -> Result<(), Gone>
where
    M: Message<Result = ()> + Send + 'static,
{
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
    use futures::stream;
    use tokio::sync::mpsc;

    /// Tells what came after so many milliseconds, in milliseconds: what was told together, with the time at which it was told.
    async fn told(coming: impl IntoIterator<Item = u64> + Send + 'static) -> Vec<(u64, Vec<u64>)> {
        let began = Instant::now();
        let at = move |ms| began + Duration::from_millis(ms);
        let (come, mut changes) = mpsc::unbounded_channel();
        let coming: Vec<u64> = coming.into_iter().collect();
        let comes = async move {
            for ms in coming {
                tokio::time::sleep_until(at(ms)).await;
                // The other side lasts until everything is told.
                let _ = come.send(ms);
            }
        };
        // Whatever comes at the same time comes at once, too.
        let _source = AbortOnDropHandle::new(tokio::spawn(unconstrained(comes)));
        let mut told = Vec::new();
        let deliver = |chunk| {
            told.push((began.elapsed().as_millis() as u64, chunk));
            future::ready(Ok(()))
        };
        forward(stream::poll_fn(move |task| changes.poll_recv(task)), deliver).await;
        told
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_alone_is_told_at_once() {
        let alone = [20, 40, 60];
        assert_eq!(told(alone).await, alone.map(|ms| (ms, vec![ms])));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_a_stream_is_told_together_and_soon() {
        let told = told(100..1_100).await;
        assert!(told.len() <= 510, "{} messages", told.len());
        let longest = DEBOUNCE + Duration::from_millis(1);
        for (at, chunk) in &told {
            let waited = chunk.first().map(|first| Duration::from_millis(at - first));
            assert!(waited <= Some(longest), "{waited:?}");
        }
        assert!(told.into_iter().flat_map(|(_, chunk)| chunk).eq(100..1_100), "in order, each once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_there_is_told_without_rest() {
        let told = told(std::iter::repeat_n(50, 10 * CHUNK)).await;
        assert!(told.iter().all(|(at, chunk)| *at == 50 && chunk.len() == CHUNK));
        assert_eq!(told.len(), 10);
    }
}
