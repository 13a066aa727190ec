//! The nodes of a world: they start containers, and containers end as chance wants it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::checks::memory::asked;
use crate::ledger::{Ledger, PodFacts};
use crate::plan::{JobPlan, Plan};
use crate::tenant;
use crate::time::{EPOCH, Time};

/// An act of a node on a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Takes it from the scheduler. Only pods that may be lost are taken so, and then have a grace period.
    Bind,
    /// Starts its container.
    Start,
    /// The node goes, and the node controller takes the condition Ready away.
    Lose,
    /// The node controller deletes the pod.
    Taint,
    /// The node may be back, and does what it was told meanwhile.
    Return,
    /// The container has ended by itself.
    End {
        /// The exit code.
        code: i32,
    },
    /// The container has exceeded its memory.
    KillForMemory,
    /// The node needs its room for something else.
    Evict,
    /// The container was told to stop.
    Stop,
    /// The pod goes away.
    Remove,
}

/// The nodes.
#[derive(Debug)]
pub(crate) struct Kubelet {
    chance: Chance,
    /// For exit codes and evictions.
    ends: Chance,
    /// For containers that are started again.
    restarts: Chance,
    /// For containers that stop slowly.
    stops: Chance,
    /// For pods that never start.
    starts: Chance,
    /// For nodes that go.
    losses: Chance,
    /// Pods of nodes that have gone.
    lost: BTreeSet<String>,
    longest_run: Duration,
    /// By name of the Job.
    containers: BTreeMap<String, Containers>,
    stopping: BTreeMap<String, ()>,
}

/// How the containers of a Job behave.
#[derive(Clone, Debug)]
struct Containers {
    failing_percent: u32,
    exit_codes: Vec<i32>,
    evicted_percent: u32,
    slow_stop: Duration,
    restarts: bool,
    needs_memory: Option<u64>,
    stuck_percent: u32,
    lost_percent: u32,
}

impl Containers {
    fn of(job: &JobPlan) -> Self {
        Self {
            failing_percent: job.failing_percent,
            exit_codes: job.exit_codes.clone(),
            evicted_percent: job.evicted_percent,
            slow_stop: job.slow_stop,
            restarts: job.restarts,
            needs_memory: job.needs_memory,
            stuck_percent: job.stuck_percent,
            lost_percent: job.lost_percent,
        }
    }

    /// Containers of a tenant's Job. In two Jobs of three, most of them fail.
    fn of_tenant(job: u32) -> Self {
        Self {
            failing_percent: if job.is_multiple_of(3) { 0 } else { 80 },
            exit_codes: vec![1],
            evicted_percent: 0,
            slow_stop: Duration::ZERO,
            restarts: false,
            needs_memory: None,
            stuck_percent: 0,
            lost_percent: 0,
        }
    }
}

impl Kubelet {
    pub(crate) fn new(plan: &Plan) -> Self {
        let tenants =
            (0..tenant::JOBS).map(|job| (format!("{}{job}", tenant::JOB), Containers::of_tenant(job)));
        Self {
            chance: Chance::new(plan.seed, "kubelet"),
            ends: Chance::new(plan.seed, "ends of containers"),
            restarts: Chance::new(plan.seed, "restarts of containers"),
            stops: Chance::new(plan.seed, "stops of containers"),
            starts: Chance::new(plan.seed, "starts of containers"),
            losses: Chance::new(plan.seed, "losses of nodes"),
            lost: BTreeSet::new(),
            longest_run: plan.settings.longest_run,
            containers: plan
                .jobs
                .iter()
                .map(|job| (job.name.clone(), Containers::of(job)))
                .chain(tenants)
                .collect(),
            stopping: BTreeMap::new(),
        }
    }

    /// etcd was restored: nodes report all pods again.
    pub(crate) fn forget(&mut self) {
        self.stopping.clear();
        self.lost.clear();
    }

    /// The node's next act on a pod that has just changed, with its delay.
    pub(crate) fn changed(&mut self, uid: &str, pod: &PodFacts, created: bool) -> Option<(Duration, Duty)> {
        if !pod.exists() {
            return None;
        }
        if self.lost.contains(uid) {
            return None;
        }
        if pod.deleted.is_some() {
            if self.stopping.insert(uid.to_owned(), ()).is_some() {
                return None;
            }
            let duty = if pod.end.is_some() { Duty::Remove } else { Duty::Stop };
            let mut later = self.chance.millis(5..=1_500);
            let slow = self.containers_of(pod).map_or(Duration::ZERO, |of| of.slow_stop);
            if duty == Duty::Stop && !slow.is_zero() {
                later += self.stops.millis(0..=slow.as_millis() as u64);
            }
            return Some((later, duty));
        }
        let first = if self.may_lose(pod) { Duty::Bind } else { Duty::Start };
        (created && pod.end.is_none()).then(|| (self.chance.millis(5..=400), first))
    }

    fn containers_of(&self, pod: &PodFacts) -> Option<&Containers> {
        let job = pod.object["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str()?;
        self.containers.get(job)
    }

    fn may_lose(&self, pod: &PodFacts) -> bool {
        self.containers_of(pod).is_some_and(|of| of.lost_percent > 0)
    }

    /// A duty of a node that goes, or of the node controller that finds that out.
    fn carry_out_loss(
        &mut self,
        pod: &PodFacts,
        uid: &str,
        duty: Duty,
        now: Time,
    ) -> Option<(Request, Option<(Duration, Duty)>)> {
        let ended = pod.end.is_some();
        match duty {
            Duty::Bind => Some((bind(pod), Some((self.losses.millis(0..=50), Duty::Start)))),
            Duty::Lose if ended || pod.deleted.is_some() => None,
            Duty::Lose => {
                self.lost.insert(uid.to_owned());
                let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": at(now)});
                let later = self.losses.millis(1_000..=30_000);
                Some((status(pod, json!({"conditions": [unready]})), Some((later, Duty::Taint))))
            }
            Duty::Taint => {
                let [_, delete] = drain(pod, uid, now);
                Some((delete, Some((self.losses.millis(5_000..=60_000), Duty::Return))))
            }
            // While its Job has to do with the pod, half of the nodes stay away.
            Duty::Return
                if pod.is_tracked()
                    && !pod.meddled
                    && uid.bytes().fold(0, |sum: u8, byte| sum.wrapping_add(byte)) % 2 == 0 =>
            {
                let nothing = json!({"conditions": []});
                Some((status(pod, nothing), Some((Duration::from_secs(30), Duty::Return))))
            }
            Duty::Return => {
                self.lost.remove(uid);
                self.stopping.insert(uid.to_owned(), ());
                let next = Some((self.losses.millis(1..=500), Duty::Remove));
                let code = if self.losses.percent(50) { KILLED } else { 0 };
                let request = if ended { remove(pod, uid) } else { status(pod, end(code, now)) };
                Some((request, next))
            }
            _ => None,
        }
    }

    /// The request that carries out a duty now, and the duty that follows.
    pub(crate) fn carry_out(
        &mut self,
        ledger: &Ledger,
        uid: &str,
        duty: Duty,
        now: Time,
    ) -> Option<(Request, Option<(Duration, Duty)>)> {
        let pod = ledger.pods.get(uid).filter(|pod| pod.exists())?;
        let ended = pod.end.is_some();
        match duty {
            Duty::Bind | Duty::Lose | Duty::Taint | Duty::Return => self.carry_out_loss(pod, uid, duty, now),
            _ if self.lost.contains(uid) => None,
            Duty::Start if ended || pod.deleted.is_some() => None,
            Duty::Start => {
                let of = self.containers_of(pod).cloned();
                let stuck = of.as_ref().map_or(0, |of| of.stuck_percent);
                if stuck > 0 && self.starts.percent(stuck) {
                    return None;
                }
                let asked = asked(&pod.object, "limits");
                let is_short =
                    of.as_ref().and_then(|of| of.needs_memory).zip(asked).is_some_and(|(n, has)| has < n);
                let failed = self.chance.percent(of.as_ref().map_or(0, |of| of.failing_percent));
                let run = self.chance.millis(10..=self.longest_run.as_millis() as u64);
                let evicted = of.as_ref().is_some_and(|of| self.ends.percent(of.evicted_percent));
                let goes =
                    of.as_ref().is_some_and(|of| of.lost_percent > 0 && self.losses.percent(of.lost_percent));
                let mut begins = running(now);
                if self.may_lose(pod) {
                    let ready = json!({"type": "ContainersReady", "status": "True"});
                    begins["conditions"].as_array_mut().into_iter().for_each(|all| all.push(ready.clone()));
                }
                let code = match of {
                    Some(of) if failed => self.ends.pick(&of.exit_codes),
                    _ => i32::from(failed),
                };
                let duty = match (evicted, is_short) {
                    _ if goes => Duty::Lose,
                    (true, _) => Duty::Evict,
                    (false, true) => Duty::KillForMemory,
                    (false, false) => Duty::End { code },
                };
                Some((status(pod, begins), Some((run, duty))))
            }
            Duty::End { .. } | Duty::KillForMemory | Duty::Evict if ended => None,
            Duty::KillForMemory => Some((status(pod, killed_for_memory(now)), None)),
            Duty::End { code } => self.restart(pod, code, now).or(Some((status(pod, end(code, now)), None))),
            Duty::Evict => Some((status(pod, evicted(now)), None)),
            Duty::Stop if ended => Some((remove(pod, uid), None)),
            Duty::Stop => {
                // A process that is told to stop may have ended well just before.
                let code = if self.chance.percent(80) { KILLED } else { 0 };
                Some((status(pod, end(code, now)), Some((self.chance.millis(1..=50), Duty::Remove))))
            }
            Duty::Remove => Some((remove(pod, uid), None)),
        }
    }
}

impl Kubelet {
    /// Restarts a failed container if its Job wants that and the pod is not being deleted.
    fn restart(
        &mut self,
        pod: &PodFacts,
        code: i32,
        now: Time,
    ) -> Option<(Request, Option<(Duration, Duty)>)> {
        let of = self.containers_of(pod).filter(|of| of.restarts && code != 0 && pod.deleted.is_none())?;
        let failing = of.failing_percent;
        let mut again = running(now);
        again["containerStatuses"][0]["restartCount"] = (restarts(&pod.object) + 1).into();
        let code = i32::from(self.restarts.percent(failing));
        let run = self.restarts.millis(200..=self.longest_run.as_millis() as u64);
        Some((status(pod, again), Some((run, Duty::End { code }))))
    }
}

/// How often the containers of a pod were started again.
pub(crate) fn restarts(pod: &Value) -> u64 {
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    containers.filter_map(|container| container["restartCount"].as_u64()).sum()
}

/// A request of a client other than the replicas.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
}

fn status(pod: &PodFacts, mut status: Value) -> Request {
    let before = restarts(&pod.object);
    if let Some(container) = status["containerStatuses"].get_mut(0).filter(|_| before > 0) {
        container["restartCount"] = container["restartCount"].as_u64().unwrap_or(0).max(before).into();
    }
    let (namespace, name) = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
    Request {
        method: "PATCH",
        path,
        body: json!({"metadata": {"uid": pod.object["metadata"]["uid"]}, "status": status}),
    }
}

fn remove(pod: &PodFacts, uid: &str) -> Request {
    let (namespace, name) = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    Request { method: "DELETE", path, body: json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}) }
}

fn bind(pod: &PodFacts) -> Request {
    let (namespace, name) = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/binding");
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    });
    Request { method: "POST", path, body }
}

fn at(now: Time) -> String {
    (EPOCH + now.since(Time::ZERO)).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn running(now: Time) -> Value {
    json!({
        "phase": "Running",
        "startTime": at(now),
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(now)}],
        "containerStatuses": [{
            "name": "main", "ready": true, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"running": {"startedAt": at(now)}},
        }],
    })
}

/// The exit code of a process that is killed since it has exceeded its memory.
pub(crate) const KILLED_FOR_MEMORY: i32 = 137;

fn killed_for_memory(now: Time) -> Value {
    let mut status = end(KILLED_FOR_MEMORY, now);
    status["containerStatuses"][0]["state"]["terminated"]["reason"] = "OOMKilled".into();
    status
}

/// The exit code of a process that was told to stop.
const KILLED: i32 = 143;

/// The end of a pod whose node has evicted it.
fn evicted(now: Time) -> Value {
    let mut status = end(137, now);
    status["reason"] = "Evicted".into();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.push(disrupted(now));
    }
    status
}

/// The condition of a disrupted pod.
fn disrupted(now: Time) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "lastTransitionTime": at(now),
    })
}

/// The requests that drain a pod from its node.
pub(crate) fn drain(pod: &PodFacts, uid: &str, now: Time) -> [Request; 2] {
    let (namespace, name) = pod.name();
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let delete = Request { method: "DELETE", path, body: json!({"preconditions": {"uid": uid}}) };
    [status(pod, json!({"conditions": [disrupted(now)]})), delete]
}

fn end(code: i32, now: Time) -> Value {
    let failed = code != 0;
    let terminated = json!({
        "exitCode": code, "reason": if failed { "Error" } else { "Completed" },
        "startedAt": at(now), "finishedAt": at(now),
    });
    json!({
        "phase": if failed { "Failed" } else { "Succeeded" },
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at(now)}],
        "containerStatuses": [{
            "name": "main", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": {"terminated": terminated},
        }],
    })
}
