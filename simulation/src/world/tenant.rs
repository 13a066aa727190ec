//! The tenant's acts, and the reactions of the API server and the garbage collector.

use std::time::Duration;

use http::{Method, Uri};
use serde_json::{Value, json};

use super::{Event, World};
use crate::gc;
use crate::kubelet::Request;
use crate::plan::tenant::{Dress, ShardMark, TENANT, TenantAct};
use crate::tenant::{self, Named};
use crate::time::Time;

/// The tenant's name in the log.
const WHO: &str = "tenant";

/// Reads of the tenant's objects take long.
#[derive(Default)]
pub(super) struct SlowReads {
    until: Time,
    takes: Duration,
}

impl World {
    /// The tenant does something: the step of this number.
    pub(super) fn tenant_acts(&mut self, number: usize, act: TenantAct) {
        self.ensure_namespace(TENANT);
        let patch = |path: String, body: Value| Request { method: "PATCH", path, body };
        match act {
            TenantAct::Claim { job, how, pods, dress } => {
                let Some(job) = self.plan.jobs.get(job).cloned() else { return };
                let Some(uid) = self.uid_that_was(&job.namespace, &job.name) else { return };
                let named = tenant::claimed(&job, &uid, how);
                self.ensure_namespace(&job.namespace);
                (0..pods).for_each(|pod| self.create_pod(&named, dress, number, pod));
            }
            TenantAct::NameNobody { pods, impossible, dress } => {
                for pod in 0..pods {
                    let named = tenant::nobody(number as u64 * 1_000 + u64::from(pod), impossible);
                    self.create_pod(&named, dress, number, pod);
                }
            }
            TenantAct::Create { first, jobs, extreme } => {
                for job in first..first + jobs {
                    let request = tenant::job(job, extreme, &self.plan.settings);
                    self.call(WHO, &request);
                }
            }
            TenantAct::Delete(policy) => self.for_each(tenant::jobs(&self.ledger), |path| Request {
                method: "DELETE",
                path,
                body: json!({"propagationPolicy": policy}),
            }),
            TenantAct::Suspend(suspend) => {
                let body = json!({"spec": {"suspend": suspend}});
                self.for_each(tenant::jobs(&self.ledger), |path| patch(path, body.clone()));
            }
            TenantAct::Annotate { key, value } => {
                let body = json!({"metadata": {"annotations": {key: value}}});
                self.for_each(tenant::pods(&self.ledger), |path| patch(path, body.clone()));
            }
            TenantAct::Label(mark) => {
                let shard = tenant::shard_label(mark);
                let body = json!({"metadata": {"labels": {yardmaster::job::names::SHARD_LABEL: shard}}});
                self.for_each(tenant::pods(&self.ledger), |path| patch(path, body.clone()));
            }
            TenantAct::WriteStatuses(edge) => {
                self.for_each(tenant::jobs(&self.ledger), |path| tenant::write_status(&path, edge));
            }
            TenantAct::WritePhases(phase) => {
                let body = json!({"status": {"phase": phase}});
                self.for_each(tenant::pods(&self.ledger), |path| {
                    patch(format!("{path}/status"), body.clone())
                });
            }
            TenantAct::DeletePods => self.for_each(tenant::pods(&self.ledger), |path| Request {
                method: "DELETE",
                path,
                body: json!({}),
            }),
            TenantAct::Hold => {
                let of_tenant = |object: &&Value| tenant::is_in_namespace(object);
                let jobs = self.ledger.jobs.values().filter(|job| job.exists).map(|job| &job.object);
                let pods = self.ledger.pods.values().filter(|pod| pod.exists()).map(|pod| &pod.object);
                let all = jobs.filter(of_tenant).chain(pods.filter(of_tenant));
                let held: Vec<Request> = all.map(|one| tenant::hold(gc::path(one), one)).collect();
                held.iter().for_each(|request| _ = self.call(WHO, request));
            }
            TenantAct::SlowReads { time, takes } => {
                self.conditions.slow_reads = SlowReads { until: self.now + time, takes };
            }
        }
    }

    fn for_each(&mut self, paths: Vec<String>, request: impl Fn(String) -> Request) {
        paths.into_iter().for_each(|path| _ = self.call(WHO, &request(path)));
    }

    /// The UID of the Job of this name, even if it is gone: Events and logs show it for long.
    fn uid_that_was(&self, namespace: &str, name: &str) -> Option<String> {
        let mut jobs = self.ledger.jobs.iter();
        jobs.find(|(_, job)| job.name() == (namespace, name)).map(|(uid, _)| uid.clone())
    }

    fn create_pod(&mut self, named: &Named<'_>, dress: Dress, step: usize, pod: u32) {
        let number = step as u64 * 1_000 + u64::from(pod);
        // Pods of one step may go to different shards.
        let shard = match dress.shard {
            ShardMark::Number(shard) => ShardMark::Number((shard + pod) % self.plan.settings.shards),
            mark => mark,
        };
        let request = tenant::pod(named, Dress { shard, ..dress }, &self.plan.settings, number);
        let Some((code, created)) = self.call(WHO, &request) else { return };
        let (true, Some(uid)) = (code.is_success(), created["metadata"]["uid"].as_str()) else { return };
        let path = gc::path(&created);
        if let Some(phase) = dress.phase {
            let body = json!({"status": {"phase": phase}});
            self.call(WHO, &Request { method: "PATCH", path: format!("{path}/status"), body });
        }
        if dress.deleted {
            self.call(WHO, &Request { method: "DELETE", path, body: json!({}) });
        } else if named.owns && self.chance.percent(70) {
            let later = self.chance.millis(200..=10_000);
            self.agenda.add(self.now + later, Event::CollectPod(uid.to_owned()));
        }
    }

    /// The garbage collector finds that the owner of a pod does not exist in the pod's namespace.
    pub(super) fn collect_pod(&mut self, pod: &str) {
        let Some(facts) = self.ledger.pods.get(pod).filter(|pod| pod.exists() && pod.deleted.is_none())
        else {
            return;
        };
        let path = gc::path(&facts.object);
        self.call("gc", &Request { method: "DELETE", path, body: json!({"preconditions": {"uid": pod}}) });
    }

    /// How much longer than others the API server takes for a request.
    pub(super) fn slowness(&self, method: &Method, uri: &Uri) -> Duration {
        let SlowReads { until, takes } = self.conditions.slow_reads;
        let is_slow = self.now < until
            && *method == Method::GET
            && uri.path().contains(&format!("/namespaces/{TENANT}/"));
        if is_slow { takes } else { Duration::ZERO }
    }
}
