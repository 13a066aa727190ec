//! The namespaces of one attack: the victim's, the tenant's, and that of the replicas' Leases.

use anyhow::{Context, Result};
use http::{Request, header};
use serde_json::{Value, json};

use super::user::USER;
use crate::ground::Ground;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces";

/// The namespaces, with an administrator's client.
pub(super) struct Yard {
    pub(super) admin: kube::Client,
    name: String,
}

impl Yard {
    /// Creates the namespaces, and gives the tenant rights in one of them.
    pub(super) async fn prepare(ground: &Ground, number: usize, statuses: bool) -> Result<Self> {
        let admin = ground.client("load-tests").await?;
        let yard = Self { admin, name: format!("{}-{number}", ground.namespace) };
        for namespace in [yard.victim(), yard.tenant(), yard.leases()] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            yard.post("/api/v1/namespaces", &body).await?;
        }
        yard.allow(statuses).await?;
        Ok(yard)
    }

    pub(super) fn victim(&self) -> String {
        format!("{}-victim", self.name)
    }

    pub(super) fn tenant(&self) -> String {
        format!("{}-tenant", self.name)
    }

    pub(super) fn leases(&self) -> String {
        format!("{}-leases", self.name)
    }

    /// The tenant may do everything with Jobs and pods of its namespace, but not write their statuses unless
    /// `statuses` is given.
    async fn allow(&self, statuses: bool) -> Result<()> {
        let rule = |groups: [&str; 2], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["*"]});
        let mut rules = vec![rule(["batch", ""], &["jobs", "pods", "events"])];
        rules.push(rule(["scheduling.k8s.io", ""], &["workloads", "podgroups"]));
        if statuses {
            rules.push(rule(["batch", ""], &["jobs/status", "pods/status"]));
        }
        let api = "rbac.authorization.k8s.io";
        let role = json!({
            "apiVersion": format!("{api}/v1"), "kind": "Role", "metadata": {"name": USER}, "rules": rules,
        });
        let binding = json!({
            "apiVersion": format!("{api}/v1"), "kind": "RoleBinding", "metadata": {"name": USER},
            "roleRef": {"apiGroup": api, "kind": "Role", "name": USER},
            "subjects": [{"apiGroup": api, "kind": "User", "name": USER}],
        });
        let namespace = self.tenant();
        self.post(&format!("{RBAC}/{namespace}/roles"), &role).await?;
        self.post(&format!("{RBAC}/{namespace}/rolebindings"), &binding).await
    }

    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        let request = Request::post(path).body(body.to_string().into_bytes())?;
        let _created: Value = self.admin.request(request).await.with_context(|| format!("POST {path}"))?;
        Ok(())
    }

    /// The Jobs and pods that the tenant still has.
    pub(super) async fn left(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for kind in ["jobs", "pods"] {
            let names = self.names(&self.tenant(), kind).await?;
            left.extend(names.into_iter().map(|name| format!("{kind} {name}")));
        }
        Ok(left)
    }

    /// Names of the Jobs or pods of a namespace.
    async fn names(&self, namespace: &str, kind: &str) -> Result<Vec<String>> {
        let request = Request::get(collection(namespace, kind)).header(
            header::ACCEPT,
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
        );
        let list: Value = self.admin.request(request.body(Vec::new())?).await?;
        let names = list["items"].as_array().into_iter().flatten();
        Ok(names.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// Deletes everything, without regard to finalizers: the next attack must not meet it.
    pub(super) async fn clear(&self) -> Result<()> {
        for namespace in [self.tenant(), self.victim()] {
            for kind in ["jobs", "pods"] {
                let path = collection(&namespace, kind);
                let all = format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background");
                let _deleted: Value = self.admin.request(Request::delete(all).body(Vec::new())?).await?;
                for name in self.names(&namespace, kind).await? {
                    // It may be gone by now.
                    let _gone = self.release(&format!("{path}/{name}")).await;
                }
            }
        }
        for namespace in [self.victim(), self.tenant(), self.leases()] {
            let path = format!("/api/v1/namespaces/{namespace}");
            let _deleted: Value = self.admin.request(Request::delete(path).body(Vec::new())?).await?;
        }
        Ok(())
    }

    async fn release(&self, path: &str) -> Result<()> {
        let body = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
        let request =
            Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json").body(body)?;
        let _released: Value = self.admin.request(request).await?;
        Ok(())
    }
}

/// The path of the Jobs or pods of a namespace.
pub(super) fn collection(namespace: &str, kind: &str) -> String {
    let version = if kind == "jobs" { "/apis/batch/v1" } else { "/api/v1" };
    format!("{version}/namespaces/{namespace}/{kind}")
}
