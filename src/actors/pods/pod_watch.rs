//! The watch of the pods of all shards of a replica: one watch, however many shards there are. An API
//! server decides for each watch whether an event matches it. So every write of a resource costs it more,
//! the more watches the resource has. There are two such watches, one for each [`Kind`] of pods.
//!
//! Shards come and go. New shards are listed together, and watched on a stream of their own. A moment later
//! one watch replaces all streams. It selects their shards, from the lowest version up to which they have
//! shown everything. Changes that shards have already seen are left out, and nothing is listed again
//! ([`routes`] decides that). If the API server no longer has that version, the watch lists all its shards.
//! Events of shards that are gone are left out, until a watch without them follows.
//!
//! ```text
//! shards 0 to 31: a stream is at version 900        shards 32 to 63 are claimed
//!    │                                                 │ listed together at 950, and watched
//!    │ at 905                                          │ at 960
//!    │<──── a second later, a watch of shards 0 to 63 begins after 905, the lower version ────>│
//!    ✕ closed                                          ✕ closed
//!                    │ 906 … 960 of shards 32 to 63 were shown: left out
//!                    │ everything else is shown
//! ```

mod outbox;
mod routes;
mod streams;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant as StdInstant};

use actix::{Message, Recipient};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until};

use self::outbox::Outbox;
use self::routes::{Routes, Upkeep};
use self::streams::{StreamId, Streams};
use super::pod_places::PodPlaces;
use crate::actors::known_jobs::job_index::JobIndex;
use crate::actors::messages::subscription::{Subscription, SubscriptionId};
#[cfg(feature = "test-hooks")]
use crate::actors::test_hooks::{Part, TestHooks};
use crate::cluster::supervision::{Pauses, caught};
use crate::cluster::transport::Transport;
use crate::cluster::watch::Change;
use crate::cluster::wire::{ObservedPod, PodDecoder};
use crate::job::names::CONTROLLER_UID_LABEL;
use crate::sharding::{ShardCount, ShardId};
use crate::telemetry::metrics::Metrics;

/// How long shards that are to be listed wait for others.
const GATHERING: Duration = Duration::from_millis(10);
/// How long changes in a stream are collected.
const DEBOUNCE: Duration = Duration::from_millis(2);
/// A change that comes this long after the last one is not part of a stream.
const IDLE_GAP: Duration = Duration::from_millis(10);
/// Time between two looks at the streams while there are more than are needed, or a stream selects shards that are
/// gone.
const UPKEEP: Duration = Duration::from_secs(1);

/// Which pods a watch shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pods with the label of a Job's UID, as almost all pods of Jobs have it.
    Labelled,
    /// Pods without that label, such as those of Jobs with a selector of their own. A list of them may take
    /// long, since they may be all other pods of the cluster.
    Unlabelled,
}

impl Kind {
    /// The kind of a pod.
    pub fn of(pod: &ObservedPod) -> Self {
        if pod.labels.get(CONTROLLER_UID_LABEL).is_some() { Self::Labelled } else { Self::Unlabelled }
    }
}

/// Changes of pods.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Pods {
    /// The subscription that sends them.
    pub from: SubscriptionId,
    /// When the watch brought them.
    pub arrived: StdInstant,
    /// The changes.
    pub changes: Vec<PodChange>,
}

/// A change of a pod, or of the list of pods.
pub type PodChange = Change<Box<ObservedPod>>;

/// The services that the watch needs.
#[derive(Clone)]
pub struct Services {
    /// The network.
    pub transport: Arc<dyn Transport>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// The next number by which chance varies.
    pub seeds: Arc<AtomicU64>,
    /// How many shards there are.
    pub shards: ShardCount,
    /// The Jobs of the replica.
    pub jobs: Arc<JobIndex>,
    /// Which pods are shown.
    pub kind: Kind,
    /// Reads pods.
    pub decoder: PodDecoder,
    /// Faults that tests inject.
    #[cfg(feature = "test-hooks")]
    pub test_hooks: TestHooks,
}

/// The watch of the pods of all shards of a replica. Clones are the same watch.
#[derive(Clone)]
pub struct PodWatch {
    commands: mpsc::UnboundedSender<Command>,
}

enum Command {
    Join { shard: ShardId, member: SubscriptionId, to: Recipient<Pods> },
    Leave { shard: ShardId, member: SubscriptionId },
}

/// Leaves the watch when it is dropped.
struct Membership {
    commands: mpsc::UnboundedSender<Command>,
    shard: ShardId,
    member: SubscriptionId,
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A watch that has ended has no members.
        let _ = self.commands.send(Command::Leave { shard: self.shard, member: self.member });
    }
}

impl PodWatch {
    /// A watch of no shards, which lasts as long as its clones.
    pub fn begin(services: Services, runtime: &Handle) -> Self {
        let (commands, received) = mpsc::unbounded_channel();
        let mut work = Work {
            routes: Routes::new(PodPlaces(services.shards), services.jobs.clone()),
            services,
            commands: received,
            streams: Streams::default(),
            outbox: Outbox::default(),
            list_at: None,
            look: None,
            hold_until: None,
            delivered: None,
        };
        runtime.spawn(async move {
            let mut pauses = Pauses::begin();
            while caught("the watch of pods", work.run()).await.is_none() {
                sleep(pauses.after_panic()).await;
                work.begin_anew();
            }
        });
        Self { commands }
    }

    /// Feeds the pods of one shard to an actor until the subscription is dropped: a list that begins after this call,
    /// and then all changes. A shard has one subscription; another one replaces it.
    pub fn join(&self, shard: ShardId, member: SubscriptionId, to: Recipient<Pods>) -> Subscription {
        // Without a runtime, nothing is fed.
        let _ = self.commands.send(Command::Join { shard, member, to });
        Subscription::held(member, Membership { commands: self.commands.clone(), shard, member })
    }
}

/// The task of the watch.
struct Work {
    services: Services,
    commands: mpsc::UnboundedReceiver<Command>,
    routes: Routes,
    streams: Streams,
    outbox: Outbox,
    /// When shards that wait for a list are listed.
    list_at: Option<Instant>,
    /// When the streams are looked at, unless all is as it should be, and since when it is not.
    look: Option<Look>,
    /// Until when changes accumulate unread.
    hold_until: Option<Instant>,
    /// When changes were last delivered.
    delivered: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    since: Instant,
}

impl Work {
    /// Runs until no shard can join any more.
    async fn run(&mut self) {
        loop {
            let (timer, may_read) = (self.timer(), self.hold_until.is_none() && self.outbox.has_room());
            tokio::select! {
                biased;
                command = self.commands.recv() => match command {
                    Some(command) => self.obey(command),
                    None => return,
                },
                () = self.outbox.sent(), if self.outbox.is_sending() => {}
                () = sleep_until(timer.unwrap_or_else(Instant::now)), if timer.is_some() => self.tick(),
                stream = self.streams.ready(), if may_read => self.take(stream),
            }
            #[cfg(feature = "test-hooks")]
            if self.outbox.is_due() {
                self.services.test_hooks.pass(Part::Feed);
            }
            self.outbox.flush();
        }
    }

    /// The streams end, and all shards are listed again.
    fn begin_anew(&mut self) {
        self.streams = Streams::default();
        self.routes.begin_anew();
        self.outbox.clear();
        self.hold_until = None;
        self.look = None;
        self.list_soon();
    }

    fn timer(&self) -> Option<Instant> {
        [self.list_at, self.hold_until, self.look.map(|look| look.at)].into_iter().flatten().min()
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Join { shard, member, to } => {
                self.routes.join(shard, member);
                self.outbox.join(shard, member, to);
            }
            Command::Leave { shard, member } => {
                self.routes.leave(shard, member);
                self.outbox.leave(shard, member);
            }
        }
        self.close_idle();
        self.list_soon();
        self.look_soon();
    }

    fn tick(&mut self) {
        let now = Instant::now();
        self.hold_until = self.hold_until.filter(|until| *until > now);
        if self.list_at.is_some_and(|at| at <= now) {
            self.list_at = None;
            self.list();
        }
        if let Some(look) = self.look.filter(|look| look.at <= now) {
            self.look = match self.routes.upkeep(now, now - look.since) {
                Upkeep::Nothing => None,
                Upkeep::Later => Some(Look { at: now + UPKEEP, ..look }),
                Upkeep::Join { sources, after, moved } => {
                    let selector = self.selector(&self.routes.shown_by(&sources));
                    let stream = self.streams.open(&self.services, Some(after), selector);
                    self.routes.follow(stream, &sources, after, moved);
                    self.close_idle();
                    Some(Look { at: now + UPKEEP, ..look })
                }
            };
        }
    }

    /// Lists the shards that wait for it.
    fn list(&mut self) {
        let waiting = self.routes.waiting();
        // Otherwise after another list is complete.
        if !waiting.is_empty() && self.routes.may_list() {
            let selector = self.selector(&waiting);
            let stream = self.streams.open(&self.services, None, selector);
            self.routes.list(stream, &waiting);
        }
    }

    fn selector(&self, shards: &BTreeSet<ShardId>) -> String {
        self.routes.selector(shards, self.services.kind)
    }

    fn list_soon(&mut self) {
        if self.list_at.is_none() && !self.routes.waiting().is_empty() {
            self.list_at = Some(Instant::now() + GATHERING);
        }
    }

    fn look_soon(&mut self) {
        let now = Instant::now();
        self.look.get_or_insert(Look { at: now + UPKEEP, since: now });
    }

    /// Applies the steps of a stream.
    fn take(&mut self, stream: StreamId) {
        let now = Instant::now();
        let Some(steps) = self.streams.steps() else {
            // A watch goes on for ever, unless its runtime shuts down.
            return self.streams.close(stream);
        };
        let is_part = steps.len() < streams::MAX_STEPS;
        let outbox = &mut self.outbox;
        let mut deliver = |shard, change| outbox.push(shard, change);
        let mut has_turned = false;
        for step in steps {
            has_turned |= self.routes.step(stream, step, now, &mut deliver);
        }
        if has_turned {
            self.close_idle();
            self.list_soon();
            self.look_soon();
        }
        if self.outbox.is_due() {
            let is_stream = self.delivered.replace(now).is_some_and(|last| now - last < IDLE_GAP);
            self.hold_until = (is_part && is_stream).then(|| now + DEBOUNCE);
        }
    }

    fn close_idle(&mut self) {
        for stream in self.routes.take_idle() {
            self.streams.close(stream);
        }
    }
}

#[cfg(test)]
mod tests;
