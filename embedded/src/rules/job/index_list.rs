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
    for interval in intervals(text, completions) {
        let interval = interval?;
        if let Some(previous) = ranges.last().filter(|range| range.end() >= interval.start()) {
            return Err(not_increasing(*previous.end(), *interval.start()));
        }
        ranges.push(interval);
    }
    Ok(ranges)
}

/// The intervals of a list, each parsed by itself.
fn intervals(text: &str, completions: i64) -> impl Iterator<Item = Result<RangeInclusive<i64>, String>> {
    text.split(',').filter(|_| !text.is_empty()).map(move |interval| parse_interval(interval, completions))
}

fn parse_interval(text: &str, completions: i64) -> Result<RangeInclusive<i64>, String> {
    let (first, last) = match text.split('-').collect::<Vec<&str>>()[..] {
        [only] => (index(only, completions)?, None),
        [first, last] => (index(first, completions)?, Some(index(last, completions)?)),
        _ => {
            return Err(format!(
                "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
                quoted(text)
            ));
        }
    };
    match last {
        Some(last) if last <= first => Err(not_increasing(first, last)),
        last => Ok(first..=last.unwrap_or(first)),
    }
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

/// The first index that two lists share. Malformed intervals are skipped: [`parse`] reports them.
pub(super) fn first_overlap(a: &str, b: &str, completions: i64) -> Option<i64> {
    let [a, b] = [a, b].map(|text| intervals(text, completions).flatten().collect::<Vec<_>>());
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
        let overlap = |a, b| first_overlap(a, b, 100);
        assert_eq!(overlap("0,2", "1-2"), Some(2));
        assert_eq!(overlap("5-9", "0-3,7"), Some(7));
        assert_eq!(overlap("0-3", "4-9"), None);
        assert_eq!(overlap("x,100,3", "3"), Some(3), "intervals that are malformed overlap with nothing");
    }
}
