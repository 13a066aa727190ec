//! Watches: the changes of a collection as a stream.
//!
//! A watch reads its table's history at its own pace, and writers never wait for it. If it falls out of the
//! history, it ends with an error event of code 410, and the client lists again.

mod encoder;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::StatusCode;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use tokio::time::Instant;

use self::encoder::Encoder;
use super::list;
use crate::error::ApiError;
use crate::exchange::media::{Accept, Format};
use crate::exchange::reply::Reply;
use crate::exchange::request::Request;
use crate::object::Object;
use crate::selectors::Selector;
use crate::server::Server;
use crate::signal::Subscriber;
use crate::store::{Change, Label};
use crate::time::from_now;

/// Maximum number of changes per read of the history.
const BATCH: usize = 512;
/// Size at which a chunk of the response is sent, in bytes.
const CHUNK: usize = 64 << 10;
/// Time between bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);
/// Time between the last bookmark and the end of a watch.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// GET of a collection with `watch=true`.
pub(crate) fn watch(server: &Arc<Server>, request: &Request) -> Result<Reply, ApiError> {
    let query = &request.query;
    if request.accept.format == Format::Yaml {
        return Err(ApiError::not_acceptable());
    }
    let seconds = query.integer("timeoutSeconds")?;
    let rows = request.rows()?;
    let selector = list::selector(server, request)?;
    list::validate_versions(server, query, true)?;
    let start = Start::of(request)?;
    let timeout = match seconds.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0)
    {
        Some(seconds) => Duration::from_secs(seconds),
        None => server.watch_timeout(),
    };
    let bookmarks = query.flag("allowWatchBookmarks");
    let deadline = from_now(timeout);
    let (table, label) = (server.table(request.resource()), selector.label());
    let mut watch = Watch {
        written: label.as_ref().map_or_else(|| table.subscribe(), |label| table.subscribe_to(label)),
        label,
        broken: server.faults.breaks(),
        server: Arc::clone(server),
        encoder: Encoder::new(request.resource(), request.accept, rows.include, Arc::clone(&server.clock)),
        prefix: request.prefix(),
        name: request.path.name.clone(),
        user_agent: request.user_agent.clone(),
        selector,
        revision: 0,
        refusal: None,
        initial: Vec::new().into_iter(),
        initial_end: false,
        next_bookmark: bookmarks.then(|| next_bookmark(Instant::now(), deadline)),
        deadline,
        done: false,
    };
    watch.begin(start, bookmarks && query.flag("sendInitialEvents"))?;
    let body = StreamBody::new(stream::unfold(watch, |mut watch| async move {
        let chunk = watch.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(chunk)), watch))
    }));
    Ok(Reply {
        code: StatusCode::OK,
        content_type: match request.accept.format {
            Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
            Format::Json | Format::Yaml => Accept::JSON.content_type(),
        },
        body: body.boxed_unsync(),
        warnings: Vec::new(),
    })
}

/// The start of a watch.
#[derive(Clone, Copy)]
enum Start {
    /// All existing objects, of this revision or a later one, then changes.
    Existing(u64),
    /// Changes from now on.
    Now,
    /// Changes after a revision.
    After(u64),
}

impl Start {
    fn of(request: &Request) -> Result<Self, ApiError> {
        let query = &request.query;
        let revision = match query.get("resourceVersion") {
            None => 0,
            Some(text) => text.parse().map_err(|_| ApiError::unclassified(list::invalid_version(text)))?,
        };
        Ok(match (query.option("sendInitialEvents"), revision) {
            (Some(true), revision) => Self::Existing(revision),
            (None, 0) => Self::Existing(0),
            (Some(false), 0) => Self::Now,
            (_, revision) => Self::After(revision),
        })
    }
}

struct Watch {
    server: Arc<Server>,
    encoder: Encoder,
    /// The label value that `written` is limited to. With many watches of one shard each, changes of other
    /// shards must not wake this watch.
    label: Option<Label>,
    written: Subscriber,
    broken: Subscriber,
    prefix: String,
    name: Option<String>,
    user_agent: String,
    selector: Selector,
    /// The revision up to which the table has been read.
    revision: u64,
    /// Why the watch cannot begin at the requested revision. As in Kubernetes, the stream reports it.
    refusal: Option<ApiError>,
    /// Objects from the start of the watch that are still to be sent.
    initial: std::vec::IntoIter<Arc<Object>>,
    /// Whether a bookmark marks the end of the initial events.
    initial_end: bool,
    /// Time of the next bookmark; `None` if the client did not request bookmarks.
    next_bookmark: Option<Instant>,
    deadline: Instant,
    done: bool,
}

impl Watch {
    fn begin(&mut self, start: Start, initial_end: bool) -> Result<(), ApiError> {
        let table = self.server.table(self.encoder.resource);
        match start {
            Start::After(revision) => {
                self.revision = revision;
                let oldest = table.watchable();
                self.refusal = (revision < oldest).then(|| too_old(revision, oldest));
            }
            Start::Now => self.revision = self.server.store.revision(),
            Start::Existing(at_least) if at_least > self.server.store.revision() => {
                self.refusal = Some(ApiError::future_version(at_least, self.server.store.revision()));
            }
            Start::Existing(_) => {
                let selector = &self.selector;
                let page = table
                    .page(&self.prefix, None, None, None, |object| selector.matches(object))
                    .map_err(|_| ApiError::expired("too old resource version"))?;
                self.revision = page.revision;
                self.initial = page.items.into_iter();
                self.initial_end = initial_end;
            }
        }
        Ok(())
    }

    /// The next chunk of the response; `None` at its end.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if self.done || self.broken.is_raised() {
                return None;
            }
            let mut out = BytesMut::new();
            if let Some(refusal) = self.refusal.take() {
                self.end_with(&mut out, &refusal);
            }
            self.write_initial(&mut out);
            let mut more = false;
            if out.is_empty() {
                tokio::select! {
                    // The order never depends on chance.
                    biased;
                    () = self.server.stop.cancelled() => return None,
                    () = self.server.faults.watch_gate(&self.user_agent) => {}
                }
                more = self.write_changes(&mut out);
            }
            if out.is_empty() && !more {
                self.write_due_bookmark(&mut out);
            }
            if out.is_empty() && self.done {
                return None;
            }
            if !out.is_empty() {
                self.server.store.wait_durable(self.revision).await.ok()?;
                return Some(out.freeze());
            }
            if !more {
                self.wait().await;
            }
        }
    }

    /// Waits for a change, the next bookmark, or the end.
    async fn wait(&mut self) {
        let wake = self.next_bookmark.map_or(self.deadline, |bookmark| bookmark.min(self.deadline));
        let server = Arc::clone(&self.server);
        tokio::select! {
            biased;
            () = server.stop.cancelled() => self.done = true,
            () = self.broken.changed() => self.done = true,
            () = self.written.changed() => {}
            () = tokio::time::sleep_until(wake) => self.done = Instant::now() >= self.deadline,
        }
    }

    fn write_initial(&mut self, out: &mut BytesMut) {
        while out.len() < CHUNK && !self.done {
            let Some(object) = self.initial.next() else { break };
            self.write_event(out, "ADDED", &object, object.revision);
        }
        if self.initial_end && self.initial.len() == 0 && !self.done {
            self.initial_end = false;
            let written = self.encoder.bookmark(out, self.revision, true);
            self.end_on_error(written);
        }
    }

    fn write_event(&mut self, out: &mut BytesMut, kind: &str, object: &Object, revision: u64) {
        let written = self.encoder.event(out, kind, object, revision);
        self.end_on_error(written);
    }

    /// Ends the watch after an object that protobuf cannot represent. The client continues from its last
    /// event, in JSON.
    fn end_on_error(&mut self, written: Result<(), serde_json::Error>) {
        if let Err(error) = written {
            tracing::warn!(kind = self.encoder.resource.kind, %error, "watches are served in JSON only from now on");
            self.server.json_only.store(true, Ordering::Relaxed);
            self.done = true;
        }
    }

    /// Writes the next changes and returns whether there may be more.
    fn write_changes(&mut self, out: &mut BytesMut) -> bool {
        // Marked as seen before reading, so that a write in between wakes the watch again.
        self.written.mark_seen();
        let expired = self.server.faults.expires(&self.user_agent);
        let table = self.server.table(self.encoder.resource);
        let read = match &self.label {
            Some(label) => table.changes_of(label, self.revision, BATCH),
            None => table.changes(self.revision, BATCH),
        };
        match read {
            Ok((changes, read_to)) if !expired => {
                for change in &changes {
                    self.write_change(out, change);
                    if self.done {
                        return false;
                    }
                }
                self.revision = read_to;
                changes.len() == BATCH
            }
            read => {
                let oldest = read.err().unwrap_or(self.revision);
                self.end_with(out, &too_old(self.revision, oldest));
                false
            }
        }
    }

    /// Ends the watch with an error event.
    fn end_with(&mut self, out: &mut BytesMut, error: &ApiError) {
        let written = self.encoder.error(out, error);
        self.end_on_error(written);
        self.done = true;
    }

    /// An object that begins to match is ADDED. An object that no longer matches is DELETED, in its last
    /// matching state.
    fn write_change(&mut self, out: &mut BytesMut, change: &Change) {
        let (before, after) = (change.old.as_ref(), &change.new);
        if !self.in_scope(after) {
            return;
        }
        let matched = before.filter(|old| self.selector.matches(old));
        let matches = !change.deleted && self.selector.matches(after);
        match (matched, matches) {
            (None, true) => self.write_event(out, "ADDED", after, change.revision),
            (Some(_), true) => self.write_event(out, "MODIFIED", after, change.revision),
            (Some(_), false) if change.deleted => self.write_event(out, "DELETED", after, change.revision),
            (Some(old), false) => self.write_event(out, "DELETED", old, change.revision),
            (None, false) => {}
        }
    }

    fn in_scope(&self, object: &Object) -> bool {
        let namespace = self.prefix.strip_suffix('/');
        namespace.is_none_or(|namespace| namespace == &*object.header.namespace)
            && self.name.as_ref().is_none_or(|name| name == &*object.header.name)
    }

    fn write_due_bookmark(&mut self, out: &mut BytesMut) {
        let now = Instant::now();
        if self.done || self.next_bookmark.is_none_or(|due| now < due) {
            return;
        }
        // A watch that waits for a revision in the future has nothing to say until then.
        if self.revision <= self.server.store.revision() {
            let written = self.encoder.bookmark(out, self.revision, false);
            self.end_on_error(written);
        }
        self.next_bookmark = Some(next_bookmark(now, self.deadline));
    }
}

fn too_old(revision: u64, oldest: u64) -> ApiError {
    ApiError::expired(format!("too old resource version: {revision} ({oldest})"))
}

/// The time of the next bookmark. A last one comes shortly before the end.
fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(LAST_BOOKMARK).unwrap_or(deadline);
    if last > now { (now + BOOKMARK_PERIOD).min(last) } else { now + BOOKMARK_PERIOD }
}
