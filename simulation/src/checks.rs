//! The promises that must hold whatever breaks.

mod counts;
mod creations;
mod failures;
mod finals;
mod freshness;
mod lingering;
pub(crate) mod memory;
mod order;
mod owners;
mod policies;
mod repeats;
mod restarts;
mod results;
mod selection;
mod tenants;
mod traffic;
mod verdicts;

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::{Method, Request, Response, Uri};

use crate::ledger::{Change, Kind, Ledger};
use crate::network::Sent;
use crate::plan::Plan;
use crate::time::Time;
use crate::world::Slot;

pub(crate) use self::traffic::REFUSED;

use self::freshness::Freshness;
use self::lingering::Lingering;
use self::owners::Owners;
use self::repeats::Repeats;
pub(crate) use self::repeats::claims_shard;
use self::tenants::{Tenants, Wrong};
use self::traffic::Traffic;
use self::verdicts::Verdicts;

/// A promise, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    /// Succeeded and failed are no less than what really happened.
    Lost,
    /// Succeeded and failed are no more than what really happened.
    Doubled,
    /// No index runs again after its success, no pod is surplus, and none that is not wanted any more stays.
    Surplus,
    /// No finalizer is left on pods of finished or deleted Jobs.
    Finalizers,
    /// Everything reaches its end once nothing breaks any more.
    Ends,
    /// A shard has at most one owner.
    OneOwner,
    /// A replica keeps its shards if nothing but one lost request disturbs it.
    Keeps,
    /// A refusal that concerns one pod holds up only that pod.
    Apart,
    /// No shard without owner for longer than the lease.
    Owned,
    /// The API server's validation accepts every write.
    Accepted,
    /// No hot loop, and no more writes once everything is at rest.
    Paced,
    /// Memory is back to its base when all is done.
    Memory,
    /// No more failed pods are kept than the Job asks for.
    Kept,
    /// Finished Jobs stay finished, and counts never decrease.
    Monotonic,
    /// The end, suspension and deletion of a Job follow from the events before.
    Verdict,
    /// A Job adopts only pods that match its selector.
    Selects,
    /// `active` and `ready` of a status are at most ten seconds old. `active` includes each pod until its
    /// deletion.
    Fresh,
    /// Acts of a tenant neither affect nor delay the objects of others.
    Unharmed,
    /// Replicas run.
    Runs,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// When.
    pub at: Time,
    /// Description of the event.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}: {}", self.promise, self.at, self.what)
    }
}

/// Whose request has caused a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Author {
    pub(crate) replica: usize,
    pub(crate) sent_at: Time,
}

/// All checks of a world.
pub(crate) struct Checks {
    violation: Option<Violation>,
    over: bool,
    requests: u64,
    traffic: Traffic,
    repeats: Repeats,
    owners: Owners,
    verdicts: Verdicts,
    lingering: Lingering,
    freshness: Freshness,
    /// Present if the plan has a tenant.
    tenants: Option<Tenants>,
    /// Counts of Jobs as last seen, by UID: succeeded, failed, finished.
    seen: BTreeMap<String, (u64, u64, bool)>,
    /// Since when everything has been at rest.
    at_rest_since: Option<Time>,
    /// When etcd was restored. The state at that time is uncertain.
    restored: Option<Time>,
}

impl Checks {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            violation: None,
            over: false,
            requests: 0,
            traffic: Traffic::new(plan),
            repeats: Repeats::default(),
            owners: Owners::new(&plan.settings),
            verdicts: Verdicts::default(),
            lingering: Lingering::default(),
            freshness: Freshness::default(),
            tenants: plan.has_tenant().then(Tenants::default),
            seen: BTreeMap::new(),
            at_rest_since: None,
            restored: None,
        }
    }

    /// Whether a promise is broken.
    pub(crate) fn failed(&self) -> bool {
        self.violation.is_some()
    }

    /// Whether the world has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the violation, the number of requests, and for each minute the most requests of one kind for
    /// one object.
    pub(crate) fn finish(self) -> (Option<Violation>, u64, BTreeMap<u64, (u32, String)>) {
        (self.violation, self.requests, self.repeats.by_minute())
    }

    /// The first violation counts.
    fn violated(&mut self, promise: Promise, at: Time, what: String) {
        self.violation.get_or_insert(Violation { promise, at, what });
    }

    /// Something that should not happen to any world.
    pub(crate) fn broken(&mut self, at: Time, what: String) {
        self.violated(Promise::Runs, at, what);
    }

    /// etcd was restored: forgets the counts of before.
    pub(crate) fn doubt(&mut self, now: Time) {
        self.restored = Some(now);
        self.seen.clear();
        self.verdicts.forget();
    }

    /// The API server was unavailable, or etcd was restored: the times without owner begin again.
    pub(crate) fn forgive(&mut self) {
        self.owners.forgive();
    }

    /// A replica sends a request.
    pub(crate) fn sent(&mut self, at: Time, from: usize, sent: &Sent, ledger: &Ledger) {
        self.requests += 1;
        self.repeats.sent(at, from, &sent.request);
        if let Some(what) = self.traffic.sent(at, from, sent) {
            self.violated(Promise::Paced, at, what);
        }
        let wrong = self.tenants.as_mut().and_then(|tenants| tenants.sent(at, from, &sent.request, ledger));
        // After a restore the ledger knows no pod of before.
        let wrong = wrong.filter(|wrong| self.restored.is_none() || !matches!(wrong, Wrong::Harm(_)));
        self.tenant_wrongs(at, wrong);
        if self.restored.is_none()
            && let Some(what) = self.owners.sent(at, from, &sent.request, ledger)
        {
            self.violated(Promise::OneOwner, at, what);
        }
    }

    /// Records a violation that a tenant has caused.
    fn tenant_wrongs(&mut self, at: Time, wrong: Option<Wrong>) {
        match wrong {
            Some(Wrong::Harm(what)) => self.violated(Promise::Unharmed, at, what),
            Some(Wrong::Pace(what)) => self.violated(Promise::Paced, at, what),
            Some(Wrong::Held(what)) => self.violated(Promise::Finalizers, at, what),
            None => {}
        }
    }

    /// A request of a replica arrives at the API server.
    pub(crate) fn arrived(
        &mut self,
        at: Time,
        from: usize,
        sent_at: Time,
        request: &Request<Bytes>,
        ledger: &Ledger,
    ) {
        if self.restored.is_none()
            && let Some(what) = self.owners.arrived(from, sent_at, request, ledger)
        {
            self.violated(Promise::OneOwner, at, what);
        }
    }

    /// When the replica decided on a request that arrives now. If the API server was too busy to read it, the
    /// replica sends it again unchanged. `busy`: it is not read this time either.
    pub(crate) fn decided(
        &mut self,
        from: usize,
        request: &Request<Bytes>,
        sent_at: Time,
        busy: bool,
    ) -> Time {
        self.traffic.decided(from, request, sent_at, busy)
    }

    /// A replica knows what has become of a request, or will never know.
    pub(crate) fn settled(&mut self, from: usize, uri: &Uri) {
        self.traffic.settled(from, uri);
    }

    /// A life of a replica has ended, and with it all that it has asked.
    pub(crate) fn ended(&mut self, replica: usize) {
        self.traffic.ended(replica);
    }

    /// A replica's request was answered.
    pub(crate) fn answered(
        &mut self,
        at: Time,
        from: usize,
        method: &Method,
        uri: &str,
        answer: &Response<Bytes>,
    ) {
        if let Some(what) = traffic::rejected(from, method, uri, answer) {
            self.violated(Promise::Accepted, at, what);
        }
    }

    /// An object has changed.
    pub(crate) fn changed(
        &mut self,
        at: Time,
        plan: &Plan,
        ledger: &Ledger,
        change: &Change,
        author: Option<Author>,
    ) {
        if let Some(tenants) = self.tenants.as_mut().filter(|_| author.is_none() && change.of_tenant) {
            tenants.changed(at);
        }
        if self.restored.is_some() {
            return;
        }
        let (is_job, is_pod) = (change.kind == Kind::Job, change.kind == Kind::Pod);
        let of_pod = ledger.pods.get(&change.uid).filter(|_| is_pod).and_then(|pod| pod.job.as_deref());
        if let Some(job) = of_pod.or(is_job.then_some(&*change.uid)) {
            let written = is_job && author.is_some();
            self.freshness.changed(at, ledger, job, written);
            let wrong =
                written.then(|| self.freshness.written(at, plan, ledger, &self.owners, job)).flatten();
            if let Some(what) = wrong {
                self.violated(Promise::Fresh, at, what);
            }
        }
        let what = match (change.kind, author) {
            (Kind::Lease, _) => {
                let unraised =
                    self.owners.claimed(at, ledger, change, author).map(|what| (Promise::OneOwner, what));
                let lost = self.owners.changed(at, ledger, change, author);
                unraised.or(lost.map(|what| (Promise::Keeps, what)))
            }
            // If replicas ignore the Leases, an owner that was suspended acts without a fence, so its
            // creations are not checked. A replica that sees the pods of other owners late is exempt, too.
            (Kind::Pod, Some(author))
                if change.created
                    && self.owners.tell_apart(author.replica, at)
                    && !plan.settings.hears_late_of_others(author.replica) =>
            {
                let lag = |touched| self.owners.lag_since(plan, author.replica, touched);
                let what = creations::check(plan, ledger, &change.uid, author, lag);
                what.map(|what| (Promise::Surplus, what))
            }
            (Kind::Pod, Some(author)) if !change.created => selection::check(at, ledger, &change.uid)
                .map(|what| (Promise::Selects, format!("replica-{}: {what}", author.replica))),
            (Kind::Job, _) => {
                let before = self.seen.get(&change.uid).copied();
                let (now, what) = counts::compare(ledger, &change.uid, before);
                self.seen.insert(change.uid.clone(), now);
                let refuses = plan.refuses(at) || !self.owners.all_undisturbed(at);
                let verdict = self.verdicts.changed(plan, ledger, change, author, refuses);
                what.map(|what| (Promise::Monotonic, what))
                    .or(verdict.map(|what| (Promise::Verdict, what)))
                    .or_else(|| counts::ahead(plan, ledger, &change.uid).map(|what| (Promise::Doubled, what)))
            }
            _ => None,
        };
        if let Some((promise, what)) = what {
            self.violated(promise, at, what);
        }
    }

    /// A stranger deletes or changes the Lease of this path.
    pub(crate) fn lease_damaged(&mut self, now: Time, path: &str, ledger: &Ledger) {
        self.owners.damaged(now, path, ledger);
    }

    /// Something is wrong with a replica, or with all, until then.
    pub(crate) fn disturbed(&mut self, replica: Option<usize>, until: Time) {
        self.owners.disturbed(replica, until);
    }

    /// A look at the whole. `in_vain`: a replica waits for an answer that was lost.
    pub(crate) fn look(&mut self, now: Time, plan: &Plan, ledger: &Ledger, slots: &[Slot], in_vain: bool) {
        if let Some(what) = self.owners.look(now, ledger, slots) {
            self.violated(Promise::Owned, now, what);
        }
        if let Some(what) = finals::held_back(now, plan, ledger, &self.owners) {
            self.violated(Promise::Apart, now, what);
        }
        if let Some(what) = self.lingering.look(now, plan, ledger, &self.owners) {
            self.violated(Promise::Surplus, now, what);
        }
        let wrong = self.tenants.as_mut().and_then(|tenants| tenants.look(now, plan, ledger, &self.owners));
        self.tenant_wrongs(now, wrong.filter(|_| self.restored.is_none()));
        let stale = self.freshness.look(now, plan, ledger, &self.owners).filter(|_| self.restored.is_none());
        if let Some(what) = stale {
            self.violated(Promise::Fresh, now, what);
        }
        if now < plan.settings.calm_from {
            return;
        }
        if in_vain || finals::unrest(now, plan, ledger, slots).is_some() {
            self.at_rest_since = None;
            return;
        }
        let since = *self.at_rest_since.get_or_insert(now);
        if now.since(since) >= finals::QUIET {
            self.over = true;
            if let Some((promise, what)) = finals::check(now, plan, ledger, slots, self.restored) {
                self.violated(promise, now, what);
            }
            // Replicas with late watches have work a little longer.
            let settled = since + plan.settings.lag() + finals::QUIET / 4;
            if let Some(what) = self.traffic.writes_at_rest(settled).filter(|_| self.restored.is_none()) {
                self.violated(Promise::Paced, now, what);
            }
        }
    }

    /// The patience with the world is over.
    pub(crate) fn never_ends(&mut self, now: Time, plan: &Plan, ledger: &Ledger) {
        let promise = match Self::wait_for_finalizers(now, plan, ledger) {
            true => Promise::Finalizers,
            false => Promise::Ends,
        };
        let what = finals::unrest(now, plan, ledger, &[]);
        self.violated(promise, now, what.unwrap_or_else(|| "a replica still has work".into()));
    }

    /// Whether the first thing that is not at its end is a finalizer.
    fn wait_for_finalizers(now: Time, plan: &Plan, ledger: &Ledger) -> bool {
        finals::unrest(now, plan, ledger, &[]).is_some_and(|what| what.contains("finalizer"))
    }
}
