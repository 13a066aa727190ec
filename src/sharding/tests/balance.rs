//! How replicas come to change shards because of work, step by step. Times are in seconds since the story
//! began.

use super::story::{Net, Story, Who};
use crate::sharding::hash::ShardId;
use crate::sharding::lease::{Balance, Move};

const NOTHING: [&str; 0] = [];

/// Two replicas with two of four shards each since 0.0, "a" 1 and 2, "b" 0 and 3.
fn two_by_two() -> (Story, Who, Who) {
    let mut story = Story::new(4);
    let (a, b) = (story.joins("a"), story.joins("b"));
    story.run(&[a, b], 0.0);
    story.drained(a);
    story.run(&[a, b], 0.0);
    assert_eq!(story.owners(), "b a a b");
    (story, a, b)
}

/// What is said at 18.0 once "b" has got much more to do than "a": two seconds before there was still more
/// coming.
const SAID: &str = "18.0 a balances 0@2 to a 1@1 to b";
const UNEVEN: [u32; 4] = [900, 0, 100, 900];

#[test]
fn shards_change_places_when_work_is_spread_unevenly() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    assert_eq!(story.run(&[a, b], 20.0), [SAID, "18.0 a drains 1", "18.0 b drains 0"]);
    story.drained(a);
    story.drained(b);
    let handed_over = [
        "20.0 a releases 1",
        "20.0 b releases 0",
        "20.0 b claims 1@2",
        "20.0 a claims 0@3",
        "20.0 a starts 0@3",
        "20.0 b starts 1@2",
    ];
    assert_eq!(story.run(&[a, b], 10.0), handed_over);
    assert_eq!(story.owners(), "a b a b");
    assert_eq!(story.run(&[a, b], 600.0), NOTHING, "it is even now");
}

#[test]
fn nothing_changes_places_for_little_work_or_a_little_more() {
    for loads in [[0, 0, 0, 0], [90, 10, 10, 90], [5_000, 5_000, 5_000, 5_200], [9_000, 0, 0, 0]] {
        let (mut story, a, b) = two_by_two();
        story.loads(&loads);
        assert_eq!(story.run(&[a, b], 600.0), NOTHING, "{loads:?}");
    }
}

#[test]
fn while_one_is_of_a_version_that_tells_no_loads_nothing_changes_places() {
    let (mut story, a, b) = two_by_two();
    story.old(b);
    story.loads(&UNEVEN);
    assert_eq!(story.run(&[a, b], 600.0), NOTHING);
}

#[test]
fn a_replica_that_has_just_come_first_gets_its_share_and_a_lease_of_peace() {
    let (mut story, a, b) = two_by_two();
    story.loads(&[500, 900, 900, 0]);
    story.run(&[a, b], 14.0);
    let c = story.joins("c");
    assert_eq!(story.run(&[a, b, c], 1.0), ["14.0 b drains 3"], "one share");
    story.drained(b);
    let handed_over = ["15.0 b releases 3", "15.0 c claims 3@3", "15.0 c starts 3@3"];
    assert_eq!(story.run(&[a, b, c], 15.0), handed_over);
    let told = story.run(&[a, b, c], 4.0);
    assert_eq!(told, ["32.0 a balances 1@1 to c 3@3 to a", "32.0 a drains 1", "32.0 c drains 3"]);
}

#[test]
fn a_replica_that_is_silent_or_still_has_to_say_what_it_has_holds_everything_up() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 12.0);
    story.net(b, Net::Down);
    assert_eq!(story.run(&[a, b], 8.0), NOTHING, "it may be about to die");
    story.net(b, Net::Works);
    assert_eq!(
        story.run(&[a, b], 3.0).first().map(String::as_str),
        Some("22.0 a balances 0@2 to a 1@1 to b")
    );
}

#[test]
fn while_much_work_comes_nobody_judges_how_it_falls() {
    let (mut story, a, b) = two_by_two();
    for jobs in 1..20 {
        story.loads(&UNEVEN.map(|load| load * jobs));
        let growth = if jobs > 10 { "less than a tenth" } else { "much" };
        let told = story.run(&[a, b], 2.0);
        assert_eq!(told.is_empty(), jobs <= 11, "{growth} has come at {jobs}: {told:?}");
        if !told.is_empty() {
            return;
        }
    }
}

/// A balance of these moves.
fn balance(version: u64, moves: &[(u32, u64, &str)]) -> Balance {
    let moves =
        moves.iter().map(|(shard, epoch, to)| (ShardId(*shard), Move { to: (*to).into(), epoch: *epoch }));
    Balance { version, moves: moves.collect() }
}

#[test]
fn what_is_said_of_an_earlier_claim_or_of_the_dead_is_void() {
    let (mut story, a, b) = two_by_two();
    story.store.write_balance(&balance(0, &[(0, 1, "a"), (1, 7, "b"), (2, 1, "nobody")]));
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
}

#[test]
fn whatever_is_said_shares_stay_even() {
    let (mut story, a, b) = two_by_two();
    let all = [(0, 2, "a"), (1, 1, "a"), (2, 1, "a"), (3, 2, "a")];
    story.store.write_balance(&balance(0, &all));
    for _ in 0..10 {
        story.run(&[a, b], 1.0);
        story.drained(a);
        story.drained(b);
    }
    assert_eq!(story.run(&[a, b], 60.0), NOTHING, "it settles");
    assert_eq!(story.owners().matches('a').count(), 2);
}

#[test]
fn of_two_that_say_different_things_one_is_heard() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 17.0);
    story.net(a, Net::Holds);
    assert_eq!(story.run(&[a, b], 1.0), [SAID]);
    story.store.write_balance(&balance(0, &[]));
    story.arrive(a, true);
    story.net(a, Net::Works);
    assert_eq!(story.run(&[a, b], 14.0), NOTHING);
    let told = story.run(&[a, b], 4.0);
    assert!(told[0].ends_with("a balances 0@2 to a 1@1 to b"), "it looks again after a lease: {told:?}");
}

#[test]
fn a_lost_reply_to_what_is_said_does_no_harm() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 17.0);
    story.net(a, Net::LosesReplies);
    assert_eq!(story.run(&[a, b], 2.0), [SAID, "18.0 a drains 1", "18.0 b drains 0"]);
}
