//! The company of a run of a container: its lifecycle hooks, its probes, and the orders to stop it.

use std::convert::Infallible;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use k8s_openapi::api::core::v1::LifecycleHandler;
use tokio::time::Instant;

use super::action::{Action, Target};
use super::pod::{Container, Slot};
use super::probes;
use super::stop::StopOrder;
use super::worker::Worker;

/// The least time between SIGTERM and SIGKILL after a hook, unless the pod has to be gone at once.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// Whether a container that runs may not have started yet.
pub(super) fn starts_slowly(container: &Container) -> bool {
    container.startup_probe.is_some() || post_start(container).is_some()
}

/// Whether a container counts as started, and as ready, only once a probe or a hook has found that.
pub(super) fn must_prove_itself(container: &Container) -> bool {
    starts_slowly(container) || container.readiness_probe.is_some()
}

/// Accompanies a run as long as it lasts. If its pod is stopped, orders its stop through
/// `run_stop`, after the hook for that. If a hook or a probe fails, it does the same, and a probe sets `is_killed`.
pub(super) async fn attend(
    worker: &Worker,
    slot: Slot,
    target: &Target,
    pod_stop: &StopOrder,
    run_stop: &StopOrder,
    is_killed: &AtomicBool,
) -> Infallible {
    let container = worker.pod.spec.container(slot);
    // The order to stop, before the hook has had its time.
    let asked = StopOrder::default();
    let watching = async {
        if let Some(hook) = post_start(container)
            && let Err(why) = perform(container, target, hook).await
        {
            worker
                .context
                .events
                .warn(&worker.key, "FailedPostStartHook", &format!("PostStartHook failed: {why}"))
                .await;
            asked.request(worker.pod.spec.grace());
            return std::future::pending().await;
        }
        probes::watch(worker, slot, target, &asked, is_killed).await
    };
    let stopping = async {
        let signal = asked.signal();
        signal.requested().await;
        let at_once = asked.deadline().is_some_and(|deadline| deadline <= Instant::now());
        let Some(hook) = pre_stop(container).filter(|_| !at_once) else {
            return asked.forward_to(run_stop).await;
        };
        let outcome = tokio::select! {
            outcome = perform(container, target, hook) => outcome,
            () = signal.expired() => Err("the grace period is over".to_owned()),
        };
        let least = Instant::now() + LEAST_GRACE;
        run_stop.request_until(asked.deadline().map_or(least, |deadline| deadline.max(least)));
        let telling = async {
            if let Err(why) = outcome {
                let message = format!("PreStopHook failed: {why}");
                worker.context.events.warn(&worker.key, "FailedPreStopHook", &message).await;
            }
        };
        let passing_on = async {
            tokio::time::sleep_until(least).await;
            asked.forward_to(run_stop).await
        };
        tokio::join!(telling, passing_on).1
    };
    tokio::select! {
        never = pod_stop.forward_to(&asked) => never,
        never = watching => never,
        never = stopping => never,
    }
}

fn post_start(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.post_start.as_ref()
}

fn pre_stop(container: &Container) -> Option<&LifecycleHandler> {
    container.lifecycle.as_ref()?.pre_stop.as_ref()
}

async fn perform(container: &Container, target: &Target, hook: &LifecycleHandler) -> Result<(), String> {
    match Action::of_hook(hook) {
        Some(action) => target.perform(container, action).await,
        None => Ok(()),
    }
}
