//! Plays one scenario: its steps in order, with a comparison at every `settle` step.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::scenario::{
    arena::Arena,
    client::{Api, JSON, MERGE_PATCH, STRATEGIC_PATCH},
    compare::difference,
    deviation,
    file::{ControllerStep, JobStep, PodsStep, Refusal, RejectStep, Scenario, Step, Until, Which},
    mode::Mode,
    names::Names,
    observe::{Snapshot, newest_pod_after},
    pod::{self, name, uid},
    progress::waits_for_status,
    watch::NamespaceWatch,
};

/// Limit of `until` in a `settle` step without timeout. Pods without labels are looked for once in 1,000 times as long as a list
/// of them takes.
const DEFAULT_UNTIL: Duration = Duration::from_secs(180);
/// A namespace that never becomes quiet is compared after this time.
const NEVER_QUIET: Duration = Duration::from_secs(60);
/// Limit for the deletion of a Job before it is created again.
const RECREATE_LIMIT: Duration = Duration::from_secs(60);
/// Pause between comparisons, and between checks for a Job under deletion.
const POLL: Duration = Duration::from_millis(100);
/// Number of requests of a step that are under way together. The kubelets of a cluster have one connection each; a
/// burst of new connections from one client is no part of a scenario.
const AT_ONCE: usize = 64;
/// The quiet time after which a state counts as final in the recordings.
pub(crate) const RECORDED_QUIET: Duration = Duration::from_millis(2500);

/// How much later a status may come that shows only the start of a Job, its active pods and its counts. While the API
/// server is busy with other scenarios, a Job writes one in 5 s.
const LATE_PROGRESS: Duration = Duration::from_secs(5);

/// Longest time between two `pods` steps with a sleep of less than a second, until the end of the second.
/// Kubernetes looks at pods a second after they have changed, and such a scenario shows what it sees then. A
/// slow machine may take longer.
const WITHIN_A_SECOND: Duration = Duration::from_millis(750);
/// How often a scenario is played at most, until no such step is late.
const ATTEMPTS: usize = 10;

const GANG: &str = "/apis/scheduling.k8s.io/v1alpha2";

/// A replay of a scenario.
struct Player<'a> {
    scenario: &'a Scenario,
    mode: Mode,
    arena: &'a Arena,
    api: Api,
    watch: NamespaceWatch,
    names: Names,
    /// Time at which a step last ended or deleted a pod. `delay` counts from here.
    last_end: Option<Timestamp>,
    last_settle: Timestamp,
}

/// A step came too late for what the scenario shows ([`WITHIN_A_SECOND`]).
struct Late;

/// Plays a scenario in its own namespace and returns the mismatches.
pub(crate) async fn play(
    scenario: &Scenario,
    mode: Mode,
    arena: &Arena,
    namespace: &str,
) -> Result<Vec<String>> {
    for attempt in 0..ATTEMPTS {
        if let Ok(mismatches) = play_once(scenario, mode, arena, &format!("{namespace}-{attempt}")).await? {
            return Ok(mismatches);
        }
        println!("scenario {} is played again: a step was late ({})", scenario.name, mode.as_str());
    }
    bail!(
        "the machine is too slow: steps of one second took longer than {WITHIN_A_SECOND:?}, {ATTEMPTS} times"
    )
}

async fn play_once(
    scenario: &Scenario,
    mode: Mode,
    arena: &Arena,
    namespace: &str,
) -> Result<Result<Vec<String>, Late>> {
    let api = Api::new(arena.client()?);
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    api.create("/api/v1/namespaces", &manifest).await?;
    let watch = NamespaceWatch::start(&api.client(), namespace).await;
    let names = Names::new(namespace.to_owned());
    let mut player =
        Player { scenario, mode, arena, api, watch, names, last_end: None, last_settle: Timestamp::now() };
    let mismatches = player.run().await;
    arena.release_watches();
    arena.start_controller().await?;
    player.api.delete(&format!("/api/v1/namespaces/{namespace}"), &json!({})).await?;
    Ok(mismatches)
}

impl Player<'_> {
    /// Plays all steps and returns the mismatches. A step that fails to run is the last one.
    async fn run(&mut self) -> Result<Vec<String>, Late> {
        let mut mismatches = Vec::new();
        // The last `pods` step, and whether a sleep of less than a second came after it.
        let mut last_pods: Option<(Instant, bool)> = None;
        if !self.scenario.defer_job
            && let Err(error) = self.create_job(Which::Job).await
        {
            return Ok(vec![format!("creating the Job: {error:#}")]);
        }
        for (number, step) in self.scenario.steps.iter().enumerate() {
            // Consecutive `pods` steps stand for one moment.
            if matches!(step, Step::Pods { .. }) {
                self.arena.hold_watches();
            } else {
                self.arena.release_watches();
            }
            let begin = Instant::now();
            let stepped = self.step(number, step).await;
            let is_late = match (step, last_pods) {
                (Step::Pods { .. }, Some((since, true))) => since.elapsed() > WITHIN_A_SECOND,
                _ => false,
            };
            last_pods = match (step, last_pods) {
                (Step::Pods { .. }, _) => Some((begin, false)),
                (Step::Sleep { sleep }, Some((since, _))) => Some((since, *sleep < 1.0)),
                _ => None,
            };
            match stepped {
                Ok(mismatch) => mismatches.extend(mismatch.map(|text| format!("step {number}: {text}"))),
                Err(error) => {
                    mismatches.push(format!("step {number}: {error:#}"));
                    break;
                }
            }
            // An earlier mismatch counts, however late this step is.
            if is_late && mismatches.is_empty() {
                return Err(Late);
            }
        }
        Ok(mismatches)
    }

    /// Plays one step. Returns a difference from its expectation, which is not an error.
    async fn step(&mut self, number: usize, step: &Step) -> Result<Option<String>> {
        match step {
            Step::Settle { until, timeout, expect, .. } => {
                let limit = timeout.map_or(DEFAULT_UNTIL, Duration::from_secs_f64);
                let right = deviation::right(&self.scenario.name, number, expect);
                return self.settle(number, until.as_ref(), limit, &right).await;
            }
            Step::Reject { reject, expect } => return self.reject(reject, expect).await,
            Step::Pods { pods } => self.pods(pods).await?,
            Step::Pod { pod } => {
                let created = self.api.create(&self.core("pods"), &self.names.fill(&pod.create)?).await?;
                if let Some(mark) = &pod.mark {
                    self.names.mark(mark, uid(&created));
                }
            }
            Step::Job { job } => self.job(job).await?,
            Step::Create { create } => self.create_job(*create).await?,
            Step::Controller { controller } => match controller {
                ControllerStep::Stop => self.arena.stop_controller().await,
                ControllerStep::Start => self.arena.start_controller().await?,
                ControllerStep::Restart => {
                    self.arena.stop_controller().await;
                    self.arena.start_controller().await?;
                }
            },
            Step::Status { status } => {
                let path = format!("{}/status", self.job_path(Which::Job)?);
                let patch = json!({"status": self.names.fill(&status.patch)?});
                self.api.patch(&path, MERGE_PATCH, &patch).await?;
            }
            Step::Sleep { sleep: seconds } => sleep(Duration::from_secs_f64(*seconds)).await,
            Step::Quota { quota } => self.quota(&quota.hard).await?,
            Step::Namespace { .. } => {
                let path = format!("/api/v1/namespaces/{}", self.names.namespace);
                self.api.delete(&path, &json!({})).await?;
            }
            Step::Workload { workload } => {
                self.api.create(&self.gang("workloads"), &self.names.fill(&workload.create)?).await?;
            }
            Step::Workloads { .. } => self.api.delete(&self.gang("workloads"), &json!({})).await?,
            Step::PodGroups { .. } => self.delete_pod_groups().await?,
        }
        Ok(None)
    }

    /// Deletes all PodGroups, and what protects them while pods name them.
    async fn delete_pod_groups(&self) -> Result<()> {
        let all = self.gang("podgroups");
        let found = self.api.list(&all).await?;
        self.api.delete(&all, &json!({})).await?;
        for group in &found {
            let path = format!("{all}/{}", name(group));
            let unprotected = json!({"metadata": {"finalizers": null}});
            self.api.patch_if_there(&path, MERGE_PATCH, &unprotected).await?;
        }
        Ok(())
    }

    /// Waits until the namespace is quiet, and compares. A quiet time shorter than the recorded one is enough
    /// only if the state is already right.
    async fn settle(
        &mut self,
        number: usize,
        until: Option<&Until>,
        limit: Duration,
        right: &Value,
    ) -> Result<Option<String>> {
        let begin = Instant::now();
        let job = name(&self.scenario.job).to_owned();
        let in_time = match until {
            Some(until) => self.watch.wait_until(until, &job, limit).await,
            None => true,
        };
        let last = number + 1 == self.scenario.steps.len();
        let quiet = if last { RECORDED_QUIET } else { self.arena.quiet() };
        self.watch.wait_quiet(begin, quiet, NEVER_QUIET).await;
        loop {
            let looked = Instant::now();
            let mut names = self.names.clone();
            let actual = self.observe(&mut names).await?;
            let different = difference(right, &actual);
            let late = if waits_for_status(right, &actual) { LATE_PROGRESS } else { Duration::ZERO };
            let is_final = self.watch.quiet_since(begin).elapsed() >= RECORDED_QUIET + late
                || begin.elapsed() >= limit + NEVER_QUIET;
            if let (false, Some(until)) = (in_time, until) {
                bail!("waited {limit:?} in vain for {until:?}\n{}", different.unwrap_or_default());
            }
            if is_final || different.is_none() {
                self.names = names;
                self.last_settle = Timestamp::now();
                return Ok(different);
            }
            // Observing a namespace with many pods is expensive.
            sleep(looked.elapsed().max(POLL)).await;
        }
    }

    /// The current state in the form of an expectation.
    async fn observe(&self, names: &mut Names) -> Result<Value> {
        for pod in self.watch.pod_names() {
            names.generated(&pod, "<pod>");
        }
        let snapshot = Snapshot {
            job: self.api.get(&self.job_path(Which::Job)?).await?,
            job2: match self.scenario.job2 {
                Some(_) => self.api.get(&self.job_path(Which::Job2)?).await?,
                None => None,
            },
            pods: self.api.list(&self.core("pods")).await?,
            events: self.api.list(&self.core("events")).await?,
            workloads: self.api.list(&self.gang("workloads")).await?,
            pod_groups: self.api.list(&self.gang("podgroups")).await?,
        };
        let mut actual = snapshot.normalise(names, self.mode);
        let delay = self.last_end.and_then(|end| newest_pod_after(&snapshot.pods, end));
        actual["delay"] = delay.into();
        Ok(actual)
    }

    /// Applies a `pods` step to the selected pods. The status writes of all of them are sent at once, since a
    /// step stands for one moment.
    async fn pods(&mut self, step: &PodsStep) -> Result<()> {
        let pods = step.select.choose(self.api.list(&self.core("pods")).await?, &self.names)?;
        let now = Timestamp::now();
        if let Some(set) = &step.set {
            let unbound = pods.iter().filter(|pod| pod::text(pod, "/spec/nodeName").is_empty());
            if let Some(node) = &set.node {
                at_once(unbound.map(|pod| self.bind(pod, node))).await?;
            }
            let patches = pods.iter().filter_map(|pod| Some((pod, set.status_patch(pod, now)?)));
            at_once(patches.map(|(pod, patch)| self.patch_status(pod, patch))).await?;
            if matches!(set.phase.as_deref(), Some("Failed" | "Succeeded")) {
                self.last_end = Some(now - SignedDuration::from_secs(set.finished_ago));
            }
        }
        for pod in &pods {
            if let Some(mark) = &step.mark {
                self.names.mark(mark, uid(pod));
            }
            self.change_metadata(step, pod).await?;
        }
        if step.delete.is_some() {
            self.last_end = Some(now);
        }
        Ok(())
    }

    async fn bind(&self, pod: &Value, node: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.api.create(&format!("{}/binding", self.pod_path(pod)), &binding).await.map(drop)
    }

    async fn patch_status(&self, pod: &Value, patch: Value) -> Result<()> {
        self.api.patch(&format!("{}/status", self.pod_path(pod)), STRATEGIC_PATCH, &patch).await.map(drop)
    }

    async fn change_metadata(&self, step: &PodsStep, pod: &Value) -> Result<()> {
        let path = self.pod_path(pod);
        let mut metadata = serde_json::Map::new();
        for (key, changes) in [("labels", &step.labels), ("annotations", &step.annotations)] {
            if let Some(changes) = changes {
                metadata.insert(key.into(), self.names.fill(&changes.clone().into())?);
            }
        }
        if step.remove_owner {
            metadata.insert("ownerReferences".into(), Value::Null);
        }
        if !metadata.is_empty() {
            self.api.patch(&path, MERGE_PATCH, &json!({"metadata": metadata})).await?;
        }
        if let Some(finalizer) = &step.remove_finalizer {
            let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [finalizer]}});
            self.api.patch_if_there(&path, STRATEGIC_PATCH, &patch).await?;
        }
        if let Some(options) = &step.delete {
            self.api.delete(&path, options).await?;
        }
        Ok(())
    }

    async fn job(&mut self, step: &JobStep) -> Result<()> {
        let path = self.job_path(step.which)?;
        if let Some(patch) = &step.patch {
            self.next_second().await;
            self.api.patch(&path, MERGE_PATCH, &self.names.fill(patch)?).await?;
        }
        if let Some(options) = &step.delete {
            self.api.delete(&path, options).await?;
        }
        if step.recreate {
            let deadline = Instant::now() + RECREATE_LIMIT;
            while self.api.get(&path).await?.is_some() {
                if Instant::now() > deadline {
                    bail!("the Job is still there after {RECREATE_LIMIT:?}");
                }
                sleep(POLL).await;
            }
            self.create_job(step.which).await?;
        }
        Ok(())
    }

    /// Waits until the clock shows another second than at the last `settle` step. API times are whole
    /// seconds, and a new start time must differ from the old one.
    async fn next_second(&self) {
        let next = Timestamp::from_second(self.last_settle.as_second() + 1).unwrap_or(self.last_settle);
        sleep(Timestamp::now().duration_until(next).try_into().unwrap_or_default()).await;
    }

    async fn create_job(&mut self, which: Which) -> Result<()> {
        let manifest = self.names.fill(self.manifest(which)?)?;
        let job = self.api.create(&self.batch("jobs"), &manifest).await?;
        self.names.job_created(which, uid(&job));
        Ok(())
    }

    /// Creates or changes the quota, and writes its status, since no quota controller runs.
    async fn quota(&self, hard: &Value) -> Result<()> {
        let quotas = self.core("resourcequotas");
        let path = format!("{quotas}/limit");
        let status = if self.api.get(&path).await?.is_some() {
            self.api.patch(&path, MERGE_PATCH, &json!({"spec": {"hard": hard}})).await?;
            json!({"hard": hard})
        } else {
            let quota = json!({
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "limit"},
                "spec": {"hard": hard},
            });
            self.api.create(&quotas, &quota).await?;
            let pods = self.api.list(&self.core("pods")).await?.len();
            json!({"hard": hard, "used": {"pods": pods.to_string()}})
        };
        self.api.patch(&format!("{path}/status"), MERGE_PATCH, &json!({"status": status})).await?;
        Ok(())
    }

    async fn reject(&self, reject: &RejectStep, expect: &Refusal) -> Result<Option<String>> {
        let (method, path, media, body) = match reject {
            RejectStep::Create(manifest) => (Method::POST, self.batch("jobs"), JSON, manifest),
            RejectStep::Patch(patch) => (Method::PATCH, self.job_path(Which::Job)?, MERGE_PATCH, patch),
        };
        let answer = self.api.send(method, &path, media, Some(&self.names.fill(body)?)).await?;
        let message = self.names.hide(pod::text(&answer.body, "/message"));
        let reason = pod::text(&answer.body, "/reason");
        let as_expected = answer.code.as_u16() == expect.code
            && expect.reason.as_deref().is_none_or(|expected| expected == reason)
            && expect.message.as_deref().is_none_or(|expected| expected == message);
        let mismatch = || format!("expected {expect:?}\nfound {} {reason}: {message}\n", answer.code);
        Ok((!as_expected).then(mismatch))
    }

    fn manifest(&self, which: Which) -> Result<&Value> {
        match which {
            Which::Job => Ok(&self.scenario.job),
            Which::Job2 => self.scenario.job2.as_ref().context("the scenario has no job2"),
        }
    }

    fn job_path(&self, which: Which) -> Result<String> {
        Ok(format!("{}/{}", self.batch("jobs"), name(self.manifest(which)?)))
    }

    fn pod_path(&self, pod: &Value) -> String {
        format!("{}/{}", self.core("pods"), name(pod))
    }

    fn core(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.names.namespace)
    }

    fn batch(&self, resource: &str) -> String {
        format!("/apis/batch/v1/namespaces/{}/{resource}", self.names.namespace)
    }

    fn gang(&self, resource: &str) -> String {
        format!("{GANG}/namespaces/{}/{resource}", self.names.namespace)
    }
}

/// Does all of this at once, as far as connections allow.
async fn at_once(requests: impl Iterator<Item = impl Future<Output = Result<()>>>) -> Result<()> {
    stream::iter(requests).map(Ok).try_for_each_concurrent(AT_ONCE, |request| request).await
}
