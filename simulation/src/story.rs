//! The story of a world: the lines of its log that a reader needs, about one Job or about all.

pub(crate) mod changes;

use std::fmt::{self, Write as _};

use crate::log::{Line, Log};
use crate::plan::{JobPlan, Lag, Plan};
use crate::time::Time;

/// The story, line by line. Repeated lines are printed once, with their number. If `job` is a name, lines
/// about other Jobs only are left out.
pub fn story(log: &Log, job: Option<&str>) -> String {
    let mut story = String::new();
    let mut lines = log.kept().iter().filter(|line| line.is_story && concerns(&line.text, job)).peekable();
    while let Some(line) = lines.next() {
        let mut repeated = 0;
        let mut last = line;
        while let Some(same) = lines.next_if(|next| next.text == line.text) {
            repeated += 1;
            last = same;
        }
        // Writing to a string cannot fail.
        let _ = match repeated {
            0 => writeln!(story, "{line}"),
            _ => writeln!(story, "{}", Repeated { line, times: repeated + 1, last }),
        };
    }
    story
}

/// A line that came several times.
struct Repeated<'a> {
    line: &'a Line,
    times: usize,
    last: &'a Line,
}

impl fmt::Display for Repeated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} times until {})", self.line, self.times, self.last.at)
    }
}

/// Whether a text is about this Job, or about none.
fn concerns(text: &str, job: Option<&str>) -> bool {
    let Some(job) = job else { return true };
    let mut about = jobs_in(text).peekable();
    about.peek().is_none() || about.any(|name| name == job)
}

/// The names of Jobs in a text. Jobs of a plan are called `job-0`, `job-1`, ..., and their pods' names begin so.
pub fn jobs_in(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("job-").filter_map(|(begin, mark)| {
        let number = begin + mark.len();
        let digits = text[number..].bytes().take_while(u8::is_ascii_digit).count();
        (digits > 0).then(|| &text[begin..number + digits])
    })
}

/// Prints the plan as an introduction to the story.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.settings;
        let place = if settings.replaces_built_in { "in place of" } else { "beside" };
        writeln!(
            f,
            "seed {}: {} replicas with {} shards, {place} the built-in controller",
            self.seed, settings.replicas, settings.shards
        )?;
        if settings.all_own_all {
            writeln!(f, "every replica acts for all shards, without Leases")?;
        }
        if let Some(most) = settings.max_uncounted {
            writeln!(f, "no more than {most} pods wait in a status to be counted")?;
        }
        for (replica, Lag { jobs, pods }) in settings.lags.iter().enumerate() {
            if !jobs.is_zero() || !pods.is_zero() {
                writeln!(f, "replica-{replica} sees changes of Jobs {jobs:?} late, and of pods {pods:?}")?;
            }
        }
        for job in self.jobs.iter().filter(|job| job.created < Time::NEVER) {
            writeln!(f, "{job}")?;
        }
        for (number, step) in self.steps.iter().enumerate().filter(|(_, step)| step.at < Time::NEVER) {
            writeln!(f, "step {number} at {}: {}", step.at, step.act)?;
        }
        Ok(())
    }
}

impl fmt::Display for JobPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}, ", self.name, self.namespace)?;
        match &self.past {
            None => write!(f, "created at {}", self.created)?,
            Some(past) => write!(
                f,
                "left by the built-in controller with {} running and {} succeeded pods, {} of them recorded",
                past.running, past.succeeded, past.uncounted
            )?,
        }
        write!(f, ": {}; {}% of its containers fail", self.spec, self.failing_percent)?;
        if self.restarts {
            write!(f, ", and are started again")?;
        }
        if self.exit_codes != [1] {
            write!(f, " with one of {:?}", self.exit_codes)?;
        }
        if self.evicted_percent > 0 {
            write!(f, ", {}% are evicted", self.evicted_percent)?;
        }
        if let Some(memory) = self.needs_memory {
            write!(f, ", they need {memory}Mi")?;
        }
        if self.stuck_percent > 0 {
            write!(f, ", {}% never start", self.stuck_percent)?;
        }
        if self.lost_percent > 0 {
            write!(f, ", {}% are on nodes that go", self.lost_percent)?;
        }
        if !self.slow_stop.is_zero() {
            write!(f, ", they stop up to {:?} late", self.slow_stop)?;
        }
        if !self.expressions.is_empty() {
            write!(f, "; it selects by {}", serde_json::Value::from(self.expressions.clone()))?;
        }
        self.annotations.iter().try_for_each(|(name, value)| write!(f, "; {name}: {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> Log {
        let mut log = Log::new(true);
        log.tell(Time::ms(1), "user", format_args!("creates job-1"));
        log.tell(Time::ms(2), "user", format_args!("creates job-10"));
        log.line(Time::ms(3), format_args!("replica-0 GET /jobs/job-1 -> 200"));
        log.tell(Time::ms(4), "replica-0", format_args!("starts"));
        log.tell(Time::ms(5), "replica-0", format_args!("POST pods -> 500"));
        log.tell(Time::ms(7), "replica-0", format_args!("POST pods -> 500"));
        log
    }

    #[test]
    fn a_story_leaves_out_messages_and_other_jobs() {
        let lines: Vec<String> = story(&log(), Some("job-1")).lines().map(str::to_owned).collect();
        let expected = [
            "     0.001 user       creates job-1",
            "     0.004 replica-0  starts",
            "     0.005 replica-0  POST pods -> 500 (2 times until 0.007)",
        ];
        assert_eq!(lines, expected);
        assert_eq!(story(&log(), None).lines().count(), 4);
    }

    #[test]
    fn names_of_jobs_are_found_in_names_of_pods() {
        let found: Vec<&str> = jobs_in("the job-controller of job-12-0-x7 and job-3").collect();
        assert_eq!(found, ["job-12", "job-3"]);
    }
}
