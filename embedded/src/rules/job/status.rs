//! Changes of a Job's status (`ValidateJobUpdateStatus`).
//!
//! If a rule relates fields to each other, it applies only to an update that changes one of them. So a Job
//! that was stored under older rules can still be updated.

use std::collections::HashSet;

use jiff::Timestamp;
use serde_json::Value;

use super::super::field::{Causes, Path};
use super::conditions::{has, is_finished, is_true};
use super::{index_list, is_indexed};

const STATUS: Path<'static> = Path::root("status");

/// An update of a status, with the queries that rules need.
struct Update<'a> {
    spec: &'a Value,
    old: &'a Value,
    new: &'a Value,
}

impl Update<'_> {
    /// Whether one of these fields has changed.
    fn changed(&self, fields: &[&str]) -> bool {
        fields.iter().any(|field| self.old[*field] != self.new[*field])
    }

    /// Whether a condition of one of these types became true or stopped being true.
    fn flipped(&self, conditions: &[&str]) -> bool {
        conditions.iter().any(|kind| is_true(self.old, kind) != is_true(self.new, kind))
    }

    fn finish_changed(&self) -> bool {
        is_finished(self.old) != is_finished(self.new)
    }
}

/// Checks the change of a Job's status.
pub(super) fn validate_update(causes: &mut Causes, old: &Value, new: &Value) {
    let update = Update { spec: &new["spec"], old: &old["status"], new: &new["status"] };
    counters(causes, update.new);
    uncounted(causes, &update.new["uncountedTerminatedPods"]);
    exclusive_conditions(causes, &update);
    times(causes, &update);
    required_conditions(causes, &update);
    finished(causes, &update);
    indexes(causes, &update);
    no_pods_left(causes, &update, "terminating");
    if update.changed(&["ready", "active"])
        && let Some(ready) = update.new["ready"].as_i64()
        && ready > number(update.new, "active")
    {
        causes.invalid(
            &STATUS.child("ready"),
            &update.new["ready"],
            "cannot set more ready pods than active",
        );
    }
    success_criteria(causes, &update);
    changes(causes, &update);
}

fn number(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or(0)
}

fn conditions_error(causes: &mut Causes, detail: &str) {
    causes.invalid_omitted(&STATUS.child("conditions"), detail);
}

fn counters(causes: &mut Causes, status: &Value) {
    for field in ["active", "succeeded", "failed", "ready", "terminating"] {
        causes.non_negative(&STATUS.child(field), &status[field]);
    }
}

fn uncounted(causes: &mut Causes, uncounted: &Value) {
    let path = STATUS.child("uncountedTerminatedPods");
    let mut seen: HashSet<&Value> = HashSet::new();
    for field in ["succeeded", "failed"] {
        let path = path.child(field);
        for (index, uid) in uncounted[field].as_array().into_iter().flatten().enumerate() {
            if uid == "" {
                causes.invalid(&path.index(index), uid, "must not be empty");
            } else if !seen.insert(uid) {
                causes.duplicate(&path.index(index), uid);
            }
        }
    }
}

/// Conditions that exclude each other.
fn exclusive_conditions(causes: &mut Causes, update: &Update<'_>) {
    let holds = |kind: &str| is_true(update.new, kind);
    for other in ["Failed", "FailureTarget"] {
        if update.flipped(&["Complete", other]) && holds("Complete") && holds(other) {
            conditions_error(causes, &format!("cannot set Complete=True and {other}=true conditions"));
        }
    }
}

/// Conditions that announce an end before it is reached.
fn required_conditions(causes: &mut Causes, update: &Update<'_>) {
    let without =
        |kind: &str, announcement: &str| is_true(update.new, kind) && !is_true(update.new, announcement);
    let failed_changed = update.flipped(&["Failed"]) || update.changed(&["failedIndexes"]);
    if failed_changed && without("Failed", "FailureTarget") {
        conditions_error(causes, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if update.flipped(&["Complete", "SuccessCriteriaMet"]) && without("Complete", "SuccessCriteriaMet") {
        conditions_error(
            causes,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn times(causes: &mut Causes, update: &Update<'_>) {
    let complete = is_true(update.new, "Complete");
    let completion = &update.new["completionTime"];
    let path = STATUS.child("completionTime");
    if update.flipped(&["Complete"]) || update.changed(&["completionTime"]) {
        if !completion.is_null() && !complete {
            let detail = "cannot set completionTime when there is no Complete=True condition";
            causes.invalid(&path, completion, detail);
        }
        if completion.is_null() && complete {
            causes.required(&path, "completionTime is required for Complete jobs");
        }
    }
    if update.changed(&["completionTime", "startTime"])
        && let (Some(start), Some(end)) = (time(&update.new["startTime"]), time(completion))
        && end < start
    {
        causes.invalid(&path, completion, "must be equal to or after `startTime`");
    }
}

/// A finished Job has no pods that this counter counts.
fn no_pods_left(causes: &mut Causes, update: &Update<'_>, counter: &str) {
    let changed = update.finish_changed() || update.changed(&[counter]);
    if changed && is_finished(update.new) && number(update.new, counter) > 0 {
        let detail = format!("{counter}>0 is invalid for finished job");
        causes.invalid(&STATUS.child(counter), &update.new[counter], &detail);
    }
}

/// A finished Job has a start time, and no pods that are active or still to be counted.
fn finished(causes: &mut Causes, update: &Update<'_>) {
    no_pods_left(causes, update, "active");
    if !is_finished(update.new) {
        return;
    }
    let (finish_changed, new) = (update.finish_changed(), update.new);
    let never_started = update.spec["suspend"] == true && update.spec["completions"] == 0;
    if (finish_changed || update.changed(&["startTime"])) && new["startTime"].is_null() && !never_started {
        causes.required(&STATUS.child("startTime"), "startTime is required for finished job");
    }
    let uncounted = &new["uncountedTerminatedPods"];
    let left =
        ["succeeded", "failed"].iter().any(|list| uncounted[*list].as_array().is_some_and(|l| !l.is_empty()));
    if (finish_changed || update.changed(&["uncountedTerminatedPods"])) && left {
        let path = STATUS.child("uncountedTerminatedPods");
        causes.invalid_of(
            &path,
            "batch.UncountedTerminatedPods",
            uncounted,
            "must be empty for finished job",
        );
    }
}

fn indexes(causes: &mut Causes, update: &Update<'_>) {
    let (completed, failed) = (&update.new["completedIndexes"], &update.new["failedIndexes"]);
    let completed_path = STATUS.child("completedIndexes");
    let failed_path = STATUS.child("failedIndexes");
    let completed_changed = update.changed(&["completedIndexes"]);
    let failed_changed = update.changed(&["failedIndexes"]);
    let with_completions = !update.spec["completions"].is_null();
    let with_limit = !update.spec["backoffLimitPerIndex"].is_null();
    let malformed = |field: &str| index_list::parse(text(&update.new[field]), completions(update)).err();
    if completed_changed
        && with_completions
        && let Some(reason) = malformed("completedIndexes")
    {
        let detail = format!("error parsing completedIndexes: {reason}");
        causes.invalid_str(&completed_path, text(completed), &detail);
    }
    if failed_changed
        && with_completions
        && with_limit
        && let Some(reason) = malformed("failedIndexes")
    {
        causes.invalid(&failed_path, failed, &format!("error parsing failedIndexes: {reason}"));
    }
    if completed_changed && !is_indexed(update.spec) && !text(completed).is_empty() {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        causes.invalid_str(&completed_path, text(completed), detail);
    }
    if failed_changed && !failed.is_null() && !with_limit {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        causes.invalid_str(&failed_path, text(failed), detail);
    }
    if (completed_changed || failed_changed)
        && with_completions
        && let Some(index) = index_list::first_overlap(text(completed), text(failed), completions(update))
    {
        let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
        causes.invalid_str(&failed_path, text(failed), &detail);
    }
}

fn completions(update: &Update<'_>) -> i64 {
    update.spec["completions"].as_i64().unwrap_or(0)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Rules about success criteria, which apply to every Job regardless of its manager.
fn success_criteria(causes: &mut Causes, update: &Update<'_>) {
    let holds = |kind: &str| is_true(update.new, kind);
    for other in ["Failed", "FailureTarget"] {
        if holds("SuccessCriteriaMet") && holds(other) {
            conditions_error(
                causes,
                &format!("cannot set SuccessCriteriaMet=True and {other}=true conditions"),
            );
        }
    }
    if !update.spec["successPolicy"].is_null() && holds("Complete") && !holds("SuccessCriteriaMet") {
        let detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True";
        conditions_error(causes, detail);
    }
}

/// Values that no update may revert.
fn changes(causes: &mut Causes, update: &Update<'_>) {
    let (spec, old, new) = (update.spec, update.old, update.new);
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if is_true(old, kind) && !is_true(new, kind) {
            conditions_error(causes, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if number(new, "failed") < number(old, "failed") {
        causes.invalid(&STATUS.child("failed"), &shown(new, "failed"), "cannot decrease the failed counter");
    }
    // An elastic Indexed Job (completions equal to parallelism) may be scaled down.
    let elastic = is_indexed(spec) && spec["completions"] == spec["parallelism"];
    if !elastic && number(new, "succeeded") < number(old, "succeeded") {
        causes.invalid(
            &STATUS.child("succeeded"),
            &shown(new, "succeeded"),
            "cannot decrease the succeeded counter",
        );
    }
    let completion = &new["completionTime"];
    if !old["completionTime"].is_null() && !completion.is_null() && update.changed(&["completionTime"]) {
        causes.invalid(&STATUS.child("completionTime"), completion, "field is immutable");
    }
    if !old["startTime"].is_null()
        && update.changed(&["startTime"])
        && spec["suspend"] != true
        && !resumes(update)
    {
        let detail = "field is immutable for unsuspended job once set";
        causes.invalid(&STATUS.child("startTime"), &new["startTime"], detail);
    }
    if is_true(old, "SuccessCriteriaMet") && !is_true(new, "SuccessCriteriaMet") {
        conditions_error(causes, "cannot disable the SuccessCriteriaMet=True condition");
    }
    if is_true(old, "Complete") && !is_true(old, "SuccessCriteriaMet") && is_true(new, "SuccessCriteriaMet") {
        conditions_error(
            causes,
            "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        );
    }
}

/// A counter as the object shows it: zero is omitted.
fn shown(status: &Value, field: &str) -> Value {
    number(status, field).into()
}

/// Whether this update resumes a suspended Job.
fn resumes(update: &Update<'_>) -> bool {
    is_true(update.old, "Suspended") && has(update.new, "Suspended", "False")
}
