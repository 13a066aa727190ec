//! The report of a release, or of a dry run.

use std::process::ExitCode;

use super::counting::{Counting, Released};
use crate::cli::console::note;
use crate::cli::table::{Column, Table};
use crate::telemetry::printable::OneLine;

/// The pods that were released, or would be.
#[derive(Default)]
pub(super) struct Report {
    /// Job, pods that have ended, and others.
    jobs: Vec<(String, usize, usize)>,
    released: usize,
    unfinished: usize,
    counted: u64,
    done: usize,
    /// Pods without a Job.
    pub(super) orphans: usize,
    problems: Vec<String>,
}

impl Report {
    /// Nothing is released yet, and these problems are known.
    pub(super) fn of(problems: Vec<String>) -> Self {
        Self { problems, ..Self::default() }
    }

    /// Adds a Job that a dry run has found.
    pub(super) fn would_release(&mut self, job: &Counting<'_>) {
        let (ended, unfinished) = job.tracked();
        self.jobs.push((job.name().trim_start_matches("job ").to_owned(), ended, unfinished));
    }

    /// Adds the result for a Job.
    pub(super) fn job(&mut self, name: &str, outcome: anyhow::Result<Released>) {
        match outcome {
            Ok(Released { counted, pods, unfinished }) => {
                self.done += 1;
                self.counted += counted;
                self.released += pods;
                self.unfinished += unfinished;
            }
            Err(error) => self.problems.push(format!("{name}: {error:#}")),
        }
    }

    /// Adds the result for a pod without a Job.
    pub(super) fn orphan(&mut self, name: &str, outcome: anyhow::Result<bool>) {
        match outcome {
            Ok(released) => self.orphans += usize::from(released),
            Err(error) => self.problems.push(format!("{name}: {error:#}")),
        }
    }

    /// Prints to standard error what could not be released, and why. 1 if there is something.
    pub(super) fn exit_code(&self) -> ExitCode {
        self.problems.iter().for_each(|problem| note(OneLine(problem)));
        ExitCode::from(u8::from(!self.problems.is_empty()))
    }

    /// The output of a dry run.
    pub(super) fn dry_run(&self) -> String {
        if self.jobs.is_empty() && self.orphans == 0 {
            return "Nothing has to be released.".into();
        }
        let mut table = Table::new([
            Column::names("JOB", 20, 0),
            Column::whole("ENDED", 0),
            Column::whole("UNFINISHED", 0),
        ]);
        for (job, ended, unfinished) in &self.jobs {
            table.row([job.clone(), ended.to_string(), unfinished.to_string()]);
        }
        let mut text = if table.is_empty() { String::new() } else { table.lines(None).join("\n") + "\n" };
        if self.orphans > 0 {
            text += &format!("{} without a Job\n", pods(self.orphans));
        }
        let total = |of: fn(&(String, usize, usize)) -> usize| self.jobs.iter().map(of).sum::<usize>();
        text += &format!(
            "Would count what has ended, and release {}; {} of them have not ended, and would not be counted.",
            pods(total(|job| job.1 + job.2) + self.orphans),
            total(|job| job.2)
        );
        text
    }

    /// The output of a run.
    pub(super) fn summary(&self) -> String {
        let jobs = if self.done == 1 { "1 Job".to_owned() } else { format!("{} Jobs", self.done) };
        format!(
            "Counted {}, and released {} of {jobs} and {} without a Job; {} had not ended, and will not be counted.",
            pods(usize::try_from(self.counted).unwrap_or(usize::MAX)),
            pods(self.released),
            self.orphans,
            self.unfinished
        )
    }
}

fn pods(count: usize) -> String {
    if count == 1 { "1 pod".into() } else { format!("{count} pods") }
}
