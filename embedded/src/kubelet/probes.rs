//! Probes: whether a container has started, lives, and is ready. The rules are those of Kubernetes' kubelet.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use super::action::{Action, Target};
use super::pod::{Container, Slot};
use super::stop::StopOrder;
use super::worker::Worker;

/// Which of a container's probes it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }
}

/// Watches one run of a container as long as it lasts. Orders its stop if it does not start, or does not live.
/// `is_killed` is set then.
pub(super) async fn watch(
    worker: &Worker,
    slot: Slot,
    target: &Target,
    stop: &StopOrder,
    is_killed: &AtomicBool,
) -> Infallible {
    let container = worker.pod.spec.container(slot);
    let watched = Watched { worker, slot, container, target, stop, is_killed };
    if let Some(probe) = &container.startup_probe
        && !watched.probe(Kind::Startup, probe).await
    {
        // It will be stopped.
        return std::future::pending().await;
    }
    worker.record.send_modify(|record| record.started(slot));
    let liveness = async {
        if let Some(probe) = &container.liveness_probe {
            watched.probe(Kind::Liveness, probe).await;
        }
    };
    let readiness = async {
        match &container.readiness_probe {
            Some(probe) => drop(watched.probe(Kind::Readiness, probe).await),
            None => worker.record.send_modify(|record| record.ready(slot, true)),
        }
    };
    tokio::join!(liveness, readiness);
    std::future::pending().await
}

struct Watched<'a> {
    worker: &'a Worker,
    slot: Slot,
    container: &'a Container,
    target: &'a Target,
    stop: &'a StopOrder,
    is_killed: &'a AtomicBool,
}

impl Watched<'_> {
    /// Probes again and again: until the container has started, or is to be stopped. Readiness is asked for to the end. Returns
    /// whether the last verdict was good.
    async fn probe(&self, kind: Kind, probe: &core::Probe) -> bool {
        let Some(action) = Action::of_probe(probe) else { return true };
        let is_over = || kind != Kind::Readiness && self.stop.deadline().is_some();
        let period = seconds(probe.period_seconds, 10);
        let mut ticks = interval_at(Instant::now() + seconds_from(probe.initial_delay_seconds, 0), period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut judge = Judge::new(probe);
        let mut verdict = None;
        loop {
            ticks.tick().await;
            if is_over() {
                return false;
            }
            let limit = seconds(probe.timeout_seconds, 1);
            let outcome = match timeout(limit, self.target.perform(self.container, action)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("timed out after {} s", limit.as_secs())),
            };
            if is_over() {
                return false;
            }
            if let Err(output) = &outcome {
                let message = format!("{} probe failed: {output}", kind.name());
                self.worker.context.events.warn(&self.worker.key, "Unhealthy", &message).await;
            }
            let Some(passed) = judge.take(outcome.is_ok()) else { continue };
            if verdict.replace(passed) != Some(passed) {
                self.follow(kind, passed, probe).await;
            }
            if kind == Kind::Startup && passed || is_over() {
                return passed;
            }
        }
    }

    async fn follow(&self, kind: Kind, passed: bool, probe: &core::Probe) {
        let Self { worker, slot, container, .. } = self;
        match (kind, passed) {
            (Kind::Readiness, ready) => worker.record.send_modify(|record| record.ready(*slot, ready)),
            (Kind::Startup | Kind::Liveness, true) => {}
            (Kind::Startup | Kind::Liveness, false) => {
                let probe_name = kind.name().to_lowercase();
                let message = format!("Container {} failed {probe_name} probe", container.name);
                worker.context.events.note(&worker.key, "Killing", &message).await;
                self.is_killed.store(true, Ordering::Relaxed);
                let own = probe.termination_grace_period_seconds.map(super::pod::grace);
                self.stop.request(own.unwrap_or_else(|| worker.pod.spec.grace()));
            }
        }
    }
}

/// Counts outcomes: a verdict needs as many of a kind one after the other as the probe says.
#[derive(Debug)]
struct Judge {
    successes_needed: u32,
    failures_needed: u32,
    last: bool,
    in_a_row: u32,
}

impl Judge {
    fn new(probe: &core::Probe) -> Self {
        let needed = |given: Option<i32>, usual| {
            given.and_then(|given| u32::try_from(given).ok()).unwrap_or(usual).max(1)
        };
        Self {
            successes_needed: needed(probe.success_threshold, 1),
            failures_needed: needed(probe.failure_threshold, 3),
            last: false,
            in_a_row: 0,
        }
    }

    /// The verdict after one more outcome, if there is one.
    fn take(&mut self, passed: bool) -> Option<bool> {
        self.in_a_row = if passed == self.last { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = passed;
        let needed = if passed { self.successes_needed } else { self.failures_needed };
        (self.in_a_row >= needed).then_some(passed)
    }
}

/// A time of a probe: at least a second.
fn seconds(given: Option<i32>, usual: u64) -> Duration {
    seconds_from(given, usual).max(Duration::from_secs(1))
}

fn seconds_from(given: Option<i32>, usual: u64) -> Duration {
    Duration::from_secs(given.and_then(|given| u64::try_from(given).ok()).unwrap_or(usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_as_many_outcomes_in_a_row_as_the_probe_says() {
        let probe =
            core::Probe { success_threshold: Some(2), failure_threshold: Some(3), ..core::Probe::default() };
        let mut judge = Judge::new(&probe);
        let (passes, fails) = (true, false);
        for (outcome, verdict) in [
            (fails, None),
            (fails, None),
            (passes, None),
            (passes, Some(true)),
            (fails, None),
            (passes, None),
            (passes, Some(true)),
            (fails, None),
            (fails, None),
            (fails, Some(false)),
        ] {
            assert_eq!(judge.take(outcome), verdict);
        }
    }
}
