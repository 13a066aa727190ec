//! The CronJob controller: starts the Jobs of CronJobs when they are due, and deletes the oldest Jobs that
//! have ended.
//!
//! The controller looks at a CronJob whenever the CronJob or one of its Jobs changes, and when the next Job
//! is due. Each look reads the store, so its objects are never stale.

mod jobs;
mod starts;
mod sync;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use backon::ExponentialBackoff;
use jiff::{SignedDuration, Timestamp};

use self::jobs::DecodedJobs;
use super::events::Events;
use super::feed::{Feed, TableEvent};
use crate::object::{self, Key, Object};
use crate::resources;
use crate::restarts::{MAX_DELAY, delays, panics};
use crate::server::Server;
use crate::store::Change;

const CRON_JOBS: &str = "cronjobs";
const JOBS: &str = "jobs";
/// The name of this controller in the log.
const NAME: &str = "the CronJob controller";
/// The component that events name.
const COMPONENT: &str = "cronjob-controller";
/// Longest sleep while a Job is to be started. The clock may be set, and timers stand still while a laptop
/// sleeps.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// The uid of a CronJob.
type Uid = Box<str>;

/// Starts the Jobs of CronJobs until the server stops.
pub(super) async fn run(server: Arc<Server>) {
    let mut feed = Feed::start(&server, |plural| matches!(plural, CRON_JOBS | JOBS));
    let mut controller = Controller::of(Arc::clone(&server));
    loop {
        let message = tokio::select! {
            message = feed.next() => Some(message),
            () = sleep(controller.next_look()) => None,
            () = server.stop.cancelled() => Some(None),
        };
        match message {
            Some(Some((plural, event))) => controller.observe(plural, event),
            Some(None) => return,
            None => {}
        }
        controller.look_at_due().await;
    }
}

/// Sleeps for this time; without one, for ever.
async fn sleep(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.min(SLEEP_MAX)).await,
        None => std::future::pending().await,
    }
}

struct Controller {
    server: Arc<Server>,
    /// The keys of all CronJobs.
    keys: HashMap<Uid, Key>,
    /// When to look at a CronJob.
    due: HashMap<Key, Timestamp>,
    /// The backoff of CronJobs whose last look has failed.
    retries: HashMap<Key, ExponentialBackoff>,
    memory: Memory,
}

/// The memory between two looks.
struct Memory {
    events: Events,
    /// The start of each CronJob that was passed over last, so that events report it once.
    passed_over: HashMap<Uid, Timestamp>,
    /// The time at which a CronJob got another schedule. Earlier times of the new schedule are not missed.
    rescheduled: HashMap<Uid, Timestamp>,
    /// The Jobs of each CronJob.
    jobs: HashMap<Uid, DecodedJobs>,
}

impl Controller {
    fn of(server: Arc<Server>) -> Self {
        let events = Events::of(COMPONENT);
        let (passed_over, rescheduled) = (HashMap::new(), HashMap::new());
        let memory = Memory { events, passed_over, rescheduled, jobs: HashMap::new() };
        Self { server, keys: HashMap::new(), due: HashMap::new(), retries: HashMap::new(), memory }
    }

    /// The time until the next look.
    fn next_look(&self) -> Option<Duration> {
        let next = self.due.values().min()?;
        let time = next.duration_since(self.server.now()).max(SignedDuration::ZERO);
        // If the timer fired half a millisecond early, the look would find nothing due.
        Some(time.unsigned_abs() + Duration::from_millis(1))
    }

    fn observe(&mut self, plural: &'static str, event: TableEvent) {
        let now = self.server.now();
        match (plural, event) {
            (CRON_JOBS, TableEvent::Changes(changes)) => {
                changes.iter().for_each(|change| self.observe_cron_job(change, now));
            }
            (CRON_JOBS, TableEvent::Relisted(objects)) => {
                let uids: HashSet<&Uid> = objects.iter().map(|object| &object.header.uid).collect();
                let gone: Vec<Uid> = self.keys.keys().filter(|uid| !uids.contains(uid)).cloned().collect();
                gone.iter().for_each(|uid| self.forget(uid));
                objects.iter().for_each(|object| self.insert(object, now));
            }
            (_, TableEvent::Changes(changes)) => {
                for change in &changes {
                    let versions = std::iter::once(&change.new).chain(&change.old);
                    for owner in versions.flat_map(|job| job.header.owners.iter()) {
                        if let Some(key) = self.keys.get(&owner.uid) {
                            make_due(&mut self.due, key, now);
                        }
                    }
                }
            }
            (_, TableEvent::Relisted(_)) => {
                self.keys.values().for_each(|key| make_due(&mut self.due, key, now));
            }
        }
    }

    fn observe_cron_job(&mut self, change: &Change, now: Timestamp) {
        if change.deleted {
            return self.forget(&change.new.header.uid);
        }
        self.insert(&change.new, now);
        if change.old.as_deref().is_some_and(|old| has_other_schedule(old, &change.new)) {
            self.memory.rescheduled.insert(change.new.header.uid.clone(), now);
        }
    }

    fn insert(&mut self, object: &Object, now: Timestamp) {
        let key = key_of(object);
        make_due(&mut self.due, &key, now);
        self.keys.insert(object.header.uid.clone(), key);
    }

    fn forget(&mut self, uid: &str) {
        self.memory.passed_over.remove(uid);
        self.memory.rescheduled.remove(uid);
        self.memory.jobs.remove(uid);
        if let Some(key) = self.keys.remove(uid) {
            self.due.remove(&key);
            self.retries.remove(&key);
        }
    }

    /// Looks at all CronJobs whose time has come.
    async fn look_at_due(&mut self) {
        let now = self.server.now();
        let mut due: Vec<Key> =
            self.due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        due.sort_unstable();
        for key in due {
            self.due.remove(&key);
            panics(NAME, &key, || self.look_at(&key));
            tokio::task::yield_now().await;
        }
    }

    fn look_at(&mut self, key: &Key) {
        #[cfg(test)]
        super::tests::maybe_panic(key.rsplit('/').next().unwrap_or(key));
        match sync::look(&self.server, key, &mut self.memory) {
            Ok(next) => {
                self.retries.remove(key);
                if let Some(next) = next {
                    make_due(&mut self.due, key, next);
                }
            }
            Err(error) => {
                let delay =
                    self.retries.entry(key.clone()).or_insert_with(delays).next().unwrap_or(MAX_DELAY);
                tracing::debug!(%error, key = %key, ?delay, "a CronJob is looked at again");
                let again = self.server.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
                make_due(&mut self.due, key, again);
            }
        }
    }
}

/// Schedules a look at a CronJob, unless an earlier one is scheduled.
fn make_due(due: &mut HashMap<Key, Timestamp>, key: &Key, at: Timestamp) {
    let known = due.entry(Arc::clone(key)).or_insert(at);
    *known = at.min(*known);
}

fn key_of(object: &Object) -> Key {
    object::key(Some(&object.header.namespace), &object.header.name)
}

/// Whether two versions of a CronJob are due at different times.
fn has_other_schedule(old: &Object, new: &Object) -> bool {
    let Some(resource) = resources::stored(CRON_JOBS) else { return false };
    let [old, new] = [old, new].map(|object| object.decode(resource));
    ["schedule", "timeZone"].iter().any(|field| old["spec"][field] != new["spec"][field])
}
