//! The lives of replicas: they start, freeze, leave and end, and one of them leads.

use std::sync::Arc;
use std::time::Duration;

use yardmaster::actors::test_hooks::{PartHook, ReconcileHook, ShardHook, TestHooks};
use yardmaster::actors::{ControllerConfig, FeatureGates};
use yardmaster::job::names::BUILT_IN_CONTROLLER;
use yardmaster::sharding::ShardCount;

use super::{Event, PANIC, World, rare};
use crate::panics;
use crate::replica::Life;
use crate::time::Time;

impl World {
    /// Lets a replica run up to `until`. Returns when it has sent something, if that is earlier.
    pub(super) fn let_run(&mut self, replica: usize, until: Time) -> Time {
        let Some(slot) = self.slots.get_mut(replica) else { return until };
        let Some(life) = slot.life.as_ref().filter(|_| !slot.frozen) else { return until };
        let reached = life.run(until);
        let sent = life.sent();
        let lives = slot.lives;
        let panicked = self.take_panics(replica, reached);
        for (at, sent) in sent {
            self.send(replica, lives, at, sent);
        }
        if panicked {
            self.ends_by_panic(replica);
        }
        until.min(reached)
    }

    /// Records the panics of a replica that has just run up to this time. Returns whether there were any.
    pub(super) fn take_panics(&mut self, replica: usize, at: Time) -> bool {
        let panics = panics::take();
        for panic in &panics {
            // The line of this file that panics has nothing to do with the world.
            let is_planned = panic.contains(PANIC);
            let what = if is_planned { PANIC } else { panic };
            self.log.tell(at, &format!("replica-{replica}"), format_args!("{what}"));
            if !is_planned {
                self.checks.broken(at, format!("replica-{replica} {panic}"));
            }
        }
        !panics.is_empty()
    }

    /// Starts a replica.
    pub(super) fn start(&mut self, replica: usize) {
        let config = self.config(replica);
        let Some(slot) = self.slots.get_mut(replica).filter(|slot| slot.life.is_none()) else { return };
        slot.lives += 1;
        slot.frozen = false;
        slot.leaving = false;
        slot.leads = false;
        self.log.tell(self.now, &format!("replica-{replica}"), format_args!("starts"));
        match Life::start(config, self.now, slot.skew) {
            Ok(life) => slot.life = Some(life),
            Err(error) => self.checks.broken(self.now, format!("no runtime for a replica: {error}")),
        }
    }

    fn config(&self, replica: usize) -> ControllerConfig {
        let settings = &self.plan.settings;
        let lives = self.slots.get(replica).map_or(0, |slot| slot.lives);
        let panics = self.panics.clone();
        let hook = ReconcileHook(Arc::new(move |job| {
            let panics_now = panics.lock().is_ok_and(|mut jobs| jobs.remove(&*job.name));
            assert!(!panics_now, "{PANIC}");
        }));
        let (panics, mark) = (self.panics.clone(), format!("shard of replica-{replica}"));
        let shard_hook = ShardHook(Arc::new(move |_| {
            let panics_now = panics.lock().is_ok_and(|mut marks| marks.remove(&mark));
            assert!(!panics_now, "{PANIC}");
        }));
        let panics = self.panics.clone();
        let part_hook = PartHook(Arc::new(move |part| {
            let panics_now = panics
                .lock()
                .is_ok_and(|mut marks| !marks.is_empty() && marks.remove(&rare::mark(part, replica)));
            assert!(!panics_now, "{PANIC}");
        }));
        let defaults = ControllerConfig::default();
        ControllerConfig {
            controller_name: match settings.replaces_built_in {
                true => BUILT_IN_CONTROLLER.to_owned(),
                false => defaults.controller_name.clone(),
            },
            identity: format!("replica-{replica}"),
            process: uuid::Uuid::from_u64_pair(replica as u64, lives.into()),
            shards: ShardCount::new(settings.shards).unwrap_or(defaults.shards),
            kube_api_qps: settings.qps,
            pod_failure_backoff: Duration::from_millis(500),
            pod_failure_backoff_max: Duration::from_secs(5),
            pod_failure_backoff_min: Duration::ZERO,
            api_backoff_max: Duration::from_secs(10),
            ttl_controller: true,
            max_uncounted_pods: settings.max_uncounted.unwrap_or(defaults.max_uncounted_pods),
            feature_gates: FeatureGates::default(),
            arbiters: 1,
            seed: self.plan.seed ^ (replica as u64) << 32 ^ u64::from(lives),
            test_hooks: TestHooks {
                without_leases: settings.all_own_all,
                before_reconcile: Some(hook),
                before_pods: Some(shard_hook),
                at: Some(part_hook),
            },
            ..defaults
        }
    }

    /// Chooses who looks for pods without labels.
    pub(super) fn elect(&mut self) {
        let leaders = match self.conditions.leaders {
            Some((until, leaders)) if self.now < until => leaders,
            _ => 1,
        };
        let mut left = leaders;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(life) = slot.life.as_ref().filter(|_| !slot.frozen) else { continue };
            let leads = left > 0 && life.with(|replica| replica.is_ready()).unwrap_or(false);
            left -= usize::from(leads);
            if leads && slot.leads && self.conditions.rare.panics() {
                // A leader gets the message again at each election.
                life.with(|replica| replica.lead(true));
            }
            if leads != slot.leads {
                slot.leads = leads;
                let what = if leads { "leads" } else { "no longer leads" };
                self.log.tell(
                    self.now,
                    &format!("replica-{number}"),
                    format_args!("{what} the search for pods without labels"),
                );
                life.with(|replica| replica.lead(leads));
            }
        }
        let next = self.now + self.chance.millis(2_000..=8_000);
        self.agenda.add(next, Event::Elect);
    }

    /// A replica is no more.
    pub(super) fn end(&mut self, replica: usize) {
        if let Some(slot) = self.slots.get_mut(replica) {
            slot.life = None;
            slot.lives += 1;
            slot.leads = false;
        }
        self.checks.ended(replica);
    }

    /// A replica gets the signal to leave. If it does not end in time, it is killed.
    pub(super) fn restart(&mut self, replica: usize, down: Duration) {
        const GRACE: Duration = Duration::from_secs(10);
        let Some(slot) = self.slots.get_mut(replica) else { return };
        let Some(life) = &slot.life else { return };
        slot.leaving = true;
        life.with(yardmaster::actors::Replica::leave);
        self.agenda.add(self.now + GRACE + down, Event::Start(replica));
        self.agenda.add(self.now + GRACE, Event::Thaw { replica, stood_still: None });
    }

    pub(super) fn freeze(&mut self, replica: usize, time: Duration, stands_still: Option<Duration>) {
        let Some(slot) = self.slots.get_mut(replica).filter(|slot| slot.life.is_some() && !slot.frozen)
        else {
            return;
        };
        slot.frozen = true;
        self.agenda.add(self.now + time, Event::Thaw { replica, stood_still: stands_still });
    }

    /// A replica runs again, or the time that it had for leaving is over.
    pub(super) fn thaw(&mut self, replica: usize, stood_still: Option<Duration>) {
        let Some(slot) = self.slots.get_mut(replica) else { return };
        if slot.leaving {
            return self.end(replica);
        }
        // The life that was frozen may have crashed since.
        if !std::mem::take(&mut slot.frozen) {
            return;
        }
        match (&mut slot.life, stood_still) {
            (Some(life), Some(time)) => life.suspended(time),
            (Some(life), None) => life.catch_up(self.now),
            (None, _) => {}
        }
        self.log.tell(self.now, &format!("replica-{replica}"), format_args!("runs again"));
        // Overdue work has run already, and a part of it may have panicked.
        if self.take_panics(replica, self.now) {
            self.ends_by_panic(replica);
        }
    }
}
