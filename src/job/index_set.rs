//! Sets of completion indexes, kept as intervals.
//!
//! Kubernetes writes them as text, such as `0,2-4,7,8` (`status.completedIndexes`, `status.failedIndexes`).
//! The order is ascending; three or more in a row form a range, two in a row are two numbers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The highest index. Kubernetes has none above `i32::MAX`; this one lets the number of indexes fit its type.
const MAX_INDEX: u32 = u32::MAX - 1;

/// A set of `u32` up to [`MAX_INDEX`] as disjoint, non-adjacent intervals. Lookup and change cost
/// O(log intervals); what takes another set passes over both once, or looks up each interval of one that is much smaller. Clones share their intervals until one of them changes: a status may have 200,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct IndexSet {
    /// First index of each interval -> its last index (inclusive).
    intervals: Arc<BTreeMap<u32, u32>>,
    len: u32,
}

impl IndexSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// All indexes below `end`.
    pub fn below(end: u32) -> Self {
        end.checked_sub(1).map(|last| Self::of(vec![(0, last)])).unwrap_or_default()
    }

    /// The indexes of these intervals. Built at once, they take half of the memory that single insertions would.
    fn of(mut intervals: Vec<(u32, u32)>) -> Self {
        // Stable: two sorted runs, as of a union, are merged in one pass.
        intervals.sort();
        intervals.dedup_by(|(first, last), (_, before)| {
            let joins = *first <= before.saturating_add(1);
            *before = if joins { (*before).max(*last) } else { *before };
            joins
        });
        let len = intervals.iter().map(|(first, last)| last - first + 1).sum();
        Self { intervals: Arc::new(intervals.into_iter().collect()), len }
    }

    /// Reads the text of a Job status leniently, as the built-in Job controller does: malformed parts are
    /// skipped, indexes of `end` and above are dropped.
    pub fn parse_lenient(text: &str, end: u32) -> Self {
        let in_range = |(first, last): (u32, u32)| (first < end).then(|| (first, last.min(end - 1)));
        Self::of(text.split(',').filter_map(parse_part).filter_map(in_range).collect())
    }

    /// Reads the text of a `successPolicy` rule. Returns `None` if any part is malformed.
    pub fn parse_strict(text: &str) -> Option<Self> {
        text.split(',').map(parse_part).collect::<Option<_>>().map(Self::of)
    }

    fn insert_range(&mut self, mut first: u32, mut last: u32) {
        let known: Vec<_> = self.touching(first.saturating_sub(1), last.saturating_add(1)).collect();
        let intervals = Arc::make_mut(&mut self.intervals);
        for (s, e) in known {
            intervals.remove(&s);
            self.len -= e - s + 1;
            first = first.min(s);
            last = last.max(e);
        }
        intervals.insert(first, last);
        self.len += last - first + 1;
    }

    /// The intervals that have an index from `first` to `last`, ascending.
    fn touching(&self, first: u32, last: u32) -> impl Iterator<Item = (u32, u32)> {
        let below = self.intervals.range(..first).next_back().filter(|(_, end)| **end >= first);
        let rest = (first <= last).then(|| self.intervals.range(first..=last)).into_iter().flatten();
        below.into_iter().chain(rest).map(|(first, last)| (*first, *last))
    }

    /// Whether this set has so many more intervals than the other that to look up each of the other's is quicker than to pass
    /// over both.
    fn dwarfs(&self, other: &IndexSet) -> bool {
        const LOOKUP: usize = 16;
        self.intervals.len() / LOOKUP > other.intervals.len()
    }

    /// Adds every index of the other set. An empty set shares them.
    pub fn insert_all(&mut self, other: &IndexSet) {
        if self.is_empty() {
            self.clone_from(other);
        } else if self.dwarfs(other) {
            other.intervals.iter().for_each(|(first, last)| self.insert_range(*first, *last));
        } else if self.overlap(other) < other.len {
            let both = self.intervals.iter().chain(&*other.intervals);
            *self = Self::of(both.map(|(first, last)| (*first, *last)).collect());
        }
    }

    /// Removes every index of the other set.
    pub fn remove_all(&mut self, other: &IndexSet) {
        if self.dwarfs(other) {
            other.intervals.iter().for_each(|(first, last)| self.remove_range(*first, *last));
        } else {
            *self = self.difference(other);
        }
    }

    fn remove_range(&mut self, first: u32, last: u32) {
        let known: Vec<_> = self.touching(first, last).collect();
        if known.is_empty() {
            return;
        }
        let intervals = Arc::make_mut(&mut self.intervals);
        for (start, end) in known {
            intervals.remove(&start);
            self.len -= end - start + 1;
            if start < first {
                intervals.insert(start, first - 1);
                self.len += first - start;
            }
            if end > last {
                intervals.insert(last + 1, end);
                self.len += end - last;
            }
        }
    }

    /// Adds an index; true if it was not in the set, and is not above the highest.
    pub fn insert(&mut self, index: u32) -> bool {
        if index > MAX_INDEX {
            return false;
        }
        let below = self.intervals.range(..=index).next_back().map(|(first, last)| (*first, *last));
        if below.is_some_and(|(_, last)| last >= index) {
            return false;
        }
        let joins_below = below.filter(|(_, last)| last + 1 == index).map(|(first, _)| first);
        let intervals = Arc::make_mut(&mut self.intervals);
        let joins_above = index.checked_add(1).and_then(|i| intervals.remove(&i));
        intervals.insert(joins_below.unwrap_or(index), joins_above.unwrap_or(index));
        self.len += 1;
        true
    }

    /// Removes an index; true if it was in the set.
    pub fn remove(&mut self, index: u32) -> bool {
        let Some((first, last)) = self.interval_of(index) else { return false };
        let intervals = Arc::make_mut(&mut self.intervals);
        if first < index {
            intervals.insert(first, index - 1);
        } else {
            intervals.remove(&first);
        }
        if index < last {
            intervals.insert(index + 1, last);
        }
        self.len -= 1;
        true
    }

    /// Removes every index of `end` and above.
    pub fn truncate(&mut self, end: u32) {
        if self.intervals.last_key_value().is_none_or(|(_, last)| *last < end) {
            return;
        }
        let intervals = Arc::make_mut(&mut self.intervals);
        for (first, last) in intervals.split_off(&end) {
            self.len -= last - first + 1;
        }
        if let Some(mut entry) = intervals.last_entry()
            && *entry.get() >= end
        {
            self.len -= *entry.get() - end + 1;
            *entry.get_mut() = end - 1;
        }
    }

    fn interval_of(&self, index: u32) -> Option<(u32, u32)> {
        let (first, last) = self.intervals.range(..=index).next_back()?;
        (index <= *last).then_some((*first, *last))
    }

    /// Whether the index is in the set.
    pub fn contains(&self, index: u32) -> bool {
        self.interval_of(index).is_some()
    }

    /// Number of indexes.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The highest index plus one; 0 for the empty set.
    pub fn end(&self) -> u32 {
        self.intervals.last_key_value().map_or(0, |(_, last)| last + 1)
    }

    /// All indexes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.intervals.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// The indexes that are not in the set, ascending and without end (up to `u32::MAX`).
    pub fn gaps(&self) -> impl Iterator<Item = u32> + '_ {
        let starts = std::iter::once(0).chain(self.intervals.values().filter_map(|last| last.checked_add(1)));
        let ends = self.intervals.keys().copied().chain(std::iter::once(u32::MAX));
        starts.zip(ends).flat_map(|(start, end)| start..end)
    }

    /// The indexes of this set that are not in the other. Costs O(intervals of both). Where both have nothing in common, the
    /// result shares the intervals of this set.
    pub fn difference(&self, other: &IndexSet) -> IndexSet {
        if self.common(other).next().is_none() {
            return self.clone();
        }
        let mut result = Vec::new();
        let mut others = other.intervals.iter().peekable();
        for (first, last) in &*self.intervals {
            let mut next = Some(*first);
            while let (Some(start), Some((s, e))) = (next, others.peek()) {
                if **e < start {
                    others.next();
                } else if **s > *last {
                    break;
                } else {
                    if start < **s {
                        result.push((start, **s - 1));
                    }
                    next = e.checked_add(1).filter(|n| n <= last);
                }
            }
            if let Some(start) = next {
                result.push((start, *last));
            }
        }
        Self::of(result)
    }

    /// The indexes that are in both sets.
    pub fn intersection(&self, other: &IndexSet) -> IndexSet {
        Self::of(self.common(other).collect())
    }

    /// Number of indexes that are in both sets.
    pub fn overlap(&self, other: &IndexSet) -> u32 {
        for (one, other) in [(self, other), (other, self)] {
            if one.spans(other) {
                return other.len;
            }
        }
        self.common(other).map(|(first, last)| last - first + 1).sum()
    }

    /// Whether one interval of this set has all indexes of the other set.
    fn spans(&self, other: &IndexSet) -> bool {
        let (first, last) = (other.intervals.first_key_value(), other.intervals.last_key_value());
        first.zip(last).is_some_and(|((first, _), (_, last))| {
            self.interval_of(*first).is_some_and(|(_, end)| end >= *last)
        })
    }

    /// The intervals that both sets have, ascending.
    fn common<'a>(&'a self, other: &'a IndexSet) -> Box<dyn Iterator<Item = (u32, u32)> + 'a> {
        let (few, many) =
            if self.intervals.len() <= other.intervals.len() { (self, other) } else { (other, self) };
        if many.dwarfs(few) {
            return Box::new(few.intervals.iter().flat_map(move |(first, last)| {
                many.touching(*first, *last).map(move |(s, e)| (s.max(*first), e.min(*last)))
            }));
        }
        let (mut few, mut many) = (few.intervals.iter().peekable(), many.intervals.iter().peekable());
        Box::new(std::iter::from_fn(move || {
            loop {
                let ((one, one_last), (other, other_last)) = (*few.peek()?, *many.peek()?);
                if one_last <= other_last {
                    few.next()
                } else {
                    many.next()
                };
                let (first, last) = (*one.max(other), *one_last.min(other_last));
                if first <= last {
                    return Some((first, last));
                }
            }
        }))
    }

    /// Number of intervals.
    pub fn intervals(&self) -> usize {
        self.intervals.len()
    }

    /// The memory that it takes: of a set that was read, 10.8 bytes an interval.
    pub fn bytes(&self) -> usize {
        11 * self.intervals.len()
    }
}

fn parse_part(part: &str) -> Option<(u32, u32)> {
    match part.split_once('-') {
        None => {
            let index = parse_index(part)?;
            Some((index, index))
        }
        Some((first, last)) => {
            let (first, last) = (parse_index(first)?, parse_index(last)?);
            (first <= last).then_some((first, last))
        }
    }
}

fn parse_index(text: &str) -> Option<u32> {
    text.parse().ok().filter(|index| *index <= MAX_INDEX)
}

impl FromIterator<u32> for IndexSet {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        let mut set = Self::new();
        set.extend(indexes);
        set
    }
}

impl Extend<u32> for IndexSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, indexes: I) {
        for index in indexes {
            self.insert(index);
        }
    }
}

impl fmt::Display for IndexSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (first, last) in &*self.intervals {
            match last - first {
                0 => write!(f, "{separator}{first}")?,
                1 => write!(f, "{separator}{first},{last}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
