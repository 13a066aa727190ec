//! The parts that all pairs share: the API server, both controllers, and the mirror.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::join_all;
use http::Request;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;

use super::mirror::Mirror;
use super::plan::Turn;
use super::side::Side;
use crate::claims::{Claims, all_owned};
use crate::fleet::Fleet;
use crate::ground::Ground;
use crate::namespaces;
use crate::stage::{BUILT_IN, CommonArgs, Setup};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
/// The label of namespaces whose pods are refused.
const REFUSED: &str = "load-tests.yardmaster.dev/refused";
/// Steps that are played at the same time: two cores carry no more requests at once.
const AT_ONCE: usize = 4;
/// Limit for the hand-over of shards.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a difference may be due to a kill, once all shards have owners again.
const CATCH_UP: Duration = Duration::from_secs(20);
/// Time between that and the next kill, in which pairs find out whether they differ.
const BETWEEN_KILLS: Duration = Duration::from_secs(5);
/// Most replicas.
const MOST: usize = 4;

/// The replicas of Yardmaster.
struct Crew {
    fleet: Fleet,
    /// When the last restart of each kind began.
    began: BTreeMap<Turn, Instant>,
}

/// The place of all pairs.
pub(super) struct Yard {
    client: kube::Client,
    pub(super) mirror: Mirror,
    name: String,
    managed_by: String,
    /// Numbers of namespaces.
    next: AtomicU64,
    crew: Mutex<Crew>,
    /// The reference, where that is Yardmaster under the built-in's name.
    reference: Option<Fleet>,
    restart_reference: Option<String>,
    /// Time of the last restart of controllers.
    restarted: watch::Sender<Option<Instant>>,
    /// Time of the last kill of controllers.
    killed: watch::Sender<Option<Instant>>,
    /// When the effects of that kill are over.
    calm_from: watch::Sender<Option<Instant>>,
    claims: Claims,
    shards: u32,
    turns: Semaphore,
    /// The watches.
    _tasks: JoinSet<()>,
}

impl Yard {
    /// Starts the controllers and the watches.
    pub(super) async fn prepare(
        ground: &Ground,
        common: &CommonArgs,
        restart_reference: Option<String>,
    ) -> Result<Self> {
        let client = ground.client("load-tests").await?;
        let mut recipe = common.recipe(ground, Setup::default())?;
        // The built-in controller knows no other back-off either.
        recipe.least_backoff = "1s";
        let reference = if ground.is_embedded() {
            let namespace = format!("{}-reference", ground.namespace);
            namespaces::create(&client, &namespace).await?;
            let directory = ground.directory.path().join("reference");
            std::fs::create_dir(&directory)?;
            let mut recipe = recipe.clone();
            (recipe.controller_name, recipe.lease_namespace) = (BUILT_IN.to_owned(), namespace);
            (recipe.directory, recipe.program) = (directory, None);
            recipe.flags.truncate(recipe.flags.len() - common.controller_flag.len());
            Some(started(Fleet::new(recipe), 1).await?)
        } else {
            refuse_where_labelled(&client, &ground.namespace).await?;
            None
        };
        let fleet = started(Fleet::new(recipe), common.replicas()).await?;
        let (mut tasks, mirror, claims) = (JoinSet::new(), Mirror::default(), Claims::default());
        mirror.follow(&client, &mut tasks);
        let leases = ground.path("/apis/coordination.k8s.io/v1", "leases");
        tasks.spawn(claims.clone().follow(client.clone(), leases));
        Ok(Self {
            client,
            mirror,
            name: ground.namespace.clone(),
            managed_by: common.controller_name().to_owned(),
            next: AtomicU64::new(0),
            crew: Mutex::new(Crew { fleet, began: BTreeMap::new() }),
            reference,
            restart_reference,
            restarted: watch::Sender::default(),
            killed: watch::Sender::default(),
            calm_from: watch::Sender::default(),
            claims,
            shards: common.shards,
            turns: Semaphore::new(AT_ONCE),
            _tasks: tasks,
        })
    }

    /// A new side: ours, or that of the reference.
    pub(super) async fn side(&self, ours: bool) -> Result<Side> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{}-{number}-{}", self.name, if ours { "o" } else { "r" });
        self.mirror.open(&namespace, Side::finalizer(ours));
        Side::create(self.client.clone(), namespace, ours.then(|| self.managed_by.clone())).await
    }

    /// Deletes a side.
    pub(super) async fn end(&self, side: &Side) {
        self.remove(side.namespace()).await;
    }

    async fn remove(&self, namespace: &str) {
        let _turn = self.turn().await;
        self.mirror.close(namespace);
        if let Err(error) = namespaces::remove(&self.client, namespace).await {
            // The verdict of the pair counts for more.
            eprintln!("{namespace}: not all is gone: {error:#}");
        }
    }

    /// The right to play a step.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.turns.acquire().await.ok()
    }

    /// The labels of a namespace whose pods are refused, or no longer.
    pub(super) fn refusal(&self, refuse: bool) -> Value {
        let label = format!("{REFUSED}-{}", self.name);
        if refuse { json!({label: "true"}) } else { json!({label: null}) }
    }

    /// Changes the controllers. Returns once all shards have owners. Pairs that wait for the same kind of restart share
    /// one, since each restart concerns all pairs.
    pub(super) async fn restart(&self, turn: Turn) -> Result<()> {
        let asked = Instant::now();
        let mut crew = self.crew.lock().await;
        if crew.began.get(&turn).is_some_and(|began| *began >= asked) {
            return Ok(());
        }
        if turn == Turn::Kill {
            self.await_next_kill().await;
        }
        let began = Instant::now();
        self.restarted.send_replace(Some(began));
        self.change_crew(&mut crew.fleet, turn).await?;
        if turn == Turn::Kill {
            self.calm_from.send_replace(Some(Instant::now() + CATCH_UP));
        }
        crew.began.insert(turn, began);
        Ok(())
    }

    async fn change_crew(&self, fleet: &mut Fleet, turn: Turn) -> Result<()> {
        let running = fleet.len();
        match turn {
            Turn::Kill => {
                let now = Instant::now();
                self.killed.send_replace(Some(now));
                self.calm_from.send_replace(Some(now + PATIENCE));
                if let Some(command) = &self.restart_reference {
                    let done = Command::new("sh").args(["-c", command]).status().await?;
                    ensure!(done.success(), "{command}: {done}");
                }
                fleet.kill(0).await;
                fleet.grow(running)?;
            }
            Turn::Join => fleet.grow((running + 1).min(MOST))?,
            Turn::Leave => fleet.shrink((running - 1).max(1)).await,
        }
        fleet.ready().await?;
        let began = Instant::now();
        while !all_owned(&self.claims.owners(), self.shards, &fleet.identities()) {
            if began.elapsed() > PATIENCE {
                bail!("not all shards have an owner {PATIENCE:?} after a restart");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Whether controllers may still be catching up after a restart, be it that of another pair.
    pub(super) fn is_catching_up(&self) -> bool {
        self.restarted.borrow().is_some_and(|at| at.elapsed() < PATIENCE)
    }

    /// Whether controllers were killed since then, be it for another pair.
    pub(super) fn killed_since(&self, time: Instant) -> bool {
        self.killed.borrow().is_some_and(|killed| killed >= time)
    }

    /// Waits until the last kill is over for a while.
    async fn await_next_kill(&self) {
        let calm_from = *self.calm_from.borrow();
        if let Some(calm_from) = calm_from {
            tokio::time::sleep_until((calm_from + BETWEEN_KILLS).into()).await;
        }
    }

    /// Whether a difference may be due to a kill, be it for another pair: Jobs without an owner do not change.
    pub(super) fn is_disturbed(&self) -> bool {
        self.calm_from.borrow().is_some_and(|calm_from| Instant::now() < calm_from)
    }

    /// Whether a kill concerns the reference, too.
    pub(super) fn kills_reference(&self) -> bool {
        self.restart_reference.is_some()
    }

    /// An error if a replica has ended by itself.
    pub(super) async fn check(&self) -> Result<()> {
        self.crew.lock().await.fleet.check()
    }

    /// Ends the controllers and removes what is left, also of pairs that were interrupted.
    pub(super) async fn close(self) -> Result<()> {
        join_all(self.mirror.namespaces().iter().map(|namespace| self.remove(namespace))).await;
        if self.reference.is_none() {
            for kind in [BINDINGS, POLICIES] {
                let path = format!("{ADMISSION}/{kind}/{}", self.name);
                let _deleted: Value = self.client.request(Request::delete(path).body(Vec::new())?).await?;
            }
        }
        self.crew.into_inner().fleet.end().await;
        if let Some(reference) = self.reference {
            reference.end().await;
        }
        Ok(())
    }
}

async fn started(mut fleet: Fleet, replicas: usize) -> Result<Fleet> {
    fleet.grow(replicas)?;
    fleet.ready().await?;
    Ok(fleet)
}

/// An admission policy that refuses pods in namespaces with the label [`REFUSED`] of this load.
async fn refuse_where_labelled(client: &kube::Client, name: &str) -> Result<()> {
    let version = "admissionregistration.k8s.io/v1";
    let pods = json!({
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
    });
    let policy = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": [pods]},
            "validations": [{"expression": "false", "message": "no pods here"}],
        },
    });
    let selector = json!({"matchExpressions": [{"key": format!("{REFUSED}-{name}"), "operator": "Exists"}]});
    let binding = json!({
        "apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {
            "policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": selector},
        },
    });
    for (kind, object) in [(POLICIES, policy), (BINDINGS, binding)] {
        let request = Request::post(format!("{ADMISSION}/{kind}")).body(object.to_string().into_bytes())?;
        let _created: Value =
            client.request(request).await.with_context(|| format!("cannot create {kind}"))?;
    }
    Ok(())
}
