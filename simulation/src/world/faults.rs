//! Plays faults.

use std::collections::btree_map::Entry;
use std::time::Duration;

use super::{Event, World};
use crate::plan::{Act, Fault};
use crate::users;

impl World {
    /// A step of the plan.
    pub(super) fn step(&mut self, number: usize) {
        let Some(step) = self.plan.steps.get(number).cloned() else { return };
        self.log.tell(self.now, &format!("step {number}"), format_args!("{}", step.act));
        match step.act {
            Act::User { job, act } => self.user_acts(job, &act),
            Act::Fault(fault) => self.breaks_now(number, fault),
            Act::Rare(rare) => self.rare(rare),
            Act::Tenant(act) => self.tenant_acts(number, act),
        }
    }

    fn breaks_now(&mut self, number: usize, fault: Fault) {
        let now = self.now;
        if let Some((replica, time)) = fault.disturbs() {
            self.checks.disturbed(replica, now + time);
        }
        match fault {
            Fault::Crash { replica, down } => {
                self.end(replica);
                self.agenda.add(now + down, Event::Start(replica));
            }
            Fault::Restart { replica, down } => self.restart(replica, down),
            Fault::Freeze { replica, time } => self.freeze(replica, time, None),
            Fault::Suspend { replica, time } => self.freeze(replica, time, Some(time)),
            Fault::ClockStep { replica, millis } => {
                if let Some(slot) = self.slots.get_mut(replica) {
                    slot.skew += millis;
                    slot.life.iter().for_each(|life| life.step_wall_clock(millis));
                }
            }
            Fault::Partition { replica, time } => {
                self.link(replica, |link| link.partitioned_until = now + time)
            }
            Fault::Unreachable { replica, time } => {
                self.link(replica, |link| link.unreachable_until = now + time);
                self.cut_watches(Some(replica));
            }
            Fault::LoseReplies { replica, time, percent } => {
                self.link(replica, |link| link.losing = (now + time, percent));
            }
            Fault::Swallow { replica, requests, heartbeats } => self.link(replica, |link| {
                (link.swallows, link.swallows_heartbeats) = (requests, heartbeats);
            }),
            Fault::Slow { replica, time, extra } => {
                self.link(replica, |link| link.slow = (now + time, extra))
            }
            Fault::HoldWatches { replica, time } => {
                self.link(replica, |link| link.watches_held_until = now + time);
            }
            Fault::RepeatEvents { replica, time } => {
                self.link(replica, |link| link.events_come_twice_until = now + time);
            }
            Fault::CachesBehind { replica, time, by } => {
                self.link(replica, |link| link.behind = (now + time, by));
                self.cut_watches(Some(replica));
                self.agenda.add(now + time, Event::CutWatches(replica));
            }
            Fault::CutWatches { replica } => self.cut_watches(Some(replica)),
            Fault::Refuse { time, .. } => self.conditions.refusals.push((now + time, fault)),
            Fault::Down { time } => {
                self.conditions.down_until = now + time;
                self.cut_watches(None);
                self.agenda.add(now + time, Event::Up);
            }
            Fault::Compact => self.server.compact(),
            Fault::Webhook { namespace, time } => {
                self.conditions.webhooks.insert(namespace, now + time);
            }
            Fault::Restore { .. } => self.restore(number),
            Fault::Quota { namespace, pods, time } => {
                self.quota(&namespace, pods);
                self.agenda.add(now + time, Event::Unquota(namespace));
            }
            Fault::Undecodable { job, time } => {
                if let Some(job) = self.plan.jobs.get(job) {
                    self.conditions.undecodable.insert(job.name.clone(), now + time);
                }
            }
            Fault::Panic { job } => {
                if let (Some(job), Ok(mut panics)) = (self.plan.jobs.get(job), self.panics.lock()) {
                    panics.insert(job.name.clone());
                }
            }
            Fault::PanicShard { replica } => {
                if let Ok(mut panics) = self.panics.lock() {
                    panics.insert(format!("shard of replica-{replica}"));
                }
            }
            Fault::PanicWatch { replica } => self.poison_watch(replica),
            Fault::EndNamespace { namespace } => self.end_namespace(namespace),
            Fault::Leadership { leaders, time } => self.conditions.leaders = Some((now + time, leaders)),
        }
    }

    fn link(&mut self, replica: usize, change: impl FnOnce(&mut crate::link::Link)) {
        if let Some(slot) = self.slots.get_mut(replica) {
            change(&mut slot.link);
        }
    }

    /// etcd is restored: everything that has happened since the backup has not happened. Operators stop all
    /// replicas before, and start them after.
    fn restore(&mut self, step: usize) {
        let Some(backup) = self.backups.remove(&step) else { return };
        for replica in 0..self.slots.len() {
            self.end(replica);
        }
        self.server.restore(&backup);
        self.conditions.restored_at = self.now;
        self.cut_watches(None);
        self.own_watches.clear();
        self.conditions.down_until = self.now + Duration::from_secs(5);
        self.begin_anew();
        self.agenda.add(self.conditions.down_until, Event::Up);
        for replica in 0..self.slots.len() {
            self.agenda.add(self.conditions.down_until, Event::Start(replica));
        }
        // Namespaces that had been deleted are there again, and are emptied again.
        let ended =
            self.plan.steps.iter().filter(|step| step.at <= self.now).filter_map(|step| match &step.act {
                Act::Fault(Fault::EndNamespace { namespace }) => Some(namespace.clone()),
                _ => None,
            });
        for namespace in ended {
            if let Entry::Vacant(ending) = self.conditions.ending.entry(namespace.clone()) {
                ending.insert(self.now);
                self.agenda.add(self.conditions.down_until, Event::Empty(namespace));
            }
        }
        // Foreign finalizers are removed again.
        let held = self.ledger.pods.iter().filter(|(_, facts)| facts.exists() && users::holds(&facts.object));
        for (pod, _) in held {
            self.agenda.add(self.conditions.down_until, Event::Unhold(pod.clone()));
        }
    }
}
