//! The state that all request handlers share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::audit::AuditSink;
use super::authentication::{Account, AccountKey, Authenticator, InvalidAccountToken, Token};
use super::authorization::{Attributes, Authorizer, Target, User};
use super::connections::HttpLimits;
use super::error::ApiError;
use super::exchange::openapi::Documents;
use super::faults::Faults;
use super::protobuf;
use super::resources::Resource;
use super::store::{Store, Table};
use super::time::Clock;

/// How a server meets its clients, and kubelets, over the network.
pub(crate) struct Network {
    /// Finds the user of a request.
    pub(crate) authenticator: Authenticator,
    /// Bounds of what clients can hold.
    pub(crate) limits: HttpLimits,
}

/// The state of one API server.
pub(crate) struct Server {
    /// All objects.
    pub(crate) store: Store,
    /// Feature gates that are not at their default.
    pub(crate) gates: BTreeMap<String, bool>,
    /// Whether `metadata.managedFields` is kept.
    pub(crate) track_managed_fields: bool,
    /// The version at `/version`, if it is not the server's own.
    pub(crate) git_version: Option<String>,
    /// The time of day.
    pub(crate) clock: Arc<dyn Clock>,
    /// The key of the tokens of ServiceAccounts.
    pub(crate) account_key: AccountKey,
    /// The network; `None` if requests only come from this process.
    pub(crate) network: Option<Network>,
    /// The rights of users; `None` if every request is an administrator's.
    pub(crate) authorizer: Option<Authorizer>,
    /// Whether changes of owner references need rights on the object and its owner
    /// (OwnerReferencesPermissionEnforcement).
    pub(crate) protects_owners: bool,
    /// Permits for requests in flight. Watches need none.
    pub(crate) inflight: Option<Semaphore>,
    /// Faults that tests switch on.
    pub(crate) faults: Faults,
    /// The sink that is notified of writes.
    pub(crate) audit: Option<AuditSink>,
    /// OpenAPI documents, generated on the first request.
    pub(crate) openapi: OnceLock<Documents>,
    /// Whether an object has been found that protobuf cannot represent.
    pub(crate) json_only: AtomicBool,
    /// Stops the server.
    pub(crate) stop: CancellationToken,
    /// Source of uids and generated names.
    pub(crate) random: Mutex<SmallRng>,
}

/// Feature gates that are on by default.
const DEFAULT_ON: &[&str] = &["GenericWorkload", "WorkloadWithJob", "ShardedListAndWatch", "WatchList"];

/// The characters of generated name suffixes: no vowels and no look-alikes.
const SUFFIX_LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl Server {
    /// A server with default settings and without a network.
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>, random: SmallRng) -> Self {
        Self {
            store,
            gates: BTreeMap::new(),
            track_managed_fields: true,
            git_version: None,
            clock,
            account_key: AccountKey::new(&Token::random()),
            network: None,
            authorizer: None,
            protects_owners: false,
            inflight: None,
            faults: Faults::default(),
            audit: None,
            openapi: OnceLock::new(),
            json_only: AtomicBool::new(false),
            stop: CancellationToken::new(),
            random: Mutex::new(random),
        }
    }

    /// The time of day.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether a feature gate is on.
    pub(crate) fn gate(&self, name: &str) -> bool {
        self.gates.get(name).copied().unwrap_or_else(|| DEFAULT_ON.contains(&name))
    }

    /// The account of a token that is valid now for one of these audiences.
    pub(crate) fn account(&self, token: &str, audiences: &[&str]) -> Result<Account, InvalidAccountToken> {
        self.account_key.verify(token, audiences, &self.store, self.now())
    }

    /// Refuses a request that its user may not make. Without a user everything is allowed: for the server's
    /// own components, and if requests need no token.
    pub(crate) fn authorize(&self, user: Option<&User>, request: &Attributes) -> Result<(), ApiError> {
        let Some(reason) = self.refusal(user, request) else { return Ok(()) };
        let name = user.map(|user| user.name.as_str()).unwrap_or_default();
        let mut why = format!("User {name:?} cannot {request}");
        if !reason.is_empty() {
            why = format!("{why}: {reason}");
        }
        let error = match &request.target {
            Target::Path(_) => ApiError::access_denied("", "", "", &why),
            Target::Objects { group, resource, name, .. } => {
                ApiError::access_denied(group, resource, name, &why)
            }
        };
        self.record_denial(user, &error);
        Err(error)
    }

    /// Why a user may not do something; the reason is often empty. Returns `None` if it is allowed.
    pub(crate) fn refusal(&self, user: Option<&User>, request: &Attributes) -> Option<String> {
        let access = self.authorizer.as_ref()?.review(&self.store, user?, request);
        (!access.allowed).then_some(access.reason)
    }

    /// Records an answer that refuses a request because of its user's rights.
    pub(crate) fn record_denial(&self, user: Option<&User>, error: &ApiError) {
        if let (Some(authorizer), Some(user)) = (&self.authorizer, user) {
            authorizer.record_denial(user, &error.message);
        }
    }

    /// Whether reads, lists and watches of these objects are served in protobuf.
    pub(crate) fn streams_protobuf(&self, resource: &Resource) -> bool {
        !self.json_only.load(Ordering::Relaxed) && protobuf::knows(&resource.api_version(), resource.kind)
    }

    /// Whether a kind is served.
    pub(crate) fn serves(&self, resource: &Resource) -> bool {
        resource.gate.is_none_or(|gate| self.gate(gate))
    }

    /// The table of a kind.
    #[expect(clippy::expect_used, reason = "the store is made from the same table of resources")]
    pub(crate) fn table(&self, resource: &Resource) -> &Table {
        self.store.table(resource.plural).expect("every resource has a table")
    }

    /// A fresh uid.
    pub(crate) fn new_uid(&self) -> String {
        let mut bytes = [0; 16];
        self.random.lock().fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// A name from `metadata.generateName`: the prefix cut to 58 characters, then 5 random ones.
    pub(crate) fn generate_name(&self, prefix: &str) -> String {
        const LONGEST_PREFIX: usize = 58;
        let mut random = self.random.lock();
        let mut name: String = prefix.chars().take(LONGEST_PREFIX).collect();
        for _ in 0..5 {
            let letter = SUFFIX_LETTERS.get(random.random_range(0..SUFFIX_LETTERS.len())).copied();
            name.push(char::from(letter.unwrap_or(b'x')));
        }
        name
    }

    /// How long a watch without `timeoutSeconds` stays open: between 30 and 60 minutes.
    pub(crate) fn watch_timeout(&self) -> Duration {
        Duration::from_secs(self.random.lock().random_range(1800..3600))
    }
}
