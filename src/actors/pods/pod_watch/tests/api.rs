//! An API server that has only pods.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep_until};

use crate::cluster::transport::{ByteStream, Transport, TransportError};
use crate::job::names::{EXTERNAL_FINALIZER, SHARD_LABEL};
use crate::sharding::ShardCount;

/// Time between two bookmarks.
const BOOKMARKS: Duration = Duration::from_secs(60);

/// The API server. Clones share everything.
#[derive(Clone)]
pub(super) struct Api(Arc<Shared>);

impl Default for Api {
    fn default() -> Self {
        let shared = Shared::default();
        // No resource version is 0.
        shared.state.lock().unwrap().version = 1;
        Self(Arc::new(shared))
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The version, and how often all watches were broken.
    turned: watch::Sender<(u64, u64)>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Changes up to this version are forgotten.
    compacted: u64,
    broken: u64,
    pods: BTreeMap<String, Pod>,
    changes: Vec<Change>,
    /// The selectors of the watches that are open, by their numbers.
    open: BTreeMap<usize, String>,
    requests: usize,
    lists: usize,
}

#[derive(Clone)]
struct Pod {
    home: u32,
    /// The shard in its label, if it has one.
    label: Option<u32>,
    version: u64,
    object: Value,
}

impl Pod {
    fn is_of(&self, shard: u32) -> bool {
        self.home == shard
    }
}

/// A change of one pod.
#[derive(Clone)]
struct Change {
    version: u64,
    before: Option<Pod>,
    after: Option<Pod>,
}

impl Change {
    /// The event that a watch shows whose selector matches these labels.
    fn event(&self, matches: impl Fn(Option<u32>) -> bool) -> Option<String> {
        let matched = |pod: &Option<Pod>| pod.clone().filter(|pod| matches(pod.label));
        let (kind, mut object) = match (matched(&self.before), matched(&self.after)) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after.object),
            (Some(_), Some(after)) => ("MODIFIED", after.object),
            (Some(before), None) => ("DELETED", before.object),
        };
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        Some(format!("{}\n", json!({"type": kind, "object": object})))
    }
}

/// A watch, which is open until it is dropped.
struct Open {
    api: Api,
    number: usize,
    selector: String,
    after: u64,
    broken: u64,
    bookmark: Instant,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.api.0.state.lock().unwrap().open.remove(&self.number);
    }
}

/// Whether a selector that leaves out some shards selects a pod with this label.
fn matches(selector: &str, label: Option<u32>) -> bool {
    let others = selector.split_once(" notin (").map(|(_, others)| others.trim_end_matches(')'));
    let is_other =
        |label: u32| others.is_some_and(|others| others.split(',').any(|number| number == label.to_string()));
    label.is_none_or(|label| !is_other(label))
}

fn bookmark(version: u64, ends_list: bool) -> String {
    let annotations = ends_list.then(|| json!({"k8s.io/initial-events-end": "true"}));
    let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
    format!("{}\n", json!({"type": "BOOKMARK", "object": {"metadata": metadata}}))
}

/// The UID of a Job of this shard.
pub(super) fn job_of(home: u32) -> String {
    let count = ShardCount::new(super::SHARDS).unwrap();
    (0..).map(|n| format!("job-{n}")).find(|uid| count.shard_of(uid).0 == home).unwrap()
}

/// A pod of a Job whose shard is `home`, with the label of a shard or without.
pub(super) fn pod(name: &str, home: u32, label: Option<u32>, version: u64) -> Value {
    let job = job_of(home);
    let labels = label.map(|label| json!({SHARD_LABEL: label.to_string()}));
    json!({"metadata": {
        "name": name, "namespace": "n", "uid": name, "resourceVersion": version.to_string(),
        "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "finalizers": [EXTERNAL_FINALIZER],
        "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": true},
        ],
    }})
}

impl Api {
    fn change(&self, name: &str, after: impl FnOnce(Option<&Pod>, u64) -> Option<Pod>) {
        let mut state = self.0.state.lock().unwrap();
        state.version += 1;
        let version = state.version;
        let before = state.pods.remove(name);
        let after = after(before.as_ref(), version);
        state.pods.extend(after.clone().map(|pod| (name.to_owned(), pod)));
        state.changes.push(Change { version, before, after });
        self.turned(&state);
    }

    fn turned(&self, state: &State) {
        self.0.turned.send_replace((state.version, state.broken));
    }

    /// Creates or changes a pod of a Job whose shard is `home`, with the label of a shard or without.
    pub(super) fn apply(&self, name: &str, home: u32, label: Option<u32>) {
        let object = |version| pod(name, home, label, version);
        self.change(name, |_, version| Some(Pod { home, label, version, object: object(version) }));
    }

    pub(super) fn delete(&self, name: &str) {
        self.change(name, |_, _| None);
    }

    /// All watches break.
    pub(super) fn break_watches(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.broken += 1;
        self.turned(&state);
    }

    /// All watches break, and the past is forgotten.
    pub(super) fn compact(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.compacted = state.version;
        state.broken += 1;
        self.turned(&state);
    }

    /// The watch that is open for longest breaks, and the past is forgotten.
    pub(super) fn expire_oldest(&self) {
        let mut state = self.0.state.lock().unwrap();
        state.compacted = state.version;
        state.open.pop_first();
        self.0.turned.send_replace((state.version, state.broken));
    }

    /// Other objects are written.
    pub(super) fn skip_versions(&self, count: u64) {
        let mut state = self.0.state.lock().unwrap();
        state.version += count;
        self.turned(&state);
    }

    /// The pods of a shard that its label does not hide from it, and their versions.
    pub(super) fn pods_of(&self, shard: u32) -> BTreeMap<String, u64> {
        let state = self.0.state.lock().unwrap();
        let of_shard = state.pods.iter().filter(|(_, pod)| pod.is_of(shard));
        of_shard.map(|(name, pod)| (name.clone(), pod.version)).collect()
    }

    /// The versions of the changes that a watch of the shard alone shows.
    pub(super) fn changes_of(&self, shard: u32, after: u64) -> Vec<u64> {
        let state = self.0.state.lock().unwrap();
        let is_of = |pod: &Option<Pod>| pod.as_ref().is_some_and(|pod| pod.is_of(shard));
        let shown =
            |change: &&Change| change.version > after && (is_of(&change.before) || is_of(&change.after));
        state.changes.iter().filter(shown).map(|change| change.version).collect()
    }

    /// The selectors of the open watches.
    pub(super) fn open(&self) -> Vec<String> {
        self.0.state.lock().unwrap().open.values().cloned().collect()
    }

    /// The requests so far.
    pub(super) fn requests(&self) -> usize {
        self.0.state.lock().unwrap().requests
    }

    /// Requests that list.
    pub(super) fn lists(&self) -> usize {
        self.0.state.lock().unwrap().lists
    }

    /// The first bytes of a watch that begins, and the watch, unless it ends with them.
    fn begin(&self, query: &BTreeMap<String, String>) -> (String, Option<Open>) {
        let mut state = self.0.state.lock().unwrap();
        let (number, selector) = (state.requests, query["labelSelector"].clone());
        state.requests += 1;
        let lists = query.contains_key("sendInitialEvents");
        state.lists += usize::from(lists);
        let mut first = String::new();
        let after = match query.get("resourceVersion") {
            _ if lists => {
                let listed = state.pods.values().filter(|pod| matches(&selector, pod.label));
                let added = |pod: &Pod| format!("{}\n", json!({"type": "ADDED", "object": pod.object}));
                first.extend(listed.map(added));
                first += &bookmark(state.version, true);
                state.version
            }
            version => version.unwrap().parse().unwrap(),
        };
        if after < state.compacted {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            return (format!("{}\n", json!({"type": "ERROR", "object": status})), None);
        }
        state.open.insert(number, selector.clone());
        let bookmark = Instant::now() + BOOKMARKS;
        (first, Some(Open { api: self.clone(), number, selector, after, broken: state.broken, bookmark }))
    }
}

impl Open {
    /// The next piece; `None` when the watch has ended.
    async fn next(&mut self) -> Option<String> {
        let mut turned = self.api.0.turned.subscribe();
        loop {
            {
                let state = self.api.0.state.lock().unwrap();
                if state.broken > self.broken || !state.open.contains_key(&self.number) {
                    return None;
                }
                let new = state.changes.iter().filter(|change| change.version > self.after);
                let events: String =
                    new.filter_map(|change| change.event(|label| matches(&self.selector, label))).collect();
                self.after = state.version;
                if !events.is_empty() {
                    return Some(events);
                }
            }
            tokio::select! {
                biased;
                _ = turned.changed() => {}
                () = sleep_until(self.bookmark) => {
                    self.bookmark += BOOKMARKS;
                    return Some(bookmark(self.after, false));
                }
            }
        }
    }
}

impl Transport for Api {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let query = request.uri().query().unwrap_or_default();
        let query = form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let api = self.clone();
        async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            let (first, watch) = api.begin(&query);
            let later = stream::unfold(watch, |watch| async {
                let mut watch = watch?;
                Some((watch.next().await?, Some(watch)))
            });
            let body = stream::iter((!first.is_empty()).then_some(first)).chain(later);
            Ok(Response::builder().status(200).body(body.map(|piece| Ok(piece.into())).boxed()).unwrap())
        }
        .boxed()
    }
}
