//! Whether replicas live, and whether every shard is owned by one.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::context::{Context, message};
use super::report::Status;
use super::{CheckId, Finding};
use crate::cli::ownership::{Ownership, ranges};
use crate::job::names;
use crate::sharding::ShardCount;
use crate::sharding::lease::LeaseCodec;

const COUNT: CheckId = CheckId { group: "shards", name: "shard-count" };
pub(super) const REPLICAS: CheckId = CheckId { group: "shards", name: "replicas" };
pub(super) const OWNERS: CheckId = CheckId { group: "shards", name: "shard-owners" };

/// Interval between reads while shards change hands.
const PERIOD: Duration = Duration::from_millis(500);
/// How long replicas whose heartbeats look old may take to write the next one.
const SILENCE: Duration = Duration::from_secs(5);
/// Replicas that are named.
const NAMED: usize = 10;

/// Replicas and shards of the controller, and which replicas live.
pub(super) struct Observed {
    ownership: Ownership,
    live: BTreeSet<String>,
}

fn codec(cx: &Context) -> LeaseCodec {
    LeaseCodec::new(&cx.controller.controller_name, names::EXTERNAL_CONTROLLER)
}

/// Reads Leases until all shards are owned or the time is over. Waits only a little for silent replicas to
/// speak.
pub(super) async fn read(cx: &Context) -> Result<Observed, String> {
    let selector = codec(cx).selector();
    let started = Instant::now();
    let mut first_versions = HashMap::new();
    loop {
        let read = Ownership::read(&cx.client, Some(cx.namespace()), &selector, Timestamp::now()).await;
        let ownership =
            read.map_err(|error| error.downcast_ref().map_or_else(|| error.to_string(), message))?;
        let observed = Observed::of(ownership, &mut first_versions);
        let findings = [replicas(&observed).status, owners(&observed).status];
        let patience = if findings.contains(&Status::Failed) {
            cx.wait
        } else if findings.contains(&Status::Warning) {
            cx.wait.min(SILENCE)
        } else {
            Duration::ZERO
        };
        if started.elapsed() >= patience || cx.is_stopped() {
            return Ok(observed);
        }
        cx.pause(PERIOD).await;
    }
}

impl Observed {
    /// `first_versions` has the version of each heartbeat when it was first read.
    fn of(ownership: Ownership, first_versions: &mut HashMap<String, u64>) -> Self {
        let mut live = BTreeSet::new();
        for replica in &ownership.replicas {
            let first = *first_versions.entry(replica.identity.clone()).or_insert(replica.version);
            // The age is by two clocks; a heartbeat that changes needs none.
            let is_fresh = replica.heartbeat_age.is_some_and(|age| age.abs() < replica.lease_duration);
            if is_fresh || first != replica.version {
                live.insert(replica.identity.clone());
            }
        }
        Self { ownership, live }
    }
}

pub(super) fn evaluate(
    cx: &Context,
    observed: &Result<Observed, String>,
    given: Option<ShardCount>,
) -> Vec<(CheckId, Finding)> {
    match observed {
        Ok(observed) => vec![
            (COUNT, count(observed, given.map(ShardCount::get))),
            (REPLICAS, named(&cx.controller.controller_name, replicas(observed))),
            (OWNERS, owners(observed)),
        ],
        Err(error) => vec![(
            REPLICAS,
            Finding::failed(
                format!("cannot list the replicas' Leases: {error}"),
                "Use an account that may list Leases in the namespace of --lease-namespace.",
            ),
        )],
    }
}

/// A finding with the name of the controller that it is about, which may have been found out.
fn named(controller: &str, finding: Finding) -> Finding {
    Finding { message: format!("{controller}: {}", finding.message), ..finding }
}

/// Whether all agree on the number of shards.
fn count(observed: &Observed, given: Option<u32>) -> Finding {
    let Some(layout) = observed.ownership.layouts.first() else {
        if observed.live.is_empty() {
            return Finding::skipped("no replica has recorded a number of shards yet");
        }
        return Finding::failed(
            "replicas live, but the Lease with the number of shards is gone",
            "Repeat the check in a few seconds: replicas write the Lease again; see their logs if it stays away.",
        );
    };
    if let Some(to) = layout.resharding_to {
        return Finding::failed(
            format!("the number of shards is being changed to {to}, and no replica may run meanwhile"),
            format!(
                "Repeat `yardmaster reshard --to {to}` until it ends, then start replicas with --shards {to}."
            ),
        );
    }
    let shards = layout.shards;
    if let Some(given) = given.filter(|given| *given != shards) {
        return Finding::failed(
            format!(
                "the replicas are to have {given} shards, but the cluster has {shards}, so none will start"
            ),
            format!(
                "Start replicas with --shards {shards}, or stop them all and run `yardmaster reshard --to \
                 {given}`."
            ),
        );
    }
    let is_live = |owner: &String| observed.live.contains(owner);
    let beyond: BTreeSet<&String> = observed
        .ownership
        .shards
        .iter()
        .filter(|shard| shard.shard >= shards)
        .filter_map(|shard| shard.owner.as_ref().filter(|owner| is_live(owner)))
        .collect();
    if !beyond.is_empty() {
        let replicas = beyond.into_iter().cloned().collect::<Vec<_>>().join(", ");
        return Finding::failed(
            format!("the cluster has {shards} shards, but these replicas own shards beyond: {replicas}"),
            format!(
                "Stop all replicas, run `yardmaster reshard --to {shards}`, and start them with --shards \
                 {shards}."
            ),
        );
    }
    Finding::ok(format!("{shards} shards"))
}

/// Whether there are replicas.
fn replicas(observed: &Observed) -> Finding {
    let silent =
        observed.ownership.replicas.iter().filter(|replica| !observed.live.contains(&replica.identity));
    let silent: Vec<&str> = silent.map(|replica| &*replica.identity).collect();
    let live: Vec<&str> = observed.live.iter().map(String::as_str).collect();
    if live.is_empty() {
        let known = match &*silent {
            [] => "no replica runs".to_owned(),
            silent => format!("no replica runs; silent: {}", list(silent)),
        };
        return Finding::failed(
            known,
            "Start replicas, or look at the logs of their pods; check --controller-name and \
             --lease-namespace.",
        );
    }
    let text = match &*live {
        [one] => format!("1 replica lives: {one}"),
        live => format!("{} replicas live: {}", live.len(), list(live)),
    };
    if silent.is_empty() {
        return Finding::ok(text);
    }
    Finding::warning(
        format!("{text}; silent: {}", list(&silent)),
        "Look at the pods of the silent replicas, and at their logs.",
    )
}

/// Whether each shard has an owner that lives.
fn owners(observed: &Observed) -> Finding {
    let Some(layout) = observed.ownership.layouts.first() else {
        return Finding::failed(
            "no shard has an owner: no replica has run yet",
            "Start replicas, or look at the logs of their pods; check --controller-name and \
             --lease-namespace.",
        );
    };
    let owned: BTreeSet<u32> = observed
        .ownership
        .shards
        .iter()
        .filter(|shard| shard.owner.as_ref().is_some_and(|owner| observed.live.contains(owner)))
        .map(|shard| shard.shard)
        .collect();
    let unowned: Vec<u32> = (0..layout.shards).filter(|shard| !owned.contains(shard)).collect();
    if unowned.is_empty() {
        return Finding::ok(format!("all {} shards are owned by replicas that live", layout.shards));
    }
    let remedy = if observed.live.is_empty() {
        "Start replicas: Jobs of these shards wait, and nothing is lost."
    } else {
        "Repeat the check with a longer --wait; if it fails again, look at the logs of the replicas."
    };
    Finding::failed(
        format!(
            "{} of {} shards have no owner that lives: {}",
            unowned.len(),
            layout.shards,
            ranges(&unowned)
        ),
        remedy,
    )
}

/// The first few names.
fn list(names: &[&str]) -> String {
    let more = if names.len() > NAMED { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use k8s_openapi::api::coordination::v1::Lease;

    use super::*;
    use crate::sharding::ShardId;
    use crate::sharding::lease::{Claim, Heartbeat, Holder, Layout};

    fn now() -> Timestamp {
        "2026-01-01T00:00:30Z".parse().unwrap()
    }

    fn codec() -> LeaseCodec {
        LeaseCodec::new("c", "c")
    }

    fn holder(identity: &str) -> Holder {
        Holder { identity: identity.into(), session: "s".into() }
    }

    fn claim(shard: u32, owner: Option<&str>) -> Lease {
        let claim = Claim { shard: ShardId(shard), version: 1, holder: owner.map(holder), epoch: 1 };
        codec().claim(&claim, Duration::from_secs(15), now())
    }

    fn heartbeat(identity: &str, version: u64, at: &str) -> Lease {
        let lease_duration = Duration::from_secs(15);
        let heartbeat =
            Heartbeat { holder: holder(identity), version, lease_duration, leaving: false, loads: None };
        codec().heartbeat(&heartbeat, format!("2026-01-01T{at}Z").parse().unwrap())
    }

    fn layout(shards: u32, resharding_to: Option<u32>) -> Lease {
        let count = |count| ShardCount::new(count).unwrap();
        let resharding_to = resharding_to.map(count);
        codec().layout(&Layout { version: 1, shards: count(shards), resharding_to })
    }

    fn observed(leases: &[Lease]) -> Observed {
        Observed::of(Ownership::of(leases, now()), &mut HashMap::new())
    }

    fn alive(identity: &str) -> Lease {
        heartbeat(identity, 2, "00:00:28")
    }

    #[test]
    fn the_number_of_shards_must_be_the_same_everywhere() {
        for (leases, given, status, part) in [
            (vec![], None, Status::Skipped, "yet"),
            (vec![alive("a")], None, Status::Failed, "is gone"),
            (vec![layout(4, None), alive("a")], None, Status::Ok, "4 shards"),
            (vec![layout(4, None)], Some(4), Status::Ok, "4 shards"),
            (vec![layout(4, None)], Some(8), Status::Failed, "to have 8 shards, but the cluster has 4"),
            (vec![layout(4, Some(8))], None, Status::Failed, "changed to 8"),
            (vec![layout(2, None), alive("a"), claim(3, Some("a"))], None, Status::Failed, "beyond: a"),
            (vec![layout(2, None), claim(3, Some("dead"))], None, Status::Ok, "2 shards"),
        ] {
            let finding = count(&observed(&leases), given);
            assert_eq!(finding.status, status, "{}", finding.message);
            assert!(finding.message.contains(part), "{}", finding.message);
        }
    }

    #[test]
    fn shards_without_a_live_owner_are_named() {
        let dead = heartbeat("dead", 2, "00:00:10");
        for (leases, expected) in [
            (vec![], Err("no shard has an owner")),
            (vec![layout(2, None), alive("a"), claim(0, Some("a")), claim(1, Some("a"))], Ok(())),
            (
                vec![layout(2, None), alive("a"), claim(0, Some("a"))],
                Err("1 of 2 shards have no owner that lives: 1"),
            ),
            (vec![layout(2, None), alive("a"), claim(0, Some("a")), claim(1, None)], Err("lives: 1")),
            (
                vec![layout(4, None), dead, alive("a"), claim(2, Some("a")), claim(0, Some("dead"))],
                Err("lives: 0-1,3"),
            ),
        ] {
            let finding = owners(&observed(&leases));
            match expected {
                Ok(()) => assert_eq!(finding.status, Status::Ok, "{}", finding.message),
                Err(part) => {
                    assert_eq!(finding.status, Status::Failed);
                    assert!(finding.message.contains(part), "{}", finding.message);
                }
            }
        }
    }

    #[test]
    fn a_replica_lives_while_its_heartbeat_is_fresh_or_changes() {
        let of = |leases: &[Lease]| replicas(&observed(leases));
        assert_eq!(of(&[]).status, Status::Failed);
        assert_eq!(of(&[alive("a")]).message, "1 replica lives: a");
        assert_eq!(of(&[alive("b"), alive("a")]).message, "2 replicas live: a, b");
        let silent = heartbeat("old", 7, "00:00:10");
        assert_eq!(of(std::slice::from_ref(&silent)).message, "no replica runs; silent: old");
        assert_eq!(of(&[alive("a"), silent.clone()]).status, Status::Warning);
        // A replica whose clock is behind.
        let mut first_versions = HashMap::new();
        Observed::of(Ownership::of(&[silent], now()), &mut first_versions);
        let renewed = [heartbeat("old", 9, "00:00:12")];
        let seen = Observed::of(Ownership::of(&renewed, now()), &mut first_versions);
        assert_eq!(replicas(&seen).message, "1 replica lives: old");
    }
}
