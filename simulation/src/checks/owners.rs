//! Owners: one a shard, and no shard without one for longer than the lease.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use serde_json::Value;
use yardmaster::sharding::ShardCount;
use yardmaster::sharding::lease::LeaseCodec;

use crate::checks::Author;
use crate::checks::traffic::object_in;
use crate::ledger::{Change, Ledger, controller};
use crate::plan::{Plan, Settings};
use crate::time::Time;
use crate::world::Slot;

/// By when a claim that a stranger has damaged has been repaired by its owner, or taken by another.
const HEALED: Duration = Duration::from_secs(90);

/// The owners of shards.
pub(super) struct Owners {
    shards: ShardCount,
    codec: LeaseCodec,
    /// The holder and session of each claim, as last seen.
    held: BTreeMap<String, (String, String)>,
    /// Whether replicas ignore the Leases.
    ignored: bool,
    /// When each replica has released a shard in good order; until it claims that again.
    released: BTreeMap<(u32, usize), Time>,
    /// The epoch of each claim, as last seen.
    epochs: BTreeMap<String, u64>,
    /// Until when something is wrong with each replica.
    disturbed: Vec<Time>,
    /// Until when a fault affects each replica alone, so that it may miss changes of claims.
    deaf: Vec<Time>,
    /// The longest time without an owner.
    longest: Duration,
    /// Since when each shard has had no living owner, although there was a replica that could.
    without: BTreeMap<u32, Time>,
    /// Since when nothing keeps each replica from claiming shards.
    well_since: Vec<Option<Time>>,
    /// Holders of claims that a stranger has deleted or made unreadable, by the name of the Lease. They go on
    /// until they see the damage, and other replicas wait that long.
    damaged: BTreeMap<String, (String, Time)>,
    /// The holder of each Lease when a stranger last damaged it, whether it was repaired since or not.
    ever_damaged: BTreeMap<String, (String, Time)>,
    /// When a stranger has last deleted each claim. If a session begins after that, it does not know the
    /// epoch.
    claims_deleted: BTreeMap<String, Time>,
    /// When each session was first seen in a heartbeat.
    sessions: BTreeMap<String, Time>,
}

impl Owners {
    pub(super) fn new(settings: &Settings) -> Self {
        use yardmaster::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};
        let name = if settings.replaces_built_in { BUILT_IN_CONTROLLER } else { EXTERNAL_CONTROLLER };
        Self {
            shards: ShardCount::new(settings.shards).unwrap_or_default(),
            codec: LeaseCodec::new(name, EXTERNAL_CONTROLLER),
            held: BTreeMap::new(),
            ignored: settings.all_own_all,
            released: BTreeMap::new(),
            epochs: BTreeMap::new(),
            disturbed: vec![Time::ZERO; settings.replicas],
            deaf: vec![Time::ZERO; settings.replicas],
            longest: settings.without_owner,
            without: BTreeMap::new(),
            well_since: Vec::new(),
            damaged: BTreeMap::new(),
            ever_damaged: BTreeMap::new(),
            claims_deleted: BTreeMap::new(),
            sessions: BTreeMap::new(),
        }
    }

    /// Something is wrong with a replica, or with all, until then; and what follows from it takes a while.
    pub(super) fn disturbed(&mut self, replica: Option<usize>, until: Time) {
        const AFTERMATH: Duration = Duration::from_secs(60);
        for (number, disturbed) in self.disturbed.iter_mut().enumerate() {
            if replica.is_none_or(|replica| replica == number) {
                *disturbed = (*disturbed).max(until + AFTERMATH);
            }
        }
        if let Some(deaf) = replica.and_then(|replica| self.deaf.get_mut(replica)) {
            *deaf = (*deaf).max(until + AFTERMATH);
        }
    }

    /// How long what a user has done at this time may take to reach a replica, at most.
    pub(super) fn lag_since(&self, plan: &Plan, replica: usize, touched: Time) -> Duration {
        /// Through all that is broken.
        const LONGEST: Duration = Duration::from_secs(90);
        let is_well = self.disturbed.get(replica).is_some_and(|until| touched >= *until);
        plan.settles(replica).filter(|_| is_well).unwrap_or(LONGEST)
    }

    /// Whether a replica does nothing that only another owner may do: it asks the Leases, or nothing is wrong with it.
    pub(super) fn tell_apart(&self, replica: usize, now: Time) -> bool {
        !self.ignored || self.disturbed.get(replica).is_some_and(|until| now >= *until)
    }

    /// Whether nothing is wrong with any replica.
    pub(super) fn all_undisturbed(&self, now: Time) -> bool {
        self.disturbed.iter().all(|until| now >= *until)
    }

    /// Checks a change of a claim: a holder with which nothing is wrong must not lose it.
    pub(super) fn changed(
        &mut self,
        now: Time,
        ledger: &Ledger,
        change: &Change,
        author: Option<Author>,
    ) -> Option<String> {
        // If a stranger has changed a claim, replicas need not respect it.
        let damaged = author.filter(|_| !change.deleted).and_then(|_| self.damaged.remove(&change.name));
        let is_damaged = damaged.is_some_and(|(_, since)| now.since(since) < HEALED);
        let lease = ledger.leases.get(&change.name)?;
        let shard = change.name.rsplit_once("-shard-")?.1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let holder = text(&lease["spec"]["holderIdentity"]);
        let session = text(&lease["metadata"]["annotations"]["yardmaster.dev/session"]);
        let number: u32 = shard.parse().ok()?;
        if let Some(claimant) = replica(&holder) {
            self.released.remove(&(number, claimant));
            // It may be gone before the next look.
            if author.is_some_and(|author| author.replica == claimant) {
                self.without.remove(&number);
            }
        }
        let (before, old) = self.held.insert(change.name.clone(), (holder.clone(), session.clone()))?;
        let owner = replica(&before)?;
        let well = now >= *self.disturbed.get(owner)?;
        let released = holder.is_empty() && author.is_some_and(|author| author.replica == owner);
        if released {
            self.released.insert((number, owner), now);
        }
        let lost = (holder != before || session != old) && !released;
        (well && lost && !is_damaged)
            .then(|| format!("{before} loses shard {shard} to {holder}, and nothing is wrong with it"))
    }

    /// Checks a claim: each has an epoch of its own, which tells the acts and reports of earlier owners
    /// apart.
    pub(super) fn claimed(
        &mut self,
        now: Time,
        ledger: &Ledger,
        change: &Change,
        author: Option<Author>,
    ) -> Option<String> {
        if change.deleted && author.is_none() {
            self.claims_deleted.insert(change.name.clone(), now);
        }
        let lease = ledger.leases.get(&change.name)?;
        let session = lease["metadata"]["annotations"]["yardmaster.dev/session"].as_str();
        if change.name.contains("-replica-")
            && let Some(session) = session
        {
            self.sessions.entry(session.to_owned()).or_insert(now);
        }
        if !change.name.contains("-shard-") {
            return None;
        }
        let epoch = lease["spec"]["leaseTransitions"].as_u64()?;
        let before = self.epochs.insert(change.name.clone(), epoch)?;
        let holder = lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())?;
        let began = session.and_then(|session| self.sessions.get(session));
        let deleted = self.claims_deleted.get(&change.name);
        // A claim of a later epoch may have come and gone while the replica was cut off.
        let is_deaf =
            author.is_some_and(|author| self.deaf.get(author.replica).is_some_and(|until| now < *until));
        if deleted.is_some_and(|deleted| is_deaf || began.is_none_or(|began| began > deleted)) {
            return None;
        }
        let is_new = self.held.get(&change.name).is_none_or(|(_, held)| session != Some(held));
        (is_new && epoch <= before)
            .then(|| format!("{holder} claims {} in epoch {epoch}, after {before}", change.name))
    }

    /// Checks a request that a replica sends now: it must act only for its own shards.
    pub(super) fn sent(
        &self,
        now: Time,
        from: usize,
        request: &Request<Bytes>,
        ledger: &Ledger,
    ) -> Option<String> {
        let job = acted_for(request, ledger)?;
        let shard = self.shards.shard_of(&job);
        let holder = self.holder(ledger, shard.0);
        if self.ignored {
            return None;
        }
        let me = format!("replica-{from}");
        let claim = self.codec.claim_name(shard);
        let damaged = self.damaged.get(&claim);
        let held_damaged = damaged.is_some_and(|(holder, since)| *holder == me && now.since(*since) < HEALED);
        if holder == Some(&*me) || held_damaged || self.looks_dead(now, &me, &claim) {
            return None;
        }
        let (method, path) = (request.method(), request.uri().path());
        Some(format!(
            "{me} sends {method} {path} for shard {shard}, which is {}'s",
            holder.unwrap_or("nobody")
        ))
    }

    /// A stranger deletes or changes the Lease of this path.
    pub(super) fn damaged(&mut self, now: Time, path: &str, ledger: &Ledger) {
        let Some((_, name)) = path.rsplit_once('/') else { return };
        let holder = ledger.leases.get(name).and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        if let Some(holder) = holder.filter(|holder| !holder.is_empty()) {
            self.damaged.insert(name.to_owned(), (holder.to_owned(), now));
            self.ever_damaged.insert(name.to_owned(), (holder.to_owned(), now));
        }
    }

    /// Whether a stranger has damaged both this claim of a replica and its heartbeat. Other replicas then
    /// count it as dead, while it goes on until it sees the damage.
    fn looks_dead(&self, now: Time, replica: &str, claim: &str) -> bool {
        let is_meant = |(holder, since): &(String, Time)| *holder == replica && now.since(*since) < HEALED;
        let of_heartbeat = |(name, damaged): (&String, _)| name.contains("-replica-") && is_meant(damaged);
        self.ever_damaged.get(claim).is_some_and(is_meant) && self.ever_damaged.iter().any(of_heartbeat)
    }

    /// Checks a request that arrives now: its sender must not have released the shard while it was in flight.
    pub(super) fn arrived(
        &self,
        from: usize,
        sent_at: Time,
        request: &Request<Bytes>,
        ledger: &Ledger,
    ) -> Option<String> {
        /// A replica waits at least so long until all is answered.
        const WAITS: Duration = Duration::from_millis(900);
        let shard = self.shards.shard_of(&acted_for(request, ledger)?);
        let at = *self.released.get(&(shard.0, from))?;
        let under_way = sent_at < at && at.since(sent_at) < WAITS;
        under_way.then(|| {
            let (method, path) = (request.method(), request.uri().path());
            format!("{method} {path} of replica-{from} arrives, which has released shard {shard} at {at}")
        })
    }

    fn holder<'a>(&self, ledger: &'a Ledger, shard: u32) -> Option<&'a str> {
        let name = self.codec.claim_name(yardmaster::sharding::ShardId(shard));
        ledger.leases.get(&name)?["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty())
    }

    /// Checks that each shard has a living owner.
    pub(super) fn look(&mut self, now: Time, ledger: &Ledger, slots: &[Slot]) -> Option<String> {
        let lives = |name: &str| {
            let slot = slots.get(replica(name)?)?;
            Some(slot.life.is_some() && !slot.frozen && now >= slot.link.partitioned_until)
        };
        let is_well = |slot: &Slot| {
            slot.life.is_some()
                && !slot.frozen
                && now >= slot.link.partitioned_until
                && now >= slot.link.unreachable_until
                // Each request or answer that vanishes costs its timeout. The time begins with the last one.
                && slot.link.swallows == 0
                && now >= slot.link.losing.0
        };
        self.well_since.resize(slots.len(), None);
        for (since, slot) in self.well_since.iter_mut().zip(slots) {
            *since = is_well(slot).then(|| since.unwrap_or(now));
        }
        // A replica that has just started must see for itself that the last owner is dead.
        let well_since = self.well_since.iter().flatten().min().copied();
        for shard in self.shards.shards().filter(|_| !self.ignored) {
            let owned = self.holder(ledger, shard.0).and_then(lives).unwrap_or(false);
            let Some(well_since) = well_since.filter(|_| !owned) else {
                self.without.remove(&shard.0);
                continue;
            };
            let since = well_since.max(*self.without.entry(shard.0).or_insert(now));
            if now.since(since) > self.longest {
                return Some(format!("shard {shard} has had no living owner since {since}"));
            }
        }
        None
    }

    /// The API server was unavailable, or etcd was restored: the times without owner begin again.
    pub(super) fn forgive(&mut self) {
        self.without.clear();
    }
}

/// The number of the replica of this name.
fn replica(name: &str) -> Option<usize> {
    name.strip_prefix("replica-")?.parse().ok()
}

/// The UID of the Job for which a request acts, if only its owner may do that.
fn acted_for(request: &Request<Bytes>, ledger: &Ledger) -> Option<String> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    match (request.method(), path.as_slice()) {
        (&Method::POST, ["api", "v1", "namespaces", _, "pods"]) => {
            let pod = object_in(request).ok()?;
            controller(&pod).map(str::to_owned)
        }
        (&Method::DELETE, ["api", "v1", "namespaces", namespace, "pods", name]) => {
            let pod = ledger.pods.values().find(|pod| pod.exists() && pod.name() == (*namespace, *name))?;
            pod.job.clone()
        }
        (&Method::PATCH, ["apis", "batch", "v1", "namespaces", namespace, "jobs", name, "status"]) => {
            // If a name was given again, the request may be meant for the Job before.
            let mut named = ledger.jobs.iter().filter(|(_, job)| job.name() == (*namespace, *name));
            let job = named.next().filter(|_| named.next().is_none())?;
            job.1.exists.then(|| job.0.clone())
        }
        _ => None,
    }
}
