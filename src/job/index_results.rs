//! `yardmaster.dev/index-results`: how each index of a Job has ended, when, and after how many tries.
//!
//! The results are an annotation of the Job, which is written together with the status. The status that records the end of a
//! pod has its result as well, and the pod keeps its finalizer until that is written. So the results are as exact as the counts
//! through every hand-over, and they outlive the pods.
//!
//! The annotation is a list of runs, such as `0-3:0@12+35 4:137x2@80+3`: the indexes 0 to 3 ended with exit code 0. Their pods were
//! created 12 s after the Job, and took 35 s. Index 4 ended with 137, in its second try. The code is `-` where no container has failed.

use std::collections::BTreeMap;
use std::fmt;

/// The longest annotation that is read or written, in bytes. With times of their own, some 1,500 indexes have room.
pub const LONGEST: usize = 32 << 10;
/// The mark of results from which some were dropped.
const CUT: &str = "cut";

/// The annotation, or what says that it was too long to be read.
pub fn bounded(text: &str) -> &str {
    if text.len() > LONGEST { CUT } else { text }
}

/// The results of the indexes of a Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexResults {
    /// Runs that do not overlap, by their first indexes.
    runs: BTreeMap<u32, ResultRun>,
    /// Some were dropped, since there was no room.
    is_cut: bool,
}

/// Adjacent indexes with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultRun {
    /// The last of them.
    pub last: u32,
    /// The exit code of the first container that failed; 0 if all succeeded. Absent if the pod ended without one.
    pub exit_code: Option<i32>,
    /// How many pods of each index were counted.
    pub tries: u32,
    /// When the first of their last pods was created, in seconds after the Job.
    pub created: i64,
    /// How many seconds later the last of these pods ended.
    pub took: u32,
}

impl ResultRun {
    fn says_the_same(&self, other: &Self) -> bool {
        (self.exit_code, self.tries) == (other.exit_code, other.tries)
    }

    fn end(&self) -> i64 {
        self.created.saturating_add(self.took.into())
    }

    fn read(text: &str) -> Option<(u32, Self)> {
        let (indexes, rest) = text.split_once(':')?;
        let (outcome, times) = rest.split_once('@')?;
        let (first, last) = indexes.split_once('-').unwrap_or((indexes, indexes));
        let (code, tries) = outcome.split_once('x').unwrap_or((outcome, "1"));
        let (created, took) = times.split_once('+')?;
        let exit_code = if code == "-" { None } else { Some(code.parse().ok()?) };
        let [first, last]: [u32; 2] = [first.parse().ok()?, last.parse().ok()?];
        let run = Self {
            last,
            exit_code,
            tries: tries.parse().ok()?,
            created: created.parse().ok()?,
            took: took.parse().ok()?,
        };
        (first <= last && last < u32::MAX).then_some((first, run))
    }

    fn write(&self, first: u32, f: &mut impl fmt::Write) -> fmt::Result {
        write!(f, "{first}")?;
        if self.last > first {
            write!(f, "-{}", self.last)?;
        }
        match self.exit_code {
            Some(code) => write!(f, ":{code}")?,
            None => write!(f, ":-")?,
        }
        if self.tries != 1 {
            write!(f, "x{}", self.tries)?;
        }
        write!(f, "@{}+{}", self.created, self.took)
    }
}

impl IndexResults {
    /// Reads the annotation. Parts that cannot be read say nothing.
    pub fn read(text: &str) -> Self {
        let mut results = Self::default();
        for part in bounded(text).split(' ') {
            results.is_cut |= part == CUT;
            if let Some((first, run)) = ResultRun::read(part)
                && results.runs.last_key_value().is_none_or(|(_, before)| before.last < first)
            {
                results.runs.insert(first, run);
            }
        }
        results
    }

    /// Whether some were dropped, since there was no room.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The runs, each with its first index.
    pub fn runs(&self) -> impl Iterator<Item = (u32, &ResultRun)> {
        self.runs.iter().map(|(first, run)| (*first, run))
    }

    /// The run of an index.
    pub fn of(&self, index: u32) -> Option<&ResultRun> {
        self.runs.range(..=index).next_back().map(|(_, run)| run).filter(|run| run.last >= index)
    }

    /// Records the end of a pod of an index. Its own `tries` are added: they are 0 if the pod has been recorded before.
    pub(super) fn record(&mut self, index: u32, ended: ResultRun) {
        let tries = self.of(index).map_or(0, |run| run.tries).saturating_add(ended.tries);
        self.put(index, ResultRun { last: index, tries, ..ended });
    }

    /// Records a pod of an index that had a result already, which stays.
    pub(super) fn record_surplus(&mut self, index: u32) {
        if let Some(known) = self.of(index).copied() {
            self.record(index, ResultRun { tries: 1, ..known });
        }
    }

    /// Replaces the result of an index.
    fn put(&mut self, index: u32, run: ResultRun) {
        let before = self.runs.range(..=index).next_back().map(|(first, run)| (*first, *run));
        if let Some((first, before)) = before.filter(|(_, before)| before.last >= index) {
            self.runs.remove(&first);
            if first < index {
                self.runs.insert(first, ResultRun { last: index - 1, ..before });
            }
            if index < before.last {
                self.runs.insert(index + 1, before);
            }
        }
        self.runs.insert(index, run);
    }

    /// Joins adjacent runs that say the same; then their times are those of all. `exact`: only if their times are equal, too.
    fn join(&mut self, exact: bool) {
        let mut joined: Vec<(u32, ResultRun)> = Vec::with_capacity(self.runs.len());
        for (first, run) in std::mem::take(&mut self.runs) {
            match joined.last_mut() {
                Some((_, before))
                    if before.last.checked_add(1) == Some(first)
                        && before.says_the_same(&run)
                        && (!exact || (before.created, before.took) == (run.created, run.took)) =>
                {
                    let end = before.end().max(run.end());
                    before.created = before.created.min(run.created);
                    before.took = u32::try_from(end.saturating_sub(before.created)).unwrap_or(u32::MAX);
                    before.last = run.last;
                }
                _ => joined.push((first, run)),
            }
        }
        self.runs = joined.into_iter().collect();
    }

    /// Makes the annotation fit. First the times of adjacent indexes with the same result become those of all. If that is not
    /// enough, the successes of the lowest indexes are dropped, which the status shows all the same; and then the failures.
    pub(super) fn bound(&mut self) {
        self.join(true);
        if self.to_string().len() > LONGEST {
            self.join(false);
        }
        let mut left = self.to_string().len();
        for succeeded in [true, false] {
            let droppable = self.runs.iter().filter(|(_, run)| (run.exit_code == Some(0)) == succeeded);
            let droppable: Vec<u32> = droppable.map(|(first, _)| *first).collect();
            for first in droppable {
                // The mark needs room, too.
                if left + CUT.len() < LONGEST {
                    return;
                }
                if let Some(run) = self.runs.remove(&first) {
                    let mut text = String::new();
                    // Writing to a string never fails.
                    let _ = run.write(first, &mut text);
                    left = left.saturating_sub(text.len() + 1);
                    self.is_cut = true;
                }
            }
        }
    }
}

/// The annotation.
impl fmt::Display for IndexResults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.is_cut {
            f.write_str(CUT)?;
            separator = " ";
        }
        for (first, run) in &self.runs {
            f.write_str(separator)?;
            run.write(*first, f)?;
            separator = " ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::job::tests::fixture::cases;

    fn ended(exit_code: Option<i32>, created: i64, took: u32) -> ResultRun {
        ResultRun { last: 0, exit_code, tries: 1, created, took }
    }

    #[test]
    fn an_annotation_says_what_the_results_say() {
        let mut results = IndexResults::default();
        for index in 0..4 {
            results.record(index, ended(Some(0), 12, 35));
        }
        results.record(4, ended(None, 12, 3));
        results.record(4, ended(Some(137), 80, 3));
        results.record(9, ended(Some(-1), -5, 0));
        results.bound();
        let text = "0-3:0@12+35 4:137x2@80+3 9:-1@-5+0";
        assert_eq!((results.to_string().as_str(), IndexResults::read(text)), (text, results));
        for (text, read) in [
            ("", ""),
            ("cut 7:-@1+2", "cut 7:-@1+2"),
            ("x 1:2 3@4 5:0@1 6-2:0@1+1 2:0@1+1 1:0@1+1 4294967295:0@1+1", "2:0@1+1"),
            ("0-9:0@1+1 5:1@1+1", "0-9:0@1+1"),
            (&*"1".repeat(LONGEST + 1), "cut"),
        ] {
            assert_eq!(IndexResults::read(text).to_string(), read, "{text:.40}");
        }
    }

    #[test]
    fn without_room_times_are_those_of_many_and_then_successes_go_first() {
        let mut results = IndexResults::default();
        (0..5_000).for_each(|index| results.record(index, ended(Some(0), index.into(), 1)));
        results.bound();
        assert_eq!(results.to_string(), "0-4999:0@0+5000");
        for index in 0..5_000 {
            let code = if index % 2 == 0 { 0 } else { 137 };
            results.put(index, ResultRun { last: index, ..ended(Some(code), 1_000_000, 1_000) });
        }
        results.bound();
        let text = results.to_string();
        assert!(results.is_cut() && text.len() <= LONGEST && text.len() > LONGEST - 64, "{}", text.len());
        assert!(results.runs().any(|(_, run)| run.exit_code == Some(137)));
        assert_eq!(IndexResults::read(&text), results);
        let lowest_success = results.runs().find(|(_, run)| run.exit_code == Some(0)).map(|(first, _)| first);
        assert!(lowest_success.is_none_or(|first| first > 1_000), "{lowest_success:?}");
    }

    proptest! {
        #![proptest_config(cases(45))]

        #[test]
        fn each_index_has_its_last_result_and_all_its_tries(
            ends in prop::collection::vec((0_u32..12, prop::option::of(0..3), 0_i64..3), 0..60),
        ) {
            let mut results = IndexResults::default();
            let mut model = BTreeMap::<u32, (u32, Option<i32>, i64)>::new();
            for (index, code, created) in ends {
                results.record(index, ended(code, created, 1));
                results.bound();
                let tries = model.get(&index).map_or(0, |known| known.0) + 1;
                model.insert(index, (tries, code, created));
                results = IndexResults::read(&results.to_string());
            }
            for index in 0..12 {
                let found = results.of(index).map(|run| (run.tries, run.exit_code, run.created));
                prop_assert_eq!(found, model.get(&index).copied());
            }
        }
    }
}
