//! The actors of a replica and its lease manager, without threads, network and clock of their own. A
//! [`Controller`](super::Controller) brings those of the host, and a simulation brings others.

use std::io;

use actix::{Actor, Addr};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::context::ReplicaContext;
use crate::actors::leases::{LeaseManager, LeaseManagerHandle, ReplicaPhase, View};
use crate::actors::messages::protocol::{ProgressSender, ShardProgress};
use crate::actors::orphans::stripped_pods::StrippedPods;
use crate::actors::shards::replica_actor::{DescribeAll, ReplicaActor};
use crate::actors::shards::shard_actor::ShardReport;

/// The actors of a replica.
pub(super) struct Actors {
    pub(super) replica: Addr<ReplicaActor>,
    pub(super) stripped_pods: StrippedPods,
}

impl Actors {
    /// Starts them on the current actix system.
    ///
    /// # Errors
    /// When the operating system gives no threads for the shards.
    ///
    /// # Panics
    /// Outside an actix system.
    pub(super) fn start(cx: ReplicaContext, progress: ProgressSender) -> io::Result<Self> {
        let replica = ReplicaActor::new(cx.clone(), progress)?.start();
        Ok(Self { replica, stripped_pods: StrippedPods::new(cx) })
    }
}

/// A replica whose actors, requests and timers all run on the current thread.
pub struct Replica {
    actors: Actors,
    lease_manager: LeaseManagerHandle,
    lease_task: AbortHandle,
    cx: ReplicaContext,
}

impl Replica {
    /// Starts a replica on the current actix system. It has one arbiter, and no part in the election of the
    /// replica that looks for pods without labels: see [`lead`](Self::lead).
    ///
    /// # Errors
    /// When the operating system gives no threads for the shards.
    ///
    /// # Panics
    /// Outside an actix system, and outside the tokio runtime of `cx`.
    pub fn start(cx: ReplicaContext) -> io::Result<Self> {
        let (lease_manager, handle) = LeaseManager::new(cx.clone());
        let actors = Actors::start(cx.clone(), handle.progress().clone())?;
        let lease_task = lease_manager.start(actors.replica.clone().recipient());
        Ok(Self { actors, lease_manager: handle, lease_task, cx })
    }

    /// Makes this replica the one that looks for pods without labels, or no longer.
    pub fn lead(&self, elected: bool) {
        self.actors.stripped_pods.lead(elected);
    }

    /// Hands all shards over; [`has_ended`](Self::has_ended) is true when that is done.
    pub fn leave(&self) {
        self.lease_manager.progress().report(ShardProgress::Leave);
    }

    /// Whether the replica has ended. It was asked to leave, must not run on this cluster, or a part that
    /// it depends on has panicked.
    pub fn has_ended(&self) -> bool {
        self.lease_task.is_finished()
            || self.cx.downfall.has_come().is_some()
            || matches!(self.view().borrow().phase, ReplicaPhase::Ended(_))
    }

    /// Whether the heartbeat is valid and the caches of all owned shards are synced.
    pub fn is_ready(&self) -> bool {
        self.view().borrow().phase == ReplicaPhase::Ready
    }

    /// A report on each owned shard.
    pub async fn shards(&self) -> Vec<ShardReport> {
        self.actors.replica.send(DescribeAll).await.unwrap_or_default()
    }

    /// Its services: metrics among them.
    pub fn context(&self) -> &ReplicaContext {
        &self.cx
    }

    fn view(&self) -> watch::Receiver<View> {
        self.lease_manager.view()
    }
}
