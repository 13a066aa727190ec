//! Namespaces of a load: their creation, and their deletion whatever is in them.

use anyhow::{Context, Result};
use http::{Request, header};
use serde_json::{Value, json};

/// The path of the Jobs or pods of a namespace.
pub(crate) fn collection(namespace: &str, kind: &str) -> String {
    let version = if kind == "jobs" { "/apis/batch/v1" } else { "/api/v1" };
    format!("{version}/namespaces/{namespace}/{kind}")
}

/// Creates a namespace.
pub(crate) async fn create(admin: &kube::Client, name: &str) -> Result<()> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let request = Request::post("/api/v1/namespaces").body(body.to_string().into_bytes())?;
    let _created: Value =
        admin.request(request).await.with_context(|| format!("cannot create namespace {name}"))?;
    Ok(())
}

/// Names of the Jobs or pods of a namespace.
pub(crate) async fn names(admin: &kube::Client, namespace: &str, kind: &str) -> Result<Vec<String>> {
    let request = Request::get(collection(namespace, kind)).header(
        header::ACCEPT,
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
    );
    let list: Value = admin.request(request.body(Vec::new())?).await?;
    let names = list["items"].as_array().into_iter().flatten();
    Ok(names.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
}

/// Deletes a namespace with its Jobs and pods, without regard to finalizers and grace.
pub(crate) async fn remove(admin: &kube::Client, namespace: &str) -> Result<()> {
    for kind in ["jobs", "pods"] {
        let path = collection(namespace, kind);
        let all = format!("{path}?gracePeriodSeconds=0&propagationPolicy=Background");
        let _deleted: Value = admin.request(Request::delete(all).body(Vec::new())?).await?;
        for name in names(admin, namespace, kind).await? {
            // It may be gone by now.
            let _gone = release(admin, &format!("{path}/{name}")).await;
        }
    }
    let path = format!("/api/v1/namespaces/{namespace}");
    let _deleted: Value = admin.request(Request::delete(path).body(Vec::new())?).await?;
    Ok(())
}

/// Removes all finalizers of an object.
async fn release(admin: &kube::Client, path: &str) -> Result<()> {
    let body = json!({"metadata": {"finalizers": null}}).to_string().into_bytes();
    let request =
        Request::patch(path).header(header::CONTENT_TYPE, "application/merge-patch+json").body(body)?;
    let _released: Value = admin.request(request).await?;
    Ok(())
}
