//! The format of Leases: which replicas are alive, which of them owns each shard, and how many shards there
//! are.
//!
//! | Lease | `yardmaster.dev/lease` | content |
//! |---|---|---|
//! | `yardmaster-replica-IDENTITY` | `replica` | the heartbeat of a replica |
//! | `yardmaster-shard-NUMBER` | `shard` | the owner of a shard; `leaseTransitions` is the epoch |
//! | `yardmaster-layout` | `layout` | the number of shards |
//! | `yardmaster-balance` | `balance` | the shards that change places |
//!
//! Controllers with a name other than the default have it in the names of their Leases. All versions of
//! Yardmaster must understand each other's Leases: during an update they run side by side (invariant 13: additive
//! formats). Leases of unknown kinds are ignored. If a claim cannot be read, it is replaced after a lease duration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::{Value, json};

use super::hash::{ShardCount, ShardId};
use super::loads::Loads;

/// The longest duration of a replica's Leases. Commands wait no longer for a silent replica, whatever its
/// Lease says: a tenant may have the right to write such a Lease.
pub const LONGEST_LEASE: Duration = Duration::from_secs(600);
/// Label of all Leases: their kind.
pub const LEASE_LABEL: &str = "yardmaster.dev/lease";
/// Label of all Leases: the controller that they belong to, as [`controller_label`] of its name.
pub const CONTROLLER_LABEL: &str = "yardmaster.dev/controller";
/// Annotation of heartbeats and of the layout: the name of the controller, which a label cannot hold.
pub const CONTROLLER_NAME: &str = "yardmaster.dev/controller-name";
/// Label of a claim: the number of its shard.
const SHARD_LABEL: &str = "yardmaster.dev/shard";
/// The session of the replica: one that restarts under its old name owns nothing that it owned before.
const SESSION: &str = "yardmaster.dev/session";
/// Set on the heartbeat of a replica that is releasing its shards.
const LEAVING: &str = "yardmaster.dev/leaving";
/// How much work is left for the shards of the replica; absent while that is unknown.
const LOADS: &str = "yardmaster.dev/loads";
/// Which shards move to which replica, as JSON: `[[SHARD, EPOCH, IDENTITY]]`.
const MOVES: &str = "yardmaster.dev/moves";
/// The number of shards.
const SHARDS: &str = "yardmaster.dev/shards";
/// The new number of shards while it is being changed.
const RESHARDING: &str = "yardmaster.dev/resharding-to";

/// A replica in one of its sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Name of the replica.
    pub identity: Arc<str>,
    /// Its session. A new one begins with each process, and whenever the replica has lost everything that it
    /// owned.
    pub session: Arc<str>,
}

/// The heartbeat of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The replica.
    pub holder: Holder,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// How long the replica may be silent before the others regard it as dead.
    pub lease_duration: Duration,
    /// The replica is shutting down and takes no more shards.
    pub leaving: bool,
    /// The work that is left for its shards: all that it owns. Absent if the replica's version does not
    /// report it.
    pub loads: Option<Loads>,
}

/// The owner of a shard, and its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The shard.
    pub shard: ShardId,
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// The owner, if there is one.
    pub holder: Option<Holder>,
    /// How often the shard has been claimed.
    pub epoch: u64,
}

/// How many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// The number.
    pub shards: ShardCount,
    /// The number is being changed to this one: no replica may act meanwhile.
    pub resharding_to: Option<ShardCount>,
}

/// Shards that move to other replicas because of their work, not of their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// `metadata.resourceVersion`.
    pub version: u64,
    /// The shards.
    pub moves: BTreeMap<ShardId, Move>,
}

/// The move of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The new owner.
    pub to: Arc<str>,
    /// The epoch of the claim that it applies to: the next claim voids it.
    pub epoch: u64,
}

impl Balance {
    /// The replica that a shard with a claim of this epoch should move to.
    pub fn target(&self, shard: ShardId, epoch: u64) -> Option<&str> {
        self.moves.get(&shard).filter(|to| to.epoch == epoch).map(|to| &*to.to)
    }
}

/// The content of a Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseRecord {
    /// A replica is alive.
    Heartbeat(Heartbeat),
    /// The owner of a shard.
    Claim(Claim),
    /// How many shards there are.
    Layout(Layout),
    /// Which shards change places.
    Balance(Balance),
}

impl LeaseRecord {
    /// `metadata.resourceVersion`.
    pub fn version(&self) -> u64 {
        match self {
            Self::Heartbeat(heartbeat) => heartbeat.version,
            Self::Claim(claim) => claim.version,
            Self::Layout(layout) => layout.version,
            Self::Balance(balance) => balance.version,
        }
    }

    /// Reads a Lease; `None` if it is not one of ours.
    pub fn read(lease: &Lease) -> Option<Self> {
        let meta = &lease.metadata;
        let label = |name: &str| meta.labels.as_ref()?.get(name).map(String::as_str);
        let annotation = |name: &str| meta.annotations.as_ref()?.get(name).map(String::as_str);
        let version = meta.resource_version.as_ref()?.parse().ok()?;
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.filter(|identity| !identity.is_empty()).map(|identity| Holder {
            identity: identity.into(),
            session: annotation(SESSION).unwrap_or_default().into(),
        });
        match label(LEASE_LABEL)? {
            "replica" => Some(Self::Heartbeat(Heartbeat {
                holder: holder?,
                version,
                lease_duration: Duration::from_secs(
                    spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok())?,
                ),
                leaving: annotation(LEAVING).is_some(),
                loads: annotation(LOADS).and_then(|loads| loads.parse().ok()),
            })),
            "shard" => Some(Self::Claim(Claim {
                shard: label(SHARD_LABEL)?
                    .parse()
                    .ok()
                    .map(ShardId)
                    .filter(|shard| shard.0 < ShardCount::MAX)?,
                version,
                holder,
                epoch: spec.lease_transitions.and_then(|count| u64::try_from(count).ok()).unwrap_or_default(),
            })),
            "layout" => Some(Self::Layout(Layout {
                version,
                shards: annotation(SHARDS)?.parse().ok()?,
                resharding_to: annotation(RESHARDING).and_then(|count| count.parse().ok()),
            })),
            "balance" => Some(Self::Balance(Balance { version, moves: read_moves(annotation(MOVES)?)? })),
            _ => None,
        }
    }
}

fn read_moves(text: &str) -> Option<BTreeMap<ShardId, Move>> {
    let moves: Vec<(u32, u64, String)> = serde_json::from_str(text).ok()?;
    let read = |(shard, epoch, to): (u32, u64, String)| (ShardId(shard), Move { to: to.into(), epoch });
    Some(moves.into_iter().map(read).collect())
}

/// Writes and reads the Leases of one controller.
#[derive(Clone, Debug)]
pub struct LeaseCodec {
    /// The prefix of all Lease names.
    prefix: String,
    /// The value of [`CONTROLLER_LABEL`].
    controller: String,
    /// The value of [`CONTROLLER_NAME`].
    name: String,
}

impl LeaseCodec {
    /// The codec of the controller of this name. If the name is `default`, the names of Leases leave it out.
    pub fn new(controller: &str, default: &str) -> Self {
        let slug = dns_name(controller);
        let prefix =
            if controller == default { "yardmaster".to_owned() } else { format!("yardmaster-{slug}") };
        Self { prefix, controller: slug, name: controller.to_owned() }
    }

    /// `labelSelector` of all Leases that contain records.
    pub fn selector(&self) -> String {
        format!("{CONTROLLER_LABEL}={},{LEASE_LABEL}", self.controller)
    }

    /// Reads the record of a Lease. Its name must be the one that this codec gives to such a record, and it
    /// must have the label that lists select by. A Lease with another label is not listed, so its content
    /// counts for nothing.
    pub fn read(&self, lease: &Lease) -> Option<LeaseRecord> {
        let record = LeaseRecord::read(lease)?;
        let name = match &record {
            LeaseRecord::Heartbeat(heartbeat) => self.heartbeat_name(&heartbeat.holder.identity),
            LeaseRecord::Claim(claim) => self.claim_name(claim.shard),
            LeaseRecord::Layout(_) => self.layout_name(),
            LeaseRecord::Balance(_) => self.balance_name(),
        };
        let controller = lease.metadata.labels.as_ref()?.get(CONTROLLER_LABEL)?;
        (*controller == self.controller && lease.metadata.name.as_ref() == Some(&name)).then_some(record)
    }

    /// Name of a replica's heartbeat.
    pub fn heartbeat_name(&self, identity: &str) -> String {
        format!("{}-replica-{}", self.prefix, dns_name(identity))
    }

    /// Name of a shard's claim.
    pub fn claim_name(&self, shard: ShardId) -> String {
        format!("{}-shard-{shard}", self.prefix)
    }

    /// Name of the Lease with the number of shards.
    pub fn layout_name(&self) -> String {
        format!("{}-layout", self.prefix)
    }

    /// Name of the Lease with the shards that change places.
    pub fn balance_name(&self) -> String {
        format!("{}-balance", self.prefix)
    }

    /// Name of the Lease by which the replica is elected that looks for stripped pods.
    pub fn housekeeper_name(&self) -> String {
        format!("{}-housekeeper", self.prefix)
    }

    /// A heartbeat at `now`; `version` is that of the Lease that it replaces.
    pub fn heartbeat(&self, heartbeat: &Heartbeat, now: Timestamp) -> Lease {
        let session = (SESSION.to_owned(), heartbeat.holder.session.to_string());
        let mut annotations = BTreeMap::from([session, self.name_annotation()]);
        if heartbeat.leaving {
            annotations.insert(LEAVING.to_owned(), "true".to_owned());
        }
        if let Some(loads) = &heartbeat.loads {
            annotations.insert(LOADS.to_owned(), loads.to_string());
        }
        let name = self.heartbeat_name(&heartbeat.holder.identity);
        let spec = LeaseSpec {
            holder_identity: Some(heartbeat.holder.identity.to_string()),
            lease_duration_seconds: Some(whole_seconds(heartbeat.lease_duration)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        };
        self.lease("replica", name, [], annotations, heartbeat.version, spec)
    }

    /// A claim at `now`, or its release.
    pub fn claim(&self, claim: &Claim, lease_duration: Duration, now: Timestamp) -> Lease {
        let session = claim.holder.iter().map(|holder| (SESSION.to_owned(), holder.session.to_string()));
        let labels = [(SHARD_LABEL.to_owned(), claim.shard.to_string())];
        let spec = LeaseSpec {
            // The API server refuses an empty holder; a Lease without owner has none.
            holder_identity: claim.holder.as_ref().map(|holder| holder.identity.to_string()),
            lease_duration_seconds: Some(whole_seconds(lease_duration)),
            lease_transitions: Some(i32::try_from(claim.epoch).unwrap_or(i32::MAX)),
            acquire_time: claim.holder.is_some().then_some(MicroTime(now)),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        };
        let name = self.claim_name(claim.shard);
        self.lease("shard", name, labels, session.collect(), claim.version, spec)
    }

    /// The Lease with the number of shards.
    pub fn layout(&self, layout: &Layout) -> Lease {
        let shards = (SHARDS.to_owned(), layout.shards.get().to_string());
        let mut annotations = BTreeMap::from([shards, self.name_annotation()]);
        if let Some(to) = layout.resharding_to {
            annotations.insert(RESHARDING.to_owned(), to.get().to_string());
        }
        self.lease("layout", self.layout_name(), [], annotations, layout.version, LeaseSpec::default())
    }

    /// The Lease with the shards that change places.
    pub fn balance(&self, balance: &Balance) -> Lease {
        let moves = balance.moves.iter().map(|(shard, to)| json!([shard.0, to.epoch, to.to]));
        let annotations = [(MOVES.to_owned(), moves.collect::<Value>().to_string())].into();
        self.lease("balance", self.balance_name(), [], annotations, balance.version, LeaseSpec::default())
    }

    fn name_annotation(&self) -> (String, String) {
        (CONTROLLER_NAME.to_owned(), self.name.clone())
    }

    fn lease(
        &self,
        kind: &str,
        name: String,
        labels: impl IntoIterator<Item = (String, String)>,
        annotations: BTreeMap<String, String>,
        version: u64,
        spec: LeaseSpec,
    ) -> Lease {
        let own = [
            (LEASE_LABEL.to_owned(), kind.to_owned()),
            (CONTROLLER_LABEL.to_owned(), self.controller.clone()),
            ("app.kubernetes.io/managed-by".to_owned(), "yardmaster".to_owned()),
        ];
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(own.into_iter().chain(labels).collect()),
            annotations: Some(annotations),
            resource_version: (version > 0).then(|| version.to_string()),
            ..ObjectMeta::default()
        };
        Lease { metadata, spec: Some(spec) }
    }
}

/// `leaseDurationSeconds`: at least 1, and never shorter than `duration`.
fn whole_seconds(duration: Duration) -> i32 {
    let seconds = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    i32::try_from(seconds).unwrap_or(i32::MAX).max(1)
}

/// The value of [`CONTROLLER_LABEL`] for the controller of this name.
pub fn controller_label(name: &str) -> String {
    dns_name(name)
}

/// The text as part of a name (RFC 1123) and as the value of a label. A text that has to be changed for that
/// gets a hash appended, so that different texts stay different.
fn dns_name(text: &str) -> String {
    use std::hash::Hasher as _;
    const LONGEST: usize = 63;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let well_formed = text.len() <= LONGEST
        && text.chars().all(allowed)
        && text.starts_with(edge)
        && text.ends_with(edge)
        && !text.contains("..")
        && !text.contains(".-")
        && !text.contains("-.");
    if well_formed {
        return text.to_owned();
    }
    let mut hasher = fnv::FnvHasher::default();
    hasher.write(text.as_bytes());
    let readable: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .take(40)
        .collect();
    format!("{}-{:016x}", readable.trim_matches('-'), hasher.finish()).trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests;
