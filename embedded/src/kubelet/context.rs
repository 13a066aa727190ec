//! The state that all pods of this node share.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::KubeletMode;
use super::claims::Claims;
use super::events::Events;
use super::gpus::Gpus;
use super::logs::LogIndex;
use super::mounting::Mounting;
use super::pod_folder::PodFolders;
use super::pulls::PullObserver;
use super::service_account::Accounts;
use super::stragglers::Stragglers;
use super::supervisor::Supervisor;
use super::workspace::Workspace;
use crate::pod_entrance::PodEntrance;

/// State shared by all pods of this node.
pub(super) struct Context {
    pub(super) client: kube::Client,
    pub(super) node_name: String,
    pub(super) mode: KubeletMode,
    /// The way of pods to the API server, if they have one.
    pub(super) api: Option<PodEntrance>,
    pub(super) accounts: Accounts,
    pub(super) claims: Claims,
    pub(super) workspace: Workspace,
    pub(super) mounting: Mounting,
    pub(super) pulls: Arc<dyn PullObserver>,
    pub(super) pods: PodFolders,
    pub(super) logs: Arc<LogIndex>,
    pub(super) events: Events,
    /// Events of the scheduler.
    pub(super) scheduler_events: Events,
    pub(super) gpus: Gpus,
    pub(super) stragglers: Stragglers,
    /// Runs processes; absent if there are none.
    pub(super) supervisor: Option<Arc<Supervisor>>,
    /// Cancelled when the kubelet stops.
    pub(super) closing: CancellationToken,
}

impl Context {
    /// Ends what another kubelet has left running of a pod.
    pub(super) async fn kill_left(&self, pod_uid: &str) {
        match &self.mode {
            KubeletMode::Process => self.stragglers.kill(pod_uid).await,
            KubeletMode::Containers(engine) => {
                self.closing.run_until_cancelled(engine.remove_pod(pod_uid)).await;
            }
            KubeletMode::Simulated => {}
        }
    }
}
