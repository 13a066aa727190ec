//! The namespaces of one attack: the victim's, the tenant's, and that of the replicas' Leases.

use anyhow::{Context, Result};
use http::Request;
use serde_json::{Value, json};

use super::user::USER;
use crate::ground::Ground;
use crate::namespaces;

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
            namespaces::create(&yard.admin, &namespace).await?;
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
            let names = namespaces::names(&self.admin, &self.tenant(), kind).await?;
            left.extend(names.into_iter().map(|name| format!("{kind} {name}")));
        }
        Ok(left)
    }

    /// Deletes everything, without regard to finalizers: the next attack must not meet it.
    pub(super) async fn clear(&self) -> Result<()> {
        for namespace in [self.tenant(), self.victim()] {
            namespaces::remove(&self.admin, &namespace).await?;
        }
        let path = format!("/api/v1/namespaces/{}", self.leases());
        let _deleted: Value = self.admin.request(Request::delete(path).body(Vec::new())?).await?;
        Ok(())
    }
}
