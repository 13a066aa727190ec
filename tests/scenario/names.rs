//! Names in a scenario: placeholders for uids and generated names, marks of pods, and numbers of start times.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::scenario::file::Which;

/// The generations of one Job name: the current and the previous objects.
#[derive(Debug, Default, Clone)]
struct Generations {
    current: Option<String>,
    previous: BTreeSet<String>,
}

/// Names and marks seen so far in one replay of a scenario.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    pub(crate) namespace: String,
    jobs: [Generations; 2],
    /// Marks by the pod's uid.
    marks: BTreeMap<String, BTreeSet<String>>,
    /// Uid of the first pod with a mark, by mark.
    marked: BTreeMap<String, String>,
    /// Placeholders by generated name.
    generated: BTreeMap<String, &'static str>,
    /// Distinct start times by the Job's uid, in order.
    start_times: BTreeMap<String, Vec<String>>,
}

impl Names {
    pub(crate) fn new(namespace: String) -> Self {
        Self { namespace, ..Self::default() }
    }

    /// Records a created Job.
    pub(crate) fn job_created(&mut self, which: Which, uid: &str) {
        let job = &mut self.jobs[which as usize];
        job.previous.extend(job.current.replace(uid.to_owned()));
    }

    pub(crate) fn uid_of(&self, which: Which) -> Option<&str> {
        self.jobs[which as usize].current.as_deref()
    }

    pub(crate) fn mark(&mut self, mark: &str, uid: &str) {
        self.marks.entry(uid.to_owned()).or_default().insert(mark.to_owned());
        self.marked.entry(mark.to_owned()).or_insert_with(|| uid.to_owned());
    }

    pub(crate) fn marks_of(&self, uid: &str) -> Vec<&str> {
        self.marks.get(uid).into_iter().flatten().map(String::as_str).collect()
    }

    /// Records a generated name. Messages show `placeholder` in its place.
    pub(crate) fn generated(&mut self, name: &str, placeholder: &'static str) {
        self.generated.insert(name.to_owned(), placeholder);
    }

    /// The placeholder, such as `<workload>`, of a generated name. Other names are unchanged.
    pub(crate) fn placeholder<'a>(&self, name: &'a str) -> &'a str {
        self.generated.get(name).copied().unwrap_or(name)
    }

    /// The `n` of `<time#n>` for a Job's start time.
    pub(crate) fn start_time_number(&mut self, uid: &str, time: &str) -> usize {
        let times = self.start_times.entry(uid.to_owned()).or_default();
        let known = times.iter().position(|known| known == time);
        known.unwrap_or_else(|| {
            times.push(time.to_owned());
            times.len() - 1
        }) + 1
    }

    /// The Job with this uid as `owners` and events show it: `job`, `job2` or `previous-job`.
    pub(crate) fn job_of_uid(&self, uid: &str) -> Option<&'static str> {
        for (job, name) in self.jobs.iter().zip(["job", "job2"]) {
            if job.current.as_deref() == Some(uid) {
                return Some(name);
            }
        }
        self.jobs.iter().any(|job| job.previous.contains(uid)).then_some("previous-job")
    }

    /// Fills uids and the namespace into a manifest or patch.
    pub(crate) fn fill(&self, value: &Value) -> Result<Value> {
        Ok(match value {
            Value::String(text) => self.fill_text(text)?.into(),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.fill(v)).collect::<Result<_>>()?),
            Value::Object(fields) => {
                let filled = fields.iter().map(|(key, v)| Ok((key.clone(), self.fill(v)?)));
                Value::Object(filled.collect::<Result<_>>()?)
            }
            other => other.clone(),
        })
    }

    fn fill_text(&self, text: &str) -> Result<String> {
        let mut filled = text.replace("<namespace>", &self.namespace);
        for (job, placeholder) in self.jobs.iter().zip(["<job-uid>", "<job2-uid>"]) {
            if let Some(uid) = &job.current {
                filled = filled.replace(placeholder, uid);
            }
        }
        while let Some((before, remaining)) = filled.split_once("<mark-uid:") {
            let (mark, after) = remaining.split_once('>').with_context(|| format!("no end in {text}"))?;
            let uid = self.marked.get(mark).with_context(|| format!("nothing is marked {mark}"))?;
            filled = format!("{before}{uid}{after}");
        }
        Ok(filled)
    }

    /// Replaces uids, generated names and the namespace in a text by placeholders.
    pub(crate) fn hide(&self, text: &str) -> String {
        let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let mut hidden = String::with_capacity(text.len());
        for piece in text.split_inclusive(|c| !in_name(c)) {
            let name = piece.trim_end_matches(|c| !in_name(c));
            let shown = if name == self.namespace { "<namespace>" } else { self.placeholder(name) };
            hidden.push_str(self.uid_placeholder(shown));
            hidden.push_str(&piece[name.len()..]);
        }
        hide_pod_name(&hidden)
    }

    /// The placeholder, such as `<job-uid>`, of a Job's uid. Other text is unchanged.
    pub(crate) fn uid_placeholder<'a>(&self, text: &'a str) -> &'a str {
        match self.job_of_uid(text) {
            Some("job") => "<job-uid>",
            Some("job2") => "<job2-uid>",
            Some(_) => "<previous-job-uid>",
            None => text,
        }
    }
}

/// Hides the name of a pod that was never observed: its creation was refused, or it is already gone.
fn hide_pod_name(text: &str) -> String {
    for (start, end) in [("Created pod: ", None), ("Deleted pod: ", None), ("pods \"", Some('"'))] {
        let Some((before, remaining)) = text.split_once(start) else { continue };
        let after = end.and_then(|end| remaining.find(end)).map_or("", |at| &remaining[at..]);
        return format!("{before}{start}<pod>{after}");
    }
    text.to_owned()
}
