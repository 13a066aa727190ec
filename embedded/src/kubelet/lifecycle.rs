//! The lifecycle of one pod on this node, from assignment to removal.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::client::PodClient;
use super::context::Context;
use super::leftovers::Leftovers;
use super::manager::Seat;
use super::pod::{Pod, PodKey};
use super::worker::Worker;
use super::{reporter, service_account};
use crate::restarts::Restarts;

/// The desired state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The pod runs to completion.
    Run,
    /// The pod stops within the grace period; then its object is removed.
    Delete {
        /// Time between SIGTERM and SIGKILL.
        grace: Duration,
    },
    /// The object is gone: running processes are stopped at once.
    Gone,
    /// The kubelet stops: processes are stopped, the object stays unchanged.
    Abandon,
}

impl Wanted {
    fn manages_object(&self) -> bool {
        matches!(self, Self::Run | Self::Delete { .. })
    }
}

/// Runs a pod, reports its status, and cleans up once it is gone. `taken_over` means that a previous kubelet
/// may have run it. `seat` is the pod's place on the node until it has ended.
pub(super) async fn run_pod(
    context: Arc<Context>,
    pod: Arc<Pod>,
    taken_over: bool,
    wanted: watch::Receiver<Wanted>,
    seat: Seat,
) {
    let key = PodKey::of(&pod);
    let mut seat = Some(seat);
    let mut restarts = Restarts::of(format!("the worker of pod {key}"), &context.closing);
    loop {
        let is_restart = restarts.count() > 0;
        let run = async {
            let mut pod = Arc::clone(&pod);
            if is_restart {
                // Continued as by another kubelet, from what is on the API server and on the disk.
                let client = PodClient::new(context.client.clone(), key.clone());
                pod = client.read().await.map_or(pod, Arc::new);
            }
            run_pod_once(&context, pod, taken_over || is_restart, wanted.clone(), &mut seat).await;
        };
        if restarts.run(run).await.is_some() {
            return;
        }
    }
}

async fn run_pod_once(
    context: &Arc<Context>,
    pod: Arc<Pod>,
    taken_over: bool,
    wanted: watch::Receiver<Wanted>,
    seat: &mut Option<Seat>,
) {
    let key = PodKey::of(&pod);
    let client = PodClient::new(context.client.clone(), key.clone());
    let pod = service_account::give(context, &client, pod).await;
    let left = if taken_over { Leftovers::of(context.pods.of(&key)).await } else { Leftovers::default() };
    context.logs.add_pod(&key, &left);
    let worker = Arc::new(Worker::new(Arc::clone(context), pod, &left, client.clone()));
    if taken_over {
        // If the previous kubelet was killed, it may have left something behind.
        worker.kill_left(wanted.clone()).await;
    }
    let conditions = worker.pod.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
    let report = reporter::report(&client, &worker.pod.spec, conditions, worker.record.subscribe());
    let mut orders = wanted.clone();
    let reporting = async {
        tokio::select! {
            () = report => {}
            _ = orders.wait_for(|wanted| !wanted.manages_object()) => {}
        }
    };
    tokio::join!(worker.run(wanted.clone()), reporting);
    *seat = None;

    await_removal(context, &client, &key, wanted).await;
}

/// Serves the logs of a pod that finished under a previous kubelet.
pub(super) async fn serve_logs(context: Arc<Context>, key: PodKey, wanted: watch::Receiver<Wanted>) {
    let mut restarts = Restarts::of(format!("the worker of pod {key}"), &context.closing);
    let client = PodClient::new(context.client.clone(), key.clone());
    let serve = async || {
        context.logs.add_pod(&key, &Leftovers::of(context.pods.of(&key)).await);
        await_removal(&context, &client, &key, wanted.clone()).await;
    };
    while restarts.run(serve()).await.is_none() {}
}

/// Keeps logs and volumes of a finished pod available until it is deleted.
async fn await_removal(
    context: &Context,
    client: &PodClient,
    key: &PodKey,
    mut wanted: watch::Receiver<Wanted>,
) {
    let mut order = wanted.wait_for(|wanted| *wanted != Wanted::Run).await.map(|order| *order);
    if let Ok(Wanted::Delete { .. }) = order {
        let mut orders = wanted.clone();
        tokio::select! {
            () = client.remove() => {}
            _ = orders.wait_for(|wanted| !wanted.manages_object()) => {}
        }
        // The object may stay while it has finalizers.
        order = wanted.wait_for(|wanted| !wanted.manages_object()).await.map(|order| *order);
    }
    context.logs.remove_pod(key);
    // The next kubelet needs the directory to continue this pod.
    if !matches!(order, Ok(Wanted::Abandon)) {
        context.pods.of(key).remove().await;
    }
}
