//! Reads the page of a controller, as JSON.

use std::net::IpAddr;
#[cfg(feature = "embedded")]
use std::net::SocketAddr;
#[cfg(feature = "embedded")]
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use bytes::Bytes;
use form_urlencoded::Serializer;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::config::Kubeconfig;
#[cfg(feature = "embedded")]
use kube::config::NamedExtension;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::actors::overview::{JobOverview, Overview};
use crate::telemetry::traces::otlp::OtlpTraces;

/// How long the page may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 16 << 20;
/// The extension of a cluster in a kubeconfig that names the file with the address of its page. The file has a token, which
/// `kubectl config view` would print: it hides no extensions.
const EXTENSION: &str = "yardmaster.dev/page";
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
        if token.is_some() && !is_of_this_host(uri.host().unwrap_or_default()) {
            let problem = "the token would leave this host without TLS: use `kubectl port-forward` and http://localhost:PORT/";
            return Err(problem.to_owned());
        }
        Ok(Self { authority, token: token.map(str::to_owned) })
    }
}

/// Whether requests to this host stay on this machine.
fn is_of_this_host(host: &str) -> bool {
    let address: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

/// A random token for a page.
#[cfg(feature = "embedded")]
pub(super) fn new_token() -> String {
    let bytes: [u8; 32] = rand::random();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl PageAddress {
    /// The page that is written into a kubeconfig, for the cluster of a context or of its current one.
    pub(super) fn of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Self> {
        let context = context.or(kubeconfig.current_context.as_deref())?;
        let named = kubeconfig.contexts.iter().find(|named| named.name == context)?;
        let name = &named.context.as_ref()?.cluster;
        let cluster = kubeconfig.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()?;
        let extension = cluster.extensions.iter().flatten().find(|extension| extension.name == EXTENSION)?;
        let address = std::fs::read_to_string(extension.extension["file"].as_str()?).ok()?;
        address.trim().parse().ok()
    }

    /// The page of a controller of this host, with its token.
    #[cfg(feature = "embedded")]
    pub(super) fn of_controller(at: SocketAddr, token: &str) -> Self {
        Self { authority: at.to_string(), token: Some(token.to_owned()) }
    }

    /// Names the file with the address of a page in a kubeconfig.
    #[cfg(feature = "embedded")]
    pub(super) fn write(file: &Path, kubeconfig: &mut Kubeconfig) {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        let file = file.to_string_lossy();
        for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            let extension = serde_json::json!({"file": file});
            let extension = NamedExtension { name: EXTENSION.to_owned(), extension };
            cluster.extensions.get_or_insert_default().push(extension);
        }
    }

    /// The Job as the page shows it; `None` if it does not know the Job.
    pub(super) async fn job(&self, namespace: &str, name: &str) -> anyhow::Result<Option<JobOverview>> {
        let (search, limit) = (format!("{namespace}/{name}"), LISTED.to_string());
        let overview: Option<Overview> =
            self.read("overview", &[("search", &*search), ("limit", &*limit)]).await?;
        let jobs = overview.context("the page has no Jobs")?.jobs.items;
        Ok(jobs.into_iter().find(|job| job.namespace == namespace && job.name == name))
    }

    /// The latest spans of the latest Job of this name; `None` if the controllers keep none.
    pub(super) async fn trace(&self, namespace: &str, name: &str) -> anyhow::Result<Option<OtlpTraces>> {
        self.read("trace", &[("namespace", namespace), ("job", name)]).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<Option<T>> {
        PageReader::new(PATIENCE).read(self, path, query).await
    }
}

/// Reads pages, on connections that it keeps.
pub(super) struct PageReader {
    client: Client<HttpConnector, Empty<Bytes>>,
    patience: Duration,
}

impl PageReader {
    /// A page may take this long.
    pub(super) fn new(patience: Duration) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), patience }
    }

    /// The content of a page below `/debug`; `None` if there is no such page.
    ///
    /// # Errors
    /// If the page does not answer in time, refuses, or is not of this form.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        page: &PageAddress,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<Option<T>> {
        let read = timeout(self.patience, self.request(page, path, query)).await;
        read.map_err(|_| anyhow!("no answer")).flatten().with_context(|| format!("page {page:?}"))
    }

    async fn request<T: DeserializeOwned>(
        &self,
        page: &PageAddress,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<Option<T>> {
        let query = Serializer::new(String::new()).extend_pairs(query).finish();
        let mut request = Request::get(format!("http://{}/debug/{path}?{query}", page.authority));
        if let Some(token) = &page.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = self.client.request(request.body(Empty::new())?).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        ensure!(answer.status() == StatusCode::OK, "the page answers {}", answer.status());
        let body =
            Limited::new(answer.into_body(), LONGEST).collect().await.map_err(|error| anyhow!(error))?;
        Ok(Some(serde_json::from_slice(&body.to_bytes())?))
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
        assert!("http://10.0.0.7:8080/".parse::<PageAddress>().is_ok());
        assert!("http://[::1]:8080/#token=abc".parse::<PageAddress>().is_ok());
        let problem = "http://10.0.0.7:8080/#token=abc".parse::<PageAddress>().unwrap_err();
        assert!(problem.contains("without TLS") && !problem.contains("abc"), "{problem}");
        let others = ["http://127.0.0.1.example/#token=abc", "http://localhost@10.0.0.7/#token=abc"];
        for text in ["localhost:8080", "https://localhost/", "", "/x"].into_iter().chain(others) {
            assert!(text.parse::<PageAddress>().is_err(), "{text}");
        }
    }

    #[cfg(feature = "embedded")]
    #[test]
    fn a_kubeconfig_leads_to_the_page_of_its_cluster() {
        let text = "current-context: a\ncontexts:\n- {name: a, context: {cluster: a}}\n- {name: b, context: {cluster: b}}\n\
                    clusters:\n- {name: a, cluster: {server: 'https://localhost:1'}}\n";
        let mut kubeconfig = Kubeconfig::from_yaml(text).unwrap();
        assert!(PageAddress::of(&kubeconfig, None).is_none());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page-url");
        PageAddress::write(&file, &mut kubeconfig);
        let written = serde_saphyr::to_string(&kubeconfig).unwrap();
        assert!(PageAddress::of(&kubeconfig, None).is_none(), "the cluster has ended");
        std::fs::write(&file, "http://127.0.0.1:8080/#token=abc\n").unwrap();
        assert!(!written.contains("abc"), "{written}");
        let kubeconfig = Kubeconfig::from_yaml(&written).unwrap();
        for (context, token) in [(None, Some("abc")), (Some("a"), Some("abc")), (Some("b"), None)] {
            let page = PageAddress::of(&kubeconfig, context);
            assert_eq!(page.and_then(|page| page.token).as_deref(), token, "{context:?}");
        }
    }
}
