//! Leases with any content, through the choice of the owner of a shard.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use serde_json::Value;
use yardmaster::sharding::lease::{Balance, Claim, Heartbeat, Holder, Layout, LeaseCodec, LeaseRecord, Move};
use yardmaster::sharding::{Action, Coordinator, LeaseTimes, ReplicaIdentity, ShardCount, ShardId, Written};

use crate::driver::{Target, fuzz};
use crate::mutate;

/// A list of Leases, in the order in which a replica sees them.
struct Leases;

impl Target for Leases {
    const NAME: &str = "leases";

    fn mutate(&self, input: &[u8], others: &[Vec<u8>], random: &mut SmallRng) -> Vec<u8> {
        let mut leases: Vec<Value> = serde_json::from_slice(input).unwrap_or_default();
        let other: Vec<Value> =
            others.choose(random).and_then(|other| serde_json::from_slice(other).ok()).unwrap_or_default();
        let other = other.choose(random);
        if let (true, Some(other)) = (random.random_ratio(1, 6), other) {
            leases.push(other.clone());
        }
        if !leases.is_empty() {
            let chosen = random.random_range(0..leases.len());
            mutate::json(&mut leases[chosen], other, random);
        }
        leases.truncate(30);
        serde_json::to_vec(&leases).unwrap()
    }

    fn run(&self, input: &[u8]) -> Result<(), String> {
        let leases: Vec<Value> = serde_json::from_slice(input).unwrap_or_default();
        let [lease_duration, renew_deadline, retry_period] = [15, 10, 2].map(Duration::from_secs);
        let me = ReplicaIdentity {
            identity: "me".into(),
            process: "process".into(),
            shards: ShardCount::new(4).unwrap(),
            qps: 100,
        };
        let mut coordinator =
            Coordinator::new(me, LeaseTimes { lease_duration, renew_deadline, retry_period });
        coordinator.listed();
        let mut now = Duration::from_secs(100);
        for lease in leases {
            now += Duration::from_secs(5);
            let Ok(lease) = serde_json::from_value::<Lease>(lease) else { continue };
            let Some(record) = LeaseRecord::read(&lease) else { continue };
            match record {
                LeaseRecord::Heartbeat(beat) => {
                    coordinator.heartbeat_seen(beat.clone(), now);
                    coordinator.heartbeat_read(&beat.holder.identity.clone(), Some(beat), now);
                }
                LeaseRecord::Claim(claim) => coordinator.claim_seen(claim),
                LeaseRecord::Balance(balance) => coordinator.balance_seen(balance, now),
                LeaseRecord::Layout(_) => {}
            }
            for _ in 0..3 {
                let (actions, _) = coordinator.decide(now, |_| u32::MAX);
                carry_out(&mut coordinator, actions, now);
                now += Duration::from_secs(1);
            }
        }
        Ok(())
    }
}

fn carry_out(coordinator: &mut Coordinator, actions: Vec<Action>, now: Duration) {
    for action in actions {
        match action {
            Action::WriteClaim(claim) => {
                coordinator.claim_written(&claim, Written::As(claim.version.saturating_add(1)), now)
            }
            Action::WriteBalance(balance) => coordinator.balance_written(balance, Written::Conflict, now),
            Action::Start(shard, epoch) => coordinator.synced(shard, epoch),
            Action::Drain(shard) => coordinator.drained(shard),
            Action::Drop(shard) => coordinator.dropped(shard),
            Action::ReadHeartbeat(_) => coordinator.heartbeat_unread(now),
            Action::DeleteHeartbeat(identity, version) => coordinator.heartbeat_gone(&identity, version, now),
            Action::WriteHeartbeat(_) => coordinator.heartbeat_written(Written::As(7), false, now),
            Action::Left => {}
        }
    }
}

/// The writes of two replicas, in the order in which a third sees them.
fn seed() -> Vec<u8> {
    let codec = LeaseCodec::new("yardmaster.dev/job-controller", "yardmaster.dev/job-controller");
    let (now, time) = (Timestamp::UNIX_EPOCH, Duration::from_secs(15));
    let holder = |name: &str| Holder { identity: name.into(), session: "s1".into() };
    let heartbeat = |name: &str, version| {
        let loads = Some([(ShardId(0), 1500), (ShardId(1), 500)].into_iter().collect());
        let beat =
            Heartbeat { holder: holder(name), version, lease_duration: time, leaving: version > 5, loads };
        codec.heartbeat(&beat, now)
    };
    let claim = |shard, name: Option<&str>, epoch| {
        let claim = Claim { shard: ShardId(shard), version: epoch + 1, holder: name.map(holder), epoch };
        codec.claim(&claim, time, now)
    };
    let moves =
        [(ShardId(1), Move { to: "me".into(), epoch: 1 }), (ShardId(3), Move { to: "a".into(), epoch: 1 })];
    let leases = [
        codec.layout(&Layout { version: 1, shards: ShardCount::new(4).unwrap(), resharding_to: None }),
        heartbeat("a", 2),
        heartbeat("b", 3),
        claim(0, Some("a"), 1),
        claim(1, Some("b"), 1),
        claim(2, None, 2),
        claim(3, Some("me"), 1),
        codec.balance(&Balance { version: 10, moves: moves.into() }),
        heartbeat("a", 6),
    ];
    serde_json::to_vec(&leases).unwrap()
}

#[test]
fn leases() {
    fuzz(&Leases, vec![seed()]);
}
