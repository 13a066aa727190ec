//! Statuses that name 2^31 indexes in a dozen bytes, as anybody with the right to write statuses may write them.

use super::*;
use crate::job::tests::fixture::{at_index, ended};

pub(super) fn write(status: &mut JobStatus, completed: &str, failed: &str) {
    status.completed_indexes = IndexSet::parse_lenient(completed, u32::MAX);
    status.failed_indexes = Some(IndexSet::parse_lenient(failed, u32::MAX));
}

const ALL: u32 = i32::MAX as u32;

/// A step for each index would take minutes.
#[test]
fn a_set_follows_a_status_that_names_all_indexes() {
    let mut job = job(Completion::Indexed(ALL), 1);
    let mut set = set_of(&job, [at_index("a", 5, 0), at_index("b", 9, 0)]);
    set.create_sent(Place { number: 7, attempt: 0 });
    for (completed, failed, numbers) in [
        ("0-2147483646", "", [ALL, 0, 0]),
        ("", "", [0, 0, ALL - 3]),
        ("", "0-2147483646", [0, ALL, 0]),
        ("0-2147483646", "0-99", [ALL - 100, 100, 0]),
        ("0-8,10-2147483646", "", [ALL - 1, 0, 0]),
        ("0-4,6-99", "100-2147483645", [99, ALL - 101, 1]),
    ] {
        write(&mut job.status, completed, failed);
        set.follow(&job);
        let known = [set.succeeded_indexes(), set.failed_indexes(), &set.free].map(IndexSet::len);
        assert_eq!(known, numbers, "{completed} {failed}");
        assert_eq!(Answers::of(&set), Answers::of(&rebuilt(&set, &job)), "{completed} {failed}");
    }
}

#[test]
fn places_without_pods_are_not_refreshed_one_by_one() {
    let per_index = PerIndexLimit { backoff_limit: 3, max_failed_indexes: None };
    let job = with(job(Completion::Indexed(ALL), 1), |spec| spec.per_index = Some(per_index));
    let failed = ended(at_index("held", 2, 0), Phase::Failed, 5);
    let mut set = set_of(&job, [at_index("a", 5, 0), at_index("b", 9, 0), failed]);
    set.create_sent(Place { number: 7, attempt: 0 });
    for (indexes, refreshed) in [
        (IndexSet::below(ALL), vec![2, 5, 7, 9]),
        (IndexSet::parse_lenient("6-2147483646", ALL), vec![7, 9]),
        (IndexSet::parse_lenient("10-2147483646", ALL), vec![]),
        (IndexSet::parse_lenient("4,5", ALL), vec![4, 5]),
    ] {
        assert_eq!(set.places_to_refresh(&indexes), refreshed, "{indexes}");
    }
}
