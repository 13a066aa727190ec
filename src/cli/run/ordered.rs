//! The output of Jobs in order: each index whole, and the next once it has ended. Without indexes, it is each pod, in
//! the order of creation.
//!
//! The output waits in files, so that it takes no memory. An index has ended when its pod has succeeded, or when its Job says that
//! it has failed. The Job may say so before the watch of pods has shown the last pod. So the pods of failed indexes are
//! listed before their output counts as whole. The same is true for all pods of a Job that has ended.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::progress::Progress;
use super::tracker::Tracked;
use super::view::JobView;
use crate::cli::pod_view::{PodView, index};
use crate::job::index_set::IndexSet;
use crate::job::names::{COMPLETION_INDEX, CONTROLLER_UID_LABEL};

/// Bytes of a file that are in memory at once.
const PIECE: usize = 64 << 10;
/// Most indexes whose pods one list has: their selector is a part of a URL, which proxies cut at 8 KiB.
const LISTED_AT_ONCE: usize = 500;

/// The output that is not printed yet.
pub(super) struct Ordered {
    progress: Progress,
    /// The Jobs whose output is not complete, in the order of their manifests.
    turns: VecDeque<Turn>,
    /// Why standard output takes no more. The reader may have closed it, as `| head` does. The Jobs run on.
    refused: Option<io::Error>,
    /// Whether files are removed once they are printed.
    is_temporary: bool,
}

/// The output of one Job.
struct Turn {
    uid: String,
    namespace: String,
    order: Order,
    units: BTreeMap<u64, Unit>,
    /// The indexes that have failed, as the Job says.
    failed: IndexSet,
    has_ended: bool,
    /// Whether its pods were listed after its end.
    is_listed: bool,
}

/// The parts that are printed in one piece each, and the next of them.
enum Order {
    Indexes { next: u32, end: u32, before: IndexSet },
    Pods { next: u64, numbers: HashMap<String, u64> },
}

/// The output of an index, or of a pod.
#[derive(Debug, Default)]
struct Unit {
    files: Vec<PathBuf>,
    /// Whether no further pod or container adds to it.
    is_over: bool,
}

/// Pods that must be listed before the output goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    pub(super) namespace: String,
    /// The selector of their labels.
    pub(super) labels: String,
    /// Pods of these failed indexes, or all of the Job.
    indexes: Option<Vec<u32>>,
}

impl Ordered {
    /// The output of these Jobs, without that of the indexes that had succeeded before.
    pub(super) fn new(
        progress: Progress,
        jobs: &[Tracked],
        restored: &[IndexSet],
        is_temporary: bool,
    ) -> Self {
        let none = IndexSet::new();
        let restored = restored.iter().chain(std::iter::repeat(&none));
        let turns = jobs.iter().zip(restored).map(|(job, restored)| Turn::new(job, restored)).collect();
        Self { progress, turns, refused: None, is_temporary }
    }

    /// Records the newest state of a Job.
    pub(super) fn update(&mut self, job: &Tracked) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.uid == job.uid) {
            turn.update(job);
        }
    }

    /// Records a pod, and the files that its output goes to.
    pub(super) fn observe(&mut self, job_uid: &str, pod: &PodView, files: Vec<PathBuf>) {
        if let Some(turn) = self.turns.iter_mut().find(|turn| turn.uid == job_uid) {
            turn.observe(pod, files);
        }
    }

    /// Records that a pod is gone.
    pub(super) fn remove(&mut self, pod: &PodView) {
        for turn in &mut self.turns {
            if let Order::Pods { numbers, .. } = &turn.order
                && let Some(number) = pod.metadata.uid.as_ref().and_then(|uid| numbers.get(uid))
                && let Some(unit) = turn.units.get_mut(number)
            {
                unit.is_over = true;
            }
        }
    }

    /// The pods that must be listed before the output goes on, if it is due.
    pub(super) fn missing(&self) -> Option<Missing> {
        let turn = self.turns.front()?;
        let of_job = format!("{CONTROLLER_UID_LABEL}={}", turn.uid);
        let namespace = turn.namespace.clone();
        if turn.has_ended {
            return (!turn.is_listed).then_some(Missing { namespace, labels: of_job, indexes: None });
        }
        let Order::Indexes { next, .. } = turn.order else { return None };
        let is_over = |index: &u32| turn.units.get(&u64::from(*index)).is_some_and(|unit| unit.is_over);
        if !turn.failed.contains(next) || is_over(&next) {
            return None;
        }
        // The list has the failed indexes behind this one, too. A list for each would take long if many fail.
        let later = turn.failed.iter().skip_while(|index| *index < next).filter(|index| !is_over(index));
        let indexes: Vec<u32> = later.take(LISTED_AT_ONCE).collect();
        let names: Vec<String> = indexes.iter().map(u32::to_string).collect();
        let labels = format!("{of_job},{COMPLETION_INDEX} in ({})", names.join(","));
        Some(Missing { namespace, labels, indexes: Some(indexes) })
    }

    /// Records that these pods were listed, and observed.
    pub(super) fn listed(&mut self, missing: &Missing) {
        let Some(turn) = self.turns.front_mut() else { return };
        match &missing.indexes {
            Some(indexes) => {
                for index in indexes {
                    turn.units.entry(u64::from(*index)).or_default().is_over = true;
                }
            }
            None => turn.is_listed = true,
        }
    }

    /// Prints all that is due. `is_written` says whether a file is complete, unless another container adds to it.
    pub(super) fn print(&mut self, is_written: impl Fn(&Path) -> bool) {
        while let Some(turn) = self.turns.front_mut() {
            match turn.take_next(&is_written) {
                Next::Waits => return,
                Next::Done => drop(self.turns.pop_front()),
                Next::Unit(unit) => unit.files.iter().for_each(|file| self.print_file(file)),
            }
        }
    }

    /// Prints the rest, which is complete.
    ///
    /// # Errors
    /// If standard output did not take all.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.turns.iter_mut().for_each(|turn| turn.is_listed = true);
        self.print(|_| true);
        self.refused.take().map_or(Ok(()), Err)
    }

    fn print_file(&mut self, path: &Path) {
        if self.refused.is_none()
            && let Err(error) = copy(path, &self.progress)
        {
            match error {
                CopyError::Read(error) if error.kind() == io::ErrorKind::NotFound => {}
                CopyError::Read(error) => {
                    self.progress.note(&format!("--logs=ordered: {}: {error}", path.display()))
                }
                CopyError::Print(error) => self.refused = Some(error),
            }
        }
        if self.is_temporary {
            // The folder is removed with all that is left in it.
            let _left = std::fs::remove_file(path);
        }
    }
}

/// The next part of the output of a Job.
enum Next {
    /// Nothing yet.
    Waits,
    /// Nothing more.
    Done,
    Unit(Unit),
}

impl Turn {
    fn new(job: &Tracked, restored: &IndexSet) -> Self {
        let spec = &job.job["spec"];
        let order = match spec["completionMode"].as_str() {
            Some("Indexed") => {
                let end = spec["completions"].as_u64().and_then(|count| u32::try_from(count).ok());
                Order::Indexes { next: 0, end: end.unwrap_or_default(), before: restored.clone() }
            }
            _ => Order::Pods { next: 0, numbers: HashMap::new() },
        };
        let (uid, namespace) = (job.uid.clone(), job.namespace().to_owned());
        let (units, failed) = (BTreeMap::new(), IndexSet::new());
        let mut turn = Self { uid, namespace, order, units, failed, has_ended: false, is_listed: false };
        turn.skip();
        turn.update(job);
        turn
    }

    fn update(&mut self, job: &Tracked) {
        self.has_ended = job.end.is_some();
        if let Order::Indexes { end, .. } = self.order {
            self.failed = JobView::of(&job.job).failed_indexes(end);
        }
    }

    fn observe(&mut self, pod: &PodView, files: Vec<PathBuf>) {
        let phase = pod.status.as_ref().map(|status| status.phase.raw()).unwrap_or_default();
        let (number, next, is_over) = match &mut self.order {
            Order::Indexes { next, .. } => match index(pod) {
                Some(index) => (u64::from(index), u64::from(*next), phase == "Succeeded"),
                None => return,
            },
            Order::Pods { next, numbers } => {
                let number = numbers.len() as u64;
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                let number = *numbers.entry(uid).or_insert(number);
                (number, *next, matches!(phase, "Succeeded" | "Failed"))
            }
        };
        if number < next {
            return;
        }
        let unit = self.units.entry(number).or_default();
        unit.is_over |= is_over;
        for file in files {
            if !unit.files.contains(&file) {
                unit.files.push(file);
            }
        }
    }

    /// Takes out what is printed next, if it is complete.
    fn take_next(&mut self, is_written: impl Fn(&Path) -> bool) -> Next {
        let next = match self.order {
            Order::Indexes { next, end, .. } if next >= end => return Next::Done,
            Order::Indexes { next, .. } => u64::from(next),
            Order::Pods { next, .. } => next,
        };
        // Of a Job that has ended, some indexes may have no pod.
        let due = if self.is_listed { self.units.keys().next().copied() } else { Some(next) };
        let Some(due) = due else { return Next::Done };
        let is_whole =
            |unit: &Unit| (unit.is_over || self.is_listed) && unit.files.iter().all(|file| is_written(file));
        if !self.units.get(&due).is_some_and(is_whole) {
            return Next::Waits;
        }
        match &mut self.order {
            Order::Indexes { next, .. } => *next = u32::try_from(due).unwrap_or(u32::MAX).saturating_add(1),
            Order::Pods { next, .. } => *next = due + 1,
        }
        self.skip();
        Next::Unit(self.units.remove(&due).unwrap_or_default())
    }

    /// Skips indexes that had succeeded before.
    fn skip(&mut self) {
        if let Order::Indexes { next, before, .. } = &mut self.order {
            while before.contains(*next) {
                *next += 1;
            }
        }
    }
}

/// Why a file was not printed.
enum CopyError {
    Read(io::Error),
    Print(io::Error),
}

/// Prints a file, piece by piece.
fn copy(path: &Path, progress: &Progress) -> Result<(), CopyError> {
    let mut file = File::open(path).map_err(CopyError::Read)?;
    let mut piece = vec![0; PIECE];
    loop {
        match file.read(&mut piece).map_err(CopyError::Read)? {
            0 => return Ok(()),
            length => progress.print(&piece[..length]).map_err(CopyError::Print)?,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::run::tracker::Tracker;

    fn jobs(specs: &[Value]) -> Vec<Tracked> {
        let mut tracker = Tracker::new(false);
        for (number, spec) in specs.iter().enumerate() {
            let metadata = json!({"namespace": "n", "name": "j", "uid": number.to_string()});
            tracker.add(json!({"metadata": metadata, "spec": spec, "status": {}}));
        }
        tracker.jobs
    }

    fn with_status(job: &Tracked, status: Value) -> Tracked {
        let mut tracker = Tracker::new(false);
        let mut changed = job.job.clone();
        changed["status"] = status;
        tracker.add(changed);
        tracker.jobs.remove(0)
    }

    fn pod(uid: &str, index: Option<u32>, phase: &str) -> PodView {
        let annotations = index.map(|index| json!({COMPLETION_INDEX: index.to_string()}));
        serde_json::from_value(json!({
            "metadata": {"uid": uid, "annotations": annotations}, "spec": {}, "status": {"phase": phase},
        }))
        .unwrap()
    }

    struct Screen(Ordered);

    impl Screen {
        fn new(jobs: &[Tracked], restored: &[IndexSet]) -> Self {
            Self(Ordered::new(Progress::new(), jobs, restored, false))
        }

        fn sees(&mut self, job: &str, uid: &str, index: Option<u32>, phase: &str) {
            self.0.observe(job, &pod(uid, index, phase), vec![PathBuf::from(uid)]);
        }

        /// The names of the files that are printed next.
        fn prints(&mut self, is_written: impl Fn(&Path) -> bool) -> Vec<String> {
            let mut printed = Vec::new();
            while let Some(turn) = self.0.turns.front_mut() {
                match turn.take_next(&is_written) {
                    Next::Waits => break,
                    Next::Done => drop(self.0.turns.pop_front()),
                    Next::Unit(unit) => {
                        printed.extend(unit.files.iter().map(|file| file.display().to_string()));
                    }
                }
            }
            printed
        }
    }

    fn indexed(completions: u32) -> Value {
        json!({"completionMode": "Indexed", "completions": completions})
    }

    #[test]
    fn an_index_waits_for_those_before_it_and_for_its_own_output() {
        let mut screen = Screen::new(&jobs(&[indexed(3)]), &[]);
        screen.sees("0", "b", Some(1), "Succeeded");
        screen.sees("0", "a1", Some(0), "Failed");
        assert_eq!(screen.prints(|_| true), [""; 0]);
        screen.sees("0", "a2", Some(0), "Succeeded");
        assert_eq!(screen.prints(|file| file != Path::new("b")), ["a1", "a2"]);
        // A pod of an index that was printed adds nothing.
        screen.sees("0", "a2", Some(0), "Succeeded");
        assert_eq!(screen.prints(|_| true), ["b"]);
        assert_eq!(screen.0.missing(), None);
    }

    #[test]
    fn the_pods_of_failed_indexes_are_listed_together_before_they_are_printed() {
        let jobs = jobs(&[indexed(20_000)]);
        let mut screen = Screen::new(&jobs, &[]);
        screen.sees("0", "a", Some(0), "Failed");
        screen.sees("0", "b", Some(1), "Succeeded");
        screen.0.update(&with_status(&jobs[0], json!({"failedIndexes": "0,2,4"})));
        assert_eq!(screen.prints(|_| true), [""; 0]);
        let missing = screen.0.missing().unwrap();
        assert_eq!(missing.labels, format!("{CONTROLLER_UID_LABEL}=0,{COMPLETION_INDEX} in (0,2,4)"));
        screen.sees("0", "again", Some(0), "Failed");
        screen.sees("0", "c", Some(2), "Failed");
        screen.0.listed(&missing);
        assert_eq!(screen.0.missing(), None);
        assert_eq!(screen.prints(|_| true), ["a", "again", "b", "c"]);
        // Index 4 was listed already; 3 has failed since.
        screen.0.update(&with_status(&jobs[0], json!({"failedIndexes": "0,2-4"})));
        let missing = screen.0.missing().unwrap();
        assert_eq!(missing.indexes.as_deref(), Some(&[3][..]));
    }

    #[test]
    fn the_pods_of_very_many_failed_indexes_need_few_lists() {
        let jobs = jobs(&[indexed(20_000)]);
        let mut screen = Screen::new(&jobs, &[]);
        screen.0.update(&with_status(&jobs[0], json!({"failedIndexes": "0-19998"})));
        let mut lists = 0;
        while let Some(missing) = screen.0.missing() {
            assert!(missing.labels.len() < 4096);
            screen.0.listed(&missing);
            screen.prints(|_| true);
            lists += 1;
        }
        assert_eq!(lists, 40);
    }

    #[test]
    fn a_job_comes_after_the_one_before_it_has_ended_and_its_pods_in_their_order() {
        let jobs = jobs(&[json!({}), indexed(5)]);
        let mut screen = Screen::new(&jobs, &[IndexSet::new(), IndexSet::below(2)]);
        screen.sees("1", "c", Some(2), "Succeeded");
        screen.sees("0", "x", None, "Running");
        screen.sees("0", "y", None, "Succeeded");
        screen.sees("0", "z", None, "Running");
        assert_eq!(screen.prints(|_| true), [""; 0]);
        screen.sees("0", "x", None, "Failed");
        assert_eq!(screen.prints(|_| true), ["x", "y"]);
        screen.0.remove(&pod("z", None, "Running"));
        assert_eq!(screen.prints(|_| true), ["z"]);
        let complete = json!({"conditions": [{"type": "Complete", "status": "True"}]});
        screen.0.update(&with_status(&jobs[0], complete.clone()));
        let missing = screen.0.missing().unwrap();
        assert_eq!(missing.indexes, None);
        screen.0.listed(&missing);
        // The indexes before 2 had succeeded in an earlier run.
        assert_eq!(screen.prints(|_| true), ["c"]);
        screen.sees("1", "e", Some(4), "Running");
        screen.0.update(&with_status(&jobs[1], complete));
        let missing = screen.0.missing().unwrap();
        screen.0.listed(&missing);
        assert_eq!(screen.prints(|_| true), ["e"]);
        assert_eq!(screen.0.missing(), None);
    }
}
