//! The report of pairs under way. Its file is kept up to date, so that a run that ends early has one.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::convert::Infallible;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tokio::time::sleep;

use super::report::Report;

/// Time between two writes of the file.
const SAVED_EVERY: Duration = Duration::from_secs(10);

/// A report that is printed when it is dropped, and saved if it has changed. Ctrl-C drops it, too.
pub(super) struct SavedReport {
    report: RefCell<Report>,
    file: Option<PathBuf>,
    is_saved: Cell<bool>,
}

impl SavedReport {
    /// A report with its file, which is not written yet.
    pub(super) fn new(report: Report, file: Option<PathBuf>) -> Self {
        Self { report: RefCell::new(report), file, is_saved: Cell::new(false) }
    }

    pub(super) fn read(&self) -> Ref<'_, Report> {
        self.report.borrow()
    }

    /// The report, in order to change it.
    pub(super) fn change(&self) -> RefMut<'_, Report> {
        self.is_saved.set(false);
        self.report.borrow_mut()
    }

    /// Writes the file, unless it shows the report as it is.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn save(&self) -> Result<()> {
        if let Some(file) = self.file.as_ref().filter(|_| !self.is_saved.get()) {
            self.read().write(file)?;
            self.is_saved.set(true);
        }
        Ok(())
    }

    /// Saves changes for as long as it is polled. A failure is printed, since a later write may succeed.
    pub(super) async fn save_often(&self) -> Infallible {
        loop {
            sleep(SAVED_EVERY).await;
            self.save_or_print();
        }
    }

    fn save_or_print(&self) {
        if let Err(error) = self.save() {
            eprintln!("the report is not saved: {error:#}");
        }
    }
}

impl Drop for SavedReport {
    fn drop(&mut self) {
        self.save_or_print();
        println!("{}", self.read());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::differ::pair::Played;
    use crate::differ::plan::Plan;
    use crate::report::Env;

    #[test]
    fn a_run_that_ends_early_leaves_a_report() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("differ.json");
        let read = || -> Value { serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap() };
        let kept = SavedReport::new(Report::new(Env::here("none".into()), 3), Some(file.clone()));
        kept.save().unwrap();
        assert_eq!((&read()["pairs"], &read()["undecided"]), (&json!(3), &json!(3)));
        let [decided, kept_back] = [1, 2].map(|seed| Played::unfinished(Plan::of(seed), "no rest".into()));
        kept.change().add(&decided, &decided, None);
        kept.change().keep(&kept_back);
        drop(kept);
        assert_eq!((&read()["unfinished"], &read()["undecided"]), (&json!(1), &json!(2)));
        assert_eq!(read()["stories"][1]["verdict"], "undecided: unfinished: no rest");
        let files = std::fs::read_dir(directory.path()).unwrap().count();
        assert_eq!(files, 2, "the report and its page");
    }
}
