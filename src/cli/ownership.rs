//! Controllers, replicas and shards, as recorded in their Leases.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams};
use serde::Serialize;

use super::lists::views;
use super::readable::Readable;
use crate::job::names::{BUILT_IN_CONTROLLER, EXTERNAL_CONTROLLER};
use crate::sharding::ShardCount;
use crate::sharding::lease::{CONTROLLER_LABEL, CONTROLLER_NAME, LeaseRecord, controller_label};

/// Which controllers there are, and which replica owns which shards. All lists are sorted by controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Ownership {
    controllers: Vec<ControllerShards>,
    pub(super) replicas: Vec<Replica>,
    pub(super) shards: Vec<Shard>,
    /// The number of shards of each controller that has recorded it.
    #[serde(skip)]
    pub(super) layouts: Vec<ControllerLayout>,
}

/// The shards of a controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ControllerShards {
    pub(super) name: String,
    /// How many shards there are, if that is recorded.
    pub(super) shards: Option<u32>,
    /// Shards that no replica owns, ascending.
    pub(super) unowned: Vec<u32>,
    /// The number of shards is being changed to this one.
    pub(super) resharding_to: Option<u32>,
}

/// The number of shards of a controller.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ControllerLayout {
    controller: String,
    pub(super) shards: u32,
    /// The number is being changed to this one.
    pub(super) resharding_to: Option<u32>,
}

/// Whether a replica works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReplicaState {
    /// It renews its heartbeat.
    Active,
    /// It is releasing its shards.
    Leaving,
    /// Its heartbeat is older than its lease duration.
    Silent,
}

/// A replica that has a heartbeat.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replica {
    pub(super) controller: String,
    pub(super) identity: String,
    pub(super) state: ReplicaState,
    /// Seconds since the last heartbeat, by this machine's clock.
    pub(super) heartbeat_age: Option<f64>,
    /// It is releasing its shards.
    pub(super) leaving: bool,
    pub(super) shards: usize,
    /// Seconds after which a silent replica is dead.
    #[serde(skip)]
    pub(super) lease_duration: f64,
    /// `metadata.resourceVersion` of the heartbeat.
    #[serde(skip)]
    pub(super) version: u64,
}

/// A shard that has been claimed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Shard {
    pub(super) controller: String,
    pub(super) shard: u32,
    pub(super) owner: Option<String>,
    pub(super) epoch: u64,
}

/// The names of controllers by the label of their Leases.
struct Names(BTreeMap<String, String>);

impl Names {
    /// The names that these Leases carry, and those of the usual controllers: older replicas write none.
    fn of(leases: &[Lease]) -> Self {
        let usual = [EXTERNAL_CONTROLLER, BUILT_IN_CONTROLLER];
        let mut names: BTreeMap<_, _> =
            usual.into_iter().map(|name| (controller_label(name), name.to_owned())).collect();
        names.extend(leases.iter().filter_map(|lease| {
            let name = lease.metadata.annotations.as_ref()?.get(CONTROLLER_NAME)?;
            Some((label(lease)?.to_owned(), name.clone()))
        }));
        Self(names)
    }

    /// The name of a Lease's controller, else its label.
    fn name(&self, lease: &Lease) -> String {
        let label = label(lease).unwrap_or_default();
        self.0.get(label).map_or(label, String::as_str).to_owned()
    }
}

fn label(lease: &Lease) -> Option<&str> {
    lease.metadata.labels.as_ref()?.get(CONTROLLER_LABEL).map(String::as_str)
}

impl Ownership {
    /// Reads the Leases that a label selector selects, in one namespace or all.
    pub(super) async fn read(
        client: &kube::Client,
        namespace: Option<&str>,
        selector: &str,
        now: Timestamp,
    ) -> anyhow::Result<Self> {
        let leases =
            views::<_, Lease>(Self::leases(client, namespace), &ListParams::default().labels(selector));
        Ok(Self::of(&leases.try_collect::<Vec<Lease>>().await?, now))
    }

    /// The Leases of one namespace or all.
    pub(super) fn leases(client: &kube::Client, namespace: Option<&str>) -> Api<Readable<Lease>> {
        match namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }

    /// The owners by these Leases at `now`.
    pub(super) fn of(leases: &[Lease], now: Timestamp) -> Self {
        let names = Names::of(leases);
        let mut ownership = Self::default();
        for lease in leases {
            let controller = names.name(lease);
            match LeaseRecord::read(lease) {
                Some(LeaseRecord::Heartbeat(heartbeat)) => {
                    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
                    let heartbeat_age = renewed.map(|renewed| now.duration_since(renewed.0).as_secs_f64());
                    let lease_duration = heartbeat.lease_duration.as_secs_f64();
                    ownership.replicas.push(Replica {
                        controller,
                        identity: heartbeat.holder.identity.to_string(),
                        state: match heartbeat_age {
                            Some(age) if age > lease_duration => ReplicaState::Silent,
                            _ if heartbeat.leaving => ReplicaState::Leaving,
                            _ => ReplicaState::Active,
                        },
                        heartbeat_age,
                        leaving: heartbeat.leaving,
                        shards: 0,
                        lease_duration,
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
                    controller,
                    shards: layout.shards.get(),
                    resharding_to: layout.resharding_to.map(ShardCount::get),
                }),
                Some(LeaseRecord::Balance(_)) | None => {}
            }
        }
        ownership.summarize();
        ownership
    }

    /// Sorts, counts the shards of replicas, and finds those without an owner.
    fn summarize(&mut self) {
        self.replicas.sort_by(|a, b| (&a.controller, &a.identity).cmp(&(&b.controller, &b.identity)));
        self.shards.sort_by(|a, b| (&a.controller, a.shard).cmp(&(&b.controller, b.shard)));
        for replica in &mut self.replicas {
            replica.shards = owned_by(&self.shards, &replica.controller, &replica.identity).count();
        }
        let mut controllers: BTreeMap<&str, ControllerShards> = BTreeMap::new();
        let names = self.replicas.iter().map(|replica| &replica.controller);
        let names = names.chain(self.shards.iter().map(|shard| &shard.controller));
        for name in names.chain(self.layouts.iter().map(|layout| &layout.controller)) {
            controllers.entry(name).or_insert_with(|| {
                let layout = self.layouts.iter().find(|layout| layout.controller == *name);
                ControllerShards {
                    name: name.clone(),
                    shards: layout.map(|layout| layout.shards),
                    unowned: unowned(&self.shards, name, layout.map_or(0, |layout| layout.shards)),
                    resharding_to: layout.and_then(|layout| layout.resharding_to),
                }
            });
        }
        self.controllers = controllers.into_values().collect();
    }

    /// All controllers, by name.
    pub(super) fn controllers(&self) -> &[ControllerShards] {
        &self.controllers
    }

    /// The shards that a replica owns, ascending.
    pub(super) fn shards_of(&self, replica: &Replica) -> Vec<u32> {
        owned_by(&self.shards, &replica.controller, &replica.identity).map(|shard| shard.shard).collect()
    }

    /// The shard of a Job's UID under a controller, if the number of shards is recorded; with its claim, if there
    /// is one.
    pub(super) fn shard_of(&self, controller: &str, job_uid: &str) -> Option<(u32, Option<&Shard>)> {
        let layout = self.layouts.iter().find(|layout| layout.controller == controller)?;
        let shard = ShardCount::new(layout.shards).ok()?.shard_of(job_uid).0;
        let is_its = |claim: &&Shard| claim.controller == controller && claim.shard == shard;
        Some((shard, self.shards.iter().find(is_its)))
    }

    /// Groups of consecutive shards with the same owner and epoch.
    pub(super) fn runs(&self) -> impl Iterator<Item = &[Shard]> {
        self.shards.chunk_by(|a, b| {
            (&a.controller, &a.owner, a.epoch, a.shard + 1) == (&b.controller, &b.owner, b.epoch, b.shard)
        })
    }
}

fn owned_by<'a>(
    shards: &'a [Shard],
    controller: &'a str,
    identity: &'a str,
) -> impl Iterator<Item = &'a Shard> {
    shards
        .iter()
        .filter(move |shard| shard.controller == controller && shard.owner.as_deref() == Some(identity))
}

/// Shards of a controller without an owner: released ones, and those below `count` that were never claimed.
fn unowned(shards: &[Shard], controller: &str, count: u32) -> Vec<u32> {
    let claims: BTreeMap<u32, bool> = shards
        .iter()
        .filter(|shard| shard.controller == controller)
        .map(|shard| (shard.shard, shard.owner.is_some()))
        .collect();
    let end = claims.last_key_value().map_or(0, |(last, _)| last + 1).max(count);
    let is_owned = |shard: &u32| match claims.get(shard) {
        Some(owned) => *owned,
        // Without a layout only the claims say which shards exist.
        None => *shard >= count,
    };
    (0..end).filter(|shard| !is_owned(shard)).collect()
}

/// Ascending numbers as text, such as `0-3,7`.
pub(super) fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let text = runs.filter_map(|run| match run {
        [] => None,
        [only] => Some(only.to_string()),
        [first, .., last] => Some(format!("{first}-{last}")),
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::Duration;

    use super::*;
    use crate::sharding::ShardId;
    use crate::sharding::lease::{Claim, Heartbeat, Holder, Layout, LeaseCodec};

    const LEASE_DURATION: Duration = Duration::from_secs(15);

    fn now() -> Timestamp {
        "2026-01-01T00:00:30Z".parse().unwrap()
    }

    fn holder(identity: &str) -> Holder {
        Holder { identity: identity.into(), session: "s".into() }
    }

    fn claim(codec: &LeaseCodec, shard: u32, owner: Option<&str>, epoch: u64) -> Lease {
        let claim = Claim { shard: ShardId(shard), version: 1, holder: owner.map(holder), epoch };
        codec.claim(&claim, LEASE_DURATION, now())
    }

    fn heartbeat(codec: &LeaseCodec, identity: &str, leaving: bool, at: &str) -> Lease {
        let holder = holder(identity);
        let heartbeat =
            Heartbeat { holder, version: 1, lease_duration: LEASE_DURATION, leaving, loads: None };
        codec.heartbeat(&heartbeat, at.parse().unwrap())
    }

    /// 40 replicas with long names, and 512 shards: one was released, and the last three were never claimed.
    pub(in crate::cli) fn big(now: Timestamp) -> Ownership {
        let codec = LeaseCodec::new(EXTERNAL_CONTROLLER, EXTERNAL_CONTROLLER);
        let name = |n: u32| format!("yardmaster-6f9c7d8b5d-in-a-cluster-far-away-{n:02}");
        let layout = Layout { version: 1, shards: ShardCount::new(512).unwrap(), resharding_to: None };
        let claims = (0..505).map(|shard| (shard, (shard != 5).then(|| name(shard % 40))));
        let claims = claims.chain((508..512).map(|shard| (shard, Some(name(0)))));
        let mut leases = vec![codec.layout(&layout)];
        leases.extend(claims.map(|(shard, owner)| claim(&codec, shard, owner.as_deref(), 3)));
        let at = (now - jiff::SignedDuration::from_secs(2)).to_string();
        leases.extend((0..40).map(|n| heartbeat(&codec, &name(n), n == 7, &at)));
        Ownership::of(&leases, now)
    }

    #[test]
    fn replicas_have_a_state_and_their_shards() {
        let codec = LeaseCodec::new("c", "c");
        let layout = Layout { version: 1, shards: ShardCount::new(8).unwrap(), resharding_to: None };
        let leases = [
            codec.layout(&layout),
            claim(&codec, 2, Some("b"), 3),
            claim(&codec, 0, Some("a"), 1),
            claim(&codec, 1, Some("a"), 1),
            claim(&codec, 3, None, 4),
            claim(&codec, 6, Some("a"), 1),
            heartbeat(&codec, "b", true, "2026-01-01T00:00:28Z"),
            heartbeat(&codec, "a", false, "2026-01-01T00:00:28Z"),
            heartbeat(&codec, "dead", false, "2026-01-01T00:00:10Z"),
        ];
        let ownership = Ownership::of(&leases, now());
        let replicas: Vec<_> = ownership
            .replicas
            .iter()
            .map(|replica| {
                let shards = ranges(&ownership.shards_of(replica));
                (replica.identity.as_str(), replica.state, replica.shards, shards)
            })
            .collect();
        assert_eq!(
            replicas,
            [
                ("a", ReplicaState::Active, 3, "0-1,6".to_owned()),
                ("b", ReplicaState::Leaving, 1, "2".to_owned()),
                ("dead", ReplicaState::Silent, 0, String::new()),
            ]
        );
        assert_eq!(ownership.controllers()[0].unowned, [3, 4, 5, 7]);
        assert_eq!(ownership.runs().map(<[Shard]>::len).collect::<Vec<_>>(), [2, 1, 1, 1]);
    }

    #[test]
    fn controllers_have_their_names_also_from_leases_without_one() {
        let default = EXTERNAL_CONTROLLER;
        let named = LeaseCodec::new("example.com/jobs", default);
        let older = |name: &str| {
            let mut lease = heartbeat(&LeaseCodec::new(name, default), "a", false, "2026-01-01T00:00:28Z");
            lease.metadata.annotations.as_mut().unwrap().remove(CONTROLLER_NAME);
            lease
        };
        let leases = [
            heartbeat(&named, "r", false, "2026-01-01T00:00:28Z"),
            // A claim carries no name.
            claim(&named, 0, Some("r"), 1),
            older(BUILT_IN_CONTROLLER),
            older("example.com/other"),
        ];
        let ownership = Ownership::of(&leases, now());
        let names: Vec<_> = ownership.controllers().iter().map(|shards| shards.name.as_str()).collect();
        let label = controller_label("example.com/other");
        assert_eq!(names, [&label, "example.com/jobs", BUILT_IN_CONTROLLER]);
        assert_eq!(ownership.replicas[1].shards, 1);
    }

    #[test]
    fn numbers_are_joined_into_ranges() {
        for (numbers, text) in
            [(&[][..], ""), (&[4], "4"), (&[0, 1], "0-1"), (&[0, 1, 2, 5, 7, 8], "0-2,5,7-8")]
        {
            assert_eq!(ranges(numbers), text);
        }
    }
}
