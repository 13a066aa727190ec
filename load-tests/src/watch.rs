//! Lists and watches that decode only the fields they need.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::io::AsyncBufReadExt;
use http::Request;
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;

use crate::views::{Page, Viewed};

/// Objects on a page of a list.
const PAGE: u32 = 500;
/// Time before a broken watch is retried.
const AGAIN: Duration = Duration::from_millis(200);
/// Capacity of the event channel.
const WAITING: usize = 1024;

/// An event of a watch.
#[derive(Debug)]
pub(crate) enum Event<T> {
    /// All existing objects. Others are gone.
    Listed(Vec<T>),
    /// A new or changed object.
    Applied(T),
    /// An object that is deleted or no longer selected.
    Deleted(T),
}

/// A collection: its path and an optional field selector.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    path: String,
    selector: String,
}

impl Collection {
    /// All objects under this path.
    pub(crate) fn new(path: impl Into<String>) -> Self {
        Self { path: path.into(), selector: String::new() }
    }

    /// Only objects whose fields match.
    pub(crate) fn fields(self, selector: &str) -> Self {
        Self {
            selector: format!("&fieldSelector={}", selector.replace('=', "%3D").replace('!', "%21")),
            ..self
        }
    }

    /// Lists all objects, page by page. Returns the resourceVersion of the last page.
    pub(crate) async fn list<T: Viewed>(
        &self,
        client: &kube::Client,
        mut take: impl FnMut(T),
    ) -> Result<String> {
        let mut token = String::new();
        loop {
            let uri = format!("{}?limit={PAGE}{}{token}", self.path, self.selector);
            let request = Request::get(uri).body(Vec::new())?;
            let page: Page<T> = client.request(request).await.with_context(|| self.path.clone())?;
            page.items.into_iter().for_each(&mut take);
            if page.metadata.r#continue.is_empty() {
                return Ok(page.metadata.resource_version);
            }
            token = format!("&continue={}", page.metadata.r#continue.replace('=', "%3D").replace('+', "%2B"));
        }
    }

    /// Watches the collection on its own task, until the receiver is dropped.
    pub(crate) fn follow<T: Viewed>(self, client: kube::Client) -> mpsc::Receiver<Event<T>> {
        let (out, events) = mpsc::channel(WAITING);
        tokio::spawn(async move {
            while !out.is_closed() {
                // Errors are only retried. A permanent one shows as a load that does not end.
                if self.follow_from_list(&client, &out).await.is_err() {
                    tokio::time::sleep(AGAIN).await;
                }
            }
        });
        events
    }

    async fn follow_from_list<T: Viewed>(
        &self,
        client: &kube::Client,
        out: &mpsc::Sender<Event<T>>,
    ) -> Result<()> {
        let mut all = Vec::new();
        let mut version = self.list(client, |object: T| all.push(object)).await?;
        out.send(Event::Listed(all)).await?;
        loop {
            match self.watch(client, &mut version, out).await {
                Ok(()) => {}
                Err(Broken::Expired) => return Ok(()),
                Err(Broken::Other(_)) if out.is_closed() => return Ok(()),
                Err(Broken::Other(_)) => tokio::time::sleep(AGAIN).await,
            }
        }
    }

    async fn watch<T: Viewed>(
        &self,
        client: &kube::Client,
        version: &mut String,
        out: &mpsc::Sender<Event<T>>,
    ) -> Result<(), Broken> {
        let uri = format!(
            "{}?watch=true&allowWatchBookmarks=true&resourceVersion={version}{}",
            self.path, self.selector
        );
        let request = Request::get(uri).body(Vec::new()).map_err(anyhow::Error::from)?;
        let stream = match client.request_stream(request).await {
            Err(kube::Error::Api(status)) if status.code == 410 => return Err(Broken::Expired),
            stream => stream.map_err(anyhow::Error::from)?,
        };
        futures::pin_mut!(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).await.map_err(anyhow::Error::from)? > 0 {
            let event = match read_line(&line)? {
                Line::Bookmark(meta) => {
                    *version = meta;
                    None
                }
                Line::Event(event) => Some(event),
            };
            if let Some((event, seen)) = event {
                *version = seen;
                out.send(event).await.map_err(|_| anyhow::anyhow!("nobody listens"))?;
            }
            line.clear();
        }
        Ok(())
    }
}

enum Broken {
    Expired,
    Other(#[expect(dead_code, reason = "for debugging")] anyhow::Error),
}

impl From<anyhow::Error> for Broken {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

enum Line<T> {
    Bookmark(String),
    Event((Event<T>, String)),
}

#[derive(Deserialize)]
struct Typed {
    r#type: Kind,
    #[serde(rename = "object")]
    _object: IgnoredAny,
}

#[derive(Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct Holder<T> {
    object: T,
}

#[derive(Deserialize)]
struct OnlyMeta {
    metadata: crate::views::Meta,
}

fn read_line<T: Viewed>(line: &[u8]) -> Result<Line<T>, Broken> {
    let kind = kind_of(line)?;
    let decoded = |error| anyhow::Error::new(error).context("watch event");
    match kind {
        Kind::Error => Err(Broken::Expired),
        Kind::Bookmark => {
            let bookmark: Holder<OnlyMeta> = serde_json::from_slice(line).map_err(decoded)?;
            Ok(Line::Bookmark(bookmark.object.metadata.resource_version))
        }
        Kind::Added | Kind::Modified | Kind::Deleted => {
            let Holder { object }: Holder<T> = serde_json::from_slice(line).map_err(decoded)?;
            let version = object.meta().resource_version.clone();
            let event = if kind == Kind::Deleted { Event::Deleted(object) } else { Event::Applied(object) };
            Ok(Line::Event((event, version)))
        }
    }
}

/// All servers write the type first, so usually the object is not parsed twice.
fn kind_of(line: &[u8]) -> Result<Kind> {
    for (start, kind) in [
        (&br#"{"type":"ADDED""#[..], Kind::Added),
        (br#"{"type":"MODIFIED""#, Kind::Modified),
        (br#"{"type":"DELETED""#, Kind::Deleted),
    ] {
        if line.starts_with(start) {
            return Ok(kind);
        }
    }
    let typed: Typed = serde_json::from_slice(line).context("watch event")?;
    Ok(typed.r#type)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::views::{Phase, Pod};

    #[test]
    fn events_are_read_with_fields_in_any_order() {
        let object = r#"{"metadata":{"name":"p","resourceVersion":"7","managedFields":[{"x":[1]}]},
                         "status":{"phase":"Running"}}"#;
        for (line, deleted) in [
            (format!(r#"{{"type":"ADDED","object":{object}}}"#), false),
            (format!(r#"{{"object":{object},"type":"MODIFIED"}}"#), false),
            (format!(r#"{{"type":"DELETED","object":{object}}}"#), true),
        ] {
            let Ok(Line::Event((event, version))) = read_line::<Pod>(line.as_bytes()) else {
                panic!("{line}")
            };
            assert_eq!(version, "7");
            let (pod, gone) = match event {
                Event::Applied(pod) => (pod, false),
                Event::Deleted(pod) => (pod, true),
                Event::Listed(_) => panic!("{line}"),
            };
            assert_eq!((pod.metadata.name.as_str(), pod.status.phase, gone), ("p", Phase::Running, deleted));
        }
        let bookmark = br#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#;
        assert!(matches!(read_line::<Pod>(bookmark), Ok(Line::Bookmark(version)) if version == "9"));
        let expired = br#"{"type":"ERROR","object":{"code":410}}"#;
        assert!(matches!(read_line::<Pod>(expired), Err(Broken::Expired)));
    }
}
