//! The state of a side, as far as both sides must agree, and what differs between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::class::Class;

/// Events of a Job that clients drop beyond, so they are not compared.
const DROPPED: u64 = 25;
/// Equal Events that clients may combine beyond.
const EXACT: u64 = 9;
/// Events that are repeated as often as a request is.
const REPEATED: [&str; 2] = ["FailedCreate", "FailedDelete"];
/// How clients begin the message of Events that they have combined.
const COMBINED: &str = "(combined from similar events): ";

/// The compared fields, the weightiest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Field {
    Exists,
    Rest,
    Conditions,
    Succeeded,
    Failed,
    CompletedIndexes,
    FailedIndexes,
    Deleting,
    StartTime,
    CompletionTime,
    Active,
    Ready,
    Terminating,
    Uncounted,
    /// By how many pods `active` was too low before the side came to rest.
    ActiveTooLow,
    Pods,
    Finalizers,
    Events,
}

/// The compared state of a side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Values by field and Job.
    pub(super) facts: BTreeMap<(Field, String), String>,
    /// Numbers of pods.
    pub(super) pods: BTreeMap<Class, u32>,
    /// Jobs with `spec.suspend`.
    pub(super) suspended: BTreeSet<String>,
    /// Number of Events of each Job.
    events: BTreeMap<String, u64>,
}

/// The objects of a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Objects {
    pub(super) jobs: Vec<Arc<Value>>,
    pub(super) pods: Vec<Arc<Value>>,
    pub(super) events: Vec<Arc<Value>>,
}

/// The names of a side that the other one has in another way.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) namespace: String,
    /// The tracking finalizer.
    pub(super) finalizer: &'static str,
    /// The start times of each Job that were seen, by UID.
    starts: BTreeMap<String, Vec<String>>,
}

impl Names {
    pub(super) fn new(namespace: String, finalizer: &'static str) -> Self {
        Self { namespace, finalizer, starts: BTreeMap::new() }
    }

    /// The number of a start time among those of its Job.
    fn start(&mut self, job: &Value, time: &str) -> String {
        let uid = job["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let known = self.starts.entry(uid).or_default();
        let number = known.iter().position(|other| other == time).unwrap_or(known.len());
        if number == known.len() {
            known.push(time.to_owned());
        }
        format!("time {}", number + 1)
    }

    /// A message without the names of the namespace and of pods.
    fn hide(&self, message: &str) -> String {
        let part_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let message = message.strip_prefix(COMBINED).unwrap_or(message);
        let mut hidden = String::new();
        for part in message.split_inclusive(|c| !part_of_name(c)) {
            let word = part.trim_end_matches(|c| !part_of_name(c));
            let rest = &part[word.len()..];
            match word.split_once('-') {
                _ if word == self.namespace => hidden.push_str("<namespace>"),
                Some((job, _)) if is_job(job) => hidden.push_str("<pod>"),
                _ => hidden.push_str(word),
            }
            hidden.push_str(rest);
        }
        hidden
    }
}

/// Whether this is a name that [`super::plan::job_name`] gives.
fn is_job(name: &str) -> bool {
    name.strip_prefix('j')
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

impl State {
    /// The state of a namespace.
    pub(super) fn of(objects: &Objects, names: &mut Names, too_low: &BTreeMap<String, u32>) -> Self {
        let mut state = Self::default();
        for job in &objects.jobs {
            state.add_job(job, names);
        }
        for pod in &objects.pods {
            *state.pods.entry(Class::of(pod, names.finalizer)).or_default() += 1;
        }
        let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (class, count) in &state.pods {
            lines.entry(&class.job).or_default().push(format!("{count} x {class}"));
        }
        let pods = lines.into_iter().map(|(job, lines)| ((Field::Pods, job.to_owned()), lines.join("; ")));
        state.facts.extend(pods);
        state.add_events(objects, names);
        let low = too_low.iter().filter(|(_, pods)| **pods > 0);
        state.facts.extend(low.map(|(job, pods)| ((Field::ActiveTooLow, job.clone()), pods.to_string())));
        state
    }

    fn add_job(&mut self, job: &Value, names: &mut Names) {
        let (metadata, status) = (&job["metadata"], &job["status"]);
        let name = metadata["name"].as_str().unwrap_or_default().to_owned();
        if job["spec"]["suspend"] == true {
            self.suspended.insert(name.clone());
        }
        let mut add = |field, value: String| self.facts.insert((field, name.clone()), value);
        add(Field::Exists, "yes".into());
        let conditions = status["conditions"].as_array().into_iter().flatten();
        let conditions: Vec<String> = conditions.map(|one| condition(one, names)).collect();
        add(Field::Conditions, conditions.join("; "));
        for (field, key) in [
            (Field::Succeeded, "succeeded"),
            (Field::Failed, "failed"),
            (Field::CompletedIndexes, "completedIndexes"),
            (Field::FailedIndexes, "failedIndexes"),
            (Field::Active, "active"),
            (Field::Ready, "ready"),
            (Field::Terminating, "terminating"),
        ] {
            if !status[key].is_null() {
                add(field, text(&status[key]));
            }
        }
        if let Some(time) = status["startTime"].as_str() {
            add(Field::StartTime, names.start(job, time));
        }
        if status["completionTime"].is_string() {
            add(Field::CompletionTime, "yes".into());
        }
        if metadata["deletionTimestamp"].is_string() {
            add(Field::Deleting, "yes".into());
        }
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten().map(text);
        add(Field::Finalizers, finalizers.collect::<Vec<_>>().join(", "));
        let count = |key: &str| status["uncountedTerminatedPods"][key].as_array().map_or(0, Vec::len);
        add(Field::Uncounted, format!("succeeded {}, failed {}", count("succeeded"), count("failed")));
    }

    fn add_events(&mut self, objects: &Objects, names: &Names) {
        let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
        for event in objects.events.iter().filter(|event| event["involvedObject"]["kind"] == "Job") {
            let field = |key: &str| event[key].as_str().unwrap_or_default();
            let job = text(&event["involvedObject"]["name"]);
            let (message, pods) = each_pod(names.hide(field("message")));
            let line = format!("{} {} {message}", field("type"), field("reason"));
            let count =
                event["series"]["count"].as_u64().or(event["count"].as_u64()).unwrap_or(1).max(1) * pods;
            *self.events.entry(job.clone()).or_default() += count;
            *counts.entry((job, line)).or_default() += count;
        }
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for ((job, line), count) in counts {
            let repeated = REPEATED.iter().any(|reason| line.split(' ').nth(1) == Some(reason));
            let count = match count {
                _ if repeated => "some".to_owned(),
                count if count > EXACT => format!("more than {EXACT}"),
                count => count.to_string(),
            };
            lines.entry(job).or_default().push(format!("{line} x {count}"));
        }
        self.facts.extend(lines.into_iter().map(|(job, lines)| ((Field::Events, job), lines.join("; "))));
    }

    /// Adds Events of the other state to each Job that has some of them and no further ones. A controller that is killed
    /// loses the Events that it has not sent.
    pub(super) fn restore_events(&mut self, other: &Self) {
        for ((field, job), theirs) in &other.facts {
            if *field == Field::Events && is_part(self.get(Field::Events, job).unwrap_or_default(), theirs) {
                self.facts.insert((*field, job.clone()), theirs.clone());
            }
        }
    }

    /// A value.
    pub(super) fn get(&self, field: Field, job: &str) -> Option<&str> {
        self.facts.get(&(field, job.to_owned())).map(String::as_str)
    }

    /// A number, 0 if there is none.
    pub(super) fn number(&self, field: Field, job: &str) -> u64 {
        self.get(field, job).and_then(|value| value.parse().ok()).unwrap_or_default()
    }

    /// Number of pods of a Job of such classes.
    pub(super) fn count(&self, job: &str, of: impl Fn(&Class) -> bool) -> u32 {
        self.pods.iter().filter(|(class, _)| class.job == job && of(class)).map(|(_, count)| count).sum()
    }

    /// Number of pods that were created for a Job, as its Events say.
    pub(super) fn created(&self, job: &str) -> u64 {
        let counts = event_counts(self.get(Field::Events, job).unwrap_or_default());
        counts.iter().filter(|(event, _)| event.contains(" SuccessfulCreate ")).map(|(_, count)| count).sum()
    }

    /// Whether a Job has ended.
    pub(super) fn is_finished(&self, job: &str) -> bool {
        self.has_any(job, &["Complete=True", "Failed=True"])
    }

    /// Whether the end of a Job is announced.
    pub(super) fn announces_end(&self, job: &str) -> bool {
        self.has_any(job, &["SuccessCriteriaMet=True", "FailureTarget=True"])
    }

    /// Whether a Job has one of these conditions.
    pub(super) fn has_any(&self, job: &str, conditions: &[&str]) -> bool {
        let has = self.get(Field::Conditions, job).unwrap_or_default();
        has.split("; ").any(|one| conditions.iter().any(|condition| one.starts_with(condition)))
    }
}

/// A message about several pods as as many about one: `Created 3 pods` is `Created pod: <pod>`, three times.
fn each_pod(message: String) -> (String, u64) {
    let several = message.strip_suffix(" pods").and_then(|rest| {
        let (verb, count) = rest.split_once(' ')?;
        Some((format!("{verb} pod: <pod>"), count.parse().ok()?))
    });
    several.unwrap_or((message, 1))
}

/// Whether these Events are some of all, each at most as often.
fn is_part(events: &str, all: &str) -> bool {
    let all = event_counts(all);
    event_counts(events).iter().all(|(event, count)| all.get(event).is_some_and(|most| count <= most))
}

/// The counts of Events in a line. Each event that is repeated as often as a request counts once.
fn event_counts(line: &str) -> BTreeMap<&str, u64> {
    let count = |count: &str| match count.strip_prefix("more than ") {
        Some(_) => EXACT + 1,
        None => count.parse().unwrap_or(1),
    };
    let events = line.split("; ").filter(|event| !event.is_empty());
    events
        .map(|event| event.rsplit_once(" x ").map_or((event, 1), |(event, often)| (event, count(often))))
        .collect()
}

fn condition(one: &Value, names: &Names) -> String {
    let part = |key: &str| one[key].as_str().unwrap_or_default();
    format!("{}={} {}: {}", part("type"), part("status"), part("reason"), names.hide(part("message")))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Differing {
    pub(super) field: Field,
    pub(super) job: String,
    pub(super) reference: Option<String>,
    pub(super) ours: Option<String>,
}

/// A difference between the reference and ours.
#[derive(Clone, Debug)]
pub(super) struct Difference {
    pub(super) reference: State,
    pub(super) ours: State,
    /// All fields that differ, the weightiest first. There is at least one.
    pub(super) fields: Vec<Differing>,
    /// After how many seconds both sides were equal, without a further act.
    pub(super) healed_after_s: Option<f64>,
}

impl Difference {
    /// The difference between two states. Returns `None` if they are equal.
    pub(super) fn between(reference: &State, ours: &State) -> Option<Self> {
        let keys: BTreeSet<_> = reference.facts.keys().chain(ours.facts.keys()).collect();
        let dropped = |job: &str| {
            [reference, ours].iter().any(|state| state.events.get(job).is_some_and(|count| *count >= DROPPED))
        };
        let differing = |key: &&(Field, String)| {
            let (field, job) = key;
            let (theirs, our) = (reference.get(*field, job), ours.get(*field, job));
            match field {
                Field::Events => theirs != our && !dropped(job),
                // The reference may be as late as it is.
                Field::ActiveTooLow => ours.number(*field, job) > reference.number(*field, job),
                _ => theirs != our,
            }
        };
        let fields: Vec<Differing> = keys
            .into_iter()
            .filter(differing)
            .map(|(field, job)| Differing {
                field: *field,
                job: job.clone(),
                reference: reference.get(*field, job).map(str::to_owned),
                ours: ours.get(*field, job).map(str::to_owned),
            })
            .collect();
        let (reference, ours) = (reference.clone(), ours.clone());
        (!fields.is_empty()).then_some(Self { reference, ours, fields, healed_after_s: None })
    }

    /// Whether a field of a Job is equal.
    fn agree(&self, field: Field, job: &str) -> bool {
        self.reference.get(field, job) == self.ours.get(field, job)
    }

    /// Whether only these fields differ.
    pub(super) fn is_only(&self, fields: &[Field]) -> bool {
        self.fields.iter().all(|differing| fields.contains(&differing.field))
    }

    /// The kind of the difference: what is weightiest in it. Stories with the same kind are about the same.
    pub(super) fn kind(&self) -> String {
        let Some(first) = self.fields.first() else { return "none".into() };
        let (reference, ours) = (first.reference.as_deref(), first.ours.as_deref());
        match first.field {
            Field::Conditions => {
                let short = |conditions: Option<&str>| {
                    let names = conditions.unwrap_or_default().split("; ");
                    let names = names.map(|one| one.split(':').next().unwrap_or_default());
                    Some(names.collect::<Vec<_>>().join(", ")).filter(|names| !names.is_empty())
                };
                let none = || "no conditions".to_owned();
                let (theirs, our) = (short(reference), short(ours));
                format!("Conditions: {} | {}", theirs.unwrap_or_else(none), our.unwrap_or_else(none))
            }
            Field::Pods => {
                let count = |state: &State| state.count(&first.job, Class::is_active);
                format!("Pods: {} active", comparison(count(&self.reference), count(&self.ours)))
            }
            Field::Events => "Events".to_owned(),
            field => {
                let number = |value: Option<&str>| value.map_or(Some(0), |value| value.parse::<u64>().ok());
                match (number(reference), number(ours)) {
                    (Some(theirs), Some(our)) => format!("{field:?}: {}", comparison(theirs, our)),
                    _ => format!("{field:?}"),
                }
            }
        }
    }
}

fn comparison<T: Ord>(reference: T, ours: T) -> &'static str {
    match ours.cmp(&reference) {
        std::cmp::Ordering::Less => "ours fewer",
        std::cmp::Ordering::Equal => "as many",
        std::cmp::Ordering::Greater => "ours more",
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for differing in &self.fields {
            let Differing { field, job, reference, ours } = differing;
            let or_none = |value: &Option<String>| value.clone().unwrap_or_else(|| "none".into());
            writeln!(f, "    {job} {field:?}")?;
            writeln!(f, "      reference: {}", or_none(reference))?;
            writeln!(f, "      ours:      {}", or_none(ours))?;
        }
        let jobs: BTreeSet<&str> = self.fields.iter().map(|one| &*one.job).collect();
        for job in jobs.into_iter().filter(|job| self.agree(Field::Pods, job)) {
            writeln!(f, "    {job} Pods of both: {}", self.ours.get(Field::Pods, job).unwrap_or("none"))?;
        }
        match self.healed_after_s {
            Some(after) => writeln!(f, "    equal again after {after:.1} s"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
