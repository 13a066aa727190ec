//! Plays rare events.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderValue, Method, Request, Response};
use serde_json::{Value, json};
use yardmaster::actors::test_hooks::Part;
use yardmaster::job::names::SHARD_LABEL;

use super::{Event, World, json as body_of};
use crate::kubelet::Request as Outside;
use crate::plan::Rare;
use crate::time::Time;
use crate::users;

/// The rare events that have not ended.
#[derive(Default)]
pub(super) struct Conditions {
    /// Pods that cannot be read until then, by UID.
    pods: BTreeMap<String, Time>,
    /// Jobs with an unknown mode until then, by name.
    modes: BTreeMap<String, Time>,
    /// Namespaces in which the shard label is taken off until then.
    unlabelling: BTreeMap<String, Time>,
    /// How long the process of a replica is away if a panic ends it.
    down: BTreeMap<usize, Duration>,
}

impl Conditions {
    /// Whether parts of replicas panic.
    pub(super) fn panics(&self) -> bool {
        !self.down.is_empty()
    }
}

/// The request that ends a rare event.
pub(crate) enum End {
    /// Labels are put back.
    Relabel { pod: String, labels: Value },
    /// The mode of a Job is known again: the API server that showed another is gone, and the Job is written.
    ModeKnown(usize),
}

impl World {
    /// Something rare happens.
    pub(super) fn rare(&mut self, rare: Rare) {
        let now = self.now;
        if let Some((replica, time)) = rare.disturbs() {
            self.checks.disturbed(replica, now + time);
        }
        let job = rare.job().and_then(|job| self.plan.jobs.get(job)).cloned();
        let uid = job.as_ref().and_then(|job| users::uid_of(&self.ledger, job)).map(str::to_owned);
        match rare {
            Rare::UnreadablePod { nth, time, .. } => {
                let Some(uid) = uid else { return };
                let Some(pod) = users::pick(&self.ledger, &uid, nth).map(|(pod, _)| pod.to_owned()) else {
                    return;
                };
                if let Some(facts) = self.ledger.pods.get_mut(&pod) {
                    facts.garbled = true;
                }
                self.conditions.rare.pods.insert(pod, now + time);
            }
            Rare::UnknownMode { job: number, time } => {
                let Some(job) = job else { return };
                self.conditions.rare.modes.insert(job.name, now + time);
                self.agenda.add(now + time, Event::RareEnd(End::ModeKnown(number)));
            }
            Rare::Unselect { nth, all, back, .. } => {
                uid.into_iter().for_each(|uid| self.unselect(&uid, nth, all, back));
            }
            Rare::DeletingOrphan { time, .. } => {
                let Some(job) = job else { return };
                let mut orphan = users::orphan(&job, now.millis() * 10);
                orphan.body["metadata"]["finalizers"] = json!([users::HOLD]);
                self.ensure_namespace(&job.namespace);
                let Some((code, pod)) = self.call("user", &orphan) else { return };
                let (true, Some(uid)) = (code.is_success(), pod["metadata"]["uid"].as_str()) else { return };
                let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                let path = format!("{}/{name}", orphan.path);
                self.call("user", &Outside { method: "DELETE", path, body: json!({}) });
                self.agenda.add(now + time, Event::Unhold(uid.to_owned()));
            }
            Rare::DistantOrphan { .. } => {
                let Some(mut job) = job else { return };
                job.namespace = "elsewhere".into();
                self.ensure_namespace(&job.namespace);
                self.call("user", &users::orphan(&job, now.millis() * 10));
            }
            Rare::Lease { kind, nth, how } => {
                if let Some(request) = users::damage(&self.ledger, kind, nth, how) {
                    self.checks.lease_damaged(self.now, &request.path, &self.ledger);
                    self.call("stranger", &request);
                }
            }
            Rare::FinishForeign { failed, .. } => {
                if let Some(job) = job {
                    self.call("other", &users::finish(&job, failed, now));
                }
            }
            Rare::SetTtl { ttl, .. } => {
                let (Some(job), Some(uid)) = (job, uid) else { return };
                if let Some(facts) = self.ledger.jobs.get_mut(&uid) {
                    facts.ttl_set = Some(now);
                }
                let path = format!("/apis/batch/v1/namespaces/{}/jobs/{}", job.namespace, job.name);
                let body = json!({"spec": {"ttlSecondsAfterFinished": ttl}});
                self.call("user", &Outside { method: "PATCH", path, body });
            }
            Rare::PanicPart { replica, part, down } => {
                self.conditions.rare.down.insert(replica, down);
                if let Ok(mut panics) = self.panics.lock() {
                    panics.insert(mark(part, replica));
                }
            }
            Rare::Unlabelling { namespace, time } => {
                self.conditions.rare.unlabelling.insert(namespace, now + time);
            }
        }
    }

    /// Removes labels from a pod, so that its Job no longer selects it.
    fn unselect(&mut self, job: &str, nth: usize, all: bool, back: Option<Duration>) {
        let Some((pod, facts)) = users::pick(&self.ledger, job, nth) else { return };
        let (pod, labels) = (pod.to_owned(), facts.object["metadata"]["labels"].clone());
        let (namespace, name) = facts.name();
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if let Some(facts) = self.ledger.jobs.get_mut(job) {
            facts.touched = Some(self.now);
        }
        if let Some(facts) = self.ledger.pods.get_mut(&pod) {
            facts.meddled = true;
            facts.returns |= back.is_some();
        }
        const SELECTED_BY: [&str; 3] = ["app", "controller-uid", "batch.kubernetes.io/controller-uid"];
        let names = labels.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let off = names.filter(|name| all || SELECTED_BY.contains(name));
        let off: Value = off.map(|name| (name.to_owned(), Value::Null)).collect();
        self.call("user", &Outside { method: "PATCH", path, body: json!({"metadata": {"labels": off}}) });
        if let Some(back) = back {
            self.agenda.add(self.now + back, Event::RareEnd(End::Relabel { pod, labels }));
        }
    }

    /// Something rare ends.
    pub(super) fn rare_ends(&mut self, end: End) {
        match end {
            End::Relabel { pod, labels } => {
                let Some(facts) = self.ledger.pods.get(&pod).filter(|facts| facts.exists()) else { return };
                let (namespace, name) = facts.name();
                let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
                let job = facts.job.clone();
                if let Some(facts) = job.and_then(|job| self.ledger.jobs.get_mut(&job)) {
                    facts.touched = Some(self.now);
                }
                let body = json!({"metadata": {"uid": pod, "labels": labels}});
                self.call("user", &Outside { method: "PATCH", path, body });
            }
            End::ModeKnown(job) => {
                let Some(job) = self.plan.jobs.get(job) else { return };
                let path = format!("/apis/batch/v1/namespaces/{}/jobs/{}", job.namespace, job.name);
                let note = self.now.millis().to_string();
                let body = json!({"metadata": {"annotations": {"example.com/written": note}}});
                self.call("user", &Outside { method: "PATCH", path, body });
            }
        }
    }

    /// A replica has panicked as a plan wants it. If its process ends, it starts again.
    pub(super) fn ends_by_panic(&mut self, replica: usize) {
        let ended = |slot: &super::Slot| {
            let life = slot.life.as_ref().filter(|_| !slot.leaving);
            life.is_some_and(|life| life.with(yardmaster::actors::Replica::has_ended).unwrap_or(true))
        };
        if !self.slots.get(replica).is_some_and(ended) {
            return;
        }
        let Some(down) = self.conditions.rare.down.get(&replica).copied() else { return };
        // It may have been asked for long ago.
        self.checks.disturbed(Some(replica), self.now + down);
        self.log.tell(self.now, &format!("replica-{replica}"), format_args!("its process ends"));
        self.end(replica);
        self.agenda.add(self.now + down, Event::Start(replica));
    }

    /// The request as the API server gets it: one that shows pods in JSON only, or behind a webhook.
    pub(super) fn rewritten(&self, mut request: Request<Bytes>) -> Request<Bytes> {
        let rare = &self.conditions.rare;
        if !rare.pods.is_empty() && *request.method() == Method::GET {
            let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let parts = accept.into_iter().flat_map(|accept| accept.split(','));
            let kept: Vec<&str> = parts.map(str::trim).filter(|part| !part.contains("protobuf")).collect();
            if let Ok(kept) = HeaderValue::from_str(&kept.join(",")) {
                request.headers_mut().insert(ACCEPT, kept);
            }
        }
        let path = request.uri().path();
        let hit = |(namespace, until): (&String, &Time)| {
            self.now < *until && path.contains(&format!("/namespaces/{namespace}/pods/"))
        };
        if *request.method() == Method::PATCH && rare.unlabelling.iter().any(hit) {
            let Ok(mut patch) = serde_json::from_slice::<Value>(request.body()) else { return request };
            if let Some(labels) = patch["metadata"]["labels"].as_object_mut()
                && labels.get(SHARD_LABEL).is_some_and(|label| !label.is_null())
            {
                labels.insert(SHARD_LABEL.into(), Value::Null);
                *request.body_mut() = patch.to_string().into();
            }
        }
        request
    }

    /// Makes pods and Jobs unreadable in a whole answer, if it shows some.
    pub(super) fn rarely_unreadable(&self, answer: Response<Bytes>, method: &Method) -> Response<Bytes> {
        let rare = &self.conditions.rare;
        let hides = !(rare.pods.is_empty() && rare.modes.is_empty()) && *method == Method::GET;
        if hides && body_of(&answer).is_object() {
            answer.map(|body| self.rarely_unreadable_piece(body))
        } else {
            answer
        }
    }

    /// Makes pods and Jobs unreadable.
    pub(super) fn rarely_unreadable_piece(&self, piece: Bytes) -> Bytes {
        let rare = &self.conditions.rare;
        if rare.pods.is_empty() && rare.modes.is_empty() {
            return piece;
        }
        let Ok(text) = std::str::from_utf8(&piece) else { return piece };
        let mut text = text.to_owned();
        for (uid, _) in rare.pods.iter().filter(|(_, until)| self.now < **until) {
            text = without_creation(text, uid);
        }
        for (name, _) in rare.modes.iter().filter(|(_, until)| self.now < **until) {
            text = with_unknown_mode(text, name);
        }
        text.into()
    }
}

/// The mark that makes a part of a replica panic.
pub(super) fn mark(part: Part, replica: usize) -> String {
    format!("{part:?} of replica-{replica}")
}

/// Takes the time of its creation from the object of this UID. It comes before the UID.
fn without_creation(text: String, uid: &str) -> String {
    const FIELD: &str = "\"creationTimestamp\":";
    let mark = format!("\"uid\":\"{uid}\"");
    let Some(at) = text.find(&mark) else { return text };
    let Some(begin) = text[..at].rfind(FIELD).map(|begin| begin + FIELD.len()) else { return text };
    let Some(length) = text[begin..].find(',') else { return text };
    format!("{}null{}", &text[..begin], &text[begin + length..])
}

/// Replaces the completion mode of the Job of this name.
fn with_unknown_mode(text: String, name: &str) -> String {
    const FIELD: &str = "\"completionMode\":\"";
    let Some(at) = text.find(&format!("\"name\":\"{name}\"")) else { return text };
    let Some(begin) = text[at..].find(FIELD).map(|begin| at + begin + FIELD.len()) else { return text };
    let Some(length) = text[begin..].find('"') else { return text };
    format!("{}Sometimes{}", &text[..begin], &text[begin + length..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_of_several_becomes_unreadable() {
        let pod = |uid: &str| json!({"metadata": {"creationTimestamp": "t", "name": uid, "uid": uid}});
        let list = json!({"items": [pod("a"), pod("b")]}).to_string();
        let shown: Value = serde_json::from_str(&without_creation(list, "b")).unwrap_or_default();
        let times = [0, 1].map(|number| shown["items"][number]["metadata"]["creationTimestamp"].clone());
        assert_eq!(times, [json!("t"), Value::Null]);
        let job = |name: &str| json!({"metadata": {"name": name}, "spec": {"completionMode": "Indexed"}});
        let list = json!({"items": [job("a"), job("b")]}).to_string();
        let shown: Value = serde_json::from_str(&with_unknown_mode(list, "b")).unwrap_or_default();
        let modes = [0, 1].map(|number| shown["items"][number]["spec"]["completionMode"].clone());
        assert_eq!(modes, ["Indexed", "Sometimes"]);
    }
}
