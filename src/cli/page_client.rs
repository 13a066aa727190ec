//! Reads the page of a controller, as JSON.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::actors::overview::{JobOverview, Overview};

/// How long the page may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 16 << 20;
/// Jobs whose names begin with that of the Job.
const LISTED: usize = 100;

/// The address of a page, as `yardmaster cluster` prints it: with a token behind the `#`, or without.
#[derive(Clone)]
pub(super) struct PageAddress {
    authority: String,
    token: Option<String>,
}

impl std::fmt::Debug for PageAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token stays out of logs.
        write!(f, "http://{}/", self.authority)
    }
}

impl FromStr for PageAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
        let uri: Uri = address.parse().map_err(|error| format!("{error}"))?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"));
        let authority = authority.ok_or("expected an address such as http://localhost:8080/")?.to_string();
        let is_token = |token: &&str| header::HeaderValue::from_str(token).is_ok();
        let token = fragment.split('&').find_map(|part| part.strip_prefix("token=")).filter(is_token);
        Ok(Self { authority, token: token.map(str::to_owned) })
    }
}

impl PageAddress {
    /// The Job as the page shows it; `None` if it does not know the Job.
    pub(super) async fn job(&self, namespace: &str, name: &str) -> anyhow::Result<Option<JobOverview>> {
        let read = timeout(PATIENCE, self.read(&format!("{namespace}/{name}"))).await;
        let page = format!("--page {self:?}");
        let overview = read.map_err(|_| anyhow!("no answer")).flatten().with_context(|| page)?;
        Ok(overview.jobs.items.into_iter().find(|job| job.namespace == namespace && job.name == name))
    }

    async fn read(&self, search: &str) -> anyhow::Result<Overview> {
        let mut query = Serializer::new(String::new());
        query.append_pair("search", search).append_pair("limit", &LISTED.to_string());
        let mut request =
            Request::get(format!("http://{}/debug/overview?{}", self.authority, query.finish()));
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let client = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request.body(Empty::<Bytes>::new())?).await?;
        ensure!(answer.status() == StatusCode::OK, "the page answers {}", answer.status());
        let body =
            Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| anyhow!(error))?;
        Ok(serde_json::from_slice(&body.to_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_address_is_taken_as_it_is_printed() {
        for (text, authority, token) in [
            ("http://127.0.0.1:8080/#token=abc", "127.0.0.1:8080", Some("abc")),
            ("http://localhost:8080", "localhost:8080", None),
            ("http://localhost:8080/#job=a/b&token=x", "localhost:8080", Some("x")),
        ] {
            let address: PageAddress = text.parse().unwrap();
            assert_eq!((&*address.authority, address.token.as_deref()), (authority, token), "{text}");
            assert!(!format!("{address:?}").contains("abc"));
        }
        for text in ["localhost:8080", "https://localhost/", "", "/x"] {
            assert!(text.parse::<PageAddress>().is_err(), "{text}");
        }
    }
}
