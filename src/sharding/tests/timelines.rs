//! Ownership of shards, step by step. Times are in seconds since the start of the story.
#![allow(clippy::unwrap_used)]

use super::story::{Net, Story};
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Claim, Holder};

const NOTHING: [&str; 0] = [];

#[test]
fn the_first_replica_claims_all_shards() {
    let mut story = Story::new(2);
    let a = story.joins("a");
    assert_eq!(
        story.run(&[a], 60.0),
        ["0.0 a claims 0@1", "0.0 a claims 1@1", "0.0 a starts 0@1", "0.0 a starts 1@1"]
    );
    assert_eq!(story.states(a), "active active");
}

#[test]
fn a_replica_does_nothing_before_it_has_listed_the_leases() {
    let mut story = Story::new(2);
    let a = story.starts("a");
    assert_eq!(story.run(&[a], 60.0), NOTHING);
    assert_eq!(story.store.counts().beats, 0);
    story.of(a).leave();
    assert_eq!(story.run(&[a], 60.0), ["60.0 a left"]);
}

#[test]
fn the_second_replica_gets_half_by_drain_release_and_claim() {
    let mut story = Story::new(2);
    let a = story.joins("a");
    story.run(&[a], 1.0);
    let b = story.joins("b");
    assert_eq!(story.run(&[a, b], 3.0), ["1.0 a drains 0"]);
    assert_eq!(story.states(a), "draining active", "requests are still under way");
    story.drained(a);
    assert_eq!(story.run(&[a, b], 60.0), ["4.0 a releases 0", "4.0 b claims 0@2", "4.0 b starts 0@2"]);
    assert_eq!((story.states(a), story.states(b)), ("free active".into(), "active free".into()));
}

#[test]
fn a_leaving_replica_hands_over_its_shards_and_deletes_its_heartbeat() {
    let (mut story, a, b) = Story::pair();
    story.of(a).leave();
    assert_eq!(story.run(&[a, b], 1.0), ["2.0 a beats, leaving", "2.0 a drains 1"]);
    story.drained(a);
    let handed_over =
        ["3.0 a releases 1", "3.0 a deletes a", "3.0 a left", "3.0 b claims 1@2", "3.0 b starts 1@2"];
    assert_eq!(story.run(&[a, b], 60.0), handed_over);
    assert!(story.store.beat("a").is_none());
}

#[test]
fn a_leaving_replica_stays_alive_until_its_shards_are_drained() {
    let (mut story, a, b) = Story::pair();
    story.of(a).leave();
    assert_eq!(story.run(&[a, b], 1.0), ["2.0 a beats, leaving", "2.0 a drains 1"]);
    assert!(story.run(&[a, b], 120.0).iter().all(|step| step.ends_with("a beats, leaving")));
    assert_eq!(story.owners(), "b a");
    assert!(story.acts(a));
}

#[test]
fn a_dead_replica_is_replaced_once_it_has_been_silent_for_a_lease_duration() {
    let (mut story, _, b) = Story::pair();
    // Its last heartbeat was seen at 0.0.
    assert_eq!(story.run(&[b], 13.0), ["15.0 b reads a", "15.0 b claims 1@2", "15.0 b starts 1@2"]);
    assert_eq!(story.run(&[b], 60.0), ["18.0 b deletes a"], "its heartbeat is deleted last");
}

#[test]
fn a_watch_that_is_behind_does_not_make_a_replica_look_dead() {
    let (mut story, a, b) = Story::pair();
    story.deaf(b, true);
    assert_eq!(story.run(&[a, b], 12.9), NOTHING);
    story.of(a).leave();
    story.net(a, Net::Down);
    // A live read shows that it is alive, and its timeout starts again.
    assert_eq!(story.run(&[b], 0.1), ["15.0 b reads a"]);
    assert_eq!(story.run(&[b], 14.9), NOTHING);
    assert_eq!(story.run(&[b], 0.1), ["30.0 b reads a", "30.0 b claims 1@2", "30.0 b starts 1@2"]);
    assert!(!story.acts(a));
}

#[test]
fn a_read_that_was_sent_too_early_proves_nothing() {
    let (mut story, a, b) = Story::pair();
    story.run(&[b], 12.9);
    story.net(b, Net::Holds);
    assert_eq!(story.run(&[b], 0.1), ["15.0 b reads a"]);
    // The owner renews before the read arrives. The watch shows that before the answer to the read, and then
    // nothing more.
    story.run(&[a], 0.0);
    story.listen(b);
    story.deaf(b, true);
    story.arrive(b, true);
    story.net(b, Net::Works);
    story.run(&[a, b], 14.9);
    story.run(&[a], 0.0);
    assert_eq!(story.run(&[b], 0.2), ["30.0 b reads a"], "the read shows that it is alive");
    assert_eq!(story.owners(), "b a");
}

#[test]
fn a_new_session_that_the_watch_has_not_shown_is_not_dead() {
    let (mut story, a, b) = Story::pair();
    story.run(&[b], 12.9);
    story.net(b, Net::Holds);
    story.deaf(b, true);
    assert_eq!(story.run(&[b], 0.1), ["15.0 b reads a"]);
    story.arrive(b, true);
    // "a" is dead, but before the claim of "b" arrives, it goes on in a new session.
    assert_eq!(story.run(&[b], 0.0), ["15.0 b claims 1@2"]);
    assert_eq!(story.run(&[a], 0.0), ["15.0 a drops 1", "15.0 a claims 1@2", "15.0 a starts 1@2"]);
    story.arrive(b, true);
    story.net(b, Net::Works);
    assert_eq!(story.run(&[b], 0.0), ["15.0 b reads a"], "the known heartbeat is out of date");
    assert_eq!(
        story.run(&[a, b], 60.0),
        ["30.0 b reads a", "45.0 b reads a", "60.0 b reads a", "75.0 b reads a"]
    );
    assert_eq!(story.owners(), "b a");
}

#[test]
fn a_holder_without_heartbeat_is_dead_after_a_lease_duration() {
    let mut story = Story::new(1);
    let holder = Holder { identity: "x".into(), session: "unknown".into() };
    story
        .store
        .write_claim(&Claim { shard: ShardId(0), version: 0, holder: Some(holder), epoch: 7 })
        .unwrap();
    let a = story.joins("a");
    assert_eq!(story.run(&[a], 14.9), NOTHING);
    assert_eq!(story.run(&[a], 0.1), ["15.0 a reads x", "15.0 a claims 0@8", "15.0 a starts 0@8"]);
}

#[test]
fn a_live_read_that_fails_proves_nothing() {
    let (mut story, _, b) = Story::pair();
    story.run(&[b], 12.9);
    story.net(b, Net::Holds);
    assert_eq!(story.run(&[b], 0.1), ["15.0 b reads a"]);
    story.arrive(b, false);
    story.net(b, Net::Works);
    assert_eq!(story.run(&[b], 0.4), NOTHING, "it pauses after a failure");
    assert_eq!(story.run(&[b], 0.1), ["15.5 b reads a", "15.5 b claims 1@2", "15.5 b starts 1@2"]);
}

#[test]
fn a_renewal_that_is_acknowledged_late_counts_from_when_it_was_sent() {
    let (mut story, a, _) = Story::pair();
    story.net(a, Net::Holds);
    story.run(&[a], 0.0);
    story.pass(9.0);
    assert!(!story.acts(a), "eleven seconds after the last heartbeat");
    story.arrive(a, true);
    assert!(story.acts(a), "nine seconds after this one");
    story.pass(1.0);
    assert!(!story.acts(a));
    assert_eq!(story.states(a), "free active", "it is not lost yet");
}

#[test]
fn a_late_renewal_does_not_restore_what_was_lost() {
    let (mut story, a, _) = Story::pair();
    story.net(a, Net::Down);
    story.run(&[a], 7.9);
    // This heartbeat is sent soon after 9.9, and arrives 12.5 seconds after the last one that was
    // acknowledged.
    story.net(a, Net::Holds);
    assert_eq!(story.run(&[a], 2.5), NOTHING);
    assert_eq!(story.run(&[a], 0.1), ["12.5 a drops 1"]);
    story.arrive(a, true);
    assert!(!story.acts(a), "the heartbeat was of an earlier session");
    story.net(a, Net::Works);
    // In its new session it claims the shard that is still in its name: no other replica has claimed it.
    assert_eq!(story.run(&[a], 0.0), ["12.5 a claims 1@2", "12.5 a starts 1@2"]);
}

#[test]
fn a_stopped_process_owns_nothing_when_it_continues() {
    let (mut story, a, b) = Story::pair();
    story.run(&[b], 20.0);
    assert!(!story.acts(a));
    assert_eq!(story.run(&[a], 0.0), ["22.0 a drops 1"]);
    assert_eq!(story.owners(), "b b");
    story.run(&[a, b], 1.0);
    story.drained(b);
    story.run(&[a, b], 1.0);
    assert_eq!(story.owners(), "b a", "it gets a share again");
}

#[test]
fn a_lost_reply_to_a_heartbeat_does_no_harm() {
    let (mut story, a, b) = Story::pair();
    story.net(a, Net::LosesReplies);
    assert_eq!(story.run(&[a, b], 7.9), NOTHING);
    story.net(a, Net::Works);
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
    assert!(story.acts(a));
}

#[test]
fn a_shard_whose_claim_was_not_acknowledged_starts_only_after_the_next_claim() {
    let mut story = Story::new(1);
    let a = story.joins("a");
    story.net(a, Net::Holds);
    story.run(&[a], 0.0);
    story.arrive(a, true);
    story.run(&[a], 0.0);
    story.arrive(a, false);
    story.net(a, Net::Works);
    assert_eq!(story.owners(), "a");
    assert_eq!(story.run(&[a], 0.4), NOTHING, "it pauses after a failure");
    assert_eq!(story.run(&[a], 0.1), ["0.5 a claims 0@2", "0.5 a starts 0@2"]);
}

#[test]
fn a_lost_reply_to_a_release_does_not_end_the_claim_of_the_next_owner() {
    let (mut story, a, b) = Story::pair();
    story.of(a).leave();
    story.run(&[a, b], 0.0);
    story.drained(a);
    story.net(a, Net::LosesReplies);
    story.deaf(a, true);
    assert_eq!(story.run(&[a, b], 0.4), ["2.0 a releases 1", "2.0 b claims 1@2", "2.0 b starts 1@2"]);
    story.net(a, Net::Works);
    story.deaf(a, false);
    let steps = story.run(&[a, b], 60.0);
    assert_eq!(steps, ["2.4 a drops 1", "2.4 a deletes a", "2.4 a left"], "it does not overwrite that claim");
    assert_eq!((story.owners(), story.states(b)), ("b b".into(), "active active".into()));
}

#[test]
fn a_release_that_fails_is_written_again() {
    let (mut story, a, b) = Story::pair();
    story.of(a).leave();
    story.run(&[a, b], 0.0);
    story.drained(a);
    story.net(a, Net::Down);
    assert_eq!(story.run(&[a, b], 0.4), ["2.0 a releases 1"]);
    story.net(a, Net::Works);
    assert_eq!(
        story.run(&[a, b], 0.1),
        ["2.5 a releases 1", "2.5 a deletes a", "2.5 a left", "2.5 b claims 1@2", "2.5 b starts 1@2"]
    );
}

#[test]
fn one_of_two_concurrent_claims_wins() {
    let mut story = Story::new(1);
    let (a, b) = (story.joins("a"), story.joins("b"));
    story.deaf(a, true);
    story.deaf(b, true);
    story.run(&[a], 0.0);
    assert_eq!(story.run(&[b], 0.0), ["0.0 b claims 0@1"]);
    assert_eq!(story.owners(), "a");
    assert_eq!((story.states(a), story.states(b)), ("active".into(), "free".into()));
}

#[test]
fn a_shard_whose_claim_was_deleted_by_hand_is_dropped_and_not_claimed_for_a_lease_duration() {
    let (mut story, a, b) = Story::pair();
    story.store.delete_claim(ShardId(1));
    assert_eq!(story.run(&[a, b], 14.9), ["2.0 a drops 1"]);
    assert_eq!(story.run(&[a, b], 0.1), ["17.0 a claims 1@2", "17.0 a starts 1@2"]);
}

/// A user adds a label, for example.
#[test]
fn a_claim_that_was_touched_by_hand_is_kept_and_one_that_was_released_by_hand_is_dropped() {
    let (mut story, a, b) = Story::pair();
    let held = story.store.claim(ShardId(1)).unwrap().clone();
    story.store.write_claim_by_hand(&held);
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
    assert_eq!(story.owners(), "b a");
    story.store.write_claim_by_hand(&Claim { holder: None, ..held });
    assert_eq!(story.run(&[a, b], 0.0), ["62.0 a drops 1", "62.0 a claims 1@2", "62.0 a starts 1@2"]);
}

#[test]
fn a_heartbeat_deleted_by_hand_is_written_again_at_once() {
    let (mut story, a, b) = Story::pair();
    story.run(&[a, b], 0.5);
    let before = story.store.counts().beats;
    story.store.delete_beat(&"a".into(), None);
    assert_eq!(story.run(&[a, b], 0.0), NOTHING);
    assert_eq!(story.store.counts().beats, before + 1, "the other has lost nothing");
    assert!(story.store.beat("a").is_some());
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
}

#[test]
fn a_restart_under_the_same_name_waits_for_the_old_process_to_be_dead() {
    let (mut story, _, b) = Story::pair();
    let again = story.joins("a");
    // Replica "b" has been waiting for longer.
    assert_eq!(story.run(&[again, b], 14.9), ["15.0 b reads a", "15.0 b claims 1@2", "15.0 b starts 1@2"]);
    assert_eq!(story.run(&[again, b], 0.1), ["17.0 a reads a", "17.0 b drains 1"]);
}

#[test]
fn a_stopped_process_whose_name_was_taken_claims_nothing_when_it_continues() {
    let (mut story, a, b) = Story::pair();
    let again = story.joins("a");
    story.run(&[again, b], 16.0);
    story.drained(b);
    story.run(&[again, b], 1.0);
    assert_eq!((story.owners().as_str(), story.states(again).as_str()), ("b a", "free active"));
    assert_eq!(story.run(&[a], 0.0), ["19.0 a drops 1"]);
    assert_eq!(story.run(&[a, again, b], 60.0), NOTHING);
    assert!(!story.acts(a) && story.acts(again));
}

#[test]
fn two_processes_of_the_same_name_never_both_act() {
    let (mut story, a, b) = Story::pair();
    let twin = story.joins("a");
    assert_eq!(story.run(&[a, b, twin], 60.0), NOTHING);
    assert!(story.acts(a) && !story.acts(twin));
}

#[test]
fn a_leaving_replica_without_api_server_ends_when_its_lease_has_expired() {
    let (mut story, a, _) = Story::pair();
    story.net(a, Net::Down);
    story.of(a).leave();
    let steps = story.run(&[a], 60.0);
    assert_eq!(steps.last().unwrap(), "12.5 a left");
    assert!(steps.contains(&"12.5 a drops 1".to_owned()));
}

#[test]
fn failed_requests_are_repeated_after_a_pause() {
    let (mut story, a, b) = Story::pair();
    story.net(b, Net::Down);
    // Heartbeats and live reads are repeated twice a second; the story itself checks that there is no hot
    // loop.
    let before = story.store.counts();
    story.run(&[b], 8.0);
    assert_eq!(story.store.counts(), before);
    story.net(b, Net::Works);
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
}

/// Readiness shows whether the shards of a replica have its attention: not while it takes one over.
#[test]
fn a_replica_is_ready_once_it_has_taken_over_its_shards() {
    let (mut story, a, b) = Story::pair();
    assert!(story.is_ready(a) && story.is_ready(b));
    let c = story.joins("c");
    assert!(!story.is_ready(c));
    story.run(&[a, b, c], 60.0);
    assert!(story.is_ready(c));
    story.net(c, Net::Down);
    story.run(&[c], 60.0);
    assert!(!story.is_ready(c));
}
