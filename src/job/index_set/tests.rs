#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[test]
fn text_lists_ranges_and_is_read_back() {
    for (indexes, text) in [
        (vec![], ""),
        (vec![3], "3"),
        (vec![1, 2], "1,2"),
        (vec![1, 2, 3], "1-3"),
        (vec![0, 2, 3, 4, 7, 8], "0,2-4,7,8"),
    ] {
        let set: IndexSet = indexes.iter().copied().collect();
        assert_eq!(set.to_string(), text);
        assert_eq!(IndexSet::parse_lenient(text, 100), set);
    }
}

#[test]
fn lenient_parsing_skips_malformed_parts_and_indexes_out_of_range() {
    for (text, end, expected) in [
        ("0,x,2", 10, "0,2"),
        ("3-1,4", 10, "4"),
        ("1-20", 4, "1-3"),
        ("1,2,3", 10, "1-3"),
        ("5,6", 5, ""),
        ("-1,2", 10, "2"),
        ("", 0, ""),
    ] {
        assert_eq!(IndexSet::parse_lenient(text, end).to_string(), expected, "{text}");
    }
}

#[test]
fn ranges_that_overlap_or_touch_are_one() {
    for (text, end, expected) in [
        ("2-5,3-9", 20, "2-9"),
        ("5-9,3-6", 20, "3-9"),
        ("0-8,2-3", 20, "0-8"),
        ("4-5,0-1,2-3", 20, "0-5"),
        ("7-9,0,8-12", 20, "0,7-12"),
        ("0,0-3", 0, ""),
    ] {
        let set = IndexSet::parse_lenient(text, end);
        assert_eq!((set.to_string(), set.len() as usize), (expected.into(), set.iter().count()), "{text}");
    }
}

#[test]
fn what_a_set_keeps_whole_shares_its_intervals() {
    let set = IndexSet::parse_lenient("0,2,4", 10);
    for (other, shared) in [("", true), ("1,3,9", true), ("4", false), ("0-9", false)] {
        let left = set.difference(&IndexSet::parse_lenient(other, 10));
        assert_eq!(Arc::ptr_eq(&left.intervals, &set.intervals), shared, "{other}");
    }
}

#[test]
fn strict_parsing_refuses_malformed_text() {
    assert_eq!(IndexSet::parse_strict("0,2-4").map(|s| s.len()), Some(4));
    assert_eq!(IndexSet::parse_strict("0,x"), None);
    assert_eq!(IndexSet::parse_strict(""), None);
}

#[test]
fn the_number_of_indexes_fits_its_type() {
    assert_eq!(IndexSet::parse_strict("0-4294967295"), None);
    let all = IndexSet::parse_strict("0-4294967294").unwrap();
    assert_eq!((all.len(), all.gaps().count()), (u32::MAX, 0));
    assert_eq!(IndexSet::parse_lenient("0-4294967295,7", 9), IndexSet::from_iter([7]));
    let mut set = IndexSet::below(MAX_INDEX);
    assert!(set.insert(MAX_INDEX), "the highest");
    assert_eq!(set, IndexSet::below(u32::MAX));
    assert!(!set.insert(u32::MAX));
    assert_eq!(set.overlap(&all), u32::MAX);
}

#[derive(Clone, Debug)]
enum Change {
    Insert(u32),
    Remove(u32),
    Truncate(u32),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (0u32..60).prop_map(Change::Insert),
        3 => (0u32..60).prop_map(Change::Remove),
        1 => (0u32..60).prop_map(Change::Truncate),
    ]
}

proptest! {
    #[test]
    fn behaves_as_a_set_of_integers(changes in prop::collection::vec(change(), 0..80), other in prop::collection::btree_set(0u32..60, 0..30)) {
        let (mut set, mut model) = (IndexSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Insert(i) => prop_assert_eq!(set.insert(i), model.insert(i)),
                Change::Remove(i) => prop_assert_eq!(set.remove(i), model.remove(&i)),
                Change::Truncate(end) => { set.truncate(end); model.retain(|i| *i < end); }
            }
            prop_assert_eq!(set.len() as usize, model.len());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(IndexSet::parse_lenient(&set.to_string(), 60), set.clone());
        }
        let gaps: Vec<u32> = set.gaps().take_while(|i| *i < 60).collect();
        prop_assert_eq!(gaps, (0..60).filter(|i| !model.contains(i)).collect::<Vec<_>>());
        let other_set: IndexSet = other.iter().copied().collect();
        prop_assert_eq!(set.overlap(&other_set) as usize, model.intersection(&other).count());
        let both = set.intersection(&other_set);
        prop_assert_eq!(both.iter().collect::<Vec<_>>(), model.intersection(&other).copied().collect::<Vec<_>>());
        prop_assert_eq!(both, other_set.intersection(&set));
        let (mut joined, mut left) = (set.clone(), set.clone());
        joined.insert_all(&other_set);
        left.remove_all(&other_set);
        prop_assert_eq!(joined, model.union(&other).copied().collect::<IndexSet>());
        prop_assert_eq!(&left, &set.difference(&other_set));
        prop_assert_eq!(left.len() as usize, left.iter().count());
        prop_assert_eq!(set.difference(&other_set).iter().collect::<Vec<_>>(), model.difference(&other).copied().collect::<Vec<_>>());
    }
}
