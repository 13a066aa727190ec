//! The requests of users, nodes and the garbage collector.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Event, NOBODY, Reply, World, json as body_of, outside};
use crate::kubelet::{Duty, Request};
use crate::plan::UserAct;
use crate::{gc, past, users};

impl World {
    /// Carries out a request of a client other than the replicas: at once, and without losses.
    pub(super) fn call(&mut self, who: &'static str, request: &Request) -> Option<(StatusCode, Value)> {
        let built = outside(request)?;
        let Reply::Whole(answer) = self.server.handle(built) else { return None };
        let code = answer.status();
        self.log
            .line(self.now, format_args!("{who} {} {} -> {}", request.method, request.path, code.as_u16()));
        let body = body_of(&answer);
        self.caller = who;
        self.pump(None);
        self.caller = NOBODY;
        Some((code, body))
    }

    /// The API server's word is needed: anything but success is a mistake of the world.
    fn must(&mut self, who: &'static str, request: &Request) {
        match self.call(who, request) {
            Some((code, _)) if code.is_success() => {}
            answer => self.checks.broken(self.now, format!("{who}: {request:?}: {answer:?}")),
        }
    }

    /// A user creates a Job.
    pub(super) fn create(&mut self, number: usize) {
        let Some(job) = self.plan.jobs.get(number) else { return };
        let namespace = job.namespace.clone();
        let request = users::create(job);
        self.ensure_namespace(&namespace);
        if self.conditions.ending.contains_key(&namespace) {
            // Nothing can be created in a namespace that ends.
            self.call("user", &request);
            return;
        }
        self.must("user", &request);
    }

    pub(super) fn ensure_namespace(&mut self, namespace: &str) {
        if namespace == "default" {
            return;
        }
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        self.call("user", &Request { method: "POST", path: "/api/v1/namespaces".into(), body });
    }

    /// A user does something to a Job.
    pub(super) fn user_acts(&mut self, number: usize, act: &UserAct) {
        let Some(job) = self.plan.jobs.get(number) else { return };
        if let UserAct::AddOrphans(count) = act {
            let job = job.clone();
            self.ensure_namespace(&job.namespace);
            for orphan in 0..u64::from(*count) {
                self.call("user", &users::orphan(&job, self.now.millis() * 10 + orphan));
            }
            return;
        }
        let Some(uid) = users::uid_of(&self.ledger, job).map(str::to_owned) else { return };
        if let Some(requests) = users::requests(&self.ledger, &uid, act, self.now) {
            for request in requests {
                self.call("user", &request);
            }
            return;
        }
        let Some(request) = users::request(&self.ledger, job, act) else { return };
        if act.changes_job()
            && let Some(facts) = self.ledger.jobs.get_mut(&uid)
        {
            facts.touched = Some(self.now);
        }
        let nth = match act {
            UserAct::StripLabel { nth }
            | UserAct::AdoptElsewhere { nth }
            | UserAct::WrongShard { nth }
            | UserAct::OtherShard { nth, .. }
            | UserAct::Relabel { nth }
            | UserAct::StripFinalizers { nth }
            | UserAct::HoldPod { nth, .. } => Some(*nth),
            _ => None,
        };
        let pod = nth.and_then(|nth| users::pick(&self.ledger, &uid, nth)).map(|(pod, _)| pod.to_owned());
        let takes_away = matches!(
            act,
            UserAct::StripFinalizers { .. } | UserAct::AdoptElsewhere { .. } | UserAct::Relabel { .. }
        );
        if let Some(pod) = pod.as_ref().filter(|_| takes_away)
            && let Some(facts) = self.ledger.pods.get_mut(pod)
        {
            facts.meddled = true;
        }
        self.call("user", &request);
        if let (Some(pod), UserAct::HoldPod { time, .. }) = (pod, act) {
            self.agenda.add(self.now + *time, Event::Unhold(pod));
        }
    }

    /// Removes a foreign finalizer.
    pub(super) fn unhold(&mut self, pod: &str) {
        let Some(facts) = self.ledger.pods.get(pod).filter(|facts| facts.exists()) else { return };
        let before = facts.object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        let kept: Vec<Value> = before.into_iter().filter(|f| f != users::HOLD).collect();
        let (namespace, name) = facts.name();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let body = json!({"metadata": {"uid": pod, "finalizers": kept}});
        self.call("user", &Request { method: "PATCH", path, body });
    }

    /// A node does its duty.
    pub(super) fn node(&mut self, pod: &str, duty: Duty) {
        let Some((request, next)) = self.kubelet.carry_out(&self.ledger, pod, duty, self.now) else { return };
        self.call("kubelet", &request);
        if let Some((later, duty)) = next {
            self.agenda.add(self.now + later, Event::Kubelet { pod: pod.to_owned(), duty });
        }
    }

    /// The garbage collector looks at a Job.
    pub(super) fn collect(&mut self, job: &str) {
        for request in gc::collect(&self.ledger, job) {
            self.call("gc", &request);
        }
    }

    /// Sets a quota of pods in a namespace.
    pub(super) fn quota(&mut self, namespace: &str, pods: u32) {
        self.ensure_namespace(namespace);
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas");
        let body = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"},
            "spec": {"hard": {"pods": pods.to_string()}},
        });
        self.call("user", &Request { method: "POST", path, body });
    }

    /// Takes the quota away.
    pub(super) fn unquota(&mut self, namespace: &str) {
        let path = format!("/api/v1/namespaces/{namespace}/resourcequotas/pods");
        self.call("user", &Request { method: "DELETE", path, body: json!({}) });
    }

    /// Makes what the built-in controller has left.
    pub(super) fn make_past(&mut self) {
        for number in 0..self.plan.jobs.len() {
            let Some(job) = self.plan.jobs.get(number).filter(|job| job.past.is_some()).cloned() else {
                continue;
            };
            self.create(number);
            let Some(uid) = users::uid_of(&self.ledger, &job).map(str::to_owned) else { continue };
            for request in past::pods(&job, &uid) {
                self.must("built-in", &request);
            }
            for request in past::ends(&self.ledger, &job, &uid) {
                self.must("built-in", &request);
            }
        }
    }
}
