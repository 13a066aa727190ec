//! The writes of each replica for each shard, from the API server's audit record.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use crate::audit::{self, Line};
use crate::report::Percentiles;

/// The shards of Jobs, pods and claim Leases, by name.
#[derive(Debug, Default)]
pub(super) struct Shards {
    pub(super) jobs: HashMap<String, u32>,
    pub(super) pods: HashMap<String, u32>,
    pub(super) claims: HashMap<String, u32>,
}

/// A write for a shard.
#[derive(Clone, Debug)]
struct Act {
    replica: String,
    received: i64,
    answered: i64,
    /// Whether it was a write of the claim Lease.
    claim: bool,
}

/// All writes for shards in the record, from which hand-overs are measured.
#[derive(Debug)]
pub(super) struct Acts {
    by_shard: BTreeMap<u32, Vec<Act>>,
}

impl Acts {
    /// Reads the record.
    pub(super) fn read(file: &Path, shards: &Shards) -> Result<Self> {
        let mut by_shard: BTreeMap<u32, Vec<Act>> = BTreeMap::new();
        audit::read(file, |line| {
            if let Some((shard, act)) = act(&line, shards) {
                by_shard.entry(shard).or_default().push(act);
            }
        })?;
        by_shard.values_mut().for_each(|acts| acts.sort_by_key(|act| act.received));
        Ok(Self { by_shard })
    }

    /// Number of writes by others than the owner, and all findings for the report. `killed` are the replicas
    /// that could not hand over.
    pub(super) fn findings(&self, killed: &[String]) -> (u64, Value) {
        let mut foreign = 0;
        // Three significant digits are always valid.
        let new = || Histogram::<u64>::new(3);
        let all = (new(), new(), new(), new(), new());
        let (Ok(mut claims), Ok(mut acts), Ok(mut after_kill), Ok(mut draining), Ok(mut syncing)) = all
        else {
            return (0, Value::Null);
        };
        for shard in self.by_shard.values() {
            foreign += foreign_acts(shard);
            for (old, new, gap) in gaps(shard.iter().filter(|act| act.claim)) {
                let drained = !killed.contains(old);
                note(if drained { &mut claims } else { &mut after_kill }, gap, old != new);
            }
            for (old, _, gap) in gaps(shard.iter().filter(|act| !act.claim)) {
                note(&mut acts, gap, !killed.contains(old));
            }
            for [before, after] in around_releases(shard) {
                note(&mut draining, before, true);
                note(&mut syncing, after, true);
            }
        }
        let findings = json!({
            "writes_by_others_than_the_owner": foreign,
            "release_to_claim_ms": Percentiles::of(&claims),
            "last_write_of_old_owner_to_first_of_new_ms": Percentiles::of(&acts),
            "last_write_to_release_ms": Percentiles::of(&draining),
            "claim_to_first_write_ms": Percentiles::of(&syncing),
            "claim_to_claim_after_kill_ms": Percentiles::of(&after_kill),
        });
        (foreign, findings)
    }
}

fn note(histogram: &mut Histogram<u64>, micros: i64, counts: bool) {
    if counts {
        // The histogram resizes itself, so this does not fail.
        let _recorded = histogram.record(u64::try_from(micros).unwrap_or_default().max(1));
    }
}

/// The write as an act for a shard. Returns `None` for refused writes, and for writes of other clients.
fn act(line: &Line, shards: &Shards) -> Option<(u32, Act)> {
    let replica = line.agent.strip_prefix("yardmaster/")?.split_once('(')?.1.strip_suffix(')')?;
    // A write without status lost its answer to a fault, and may have been carried out.
    if line.code != 0 && !(200..300).contains(&line.code) {
        return None;
    }
    let (what, name) = (line.what(), line.name()?);
    let resource = what.split([' ', '/']).next()?;
    let (shard, claim) = match resource {
        "leases" => (*shards.claims.get(name)?, true),
        "pods" => (*shards.pods.get(name)?, false),
        "jobs" => (*shards.jobs.get(name)?, false),
        _ => return None,
    };
    Some((shard, Act { replica: replica.into(), received: line.received, answered: line.answered, claim }))
}

/// The gaps between the acts of one replica and the next: both replicas, and the microseconds in between.
fn gaps<'a>(acts: impl Iterator<Item = &'a Act>) -> Vec<(&'a String, &'a String, i64)> {
    let mut gaps = Vec::new();
    let mut last: Option<&Act> = None;
    for act in acts {
        if let Some(last) = last.filter(|last| last.replica != act.replica) {
            gaps.push((&last.replica, &act.replica, act.received - last.answered));
        }
        last = Some(act);
    }
    gaps
}

/// Microseconds from an owner's last act to its release, and from the next owner's claim to its first act.
fn around_releases(acts: &[Act]) -> Vec<[i64; 2]> {
    let mut around = Vec::new();
    for (at, pair) in acts.windows(2).enumerate() {
        let [release, claim] = pair else { continue };
        let hands_over = release.claim && claim.claim && release.replica != claim.replica;
        let last = acts[..at].iter().rev().find(|act| !act.claim && act.replica == release.replica);
        let first = acts[at + 2..].iter().find(|act| !act.claim && act.replica == claim.replica);
        if let (true, Some(last), Some(first)) = (hands_over, last, first) {
            around.push([release.received - last.answered, first.received - claim.answered]);
        }
    }
    around
}

/// Number of acts of a replica after the claim of another one was answered.
fn foreign_acts(acts: &[Act]) -> u64 {
    let mut foreign = 0;
    let mut owner: Option<(&String, i64)> = None;
    for act in acts {
        match owner {
            Some((holder, since)) if !act.claim && act.replica != *holder && act.received > since => {
                foreign += 1
            }
            // After a release, the owner counts as owner until the next claim. No other replica may act
            // before.
            _ if act.claim && owner.is_none_or(|(holder, _)| *holder != act.replica) => {
                owner = Some((&act.replica, act.answered));
            }
            _ => {}
        }
    }
    foreign
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(list: &[(&str, i64, bool)]) -> Vec<Act> {
        let act = |&(replica, at, claim): &(&str, i64, bool)| Act {
            replica: replica.into(),
            received: at,
            answered: at + 1,
            claim,
        };
        list.iter().map(act).collect()
    }

    #[test]
    fn acts_of_the_old_owner_after_a_hand_over_are_foreign() {
        let clean =
            acts(&[("a", 0, true), ("a", 10, false), ("a", 20, true), ("b", 30, true), ("b", 40, false)]);
        assert_eq!(foreign_acts(&clean), 0);
        let writes = clean.iter().filter(|act| !act.claim);
        assert_eq!(gaps(writes), [(&"a".to_owned(), &"b".to_owned(), 29)]);
        assert_eq!(around_releases(&clean), [[9, 9]]);
        let unclean = acts(&[("a", 0, true), ("b", 30, true), ("a", 35, false), ("b", 40, false)]);
        assert_eq!(foreign_acts(&unclean), 1);
    }

    #[test]
    fn acts_are_assigned_to_shards_by_name() {
        let of = |name: &str, shard| [(name.to_owned(), shard)].into();
        let shards = Shards { jobs: of("j", 4), pods: of("p", 5), claims: of("yardmaster-shard-7", 7) };
        let line = |path: &str, agent: &str, code| Line {
            agent: agent.into(),
            method: "PATCH".into(),
            path: path.into(),
            created: None,
            code,
            received: 0,
            answered: 0,
        };
        let ours = "yardmaster/0.1.0 (replica-3)";
        for (path, agent, code, shard) in [
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/yardmaster-shard-7", ours, 200, Some(7)),
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/replica-3", ours, 200, None),
            ("/api/v1/namespaces/n/pods/p", ours, 200, Some(5)),
            ("/apis/batch/v1/namespaces/n/jobs/j/status", ours, 0, Some(4)),
            ("/apis/batch/v1/namespaces/n/jobs/j/status", ours, 409, None),
            ("/api/v1/namespaces/n/pods/p/status", "load-tests-kubelet", 200, None),
        ] {
            let found = act(&line(path, agent, code), &shards);
            assert_eq!(found.as_ref().map(|(shard, _)| *shard), shard, "{path}");
            assert!(found.is_none_or(|(_, act)| act.replica == "replica-3"));
        }
    }
}
