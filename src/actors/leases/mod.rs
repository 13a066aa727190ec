//! The Leases of this replica: carries out the decisions of [`crate::sharding`], and reports their outcome to
//! it.
//!
//! The lease manager runs on the tokio runtime and not as an actor: a heartbeat must not wait behind Jobs.
//!
//! - *In:* readings of all Leases, answers to Lease writes, progress of the shards.
//! - *Out:* Lease writes, commands to start, drain or drop a shard, and a view for pages and probes. A
//!   command comes with the fence of the shard; the fence closes before another replica may start.
//! - *Never:* Jobs and pods, actors beyond a recipient of commands, the write gate.

mod acts;
mod answers;
mod board;
mod feed;
mod handle;
mod history;
mod incompatibility;
mod layout;
mod live;
mod server_version;
mod view;
#[cfg(feature = "test-hooks")]
mod without_leases;

use std::collections::BTreeMap;
use std::time::Duration;

use actix::Recipient;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, Stream};
use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use self::answers::Answer;
pub use self::board::{LeaseBoard, SeenLeases};
use self::feed::Feed;
pub use self::handle::LeaseManagerHandle;
use self::history::History;
pub use self::incompatibility::Incompatibility;
pub use self::view::{ReplicaPhase, View};
use super::context::ReplicaContext;
#[cfg(feature = "test-hooks")]
use super::test_hooks::Part;
use crate::actors::messages::protocol::{ProgressSender, ShardCommand, ShardProgress};
use crate::cluster::boot_clock::sleep_until;
use crate::cluster::gate::Fence;
use crate::cluster::leases::{LeaseClient, LeaseDecoder};
use crate::cluster::resource::Resource;
use crate::cluster::watch::{Change, Selection, watch};
use crate::job::names;
use crate::sharding::lease::{LeaseCodec, LeaseRecord};
use crate::sharding::{Action, Coordinator, LeaseTimes, Moment, ReplicaIdentity, ShardId};
use crate::telemetry::metrics::labels::{Handover, HandoverLabels};

/// Most changes of Leases that are applied together.
const CHUNK: usize = 256;

/// The name of this task in the log of a panic.
const WHAT: &str = "the lease manager";
/// How long the number of shards is tried to be written again.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The lease manager of a replica.
pub struct LeaseManager {
    cx: ReplicaContext,
    leases: LeaseClient,
    codec: LeaseCodec,
    reports: mpsc::UnboundedReceiver<ShardProgress>,
    view: watch::Sender<View>,
    board: LeaseBoard,
    decided: watch::Sender<Option<Instant>>,
    coordinator: Coordinator,
    /// The instant of the boot clock that [`Moment`]s count from.
    origin: Instant,
    answers: FuturesUnordered<BoxFuture<'static, Answer>>,
    /// The right to act for each shard that is owned.
    fences: BTreeMap<ShardId, Fence>,
    /// When the claim of each shard that is not synced yet was decided on.
    claimed: BTreeMap<ShardId, Instant>,
    /// When the last acknowledged heartbeat was sent.
    renewed: Option<Instant>,
    history: History,
    /// The session of the state that the replica's actors hold.
    session: u32,
}

impl LeaseManager {
    /// A lease manager for a replica with these settings, and its handle.
    pub fn new(cx: ReplicaContext) -> (Self, LeaseManagerHandle) {
        let (config, origin) = (cx.config.clone(), cx.boot_clock.now());
        let times = LeaseTimes {
            lease_duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry_period: config.retry_period,
        };
        let me = ReplicaIdentity {
            identity: config.identity.as_str().into(),
            process: config.process.simple().to_string().into(),
            shards: config.shards,
            qps: config.kube_api_qps,
        };
        let leases = LeaseClient::new(
            cx.transport.clone(),
            &config.lease_namespace,
            config.renew_deadline,
            cx.metrics.clone(),
        );
        let (progress, reports) = ProgressSender::channel();
        let (view, watched) = watch::channel(View::default());
        let (decided, last_decided) = watch::channel(None);
        let longest_wait = times.lease_duration;
        let board = LeaseBoard::default();
        let history = History::new(cx.downfall.clone());
        let lease_manager = Self {
            leases,
            codec: LeaseCodec::new(&config.controller_name, names::EXTERNAL_CONTROLLER),
            cx,
            reports,
            view,
            board: board.clone(),
            decided,
            coordinator: Coordinator::new(me, times),
            origin,
            answers: FuturesUnordered::new(),
            fences: BTreeMap::new(),
            claimed: BTreeMap::new(),
            renewed: None,
            history,
            session: 0,
        };
        (
            lease_manager,
            LeaseManagerHandle { progress, view: watched, board, decided: last_decided, longest_wait },
        )
    }

    /// Starts it; it sends its commands to `replica`.
    pub fn start(self, replica: Recipient<ShardCommand>) -> AbortHandle {
        let unit = self.cx.vital(WHAT);
        #[cfg(feature = "test-hooks")]
        if self.cx.config.test_hooks.without_leases {
            return unit.spawn(WHAT, self.run_without_leases(replica)).abort_handle();
        }
        unit.spawn(WHAT, self.run(replica)).abort_handle()
    }

    async fn run(mut self, replica: Recipient<ShardCommand>) {
        let shards = self.cx.config.shards;
        tokio::select! {
            biased;
            compatible = async {
                server_version::check(&*self.cx.transport, &self.cx.config).await?;
                layout::agree(&self.leases, &self.codec, shards).await
            } => {
                if let Err(error) = compatible {
                    return self.end(Some(error));
                }
            }
            // No shards exist yet, so the only report can be `Leave`.
            _ = self.reports.recv() => return self.end(None),
        }
        let clock = self.cx.boot_clock.clone();
        let mut changes = self.watch_leases();
        let mut feed = Feed::new(self.codec.clone());
        let mut refused = None;
        loop {
            let now = self.now();
            #[cfg(feature = "test-hooks")]
            self.cx.config.test_hooks.pass(Part::LeaseManager);
            let (actions, wake_at) = self.coordinator.decide(now, |shard| self.cx.loads.read(shard));
            let left = actions.contains(&Action::Left);
            actions.into_iter().for_each(|action| self.act(action, &replica));
            if self.session != self.coordinator.session() {
                self.session = self.coordinator.session();
                // Everything was lost, and others may have gone on: the known state may be very old.
                replica.do_send(ShardCommand::Forget);
            }
            if left {
                self.decided.send_replace(None);
                while self.answers.next().await.is_some() {}
                return self.end(refused);
            }
            self.show();
            self.decided.send_replace(Some(Instant::now()));
            let wake_at = wake_at.map(|at| self.origin + at);
            // In this order: answers and reports are few, so none of the others starves.
            tokio::select! {
                biased;
                // The process ends, and nothing is written from here on.
                _ = self.cx.downfall.comes() => return,
                Some(answer) = self.answers.next() => self.answered(answer),
                report = self.reports.recv() => self.reported(report.unwrap_or(ShardProgress::Leave)),
                () = sleep_until(&*clock, wake_at.unwrap_or(self.origin)), if wake_at.is_some() => {}
                chunk = changes.next() => {
                    for change in chunk.into_iter().flatten() {
                        self.take_in(&mut feed, change, &mut refused);
                    }
                }
            }
        }
    }

    fn watch_leases(&self) -> impl Stream<Item = Vec<Change<Lease>>> + Send + Unpin + use<> {
        let selection = Selection {
            namespace: Some(self.cx.config.lease_namespace.as_str().into()),
            ..Selection::all(Resource::LEASES)
        }
        .labelled(self.codec.selector());
        let (transport, metrics) = (self.cx.transport.clone(), self.cx.metrics.clone());
        watch(transport, selection, LeaseDecoder, metrics, self.cx.seed()).ready_chunks(CHUNK)
    }

    fn now(&self) -> Moment {
        self.instant().saturating_duration_since(self.origin)
    }

    /// The instant of the boot clock.
    fn instant(&self) -> Instant {
        self.cx.boot_clock.now()
    }

    fn end(&mut self, refused: Option<Incompatibility>) {
        self.view.send_modify(|view| *view = View::ended(refused));
    }

    /// Publishes the shards that the replica owns.
    fn show(&self) {
        let until = self.coordinator.acts_until().map(|until| self.origin + until);
        let ready = self.coordinator.is_ready(self.now());
        let next = View::of(ready, until, self.renewed, self.coordinator.states());
        self.cx.metrics.owned_shards.set(i64::try_from(next.owned()).unwrap_or(i64::MAX));
        self.view.send_if_modified(|view| {
            let changed = *view != next;
            *view = next;
            changed
        });
    }

    fn take_in(&mut self, feed: &mut Feed, change: Change<Lease>, refused: &mut Option<Incompatibility>) {
        let now = self.now();
        let gone = feed.gone(&change);
        gone.iter().for_each(|record| self.gone(record, now));
        match change {
            Change::Listed(lease) | Change::Applied(lease) => {
                if let Some(record) = self.codec.read(&lease) {
                    if let Some(error) = layout::objection(self.cx.config.shards, &record) {
                        tracing::error!(%error, "stopping");
                        *refused = Some(error);
                        self.coordinator.leave();
                    }
                    self.found(record, now);
                } else if gone.is_empty() && lease.metadata.name.as_deref() == Some(&self.codec.layout_name())
                {
                    self.restore_layout();
                }
            }
            Change::Synced { version } => {
                self.claims_listed(feed, version, now);
                self.coordinator.listed();
                self.board.listed();
            }
            Change::Restarted | Change::Deleted(_) | Change::Unreadable(_) => {}
        }
    }

    /// All Leases are listed, in this version. A claim that this replica has written and the watch has not shown since is
    /// gone, too, if the list lacks it.
    fn claims_listed(&mut self, feed: &Feed, version: u64, now: Moment) {
        let claims = self.coordinator.claims().filter(|claim| claim.version <= version);
        let missing = claims.filter(|claim| !feed.knows(&self.codec.claim_name(claim.shard)));
        let missing: Vec<_> = missing.cloned().map(LeaseRecord::Claim).collect();
        missing.iter().for_each(|record| self.gone(record, now));
    }

    fn found(&mut self, record: LeaseRecord, now: Moment) {
        self.history.shown(record.version());
        self.board.seen(&record, self.instant(), self.cx.clock.now());
        match record {
            LeaseRecord::Heartbeat(heartbeat) => self.coordinator.heartbeat_seen(heartbeat, now),
            LeaseRecord::Claim(claim) => self.coordinator.claim_seen(claim),
            LeaseRecord::Balance(balance) => self.coordinator.balance_seen(balance, now),
            LeaseRecord::Layout(_) => {}
        }
    }

    fn gone(&mut self, record: &LeaseRecord, now: Moment) {
        self.board.gone(record);
        match record {
            LeaseRecord::Heartbeat(heartbeat) => {
                self.coordinator.heartbeat_gone(&heartbeat.holder.identity, heartbeat.version, now);
            }
            LeaseRecord::Claim(claim) => self.coordinator.claim_gone(claim.shard, claim.version, now),
            LeaseRecord::Balance(balance) => self.coordinator.balance_gone(balance.version),
            LeaseRecord::Layout(_) => self.restore_layout(),
        }
    }

    /// Records the number of shards again. The Lease was deleted, or changed so that it says nothing, and a
    /// replica with another number must not start.
    fn restore_layout(&self) {
        tracing::warn!(
            name = self.codec.layout_name(),
            "the Lease with the number of shards is gone or says nothing; writing it again"
        );
        let (leases, codec, shards) = (self.leases.clone(), self.codec.clone(), self.cx.config.shards);
        self.answers.push(Box::pin(async move {
            // If another replica has written another number meanwhile, the watch shows it, and this replica
            // ends.
            match timeout(READ_TIMEOUT, layout::agree(&leases, &codec, shards)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::error!(%error, "the number of shards differs"),
                Err(_) => tracing::warn!("the number of shards was not written again"),
            }
            Answer::Nothing
        }));
    }

    fn reported(&mut self, report: ShardProgress) {
        match report {
            ShardProgress::Synced(shard, epoch) => {
                if let Some(claimed) = self.claimed.remove(&shard) {
                    let took = self.instant().saturating_duration_since(claimed);
                    self.cx.metrics.handover_duration.observe(took.as_secs_f64());
                    self.board.synced(shard, epoch, took);
                }
                self.coordinator.synced(shard, epoch);
            }
            ShardProgress::Drained(shard) => self.coordinator.drained(shard),
            ShardProgress::Dropped(shard) => self.coordinator.dropped(shard),
            ShardProgress::Failed(shard, epoch) => {
                let now = self.now();
                if self.coordinator.failed(shard, epoch, now) {
                    tracing::error!(%shard, epoch, "a shard has panicked: it is released, and claimed anew");
                }
            }
            ShardProgress::Leave => self.coordinator.leave(),
        }
    }

    fn count(&self, direction: Handover) {
        self.cx.metrics.handovers.get_or_create(&HandoverLabels { direction }).inc();
    }
}

/// Without a lease manager the right to act is not renewed.
impl Drop for LeaseManager {
    fn drop(&mut self) {
        self.fences.values().for_each(Fence::close);
    }
}
