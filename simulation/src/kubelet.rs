//! The nodes of a world: they start containers, and containers end as chance wants it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::chance::Chance;
use crate::ledger::{Ledger, PodFacts};
use crate::plan::Plan;
use crate::time::{EPOCH, Time};

/// What a node does with a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Starts its container.
    Start,
    /// The container has ended by itself.
    End {
        /// Whether it failed.
        failed: bool,
    },
    /// The container was told to stop.
    Stop,
    /// The pod goes away.
    Remove,
}

/// The nodes.
#[derive(Debug)]
pub(crate) struct Kubelet {
    chance: Chance,
    longest_run: Duration,
    /// How many of 100 containers fail, by name of the Job.
    failing: BTreeMap<String, u32>,
    stopping: BTreeMap<String, ()>,
}

impl Kubelet {
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            chance: Chance::new(plan.seed, "kubelet"),
            longest_run: plan.settings.longest_run,
            failing: plan.jobs.iter().map(|job| (job.name.clone(), job.failing_percent)).collect(),
            stopping: BTreeMap::new(),
        }
    }

    /// etcd was restored: nodes report everything anew.
    pub(crate) fn forget(&mut self) {
        self.stopping.clear();
    }

    /// What is to be done with a pod that has just changed, and how much later.
    pub(crate) fn changed(&mut self, uid: &str, pod: &PodFacts, created: bool) -> Option<(Duration, Duty)> {
        if !pod.exists {
            return None;
        }
        if pod.deleted.is_some() {
            if self.stopping.insert(uid.to_owned(), ()).is_some() {
                return None;
            }
            let duty = if pod.end.is_some() { Duty::Remove } else { Duty::Stop };
            return Some((self.chance.millis(5..=1_500), duty));
        }
        (created && pod.end.is_none()).then(|| (self.chance.millis(5..=400), Duty::Start))
    }

    /// The request that carries out a duty now, and the duty that follows.
    pub(crate) fn carry_out(
        &mut self,
        ledger: &Ledger,
        uid: &str,
        duty: Duty,
        now: Time,
    ) -> Option<(Request, Option<(Duration, Duty)>)> {
        let pod = ledger.pods.get(uid).filter(|pod| pod.exists)?;
        let ended = pod.end.is_some();
        match duty {
            Duty::Start if ended || pod.deleted.is_some() => None,
            Duty::Start => {
                let job = pod.object["metadata"]["labels"]["batch.kubernetes.io/job-name"].as_str();
                let failing = job.and_then(|job| self.failing.get(job)).copied().unwrap_or(0);
                let failed = self.chance.percent(failing);
                let run = self.chance.millis(10..=self.longest_run.as_millis() as u64);
                Some((status(pod, running(now)), Some((run, Duty::End { failed }))))
            }
            Duty::End { .. } if ended => None,
            Duty::End { failed } => Some((status(pod, end(failed, now)), None)),
            Duty::Stop if ended => Some((remove(pod, uid), None)),
            Duty::Stop => {
                // A process that is told to stop may have ended well just before.
                let failed = self.chance.percent(80);
                Some((status(pod, end(failed, now)), Some((self.chance.millis(1..=50), Duty::Remove))))
            }
            Duty::Remove => Some((remove(pod, uid), None)),
        }
    }
}

/// A request of somebody other than a replica.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) body: Value,
}

fn status(pod: &PodFacts, status: Value) -> Request {
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

fn end(failed: bool, now: Time) -> Value {
    let terminated = json!({
        "exitCode": i32::from(failed), "reason": if failed { "Error" } else { "Completed" },
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
