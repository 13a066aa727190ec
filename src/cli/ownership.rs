//! Replicas and shards, as recorded in their Leases.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use serde::Serialize;

use super::table::plain_table;
use crate::sharding::ShardCount;
use crate::sharding::lease::{CONTROLLER_LABEL, LeaseRecord};

/// Which replica owns which shards.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Ownership {
    pub(super) replicas: Vec<Replica>,
    pub(super) shards: Vec<Shard>,
    /// The number of shards of each controller that has recorded it.
    #[serde(skip)]
    pub(super) layouts: Vec<ControllerLayout>,
}

/// The number of shards of a controller.
#[derive(Debug, PartialEq)]
pub(super) struct ControllerLayout {
    pub(super) shards: u32,
    /// The number is being changed to this one.
    pub(super) resharding_to: Option<u32>,
}

/// A replica that has a heartbeat.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replica {
    controller: String,
    pub(super) identity: String,
    /// Seconds since the last heartbeat, by this machine's clock.
    pub(super) heartbeat_age: Option<f64>,
    /// It is releasing its shards.
    pub(super) leaving: bool,
    shards: usize,
    /// Seconds after which a silent replica is dead.
    #[serde(skip)]
    pub(super) lease_duration: f64,
    /// `metadata.resourceVersion` of the heartbeat.
    #[serde(skip)]
    pub(super) version: u64,
}

/// A shard that has been claimed.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Shard {
    controller: String,
    pub(super) shard: u32,
    pub(super) owner: Option<String>,
    epoch: u64,
}

impl Ownership {
    /// Reads the Leases that a label selector selects, in one namespace or all.
    pub(super) async fn read(
        client: &kube::Client,
        namespace: Option<&str>,
        selector: &str,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let leases: Api<Lease> = match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        };
        let listed = leases.list(&ListParams::default().labels(selector)).await?;
        Ok(Self::of(&listed.items, now))
    }

    pub(super) fn of(leases: &[Lease], now: Timestamp) -> Self {
        let mut ownership = Self::default();
        for lease in leases {
            let labels = lease.metadata.labels.as_ref();
            let controller =
                labels.and_then(|labels| labels.get(CONTROLLER_LABEL)).cloned().unwrap_or_default();
            match LeaseRecord::read(lease) {
                Some(LeaseRecord::Heartbeat(heartbeat)) => {
                    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
                    ownership.replicas.push(Replica {
                        controller,
                        identity: heartbeat.holder.identity.to_string(),
                        heartbeat_age: renewed.map(|renewed| now.duration_since(renewed.0).as_secs_f64()),
                        leaving: heartbeat.leaving,
                        shards: 0,
                        lease_duration: heartbeat.lease_duration.as_secs_f64(),
                        version: heartbeat.version,
                    });
                }
                Some(LeaseRecord::Claim(claim)) => ownership.shards.push(Shard {
                    controller,
                    shard: claim.shard.0,
                    owner: claim.holder.map(|holder| holder.identity.to_string()),
                    epoch: claim.epoch,
                }),
                Some(LeaseRecord::Layout(layout)) => ownership.layouts.push(ControllerLayout {
                    shards: layout.shards.get(),
                    resharding_to: layout.resharding_to.map(ShardCount::get),
                }),
                Some(LeaseRecord::Balance(_)) | None => {}
            }
        }
        ownership.replicas.sort_by(|a, b| (&a.controller, &a.identity).cmp(&(&b.controller, &b.identity)));
        ownership.shards.sort_by(|a, b| (&a.controller, a.shard).cmp(&(&b.controller, b.shard)));
        for replica in &mut ownership.replicas {
            let owns = |shard: &&Shard| {
                shard.controller == replica.controller && shard.owner.as_ref() == Some(&replica.identity)
            };
            replica.shards = ownership.shards.iter().filter(owns).count();
        }
        ownership
    }
}

impl fmt::Display for Ownership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.replicas.is_empty() && self.shards.is_empty() {
            return Ok(());
        }
        let mut replicas = plain_table();
        replicas.set_header(["REPLICA", "SHARDS", "HEARTBEAT", "CONTROLLER"]);
        for replica in &self.replicas {
            let age =
                replica.heartbeat_age.map(|age| format!("{:.0}s ago", age.max(0.0))).unwrap_or_default();
            let leaving = if replica.leaving { ", leaving" } else { "" };
            replicas.add_row([
                replica.identity.clone(),
                replica.shards.to_string(),
                format!("{age}{leaving}"),
                replica.controller.clone(),
            ]);
        }
        let mut shards = plain_table();
        shards.set_header(["SHARDS", "OWNER", "EPOCH", "CONTROLLER"]);
        for run in self.runs() {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let numbers = if first.shard == last.shard {
                first.shard.to_string()
            } else {
                format!("{}-{}", first.shard, last.shard)
            };
            let owner = first.owner.clone().unwrap_or_else(|| "none".to_owned());
            shards.add_row([numbers, owner, first.epoch.to_string(), first.controller.clone()]);
        }
        writeln!(f, "{replicas}\n\n{shards}\n")
    }
}

impl Ownership {
    /// Groups of consecutive shards with the same owner and epoch.
    fn runs(&self) -> Vec<&[Shard]> {
        let is_next = |a: &Shard, b: &Shard| {
            (&a.controller, &a.owner, a.epoch, a.shard + 1) == (&b.controller, &b.owner, b.epoch, b.shard)
        };
        self.shards.chunk_by(is_next).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::sharding::ShardId;
    use crate::sharding::lease::{Claim, Heartbeat, Holder, LeaseWriter};

    #[test]
    fn consecutive_shards_of_one_owner_and_epoch_share_a_line() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let writer = LeaseWriter::new("c", "c");
        let holder = |identity: &str| Holder { identity: identity.into(), session: "s".into() };
        let claim = |shard, owner: Option<&str>, epoch| {
            let claim = Claim { shard: ShardId(shard), version: 1, holder: owner.map(holder), epoch };
            writer.claim(&claim, Duration::from_secs(15), now)
        };
        let heartbeat = |identity, leaving| {
            let lease_duration = Duration::from_secs(15);
            let holder = holder(identity);
            let heartbeat = Heartbeat { holder, version: 1, lease_duration, leaving, loads: None };
            writer.heartbeat(&heartbeat, "2026-01-01T00:00:08Z".parse().unwrap())
        };
        let leases = [
            claim(2, Some("b"), 3),
            claim(0, Some("a"), 1),
            claim(1, Some("a"), 1),
            claim(3, None, 4),
            heartbeat("b", true),
            heartbeat("a", false),
        ];
        let shown = Ownership::of(&leases, now).to_string();
        let lines: Vec<String> =
            shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "REPLICA SHARDS HEARTBEAT CONTROLLER",
                "a 2 2s ago c",
                "b 1 2s ago, leaving c",
                "",
                "SHARDS OWNER EPOCH CONTROLLER",
                "0-1 a 1 c",
                "2 b 3 c",
                "3 none 4 c",
                "",
            ]
        );
    }
}
