//! Raw JSON requests. The replayer must see exactly the JSON on the wire.

use anyhow::{Context, Result, anyhow};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

/// Media types of a request body.
pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";

/// An API server's answer, successful or not.
pub(crate) struct Answer {
    pub(crate) code: StatusCode,
    pub(crate) body: Value,
}

impl Answer {
    /// The body of a successful answer, `None` for 404.
    fn found(self, what: &str) -> Result<Option<Value>> {
        match self.code {
            StatusCode::NOT_FOUND => Ok(None),
            code if code.is_success() => Ok(Some(self.body)),
            code => Err(anyhow!("{what}: {code}: {}", self.body)),
        }
    }
}

/// A client for one API server.
#[derive(Clone)]
pub(crate) struct Api {
    client: kube::Client,
}

impl Api {
    pub(crate) fn new(client: kube::Client) -> Self {
        Self { client }
    }

    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Sends a request. No status code is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        media: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let bytes = body.map(serde_json::to_vec).transpose()?.unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, media)
            .header(http::header::ACCEPT, JSON)
            .body(Body::from(bytes))?;
        let response = self.client.send(request).await.with_context(|| path.to_owned())?;
        let code = response.status();
        let bytes = response.into_body().collect().await?.to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).as_ref().into());
        Ok(Answer { code, body })
    }

    /// GET. Returns `None` if there is no such object.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>> {
        self.send(Method::GET, path, JSON, None).await?.found(path)
    }

    /// The items of a list. Empty if the resource is not served.
    pub(crate) async fn list(&self, path: &str) -> Result<Vec<Value>> {
        Ok(match self.get(path).await?.as_mut().map(|list| list["items"].take()) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        })
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.must(Method::POST, path, JSON, object).await
    }

    pub(crate) async fn patch(&self, path: &str, media: &str, patch: &Value) -> Result<Value> {
        self.must(Method::PATCH, path, media, patch).await
    }

    /// PATCH. A missing object is no error.
    pub(crate) async fn patch_if_there(&self, path: &str, media: &str, patch: &Value) -> Result<()> {
        self.send(Method::PATCH, path, media, Some(patch)).await?.found(path).map(drop)
    }

    /// DELETE with these options. A missing object is no error.
    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Result<()> {
        self.send(Method::DELETE, path, JSON, Some(options)).await?.found(path).map(drop)
    }

    async fn must(&self, method: Method, path: &str, media: &str, body: &Value) -> Result<Value> {
        let what = format!("{method} {path}");
        self.send(method, path, media, Some(body))
            .await?
            .found(&what)?
            .with_context(|| format!("{what}: 404"))
    }
}
