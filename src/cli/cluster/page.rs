//! The page of the cluster: one for all controllers, put together from what each of them shows.
//!
//! A controller knows why the Jobs of its own shards wait, and its own write gate, but not those of the others.
//! Each answers a part, so the cluster needs no watch of its own.
//!
//! On a machine with other users loopback is no protection. The page wants a random token, which is in the
//! address behind the `#`: browsers do not send that part to servers. Standard output may be a log that others read,
//! so the token is shown on a terminal only, and otherwise in a file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::Context;
use futures::future::{BoxFuture, join_all};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

use super::replicas::PageAddresses;
use crate::actors::overview::{Overview, merge, whole_pages};
use crate::cli::job_page::JobPage;
use crate::cli::page_client::{PageAddress, PageReader, new_token};
use crate::cli::temporary::write_private;
use crate::telemetry::http::{
    Access, JobQuery, Live, Overviews, Secret, TraceQuery, bind, page_router, serve,
};
use crate::telemetry::traces::otlp::OtlpTraces;

/// How long a controller may take for its part.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A random token, also in a file that only this user can read.
pub(super) struct Token {
    text: String,
    file: PathBuf,
}

impl Token {
    /// Makes a token and its file in a directory.
    pub(super) fn create(directory: &Path) -> anyhow::Result<Self> {
        let text = new_token();
        let file = directory.join("debug-token");
        write_private(&file, &text)?;
        Ok(Self { text, file })
    }

    /// The file.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }
}

/// The page while it is served.
pub(super) struct ClusterPage {
    /// Without the token.
    url: String,
    token: String,
    /// A file with the address and the token.
    file: PathBuf,
    /// Ends the page when dropped.
    _end: oneshot::Sender<()>,
}

impl ClusterPage {
    /// Serves the page of the controllers at these addresses. Its own is also written to a file beside that of the
    /// token.
    pub(super) fn serve(
        at: SocketAddr,
        token: Token,
        controllers: PageAddresses,
        jobs: JobPage,
    ) -> anyhow::Result<Self> {
        let listener = bind(at).with_context(|| format!("cannot listen on {at}"))?;
        let url = format!("http://{}/", listener.local_addr()?);
        let file = token.file.with_file_name("page-url");
        write_private(&file, &format!("{url}#token={}\n", token.text))?;
        let access = Access::Secret(Secret::new(&token.text));
        let parts = Parts { controllers, token: token.text.clone(), reader: PageReader::new(TIMEOUT) };
        let pages = page_router(Arc::new(parts), Live::of(jobs), access);
        let (_end, ended) = oneshot::channel::<()>();
        // Nothing is ever sent: the other side is dropped.
        tokio::spawn(serve(listener, pages, None, async { drop(ended.await) }));
        Ok(Self { url, token: token.text, file, _end })
    }

    /// The file with its address and the token.
    pub(super) fn file(&self) -> &Path {
        &self.file
    }

    /// Its address: with the token on a terminal, and else with the file that has it.
    pub(super) fn describe(&self, on_terminal: bool) -> String {
        if on_terminal {
            format!("{}#token={}", self.url, self.token)
        } else {
            format!("{} (with its token: {})", self.url, self.file.display())
        }
    }
}

/// The overviews of the controllers.
struct Parts {
    controllers: PageAddresses,
    token: String,
    reader: PageReader,
}

impl Parts {
    /// The answer of each controller at this path below `/debug`, without those that fail.
    async fn parts<T: DeserializeOwned>(&self, path: &str, query: &[(&str, &str)]) -> Vec<T> {
        let controllers: Vec<_> = {
            let controllers = self.controllers.lock().unwrap_or_else(PoisonError::into_inner);
            controllers.values().map(|at| PageAddress::of_controller(*at, &self.token)).collect()
        };
        let parts = join_all(controllers.iter().map(|page| self.reader.read(page, path, query))).await;
        parts.into_iter().filter_map(|part| part.ok().flatten()).collect()
    }

    async fn whole(&self, query: JobQuery) -> Value {
        let JobQuery { search, phase, offset, limit, job } = whole_pages(&query);
        let (offset, limit) = (offset.to_string(), limit.to_string());
        let parameters = [
            ("search", &*search),
            ("phase", &*phase),
            ("offset", &*offset),
            ("limit", &*limit),
            ("job", &*job),
        ];
        let parts: Vec<Overview> = self.parts("overview", &parameters).await;
        serde_json::to_value(merge(parts, &query)).unwrap_or_default()
    }

    /// The spans of all controllers; `None` if none of them keeps any.
    async fn spans(&self, TraceQuery { namespace, job }: TraceQuery) -> Option<OtlpTraces> {
        let parameters = [("namespace", &*namespace), ("job", &*job)];
        let parts: Vec<OtlpTraces> = self.parts("trace", &parameters).await;
        let is_kept = !parts.is_empty();
        let resource_spans = parts.into_iter().flat_map(|part| part.resource_spans).collect();
        is_kept.then_some(OtlpTraces { resource_spans })
    }
}

impl Overviews for Parts {
    fn overview(&self, query: JobQuery) -> BoxFuture<'_, Value> {
        Box::pin(self.whole(query))
    }

    fn trace(&self, job: TraceQuery) -> BoxFuture<'_, Option<OtlpTraces>> {
        Box::pin(self.spans(job))
    }
}
