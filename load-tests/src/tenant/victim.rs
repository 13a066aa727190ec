//! The victim: small Jobs in another namespace, one after the other, and the times in which they are served.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http::Request;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::user::spec;
use super::yard::Yard;
use crate::ground::Ground;
use crate::ledger::Ledger;
use crate::namespaces::collection;
use crate::pods::{Observer, RUN_TIME, Simulator};
use crate::views::Job;
use crate::watch::{Collection, Event};

/// Pods of each Job.
const PODS: u32 = 5;
/// User-Agent of the victim's kubelet.
const KUBELET: &str = "load-tests-kubelet";
/// Time between two writes that measure the API server.
const BETWEEN_WRITES: Duration = Duration::from_millis(50);
/// Time between two checks of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// A running Job of the victim.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) uid: String,
    /// The label of its shard, as its pods show it; empty where the controllers have none.
    pub(super) shard: String,
}

/// Latencies of the victim in one phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    /// From the creation of a Job to its first pod.
    pub(super) starts: Vec<Duration>,
    /// From the end of a Job's last pod to Complete.
    pub(super) ends: Vec<Duration>,
    /// From the deletion of a running Job until it and its pods are gone.
    pub(super) deletions: Vec<Duration>,
    /// Answers of the API server to a small write.
    pub(super) answers: Vec<Duration>,
    /// From the creation of a Job until a watch of its namespace shows it.
    pub(super) shown: Vec<Duration>,
    /// Jobs that did not get on in time.
    pub(super) stuck: Vec<String>,
}

/// Times of one Job.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    shown: Option<Instant>,
    first_pod: Option<Instant>,
    last_end: Option<Instant>,
    finished: Option<Instant>,
}

/// Times of answers, since they were last taken.
type Answers = Arc<Mutex<Vec<Duration>>>;

/// Changes an object that no controller looks at, again and again, and keeps how long that takes.
async fn time_answers(client: kube::Client, path: String, answers: Answers) {
    for number in 0_u64.. {
        let change = json!({"metadata": {"annotations": {"load-tests/number": number.to_string()}}});
        let request = Request::patch(&path).header(CONTENT_TYPE, "application/merge-patch+json");
        let Ok(request) = request.body(change.to_string().into_bytes()) else { return };
        let begun = Instant::now();
        if client.request::<Value>(request).await.is_ok() {
            answers.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed());
        }
        tokio::time::sleep(BETWEEN_WRITES).await;
    }
}

/// Keeps the times of all Jobs, and what the check of exactness needs.
#[derive(Clone)]
struct Witness {
    ledger: Ledger,
    times: Arc<Mutex<HashMap<String, Times>>>,
}

impl Witness {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Times>> {
        // A panic leaves no harmful partial update, so a poisoned lock is usable.
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job_seen(&self, job: &Job) {
        let now = Instant::now();
        self.ledger.job_seen(job, now);
        let mut times = self.lock();
        let times = times.entry(job.metadata.name.clone()).or_default();
        times.shown.get_or_insert(now);
        if job.status.is_finished() {
            times.finished.get_or_insert(now);
        }
    }

    async fn follow(self, client: kube::Client, path: String) {
        let mut events = Collection::new(path).follow::<Job>(client);
        while let Some(event) = events.recv().await {
            match event {
                Event::Listed(jobs) => jobs.iter().for_each(|job| self.job_seen(job)),
                Event::Applied(job) | Event::Deleted(job) => self.job_seen(&job),
            }
        }
    }
}

impl Observer for Witness {
    fn added(&mut self, job: &str, at: Instant) {
        self.ledger.added(job, at);
        self.lock().entry(job.to_owned()).or_default().first_pod.get_or_insert(at);
    }

    fn ending(&mut self, job: &str, at: Instant) {
        self.ledger.ending(job, at);
        self.lock().entry(job.to_owned()).or_default().last_end = Some(at);
    }

    fn ended(&mut self, job: &str, failed: bool) {
        self.ledger.ended(job, failed);
    }

    fn not_ended(&mut self, job: &str) {
        self.ledger.not_ended(job);
    }

    fn gone(&mut self, job: &str, at: Instant) {
        self.ledger.gone(job, at);
    }
}

/// The victim, with its kubelet.
pub(super) struct Victim {
    client: kube::Client,
    pub(super) namespace: String,
    managed_by: Option<String>,
    /// Limit of each wait.
    patience: Duration,
    witness: Witness,
    answers: Answers,
    started: u32,
    _watching: JoinSet<()>,
}

impl Victim {
    pub(super) async fn prepare(
        ground: &Ground,
        yard: &Yard,
        managed_by: Option<String>,
        patience: Duration,
    ) -> Result<Self> {
        let (client, kubelet) = (yard.admin.clone(), ground.client(KUBELET).await?);
        let namespace = yard.victim();
        let witness = Witness { ledger: Ledger::new(1), times: Arc::default() };
        let simulator = Simulator::new(kubelet.clone(), 0, witness.clone());
        let (pods, jobs) = (collection(&namespace, "pods"), collection(&namespace, "jobs"));
        let mut watching = JoinSet::new();
        watching.spawn(witness.clone().follow(client.clone(), jobs));
        watching.spawn(async move { simulator.run(kubelet, &pods).await });
        let answers = Answers::default();
        let path = format!("/api/v1/namespaces/{namespace}");
        watching.spawn(time_answers(client.clone(), path, Arc::clone(&answers)));
        Ok(Self {
            client,
            namespace,
            managed_by,
            patience,
            witness,
            answers,
            started: 0,
            _watching: watching,
        })
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.witness.ledger
    }

    /// Starts a Job whose pods run for this long. Returns its name and UID.
    async fn start(&mut self, run_time: &str) -> Result<Target> {
        let name = format!("victim-{}", self.started);
        self.started += 1;
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {
                "completions": PODS, "parallelism": PODS,
                "completionMode": if self.started.is_multiple_of(2) { "Indexed" } else { "NonIndexed" },
                "template": {"metadata": {"annotations": {RUN_TIME: run_time}}, "spec": spec()},
            },
        });
        if let Some(manager) = &self.managed_by {
            job["spec"]["managedBy"] = json!(manager);
        }
        self.witness.ledger.job_created(&name, 0, PODS, PODS, Instant::now());
        let path = collection(&self.namespace, "jobs");
        let request = Request::post(path).body(job.to_string().into_bytes())?;
        let made: Value = self.client.request(request).await.context("the victim's Job is refused")?;
        let uid = made["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        Ok(Target { name, uid, shard: String::new() })
    }

    /// Starts a Job that runs until it is deleted. Returns once all its pods run.
    pub(super) async fn start_target(&mut self) -> Result<Target> {
        let mut target = self.start("1h").await?;
        let (begun, ready) = (Instant::now(), json!(PODS));
        while self.read(&target.name).await?["status"]["active"] != ready {
            if begun.elapsed() > self.patience {
                bail!("a Job of the victim does not start without any attack");
            }
            tokio::time::sleep(PAUSE).await;
        }
        let path = collection(&self.namespace, "pods");
        let pods: Value = self.client.request(Request::get(path).body(Vec::new())?).await?;
        let labels = pods["items"].as_array().into_iter().flatten().map(|pod| &pod["metadata"]["labels"]);
        let shard = labels.filter(|labels| labels["batch.kubernetes.io/job-name"] == *target.name);
        let shard = shard.filter_map(|labels| labels["yardmaster.dev/shard"].as_str()).next();
        target.shard = shard.unwrap_or_default().to_owned();
        Ok(target)
    }

    async fn read(&self, job: &str) -> Result<Value> {
        let path = format!("{}/{job}", collection(&self.namespace, "jobs"));
        Ok(self.client.request(Request::get(path).body(Vec::new())?).await?)
    }

    /// Checks a Job whose pods only run. Returns all deviations.
    pub(super) async fn harm(&self, target: &Target) -> Result<Vec<String>> {
        let job = match self.read(&target.name).await {
            Ok(job) => job,
            Err(error) => return Ok(vec![format!("the victim's running Job is gone: {error:#}")]),
        };
        let status = &job["status"];
        let mut wrong = Vec::new();
        for field in ["succeeded", "failed", "terminating", "conditions", "uncountedTerminatedPods"] {
            let value = &status[field];
            let empty = value.is_null() || *value == json!(0) || *value == json!({}) || *value == json!([]);
            if !empty {
                wrong.push(format!("the victim's running Job has {field} {value}"));
            }
        }
        if status["active"] != json!(PODS) {
            wrong.push(format!("the victim's running Job has {} of {PODS} pods active", status["active"]));
        }
        Ok(wrong)
    }

    /// Runs `jobs` Jobs one after the other, then starts as many and deletes each while it runs. Stops at the first
    /// that is not served in time.
    pub(super) async fn play(&mut self, jobs: usize) -> Result<Latencies> {
        self.take_answers();
        let mut latencies = Latencies::default();
        self.play_jobs(jobs, &mut latencies).await?;
        for _ in 0..jobs {
            if latencies.stuck.is_empty() {
                self.play_deletion(&mut latencies).await?;
            }
        }
        latencies.answers = self.take_answers();
        Ok(latencies)
    }

    fn take_answers(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.answers.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn play_jobs(&mut self, jobs: usize, latencies: &mut Latencies) -> Result<()> {
        for _ in 0..jobs {
            let (created, job) = (Instant::now(), self.start("50ms").await?);
            let Some(times) = self.wait(&job.name).await else {
                return self.explain(&job, latencies).await;
            };
            let since = |at: Option<Instant>, from: Instant| at.map(|at| at.saturating_duration_since(from));
            latencies.shown.extend(since(times.shown, created));
            latencies.starts.extend(since(times.first_pod, created));
            latencies.ends.extend(times.last_end.and_then(|end| since(times.finished, end)));
        }
        Ok(())
    }

    /// Starts a Job and deletes it while it runs.
    async fn play_deletion(&mut self, latencies: &mut Latencies) -> Result<()> {
        let running = self.start("1h").await?;
        if self.until(|times| times.first_pod.is_some(), &running.name).await.is_none() {
            self.explain(&running, latencies).await?;
        }
        let deleted = self.delete(&running).await?;
        if deleted > self.patience {
            latencies.stuck.push(format!("a deleted Job is not gone after {deleted:.1?}"));
        }
        latencies.deletions.push(deleted);
        Ok(())
    }

    /// Starts `jobs` Jobs at once. Returns the time until all are Complete, `None` if they are not in time.
    pub(super) async fn play_at_once(&mut self, jobs: usize) -> Result<Option<Duration>> {
        let begun = Instant::now();
        let mut started = Vec::new();
        for _ in 0..jobs {
            started.push(self.start("50ms").await?);
        }
        for job in started {
            if self.wait(&job.name).await.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(begun.elapsed()))
    }

    /// Waits until a Job has ended.
    async fn wait(&self, job: &str) -> Option<Times> {
        self.until(|times| times.finished.is_some(), job).await
    }

    async fn until(&self, done: impl Fn(&Times) -> bool, job: &str) -> Option<Times> {
        let begun = Instant::now();
        while begun.elapsed() <= self.patience {
            let times = self.witness.lock().get(job).copied().unwrap_or_default();
            if done(&times) {
                return Some(times);
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    async fn explain(&self, job: &Target, latencies: &mut Latencies) -> Result<()> {
        let status = self.read(&job.name).await?["status"].clone();
        let none = self.witness.lock().get(&job.name).is_none_or(|times| times.first_pod.is_none());
        let what = if none { "has no pod".to_owned() } else { format!("has not ended, status {status}") };
        latencies.stuck.push(format!("a Job {what} after {:?}", self.patience));
        Ok(())
    }

    /// Deletes a Job and, as the garbage collector does, its pods. Returns the time until all are gone.
    pub(super) async fn delete(&self, job: &Target) -> Result<Duration> {
        let begun = Instant::now();
        let jobs = collection(&self.namespace, "jobs");
        let path = format!("{jobs}/{}?propagationPolicy=Background", job.name);
        let _deleted: Value = self.client.request(Request::delete(path).body(Vec::new())?).await?;
        let selector = format!("labelSelector=batch.kubernetes.io%2Fjob-name%3D{}", job.name);
        let pods = format!("{}?{selector}", collection(&self.namespace, "pods"));
        while begun.elapsed() <= self.patience {
            let all = format!("{pods}&gracePeriodSeconds=0");
            let _deleted: Value = self.client.request(Request::delete(all).body(Vec::new())?).await?;
            let left: Value = self.client.request(Request::get(&pods).body(Vec::new())?).await?;
            if left["items"].as_array().is_none_or(Vec::is_empty) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(begun.elapsed())
    }
}
