//! The deletion of a namespace: the namespace controller deletes its pods, then its Jobs, and then lets it go.

use std::time::Duration;

use serde_json::json;

use super::{Event, World};
use crate::kubelet::Request;
use crate::ledger::name;

/// How long users wait for a namespace before they delete Jobs in it themselves.
const HANGS: Duration = Duration::from_secs(20);

impl World {
    /// A user deletes a namespace.
    pub(super) fn end_namespace(&mut self, namespace: String) {
        self.conditions.ending.insert(namespace.clone(), self.now);
        self.terminate(&namespace);
        let soon = self.now + self.chance.millis(20..=4_000);
        self.agenda.add(soon, Event::Empty(namespace));
    }

    fn terminate(&mut self, namespace: &str) {
        let path = format!("/api/v1/namespaces/{namespace}");
        self.call("user", &Request { method: "DELETE", path, body: json!({}) });
    }

    /// Deletes what is left in a namespace: Jobs only once there are no pods.
    pub(super) fn empty(&mut self, namespace: &str) {
        // A restore of etcd may have taken the deletion back.
        self.terminate(namespace);
        let delete = |path: String| Request {
            method: "DELETE",
            path,
            body: json!({"propagationPolicy": "Background"}),
        };
        let pods = self.ledger.pods.values().filter(|pod| pod.exists() && pod.name().0 == namespace);
        let mut left: Vec<Request> =
            pods.map(|pod| delete(format!("/api/v1/namespaces/{namespace}/pods/{}", pod.name().1))).collect();
        // The failed pod of an index keeps its finalizer until it has a successor, which cannot be created here. In
        // Kubernetes, too, a namespace then hangs until a user deletes the Job.
        let began = self.conditions.ending.get(namespace).copied().unwrap_or(self.now);
        if left.is_empty() || self.now > began + HANGS {
            let jobs = self.ledger.jobs.values().filter(|job| job.exists && job.name().0 == namespace);
            let deletions = jobs.map(|job| {
                delete(format!("/apis/batch/v1/namespaces/{namespace}/jobs/{}", name(&job.object).1))
            });
            left.extend(deletions);
        }
        if left.is_empty() {
            let path = format!("/api/v1/namespaces/{namespace}/finalize");
            let body = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace},
                "spec": {"finalizers": []},
            });
            self.call("namespace", &Request { method: "PUT", path, body });
            self.conditions.ending.remove(namespace);
            return;
        }
        for request in left {
            self.call("namespace", &request);
        }
        let again = self.now + self.chance.millis(500..=2_000) + Duration::from_secs(1);
        self.agenda.add(again, Event::Empty(namespace.to_owned()));
    }
}
