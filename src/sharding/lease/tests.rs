#![allow(clippy::unwrap_used)]
use super::*;

fn codec() -> LeaseCodec {
    LeaseCodec::new("yardmaster.dev/job-controller", "yardmaster.dev/job-controller")
}

fn holder() -> Holder {
    Holder { identity: "replica-1".into(), session: "s1".into() }
}

#[test]
fn all_records_round_trip() {
    let heartbeat = Heartbeat {
        holder: holder(),
        version: 7,
        lease_duration: Duration::from_secs(15),
        leaving: true,
        loads: Some([(ShardId(3), 1500), (ShardId(7), 500)].into_iter().collect()),
    };
    let lease = codec().heartbeat(&heartbeat, Timestamp::UNIX_EPOCH);
    assert_eq!(lease.metadata.name.as_deref(), Some("yardmaster-replica-replica-1"));
    assert_eq!(codec().read(&lease), Some(LeaseRecord::Heartbeat(heartbeat)));
    for holder in [Some(holder()), None] {
        let claim = Claim { shard: ShardId(12), version: 8, holder, epoch: 3 };
        let lease = codec().claim(&claim, Duration::from_secs(15), Timestamp::UNIX_EPOCH);
        assert_eq!(lease.metadata.name.as_deref(), Some("yardmaster-shard-12"));
        assert_eq!(codec().read(&lease), Some(LeaseRecord::Claim(claim)));
    }
    for resharding_to in [None, ShardCount::new(128).ok()] {
        let layout = Layout { version: 9, shards: ShardCount::default(), resharding_to };
        assert_eq!(codec().read(&codec().layout(&layout)), Some(LeaseRecord::Layout(layout)));
    }
    let moves = [(ShardId(3), Move { to: "a \"b\", c=1".into(), epoch: 5 })].into();
    let balance = Balance { version: 10, moves };
    assert_eq!(codec().read(&codec().balance(&balance)), Some(LeaseRecord::Balance(balance)));
}

/// Replicas of other versions read what this one writes, and the reverse. Additions must
/// be such that versions without them do the right thing. Existing parts must stay.
#[test]
fn other_versions_read_and_write_exactly_this() {
    let at = "1970-01-01T00:00:00.000000Z";
    let lease = |kind: &str, name: &str, more: Value, annotations: Value, spec: Value| {
        let mut labels = json!({
            "yardmaster.dev/lease": kind,
            "yardmaster.dev/controller": "yardmaster-dev-job-controller-8a9cb7e00dcd49fd",
            "app.kubernetes.io/managed-by": "yardmaster",
        });
        labels.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let metadata = json!({
            "name": name, "resourceVersion": "7", "labels": labels, "annotations": annotations,
        });
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec})
    };
    let named = "yardmaster.dev/job-controller";
    let heartbeat = LeaseRecord::Heartbeat(Heartbeat {
        holder: holder(),
        version: 7,
        lease_duration: Duration::from_secs(15),
        leaving: true,
        loads: Some([(ShardId(3), 1500)].into_iter().collect()),
    });
    let claim = Claim { shard: ShardId(12), version: 7, holder: Some(holder()), epoch: 3 };
    let free = Claim { holder: None, ..claim.clone() };
    let layout =
        Layout { version: 7, shards: ShardCount::default(), resharding_to: ShardCount::new(128).ok() };
    let moves = [(ShardId(3), Move { to: "a".into(), epoch: 5 })].into();
    let records =
        [heartbeat, LeaseRecord::Claim(claim), LeaseRecord::Claim(free), LeaseRecord::Layout(layout)];
    let records = records.into_iter().chain([LeaseRecord::Balance(Balance { version: 7, moves })]);
    let shard = json!({"yardmaster.dev/shard": "12"});
    let leases = [
        lease(
            "replica",
            "yardmaster-replica-replica-1",
            json!({}),
            json!({
                "yardmaster.dev/controller-name": named, "yardmaster.dev/session": "s1",
                "yardmaster.dev/leaving": "true", "yardmaster.dev/loads": "3=1500",
            }),
            json!({"holderIdentity": "replica-1", "leaseDurationSeconds": 15, "renewTime": at}),
        ),
        lease(
            "shard",
            "yardmaster-shard-12",
            shard.clone(),
            json!({"yardmaster.dev/session": "s1"}),
            json!({
                "holderIdentity": "replica-1", "leaseDurationSeconds": 15, "leaseTransitions": 3,
                "acquireTime": at, "renewTime": at,
            }),
        ),
        lease(
            "shard",
            "yardmaster-shard-12",
            shard,
            json!({}),
            json!({"leaseDurationSeconds": 15, "leaseTransitions": 3, "renewTime": at}),
        ),
        lease(
            "layout",
            "yardmaster-layout",
            json!({}),
            json!({
                "yardmaster.dev/controller-name": named,
                "yardmaster.dev/shards": "64", "yardmaster.dev/resharding-to": "128",
            }),
            json!({}),
        ),
        lease(
            "balance",
            "yardmaster-balance",
            json!({}),
            json!({"yardmaster.dev/moves": "[[3,5,\"a\"]]"}),
            json!({}),
        ),
    ];
    for (record, mut expected) in records.zip(leases) {
        let now = Timestamp::UNIX_EPOCH;
        let written = match &record {
            LeaseRecord::Heartbeat(heartbeat) => codec().heartbeat(heartbeat, now),
            LeaseRecord::Claim(claim) => codec().claim(claim, Duration::from_secs(15), now),
            LeaseRecord::Layout(layout) => codec().layout(layout),
            LeaseRecord::Balance(balance) => codec().balance(balance),
        };
        assert_eq!(serde_json::to_value(&written).unwrap(), expected);
        assert_eq!(record.version(), 7);
        // A later version may add these.
        for part in ["labels", "annotations"] {
            expected["metadata"][part]["yardmaster.dev/later"] = "x".into();
        }
        expected["spec"]["strategy"] = "OldestEmulationVersion".into();
        assert_eq!(LeaseRecord::read(&serde_json::from_value(expected).unwrap()), Some(record));
    }
}

#[test]
fn heartbeats_and_the_layout_name_their_controller() {
    let (name, default) = ("kubernetes.io/job-controller", "yardmaster.dev/job-controller");
    let codec = LeaseCodec::new(name, default);
    let layout = codec.layout(&Layout { version: 1, shards: ShardCount::default(), resharding_to: None });
    let lease_duration = Duration::from_secs(15);
    let heartbeat = Heartbeat { holder: holder(), version: 1, lease_duration, leaving: false, loads: None };
    for lease in [layout, codec.heartbeat(&heartbeat, Timestamp::UNIX_EPOCH)] {
        assert_eq!(lease.metadata.annotations.unwrap()[CONTROLLER_NAME], name);
        assert_eq!(lease.metadata.labels.unwrap()[CONTROLLER_LABEL], controller_label(name));
    }
}

#[test]
fn missing_and_unreadable_loads_are_read_as_unknown() {
    let heartbeat = Heartbeat {
        holder: holder(),
        version: 7,
        lease_duration: Duration::from_secs(15),
        leaving: false,
        loads: None,
    };
    let mut lease = codec().heartbeat(&heartbeat, Timestamp::UNIX_EPOCH);
    assert_eq!(LeaseRecord::read(&lease), Some(LeaseRecord::Heartbeat(heartbeat.clone())));
    lease.metadata.annotations.get_or_insert_default().insert(LOADS.into(), "v2;3:1500".into());
    assert_eq!(LeaseRecord::read(&lease), Some(LeaseRecord::Heartbeat(heartbeat)));
}

#[test]
fn a_lease_that_does_not_exist_yet_is_written_without_a_version() {
    for (version, expected) in [(0, None), (1, Some("1"))] {
        let balance = Balance { version, ..Balance::default() };
        assert_eq!(codec().balance(&balance).metadata.resource_version.as_deref(), expected);
    }
}

#[test]
fn a_lease_with_another_label_or_name_is_no_record() {
    let layout = Layout { version: 9, shards: ShardCount::default(), resharding_to: None };
    let lease = codec().layout(&layout);
    let mut renamed = lease.clone();
    renamed.metadata.name = Some("yardmaster-shard-1".into());
    let mut relabelled = lease.clone();
    relabelled.metadata.labels.as_mut().unwrap().insert(CONTROLLER_LABEL.into(), "other".into());
    assert!(codec().read(&lease).is_some());
    assert_eq!([renamed, relabelled].map(|lease| codec().read(&lease)), [None, None]);
}

#[test]
fn a_claim_of_a_shard_that_cannot_exist_is_no_record() {
    let claim = Claim { shard: ShardId(ShardCount::MAX - 1), version: 9, holder: Some(holder()), epoch: 1 };
    let mut lease = codec().claim(&claim, Duration::from_secs(15), Timestamp::UNIX_EPOCH);
    lease.metadata.resource_version = Some("9".into());
    assert!(LeaseRecord::read(&lease).is_some());
    for shard in [ShardCount::MAX.to_string(), u32::MAX.to_string()] {
        lease.metadata.labels.as_mut().unwrap().insert(SHARD_LABEL.into(), shard);
        assert_eq!(LeaseRecord::read(&lease), None);
    }
}

#[test]
fn leases_are_found_by_controller_and_kind() {
    let other = LeaseCodec::new("other", "yardmaster.dev/job-controller");
    assert_eq!(other.selector(), "yardmaster.dev/controller=other,yardmaster.dev/lease");
    assert_eq!(other.housekeeper_name(), "yardmaster-other-housekeeper");
    assert_eq!(codec().housekeeper_name(), "yardmaster-housekeeper");
}

#[test]
fn a_move_is_void_once_the_shard_is_claimed_again() {
    let moves = [(ShardId(3), Move { to: "a".into(), epoch: 5 })].into();
    let balance = Balance { version: 10, moves };
    for (shard, epoch, target) in [(3, 5, Some("a")), (3, 6, None), (3, 4, None), (4, 5, None)] {
        assert_eq!(balance.target(ShardId(shard), epoch), target);
    }
}

#[test]
fn a_duration_is_never_shortened() {
    for (millis, seconds) in [(1, 1), (1_000, 1), (1_001, 2), (15_000, 15)] {
        assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
    }
}

#[test]
fn names_are_valid_and_distinct() {
    assert_eq!(dns_name("pod-7.a"), "pod-7.a");
    let odd = ["Host_1", "host-1", "host_1", "-x", "kubernetes.io/job-controller", "ü", "a..b"];
    let names: Vec<String> = odd.iter().map(|text| dns_name(text)).collect();
    for (n, name) in names.iter().enumerate() {
        assert!(name.len() <= 63 && !names[..n].contains(name), "{name}");
        assert!(name.starts_with(|c: char| c.is_ascii_alphanumeric()), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c)));
    }
}
