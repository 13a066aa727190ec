//! The API server without its surroundings: requests and answers in memory, for tests that decide the order
//! and time of everything.
//!
//! There is no socket, no connection, no token, no thread, no disk, no garbage collector and no kubelet. Once
//! admitted, a request takes the same way as from the network: content negotiation, decoding, defaults,
//! admission, validation, storage, watches. The time of day is the caller's [`Clock`]. All waiting is
//! tokio's, so a runtime with a paused clock decides how long it takes. The same requests in the same order,
//! with the same seed and the same times, get the same bytes in every process.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use serde_json::Value;

use super::EmbeddedError;
use super::authorization::User;
use super::exchange::reply::Body;
use super::http::{self as entrance, Sender};
use super::object::{self, Header, Key, Object};
use super::resources;
use super::server::Server;
use super::store::{self, Expect, HistoryLimits, NewVersion, Store};
use super::time::Clock;
use super::verbs;

/// Configuration of an [`InProcess`] server.
#[derive(Clone, Debug)]
pub struct InProcessConfig {
    /// Seed for uids, generated names, and the time after which a watch without `timeoutSeconds` ends.
    pub seed: u64,
    /// Feature gates that differ from their default, such as `GenericWorkload`.
    pub feature_gates: BTreeMap<String, bool>,
    /// Whether to maintain `metadata.managedFields`, which server-side apply needs; writes are faster
    /// without.
    pub track_managed_fields: bool,
    /// The `gitVersion` at `/version`, such as `v1.31.0`, in place of the server's own.
    pub git_version: Option<String>,
}

impl Default for InProcessConfig {
    fn default() -> Self {
        Self { seed: 0, feature_gates: BTreeMap::new(), track_managed_fields: true, git_version: None }
    }
}

/// An API server that is called as a function.
pub struct InProcess {
    server: Arc<Server>,
    /// The user of all requests.
    user: Arc<User>,
}

/// All objects of an [`InProcess`] server, and its revision, at one moment. A snapshot shares its objects
/// with the server, so copies are cheap. Other servers can be restored from it as well.
#[derive(Clone)]
pub struct Snapshot(Arc<store::Snapshot>);

impl InProcess {
    /// A server with the namespaces of a new cluster.
    ///
    /// # Errors
    ///
    /// If these namespaces cannot be created.
    pub fn new(config: InProcessConfig, clock: Arc<dyn Clock>) -> Result<Self, EmbeddedError> {
        let store = Store::new(&resources::plurals(), HistoryLimits::default());
        let server = Server {
            gates: config.feature_gates,
            track_managed_fields: config.track_managed_fields,
            git_version: config.git_version,
            ..Server::new(store, clock, SmallRng::seed_from_u64(config.seed))
        };
        verbs::bootstrap(&server).map_err(|error| EmbeddedError::Bootstrap(error.message.clone()))?;
        // As with a server on the network, watches begin after the objects of a new cluster.
        server.store.forget();
        Ok(Self { server: Arc::new(server), user: Arc::new(User::administrator()) })
    }

    /// Answers one request, whose URI needs no more than path and query. The user is an administrator,
    /// whatever the headers say. The first poll of the future carries out the request, in full or not at all.
    /// Unless the request is a watch, the future never waits and needs no runtime.
    ///
    /// The body is read with [`http_body_util::BodyExt`]: `collect` for an answer of known length, `frame`
    /// for one chunk of a watch. A chunk has whole events: all that were due when the body was polled, up to
    /// about 64 KiB. A watch must be polled in the runtime in which it was requested, since its bookmarks and
    /// its end follow that runtime's clock. Dropping the body ends the watch.
    pub async fn respond(&self, request: Request<Bytes>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        entrance::answer(&self.server, &parts, Full::new(body), Sender::User(&self.user), &mut None).await
    }

    /// The revision of the newest write: the `resourceVersion` of a list that is made now.
    pub fn revision(&self) -> u64 {
        self.server.store.revision()
    }

    /// Stores an object without defaults, admission and validation, as a server of another version may have
    /// stored it. An object of the same name is replaced, and watches show the write. `plural` names the
    /// kind, such as `jobs`. Returns whether there is such a kind.
    pub fn store_unchecked(&self, plural: &str, object: Value) -> bool {
        let Some((resource, table)) = resources::stored(plural).zip(self.server.store.table(plural)) else {
            return false;
        };
        let (header, tail) = Object::encode(resource, object);
        let key = key_of(&header);
        let expect = table.get(&key).map_or(Expect::Absent, |old| Expect::Version(old.revision));
        table.put(&key, expect, NewVersion { header, tail }).is_ok()
    }

    /// Removes an object, whatever finalizers it has. Returns whether it was there.
    pub fn remove_unchecked(&self, plural: &str, namespace: &str, name: &str) -> bool {
        let Some(table) = self.server.store.table(plural) else { return false };
        let key = object::key(Some(namespace), name);
        let Some(old) = table.get(&key) else { return false };
        let last = NewVersion { header: old.header.clone(), tail: old.tail.clone() };
        table.delete(&key, Expect::Version(old.revision), last).is_ok()
    }

    /// All objects as they are now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(Arc::new(self.server.store.snapshot()))
    }

    /// Goes back to a snapshot, as when etcd is restored from a backup and the API servers are started again.
    /// Objects and revision are those of the snapshot, and later revisions are assigned once more, to other
    /// writes. All open watches end. A watch from an older revision gets a 410. A watch from a revision that
    /// has not come again is silent until then, and a read at such a revision gets a 504.
    pub fn restore(&self, snapshot: &Snapshot) {
        self.server.faults.break_watches();
        self.server.store.restore(&snapshot.0);
    }

    /// Drops the history, as a compaction of etcd and a restart of its API servers do. Watches and lists at
    /// older revisions, and continue tokens, get a 410. An open watch continues, unless it has not read all
    /// of the dropped changes: then it gets a 410, too.
    pub fn compact(&self) {
        self.server.store.compact();
        self.server.store.forget();
    }
}

fn key_of(header: &Header) -> Key {
    object::key(Some(&*header.namespace).filter(|namespace| !namespace.is_empty()), &header.name)
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // Ends the watches.
        self.server.stop.cancel();
    }
}

#[cfg(test)]
mod tests;
