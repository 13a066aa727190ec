//! Lists of completion indexes as text, such as `1,3-5`.

use std::ops::RangeInclusive;

use super::super::go_value::quoted;

/// Parses a list of indexes below `completions` into ascending, disjoint ranges.
///
/// Numbers have the syntax of Go's `strconv.Atoi`, so a plus sign and leading zeros are allowed.
///
/// # Errors
/// The reason why the text is no such list, in the words of Kubernetes.
pub(super) fn parse(text: &str, completions: i64) -> Result<Vec<RangeInclusive<i64>>, String> {
    let mut ranges: Vec<RangeInclusive<i64>> = Vec::new();
    if text.is_empty() {
        return Ok(ranges);
    }
    for fragment in text.split(',') {
        let parts: Vec<&str> = fragment.split('-').collect();
        let (first, last) = match parts[..] {
            [only] => (index(only, completions)?, None),
            [first, last] => (index(first, completions)?, Some(last)),
            _ => {
                return Err(format!(
                    "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                    quoted(fragment)
                ));
            }
        };
        if let Some(previous) = ranges.last().filter(|range| *range.end() >= first) {
            return Err(not_increasing(*previous.end(), first));
        }
        let last = match last {
            Some(text) => {
                let last = index(text, completions)?;
                if last <= first {
                    return Err(not_increasing(first, last));
                }
                last
            }
            None => first,
        };
        ranges.push(first..=last);
    }
    Ok(ranges)
}

fn not_increasing(previous: i64, current: i64) -> String {
    format!("non-increasing order, previous: {previous}, current: {current}")
}

fn index(text: &str, completions: i64) -> Result<i64, String> {
    let number: i64 =
        text.parse().map_err(|_| format!("cannot convert string to integer for index: {}", quoted(text)))?;
    if number < completions { Ok(number) } else { Err(format!("too large index: {}", quoted(text))) }
}

/// The number of indexes in the ranges.
pub(super) fn count(ranges: &[RangeInclusive<i64>]) -> i64 {
    ranges.iter().map(|range| range.end() - range.start() + 1).sum()
}

/// The lowest index in both lists.
pub(super) fn first_overlap(a: &[RangeInclusive<i64>], b: &[RangeInclusive<i64>]) -> Option<i64> {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let start = *x.start().max(y.start());
        if start <= *x.end().min(y.end()) {
            return Some(start);
        }
        if x.end() < y.end() { i += 1 } else { j += 1 }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn ranges_and_single_indexes() {
        assert_eq!(parse("", 3).unwrap(), []);
        assert_eq!(parse("0,2-4,+5,07", 8).unwrap(), [0..=0, 2..=4, 5..=5, 7..=7]);
        assert_eq!(count(&parse("0,2-4", 8).unwrap()), 4);
    }

    #[test]
    fn overlaps_are_found_in_any_order() {
        let list = |text| parse(text, 100).unwrap();
        assert_eq!(first_overlap(&list("0,2"), &list("1-2")), Some(2));
        assert_eq!(first_overlap(&list("5-9"), &list("0-3,7")), Some(7));
        assert_eq!(first_overlap(&list("0-3"), &list("4-9")), None);
    }
}
