//! A map of the indexes of a Job: one character for each index, or for each block of indexes, of which the worst counts.

use crate::cli::line::{Line, Paint};
use crate::job::index_set::IndexSet;

/// Rows of the map at most.
const ROWS: u32 = 8;
/// Characters of a row at most, and where there is no terminal.
const WIDEST: usize = 100;
/// Characters of a row are a multiple of this, so that places can be counted.
const GROUP: usize = 10;

/// The indexes of a Job by their states.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct IndexMap {
    completions: u32,
    /// From the worst state to the best; an index is in one of them, and in none if no pod has begun with it.
    states: [(State, IndexSet); 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Failed,
    /// A pod of it failed, and it has not succeeded yet.
    Retried,
    Running,
    Pending,
    Succeeded,
}

impl State {
    fn letter(self) -> char {
        match self {
            Self::Failed => 'X',
            Self::Retried => '!',
            Self::Running => '>',
            Self::Pending => '.',
            Self::Succeeded => '=',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Retried => "tried again",
            Self::Running => "running",
            Self::Pending => "to do",
            Self::Succeeded => "succeeded",
        }
    }

    fn paint(self) -> Paint {
        match self {
            Self::Failed => Paint::Bad,
            Self::Retried => Paint::Warning,
            Self::Running => Paint::Busy,
            Self::Pending => Paint::Quiet,
            Self::Succeeded => Paint::Good,
        }
    }
}

/// The indexes below `end` from `start` on.
fn range(start: u32, end: u32) -> IndexSet {
    IndexSet::below(end).difference(&IndexSet::below(start))
}

impl IndexMap {
    /// The map of a Job with this number of completions. `active` and `tried` are the indexes of active pods, and of pods that
    /// failed.
    pub(super) fn new(
        completions: u32,
        succeeded: &IndexSet,
        failed: &IndexSet,
        tried: &IndexSet,
        active: &IndexSet,
    ) -> Self {
        let succeeded = succeeded.difference(failed);
        let retried = tried.difference(failed).difference(&succeeded);
        let running = active.difference(failed).difference(&succeeded).difference(&retried);
        let states = [
            (State::Failed, failed.clone()),
            (State::Retried, retried),
            (State::Running, running),
            (State::Succeeded, succeeded),
        ];
        Self { completions, states }
    }

    /// A legend with counts, then the map in lines of at most `width` columns.
    pub(super) fn lines(&self, width: Option<usize>) -> Vec<Line> {
        let label = self.completions.saturating_sub(1).to_string().len();
        let room = width.map_or(WIDEST, |width| width.saturating_sub(label + 1)).min(WIDEST);
        let columns = u32::try_from((room / GROUP * GROUP).max(GROUP)).unwrap_or(u32::MAX);
        let size = block_size(self.completions, columns.saturating_mul(ROWS));
        let mut lines = vec![self.legend(size)];
        let mut start = 0;
        while start < self.completions {
            let mut line = Line::from(format!("{start:>label$} "));
            for column in 0..columns {
                let first = start.saturating_add(column.saturating_mul(size));
                if first >= self.completions {
                    break;
                }
                let state = self.worst(first, first.saturating_add(size).min(self.completions));
                line.push(&state.letter().to_string(), Some(state.paint()));
            }
            lines.push(line);
            start = start.saturating_add(columns.saturating_mul(size));
        }
        lines.into_iter().map(|line| width.map_or(line.clone(), |width| line.shortened(width))).collect()
    }

    fn legend(&self, size: u32) -> Line {
        let known: u32 = self.states.iter().map(|(_, indexes)| indexes.len()).sum();
        let pending = (State::Pending, self.completions.saturating_sub(known));
        let counts = self.states.iter().map(|(state, indexes)| (*state, indexes.len()));
        let (before, after) = (counts.clone().take(3), counts.skip(3));
        let mut line = Line::from(match size {
            1 => "Map:".to_owned(),
            size => format!("Map of {size} indexes a letter:"),
        });
        for (state, count) in before.chain([pending]).chain(after).filter(|(_, count)| *count > 0) {
            line.push("  ", None);
            line.push(&format!("{} {count} {}", state.letter(), state.name()), Some(state.paint()));
        }
        line
    }

    /// The worst state of the indexes of a block.
    fn worst(&self, start: u32, end: u32) -> State {
        let block = range(start, end);
        let mut left = block.len();
        for (state, indexes) in &self.states {
            let count = indexes.overlap(&block);
            match state {
                State::Succeeded => left -= count,
                state if count > 0 => return *state,
                _ => {}
            }
        }
        if left == 0 { State::Succeeded } else { State::Pending }
    }
}

/// The smallest of 1, 2, 5, 10, 20, 50 and so on that gives at most this number of blocks.
fn block_size(indexes: u32, blocks: u32) -> u32 {
    let powers = std::iter::successors(Some(1_u32), |power| power.checked_mul(10));
    let mut sizes = powers.flat_map(|power| [1, 2, 5].map(|part| power.saturating_mul(part)));
    sizes.find(|size| indexes.div_ceil(*size) <= blocks).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn set(text: &str) -> IndexSet {
        if text.is_empty() { IndexSet::new() } else { IndexSet::parse_strict(text).unwrap() }
    }

    fn texts(map: &IndexMap, width: usize) -> Vec<String> {
        map.lines(Some(width)).iter().map(|line| line.text().to_owned()).collect()
    }

    #[test]
    fn each_index_of_a_small_job_has_a_letter() {
        let map = IndexMap::new(25, &set("0-9,12"), &set("10"), &set("10-11,12"), &set("11,13"));
        let legend = "Map:  X 1 failed  ! 1 tried again  > 1 running  . 11 to do  = 11 succeeded";
        assert_eq!(texts(&map, 80), [legend, " 0 ==========X!=>..........."]);
        assert_eq!(texts(&map, 23)[1..], [" 0 ==========X!=>......", "20 ....."]);
    }

    #[test]
    fn the_worst_index_of_a_block_counts_and_one_bad_one_in_many_is_seen() {
        let all = IndexSet::below(100_000);
        let map = IndexMap::new(100_000, &all, &set("54321"), &set(""), &set(""));
        let lines = texts(&map, 80);
        assert_eq!(lines[0], "Map of 200 indexes a letter:  X 1 failed  = 99999 succeeded");
        assert!(lines.len() <= 1 + ROWS as usize && lines.iter().all(|line| line.len() <= 80), "{lines:#?}");
        let row = lines.iter().find(|line| line.contains('X') && line.contains("==")).unwrap();
        let (label, blocks) = row.trim_start().split_once(' ').unwrap();
        let place = label.parse::<usize>().unwrap() + blocks.find('X').unwrap() * 200;
        assert_eq!(place, 54_200);
    }

    #[test]
    fn the_largest_job_has_a_map() {
        let map = IndexMap::new(i32::MAX as u32, &set("0-1000000000"), &set(""), &set(""), &set(""));
        assert!(texts(&map, 40).len() <= 1 + ROWS as usize);
        assert_eq!(texts(&IndexMap::new(0, &set(""), &set(""), &set(""), &set("")), 40), ["Map:"]);
    }
}
