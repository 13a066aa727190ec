//! A round: an attack from start to end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use http::Request;
use serde_json::Value;
use tokio::task::JoinSet;

use super::attacks::Attack;
use super::health::Health;
use super::user::{Tenant, USER};
use super::verdict::{Outcome, Phase, Rules};
use super::victim::Victim;
use super::yard::Yard;
use crate::claims::{Claims, all_owned, balance};
use crate::exact;
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::namespaces::collection;
use crate::pods::Simulator;
use crate::report::round as rounded;
use crate::stage::{CommonArgs, Setup};

/// Jobs that are started at once when a replica has been killed: most have a shard of it among them.
const AT_HAND_OVER: usize = 4;
/// Time in which requests are counted while only the tenant is active.
const QUIET: Duration = Duration::from_secs(1);
/// Consecutive times of [`QUIET`] without too many requests. On a busy machine, a loop may pause in a single
/// one.
const CALM: u32 = 2;
/// Time between two looks at what is awaited.
const PAUSE: Duration = Duration::from_millis(50);
/// Time between two deletions of all that the tenant has.
const AGAIN: Duration = Duration::from_millis(300);
/// Time in which a replica that is told to end has handed over its shards.
const RELEASE: Duration = Duration::from_secs(3);
/// Leftovers that are named.
const NAMED: usize = 3;

/// Whether the API server lets the tenant do less than an administrator.
pub(super) async fn has_limited_rights(ground: &Ground) -> Result<bool> {
    let client = ground.client_as(USER).await?;
    let pods = Request::get(ground.path("/api/v1", "pods")).body(Vec::new())?;
    match client.request::<Value>(pods).await {
        Ok(_) => Ok(false),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The time of a hand-over without any attack, in milliseconds. It follows from the Leases, so it is measured once.
pub(super) async fn hand_over_without_attack(
    ground: &mut Ground,
    common: &CommonArgs,
    rules: &Rules,
) -> Result<Option<f64>> {
    if common.replicas() < 2 {
        return Ok(None);
    }
    let mut round = Round::prepare(ground, common, rules, 0, None).await?;
    let Some(time) = round.hand_over().await? else { bail!("shards do not change hands without any attack") };
    round.end().await?;
    Ok(Some(time))
}

/// An attack under way.
pub(super) struct Round<'a> {
    common: &'a CommonArgs,
    rules: &'a Rules,
    yard: Yard,
    fleet: Fleet,
    claims: Claims,
    health: Health,
    victim: Victim,
    /// The watch of claims, the tenant's kubelet.
    watching: JoinSet<()>,
}

impl<'a> Round<'a> {
    /// Plays an attack. An error is one of the machine or of the API server, not of the controllers.
    pub(super) async fn play(
        ground: &mut Ground,
        common: &'a CommonArgs,
        rules: &'a Rules,
        number: usize,
        attack: Attack,
        hand_over: Option<f64>,
    ) -> Result<Outcome> {
        let begun = Instant::now();
        let mut outcome = Outcome::of(attack);
        outcome.skipped = attack.skipped(ground).await?;
        if outcome.skipped.is_some() {
            return Ok(outcome);
        }
        let mut round = Self::prepare(ground, common, rules, number, Some(attack)).await?;
        outcome.baseline = Phase { hand_over, ..Phase::of(&round.victim.play(rules.jobs).await?) };
        let target = round.victim.start_target().await?;
        outcome.rss_before = round.health.rss();
        let (client, namespace) = (ground.client_as(USER).await?, round.yard.tenant());
        let managed_by = common.managed_by();
        let tenant = Arc::new(Tenant::new(client, namespace, rules.scale, managed_by, target.clone()));
        round.attack(ground, attack, &tenant, &mut outcome).await?;
        (outcome.tenant_writes, outcome.refused) = (tenant.writes(), tenant.refused());
        round.recover(&tenant, &mut outcome).await?;
        round.judge(&mut outcome).await?;
        outcome.memory = round.health.memory();
        if outcome.tenant_writes == 0 {
            outcome.skipped = Some(format!("the API server refuses all of it: {:?}", outcome.refused));
        }
        round.end().await?;
        outcome.wall_s = rounded(begun.elapsed().as_secs_f64());
        Ok(outcome)
    }

    /// Starts replicas and waits until they share the shards.
    async fn prepare(
        ground: &Ground,
        common: &'a CommonArgs,
        rules: &'a Rules,
        number: usize,
        attack: Option<Attack>,
    ) -> Result<Self> {
        let yard = Yard::prepare(ground, number, attack.is_some_and(Attack::writes_statuses)).await?;
        let mut recipe = common.recipe(ground, Setup::default())?;
        recipe.least_backoff = "1s";
        recipe.lease_namespace = yard.leases();
        recipe.flags.extend(attack.into_iter().flat_map(Attack::flags).map(|flag| (*flag).to_owned()));
        let mut fleet = Fleet::new(recipe);
        fleet.grow(common.replicas())?;
        fleet.ready().await?;
        let victim = Victim::prepare(ground, &yard, common.managed_by(), rules.patience).await?;
        let claims = Claims::default();
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", yard.leases());
        let mut watching = JoinSet::new();
        watching.spawn(claims.clone().follow(yard.admin.clone(), leases));
        let (kubelet, pods) =
            (ground.client("load-tests-kubelet").await?, collection(&yard.tenant(), "pods"));
        let simulator = Simulator::new(kubelet.clone(), 0, ());
        watching.spawn(async move { simulator.run(kubelet, &pods).await });
        let health = Health::watch(fleet.probes(), rules.page_limit());
        let mut round = Self { common, rules, yard, fleet, claims, health, victim, watching };
        if common.replicas() > 0 && !round.is_balanced(rules.patience).await {
            bail!("the replicas do not share the shards");
        }
        Ok(round)
    }

    /// Waits until every replica owns shards, and all are owned.
    async fn is_balanced(&mut self, patience: Duration) -> bool {
        let (begun, shards) = (Instant::now(), self.common.shards);
        while begun.elapsed() < patience {
            let (owners, replicas) = (self.claims.owners(), self.fleet.identities());
            if all_owned(&owners, shards, &replicas) && balance(&owners, &replicas).0 > 0 {
                return true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        false
    }

    /// Plays the attack, and what the victim does meanwhile.
    async fn attack(
        &mut self,
        ground: &mut Ground,
        attack: Attack,
        tenant: &Arc<Tenant>,
        outcome: &mut Outcome,
    ) -> Result<()> {
        let aid = attack.prepare(ground, &self.yard).await?;
        attack.begin(tenant).await?;
        let mut going_on = JoinSet::new();
        let own = Arc::clone(tenant);
        going_on.spawn(async move { attack.go_on(&own).await });
        let latencies = self.victim.play(self.rules.jobs).await?;
        outcome.during = Phase::of(&latencies);
        outcome.broken.extend(latencies.stuck.iter().cloned());
        self.count_requests(attack, tenant, outcome).await;
        if attack == Attack::Webhooks && self.fleet.len() > 1 {
            outcome.broken.extend(self.release().await);
        }
        if self.fleet.len() > 1 && latencies.stuck.is_empty() {
            outcome.during.hand_over = self.hand_over().await?;
            if outcome.during.hand_over.is_none() {
                outcome.broken.push(format!("no hand-over within {:?}", self.rules.patience));
            }
        }
        outcome.broken.extend(self.rules.slower(&outcome.baseline, &outcome.during));
        outcome.broken.extend(self.victim.harm(&tenant.target).await?);
        outcome.broken.extend(attack.judge(tenant, &self.yard, ground).await?);
        going_on.shutdown().await;
        attack.end(tenant, aid, &self.yard).await
    }

    /// Counts requests until there are few enough, or time is up: a storm after many writes ends, a loop does not.
    async fn count_requests(&self, attack: Attack, tenant: &Tenant, outcome: &mut Outcome) {
        let (begun, mut calm) = (Instant::now(), 0);
        loop {
            let (requests, writes) = self.request_rates(tenant).await;
            (outcome.requests_per_s, outcome.tenant_writes_per_s) = (requests, writes);
            let broken = self.rules.too_many_requests(requests, writes, attack.due_requests(tenant.scale));
            calm = if broken.is_none() { calm + 1 } else { 0 };
            if calm == CALM {
                return;
            }
            if let Some(broken) = broken
                && begun.elapsed() > self.rules.patience
            {
                return outcome.broken.push(broken);
            }
        }
    }

    /// Requests of the replicas and accepted writes of the tenant in a second.
    async fn request_rates(&self, tenant: &Tenant) -> (f64, f64) {
        let (begun, requests, writes) = (Instant::now(), self.health.requests().await, tenant.writes());
        tokio::time::sleep(QUIET).await;
        let (now, writes) = (self.health.requests().await, tenant.writes() - writes);
        // A replica whose pages hang counts as it did when it last answered.
        let requests = now.saturating_sub(requests);
        let per_second = |count: u64| rounded(count as f64 / begun.elapsed().as_secs_f64());
        (per_second(requests), per_second(writes))
    }

    /// Ends a replica in good order. Returns a deviation if it waits for requests that others hold up.
    async fn release(&mut self) -> Option<String> {
        let (replicas, begun) = (self.fleet.len(), Instant::now());
        self.health.replicas(self.fleet.probes().into_iter().skip(1).collect(), true);
        self.fleet.shrink(replicas - 1).await;
        let (took, limit) = (begun.elapsed(), RELEASE.max(self.rules.noise));
        let slow = (took > limit).then(|| format!("a replica ends after {took:?}, not within {limit:?}"));
        if self.fleet.grow(replicas).is_ok()
            && tokio::time::timeout(self.rules.patience, self.fleet.ready()).await.is_ok()
        {
            self.is_balanced(self.rules.patience).await;
        }
        self.health.replicas(self.fleet.probes(), false);
        slow
    }

    /// Kills a replica. Returns the milliseconds until the others own its shards and the next Jobs are Complete.
    async fn hand_over(&mut self) -> Result<Option<f64>> {
        let replicas = self.fleet.len();
        let rest = self.fleet.probes().into_iter().skip(1).collect();
        self.health.replicas(rest, true);
        self.fleet.kill(0).await;
        let begun = Instant::now();
        let done = self.victim.play_at_once(AT_HAND_OVER).await?.is_some()
            && self.is_balanced(self.rules.patience).await;
        let time = rounded(begun.elapsed().as_secs_f64() * 1000.0);
        self.fleet.grow(replicas)?;
        if done && tokio::time::timeout(self.rules.patience, self.fleet.ready()).await.is_ok() {
            self.health.replicas(self.fleet.probes(), true);
            self.is_balanced(self.rules.patience).await;
        }
        self.health.replicas(self.fleet.probes(), false);
        Ok(done.then_some(time))
    }

    /// Waits until nothing is left of the attack: no object, no memory, no delay.
    async fn recover(&mut self, tenant: &Tenant, outcome: &mut Outcome) -> Result<()> {
        let begun = Instant::now();
        let left = self.leave(tenant).await?;
        if !left.is_empty() {
            let named = left.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            outcome.broken.push(format!("{} objects of the tenant cannot be deleted: {named}", left.len()));
        }
        self.victim.delete(&tenant.target).await?;
        loop {
            let latencies = self.victim.play(1).await?;
            outcome.after = Phase::of(&latencies);
            outcome.rss_after = self.health.rss();
            let mut worse = latencies.stuck;
            let calm = Phase { hand_over: None, ..outcome.baseline.clone() };
            worse.extend(self.rules.still_slower(&calm, &outcome.after));
            worse.extend(Rules::kept_memory(outcome.rss_before, outcome.rss_after));
            if worse.is_empty() {
                outcome.recovered_after_s = Some(rounded(begun.elapsed().as_secs_f64()));
                return Ok(());
            }
            if begun.elapsed() > self.rules.recovery {
                outcome.broken.extend(worse);
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The tenant deletes all that it has, again and again: what is created meanwhile has no garbage collector
    /// everywhere. Returns what is left when time is up.
    async fn leave(&self, tenant: &Tenant) -> Result<Vec<String>> {
        let begun = Instant::now();
        loop {
            tenant.leave().await;
            let left = self.yard.left().await?;
            if left.is_empty() || begun.elapsed() > self.rules.recovery {
                return Ok(left);
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The rules for the whole time.
    async fn judge(&mut self, outcome: &mut Outcome) -> Result<()> {
        outcome.rss_peak = self.health.peak();
        outcome.broken.extend(self.rules.too_much_memory(outcome.rss_peak));
        let ill = self.health.ill().into_iter();
        outcome.broken.extend(ill.map(|(answer, count)| format!("{answer} ({count} times)")));
        if let Err(ended) = self.fleet.check() {
            outcome.broken.push(format!("{ended:#}"));
        }
        let exact = exact::check(&self.victim.namespace, &self.yard.admin, self.victim.ledger()).await?;
        if !exact.holds() {
            outcome.broken.push(format!("the victim's pods are not counted exactly: {exact:?}"));
        }
        Ok(())
    }

    /// Ends the replicas, and deletes everything.
    async fn end(mut self) -> Result<()> {
        self.fleet.end().await;
        self.watching.shutdown().await;
        self.yard.clear().await
    }
}
