//! The reaction of a replica to answers that are late, lost or unreadable. The test is its API server.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use super::story::TIMES;
use crate::sharding::hash::{ShardCount, ShardId};
use crate::sharding::lease::{Claim, Heartbeat, Holder};
use crate::sharding::lifecycle::ShardState;
use crate::sharding::{Action, Coordinator, Moment, ReplicaIdentity, Written};

const SHARD: ShardId = ShardId(0);

/// A replica that has listed the Leases, of which there are none. It has one shard to own.
struct Lone {
    coordinator: Coordinator,
    version: u64,
}

fn at(seconds: f64) -> Moment {
    Duration::from_secs_f64(100.0 + seconds)
}

impl Lone {
    fn new() -> Self {
        let shards = ShardCount::new(1).unwrap();
        let me = ReplicaIdentity { identity: "me".into(), process: "process".into(), shards, qps: 0 };
        let mut coordinator = Coordinator::new(me, TIMES);
        coordinator.listed();
        Self { coordinator, version: 0 }
    }

    /// A replica that owns its shard, and whose last heartbeat was at 0.0.
    fn owner() -> Self {
        let mut lone = Self::new();
        lone.beats(0.0);
        let claim = lone.claims(0.0).unwrap();
        lone.answers(&claim, 0.0);
        assert_eq!(lone.acts(0.0), [Action::Start(SHARD, 1)]);
        lone.coordinator.synced(SHARD, 1);
        assert_eq!(lone.state(), ShardState::Active);
        lone
    }

    fn acts(&mut self, second: f64) -> Vec<Action> {
        self.coordinator.decide(at(second), |_| 7).0
    }

    /// The heartbeat that it writes now.
    fn beat(&mut self, second: f64) -> Option<Heartbeat> {
        self.acts(second).into_iter().find_map(|action| match action {
            Action::WriteHeartbeat(beat) => Some(beat),
            _ => None,
        })
    }

    fn next_version(&mut self) -> Written {
        self.version += 1;
        Written::As(self.version)
    }

    /// Answers a heartbeat that is in flight.
    fn beaten(&mut self, second: f64) {
        let written = self.next_version();
        self.coordinator.heartbeat_written(written, false, at(second));
    }

    /// Writes a heartbeat that is answered at once.
    fn beats(&mut self, second: f64) -> Heartbeat {
        let beat = self.beat(second).unwrap();
        self.beaten(second);
        beat
    }

    /// The claim that it writes now.
    fn claims(&mut self, second: f64) -> Option<Claim> {
        self.acts(second).into_iter().find_map(|action| match action {
            Action::WriteClaim(claim) => Some(claim),
            _ => None,
        })
    }

    fn answers(&mut self, claim: &Claim, second: f64) {
        let written = self.next_version();
        self.coordinator.claim_written(claim, written, at(second));
    }

    fn state(&self) -> ShardState {
        self.coordinator.states().next().unwrap().1
    }
}

#[test]
fn a_claim_that_is_answered_while_the_replica_may_not_act_starts_nothing() {
    let mut lone = Lone::new();
    lone.beats(0.0);
    let claim = lone.claims(0.0).unwrap();
    assert!(lone.beat(2.0).is_some(), "it is not answered");
    lone.answers(&claim, 11.0);
    assert_eq!((lone.state(), lone.acts(11.0)), (ShardState::Free, vec![]));
    lone.beaten(11.5);
    let again = lone.claims(11.5).unwrap();
    assert_eq!((again.epoch, again.version), (2, 2), "written over what the first has written");
}

/// A replica that has just started does not know the claim. It only sees that another one reports work of
/// the shard.
#[test]
fn a_shard_whose_claim_is_gone_is_left_to_a_living_replica_that_reports_work_of_it() {
    let beat = |version, load| Heartbeat {
        holder: Holder { identity: "other".into(), session: "s".into() },
        version,
        lease_duration: TIMES.lease_duration,
        leaving: false,
        loads: Some([(SHARD, load)].into_iter().collect()),
    };
    for load in [0, 7] {
        let mut lone = Lone::new();
        lone.coordinator.heartbeat_seen(beat(1, 7), at(0.0));
        lone.beats(0.0);
        assert_eq!(lone.claims(1.0), None, "the other may own it");
        lone.coordinator.heartbeat_seen(beat(2, load), at(1.0));
        assert_eq!(lone.claims(1.0).is_some(), load == 0);
        if load > 0 {
            (1..8).for_each(|time| _ = lone.beats(2.0 * f64::from(time)));
            assert_eq!(lone.claims(15.9), None);
            lone.beats(16.0);
            lone.coordinator.heartbeat_read("other", Some(beat(2, load)), at(16.0));
            assert!(lone.claims(16.0).is_some(), "it is dead");
        }
    }
}

#[test]
fn an_answer_that_comes_too_late_to_be_of_use_loses_nothing_before_its_time() {
    let mut lone = Lone::owner();
    assert!(lone.beat(2.0).is_some());
    lone.beaten(12.2);
    assert_eq!(lone.coordinator.acts_until(), Some(at(10.0)));
    assert_eq!(lone.state(), ShardState::Active);
    lone.beats(12.2);
    assert_eq!((lone.coordinator.acts_until(), lone.state()), (Some(at(22.2)), ShardState::Active));
}

#[test]
fn the_heartbeat_of_a_session_that_is_over_is_followed_by_one_of_the_next_at_once() {
    let mut lone = Lone::owner();
    lone.beats(2.0);
    assert!(lone.beat(4.0).is_some());
    lone.coordinator.heartbeat_written(Written::Failed, false, at(13.0));
    let old = lone.beat(13.5).unwrap();
    assert_eq!(lone.acts(14.5), [Action::Drop(SHARD)], "12.5 s after the last that was answered");
    lone.beaten(14.6);
    let new = lone.beat(14.6).unwrap();
    assert_ne!(old.holder.session, new.holder.session);
    assert_eq!(lone.coordinator.acts_until(), None);
}

#[test]
fn a_replica_that_leaves_waits_for_the_answer_to_its_claim() {
    let mut lone = Lone::new();
    lone.beats(0.0);
    let claim = lone.claims(0.0).unwrap();
    lone.coordinator.leave();
    assert!(lone.beat(1.0).is_some_and(|beat| beat.leaving));
    lone.coordinator.heartbeat_written(Written::As(8), true, at(1.0));
    assert_eq!(lone.acts(1.0), [], "the claim may be written yet");
    lone.version = 8;
    lone.answers(&claim, 1.5);
    assert_eq!(lone.acts(1.5), [Action::Start(SHARD, 1), Action::Drain(SHARD)]);
    assert_eq!(lone.acts(1.6), []);
    lone.coordinator.drained(SHARD);
    let release = lone.claims(1.7).unwrap();
    assert_eq!((release.holder.as_ref(), release.version), (None, 9));
    assert_eq!(lone.acts(1.7), []);
    lone.answers(&release, 1.8);
    assert_eq!(lone.acts(1.8), [Action::DeleteHeartbeat("me".into(), 8), Action::Left]);
}

/// The answer to its claim was lost, and the watch shows that it was written.
#[test]
fn a_replica_that_leaves_releases_a_shard_that_it_does_not_run_yet() {
    let mut lone = Lone::new();
    lone.beats(0.0);
    let claim = lone.claims(0.0).unwrap();
    assert!(lone.beat(2.0).is_some());
    lone.coordinator.claim_written(&claim, Written::Failed, at(10.2));
    lone.coordinator.claim_seen(Claim { version: 5, ..claim });
    lone.coordinator.heartbeat_written(Written::Failed, false, at(10.2));
    lone.coordinator.leave();
    assert!(lone.beat(10.3).is_some_and(|beat| beat.leaving));
    lone.coordinator.heartbeat_written(Written::Failed, true, at(10.4));
    assert_eq!(lone.acts(10.5), [], "it may not write now, and has not lost the shard");
    assert!(lone.beat(10.9).is_some());
    lone.coordinator.heartbeat_written(Written::As(6), true, at(11.0));
    let release = lone.claims(11.0).unwrap();
    assert_eq!((release.holder.as_ref(), release.version), (None, 5));
    lone.coordinator.claim_written(&release, Written::As(7), at(11.1));
    assert_eq!(lone.acts(11.1), [Action::DeleteHeartbeat("me".into(), 6), Action::Left]);
}

/// A quota of Leases may refuse claims while heartbeats are renewed.
#[test]
fn claims_that_are_refused_are_written_again_after_pauses_that_grow() {
    let mut lone = Lone::new();
    let mut written = Vec::new();
    for half_second in 0..240 {
        let second = f64::from(half_second) / 2.0;
        for action in lone.acts(second) {
            match action {
                Action::WriteHeartbeat(_) => lone.beaten(second),
                Action::WriteClaim(claim) => {
                    written.push(second);
                    lone.coordinator.claim_written(&claim, Written::Failed, at(second));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let pauses: Vec<_> = written.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
    let claim = lone.claims(122.0).unwrap();
    lone.answers(&claim, 122.0);
    assert_eq!(lone.acts(122.0), [Action::Start(SHARD, 1)]);
}

/// The operator's role may lack the right to delete.
#[test]
fn heartbeats_that_cannot_be_deleted_are_left_for_longer_each_time() {
    let mut lone = Lone::owner();
    let holder = Holder { identity: "zz".into(), session: "s".into() };
    let dead =
        Heartbeat { holder, version: 1, lease_duration: TIMES.lease_duration, leaving: false, loads: None };
    lone.coordinator.heartbeat_seen(dead, at(0.0));
    let mut deleted = Vec::new();
    for second in 0..300 {
        for action in lone.acts(f64::from(second)) {
            match action {
                Action::WriteHeartbeat(_) => lone.beaten(f64::from(second)),
                Action::DeleteHeartbeat(..) => deleted.push(second),
                _ => {}
            }
        }
    }
    let pauses: Vec<_> = deleted.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
}

/// The name has no other claim, but another process may have the name by now.
#[test]
fn a_replica_that_leaves_without_lease_deletes_no_heartbeat() {
    let mut lone = Lone::owner();
    lone.coordinator.leave();
    assert!(lone.beat(1.0).is_some());
    let lost = lone.acts(12.5);
    assert_eq!(lost, [Action::Drop(SHARD)]);
    lone.coordinator.dropped(SHARD);
    lone.coordinator.heartbeat_written(Written::Failed, true, at(12.6));
    assert_eq!(lone.acts(12.6), [Action::Left]);
}

#[test]
fn what_cannot_be_read_is_written_over() {
    let mut lone = Lone::new();
    lone.coordinator.heartbeat_unreadable(70);
    lone.coordinator.claim_unreadable(SHARD, 80, 5, at(0.0));
    lone.version = 80;
    assert_eq!(lone.beats(0.0).version, 70);
    for second in [2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0] {
        assert_eq!(lone.beats(second).holder, lone.coordinator.holder());
    }
    assert_eq!(lone.claims(14.9), None, "its owner may be alive");
    let claim = lone.claims(15.0).unwrap();
    assert_eq!((claim.version, claim.epoch), (80, 6));
}

#[test]
fn a_shard_that_fails_is_handed_over_if_it_still_runs_in_that_epoch() {
    let mut lone = Lone::owner();
    assert!(!lone.coordinator.failed(SHARD, 2, at(1.0)), "another epoch");
    assert!(!lone.coordinator.failed(ShardId(7), 1, at(1.0)), "no such shard");
    assert_eq!((lone.state(), lone.acts(1.0)), (ShardState::Active, vec![]));
    assert!(lone.coordinator.failed(SHARD, 1, at(1.0)));
    assert_eq!((lone.state(), lone.acts(1.0)), (ShardState::Draining, vec![Action::Drain(SHARD)]));
    assert!(!lone.coordinator.failed(SHARD, 1, at(1.0)), "it is handed over already");
}

/// If its claim is deleted by hand, the report is the only sign of its ownership.
#[test]
fn a_replica_reports_all_shards_that_it_owns() {
    let mut lone = Lone::owner();
    assert_eq!(lone.beats(2.0).loads.unwrap().of(SHARD), 7, "it is alone");
    assert!(lone.coordinator.failed(SHARD, 1, at(3.0)));
    assert_eq!(lone.beats(4.0).loads.unwrap().of(SHARD), 7, "it is being handed over");
}
