//! Balancing of work between replicas, step by step. Times are in seconds since the start of the story.

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

/// The proposal at 18.0, after "b" has got much more work than "a". At 16.0 work was still growing.
const PROPOSAL: &str = "18.0 a balances 0@2 to a 1@1 to b";
const UNEVEN: [u32; 4] = [900, 0, 100, 900];

#[test]
fn shards_change_places_when_work_is_spread_unevenly() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    assert_eq!(story.run(&[a, b], 20.0), [PROPOSAL, "18.0 a drains 1", "18.0 b drains 0"]);
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
fn small_differences_of_work_move_no_shards() {
    for loads in [[0, 0, 0, 0], [90, 10, 10, 90], [5_000, 5_000, 5_000, 5_200], [9_000, 0, 0, 0]] {
        let (mut story, a, b) = two_by_two();
        story.loads(&loads);
        assert_eq!(story.run(&[a, b], 600.0), NOTHING, "{loads:?}");
    }
}

#[test]
fn no_shards_move_while_a_replica_is_of_a_version_that_reports_no_loads() {
    let (mut story, a, b) = two_by_two();
    story.old(b);
    story.loads(&UNEVEN);
    assert_eq!(story.run(&[a, b], 600.0), NOTHING);
}

#[test]
fn a_replica_that_joins_gets_its_share_first_and_nothing_is_swapped_for_a_lease_duration() {
    let (mut story, a, b) = two_by_two();
    story.loads(&[500, 900, 900, 0]);
    story.run(&[a, b], 14.0);
    let c = story.joins("c");
    assert_eq!(story.run(&[a, b, c], 1.0), ["14.0 b drains 3"], "one share");
    story.drained(b);
    let handed_over = ["15.0 b releases 3", "15.0 c claims 3@3", "15.0 c starts 3@3"];
    assert_eq!(story.run(&[a, b, c], 15.0), handed_over);
    let steps = story.run(&[a, b, c], 4.0);
    assert_eq!(steps, ["32.0 a balances 1@1 to c 3@3 to a", "32.0 a drains 1", "32.0 c drains 3"]);
}

/// A user fills and empties shards of both replicas in turns, to have the shards of others handed over
/// again and again.
#[test]
fn a_shard_changes_places_once_in_five_minutes() {
    let (mut story, a, b) = two_by_two();
    let mut claims = Vec::new();
    for second in (0..600_u32).step_by(2) {
        let even = story.owners();
        let owner = if second / 30 % 2 == 0 { 'a' } else { 'b' };
        let loads: Vec<u32> =
            even.split(' ').map(|held| if held.starts_with(owner) { 900 } else { 0 }).collect();
        story.loads(&[loads[0], loads[1], loads[2], loads[3]]);
        let steps = story.run(&[a, b], 2.0);
        claims.extend(steps.into_iter().filter(|step| step.contains(" claims ")));
        story.drained(a);
        story.drained(b);
    }
    for shard in 0..4 {
        let moved = claims.iter().filter(|step| step.contains(&format!(" claims {shard}@"))).count();
        assert!(moved <= 3, "shard {shard} is claimed {moved} times within ten minutes: {claims:?}");
    }
    assert!(!claims.is_empty());
}

/// The answer shows it its own proposal.
#[test]
fn a_replica_whose_watch_is_behind_hands_over_what_it_has_proposed() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 17.9);
    story.deaf(a, true);
    assert_eq!(story.run(&[a, b], 0.2), [PROPOSAL, "18.0 a drains 1", "18.0 b drains 0"]);
}

/// The replica that should hand a shard over has not seen yet the one that should get it.
#[test]
fn no_shards_change_places_while_one_belongs_elsewhere() {
    let (mut story, a, b) = two_by_two();
    story.loads(&[500, 900, 900, 0]);
    story.run(&[a, b], 14.0);
    story.deaf(b, true);
    let c = story.joins("c");
    let steps = story.run(&[a, b, c], 60.0);
    assert!(steps.iter().all(|step| step.ends_with(" b reads a")), "{steps:?}");
}

#[test]
fn no_shards_move_until_all_replicas_have_reported_their_loads_recently() {
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
fn no_shards_move_while_work_grows_by_more_than_a_tenth() {
    let (mut story, a, b) = two_by_two();
    for jobs in 1..20 {
        story.loads(&UNEVEN.map(|load| load * jobs));
        let growth = if jobs > 10 { "less than a tenth" } else { "much" };
        let steps = story.run(&[a, b], 2.0);
        assert_eq!(steps.is_empty(), jobs <= 11, "{growth} growth at {jobs}: {steps:?}");
        if !steps.is_empty() {
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
fn moves_of_an_earlier_claim_or_to_a_dead_replica_are_void() {
    let (mut story, a, b) = two_by_two();
    story.store.write_balance(&balance(0, &[(0, 1, "a"), (1, 7, "b"), (2, 1, "nobody")]));
    assert_eq!(story.run(&[a, b], 60.0), NOTHING);
}

#[test]
fn shares_stay_even_whatever_moves_are_written() {
    let (mut story, a, b) = two_by_two();
    let all = [(0, 2, "a"), (1, 1, "a"), (2, 1, "a"), (3, 2, "a")];
    story.store.write_balance(&balance(0, &all));
    for _ in 0..10 {
        story.run(&[a, b], 1.0);
        story.drained(a);
        story.drained(b);
    }
    assert_eq!(story.run(&[a, b], 60.0), NOTHING, "it is stable");
    assert_eq!(story.owners().matches('a').count(), 2);
}

#[test]
fn one_of_two_conflicting_proposals_wins() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 17.0);
    story.net(a, Net::Holds);
    assert_eq!(story.run(&[a, b], 1.0), [PROPOSAL]);
    story.store.write_balance(&balance(0, &[]));
    story.arrive(a, true);
    story.net(a, Net::Works);
    assert_eq!(story.run(&[a, b], 14.0), NOTHING);
    let steps = story.run(&[a, b], 4.0);
    assert!(
        steps[0].ends_with("a balances 0@2 to a 1@1 to b"),
        "it looks again after a lease duration: {steps:?}"
    );
}

#[test]
fn a_lost_reply_to_a_proposal_does_no_harm() {
    let (mut story, a, b) = two_by_two();
    story.loads(&UNEVEN);
    story.run(&[a, b], 17.0);
    story.net(a, Net::LosesReplies);
    assert_eq!(story.run(&[a, b], 2.0), [PROPOSAL, "18.0 a drains 1", "18.0 b drains 0"]);
}
