//! Validation of a new Job (`ValidateJob`).

use serde_json::{Value, json};

use super::super::field::{Causes, Path};
use super::super::pod::template;
use super::super::{label_selector, metadata, names};
use super::{
    CONTROLLER_UID_LABEL, JOB_NAME_LABEL, LEGACY_CONTROLLER_UID_LABEL, LEGACY_JOB_NAME_LABEL, METADATA_RULE,
    index_list, is_indexed, pod_failure_policy,
};

/// Maximum parallelism of an Indexed Job.
const INDEXED_PARALLELISM_MAX: i64 = 100_000;
/// Maximum value of `maxFailedIndexes`.
const FAILED_INDEXES_MAX: i64 = 100_000;
/// Completions above which the limit below applies to a Job with `backoffLimitPerIndex`.
const PER_INDEX_COMPLETIONS_SOFT_MAX: i64 = 100_000;
/// Maximum parallelism and `maxFailedIndexes` of such a Job.
const PER_INDEX_HIGH_COMPLETIONS_MAX: i64 = 10_000;
const MANAGED_BY_LENGTH_MAX: usize = 63;
const SUCCESS_POLICY_RULES_MAX: usize = 20;
const SUCCEEDED_INDEXES_LENGTH_MAX: usize = 64 * 1024;

const SPEC: Path<'static> = Path::root("spec");

/// All rules of a Job. With `prefixed_labels`, its template must also have the generated labels with prefix.
pub(super) fn validate(causes: &mut Causes, job: &Value, prefixed_labels: bool) {
    metadata::validate(causes, job, METADATA_RULE);
    generated_selector(causes, job, prefixed_labels);
    validate_spec(causes, &job["spec"]);
    pod_hostnames(causes, job);
}

/// The pod hostname with the highest index of an Indexed Job, `NAME-INDEX`, must be a DNS label.
fn pod_hostnames(causes: &mut Causes, job: &Value) {
    let spec = &job["spec"];
    let completions = spec["completions"].as_i64().unwrap_or(0);
    let name = job["metadata"]["name"].as_str().unwrap_or_default();
    if !is_indexed(spec) || completions <= 0 {
        return;
    }
    let hostname = format!("{name}-{}", completions - 1);
    if !names::dns_label(&hostname).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {hostname}");
        causes.invalid_str(&Path::root("metadata").child("name"), name, &detail);
    }
}

/// Without `manualSelector`, the selector and labels must be the generated ones.
fn generated_selector(causes: &mut Causes, job: &Value, prefixed_labels: bool) {
    let spec = &job["spec"];
    let metadata = &job["metadata"];
    if spec["manualSelector"] == true || spec["selector"].is_null() {
        return;
    }
    let uid = &metadata["uid"];
    if uid.as_str().unwrap_or_default().is_empty() {
        causes.required(&Path::root("metadata").child("uid"), "");
    }
    let name = &metadata["name"];
    let labels = &spec["template"]["metadata"]["labels"];
    let template_path = SPEC.child("template");
    let metadata_path = template_path.child("metadata");
    let labels_path = metadata_path.child("labels");
    let mut expect = |key: &str, value: &Value| {
        let value = value.as_str().unwrap_or_default();
        let detail = format!("must be '{value}'");
        match &labels[key] {
            Value::Null => causes.required(&labels_path.key(key), &detail),
            given if given != value => causes.invalid(&labels_path.key(key), labels, &detail),
            _ => {}
        }
    };
    expect(LEGACY_CONTROLLER_UID_LABEL, uid);
    expect(LEGACY_JOB_NAME_LABEL, name);
    if prefixed_labels {
        expect(CONTROLLER_UID_LABEL, uid);
        expect(JOB_NAME_LABEL, name);
    }
    let mut expected = json!({ LEGACY_CONTROLLER_UID_LABEL: uid, LEGACY_JOB_NAME_LABEL: name });
    if prefixed_labels {
        expected[CONTROLLER_UID_LABEL] = uid.clone();
        expected[JOB_NAME_LABEL] = name.clone();
    }
    if label_selector::matches(&spec["selector"], &expected) == Some(false) {
        causes.invalid_of(
            &SPEC.child("selector"),
            "meta.LabelSelector",
            &spec["selector"],
            "`selector` not auto-generated",
        );
    }
}

/// The rules of a `JobSpec` with a selector (`ValidateJobSpec`).
pub(super) fn validate_spec(causes: &mut Causes, spec: &Value) {
    validate_spec_without_selector(causes, &SPEC, spec);
    let selector = &spec["selector"];
    if selector.is_null() {
        causes.required(&SPEC.child("selector"), "");
    } else {
        label_selector::validate(causes, &SPEC.child("selector"), selector);
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if label_selector::matches(selector, labels) == Some(false) {
        let template = SPEC.child("template");
        let metadata = template.child("metadata");
        causes.invalid(&metadata.child("labels"), labels, "`selector` does not match template `labels`");
    }
}

/// The rules of a `JobSpec` that also apply in a `CronJob`.
pub(crate) fn validate_spec_without_selector(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        causes.non_negative(&path.child(field), &spec[field]);
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        causes.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    managed_by(causes, path, spec);
    completion_mode(causes, path, spec);
    if !spec["podFailurePolicy"].is_null() {
        pod_failure_policy::validate(causes, path, spec);
    }
    if !spec["successPolicy"].is_null() {
        success_policy(causes, path, spec);
    }
    pod_replacement_policy(causes, path, spec);
    template::validate(causes, &path.child("template"), &spec["template"]);
    restart_policy(causes, path, spec);
}

fn managed_by(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let Some(name) = spec["managedBy"].as_str() else { return };
    let path = path.child("managedBy");
    if name.is_empty() {
        causes.required(&path, "");
    } else {
        for (part, error) in names::domain_prefixed_path(name) {
            causes.invalid_str(&path, part, &error);
        }
    }
    if name.len() > MANAGED_BY_LENGTH_MAX {
        causes.too_long(&path, MANAGED_BY_LENGTH_MAX);
    }
}

fn completion_mode(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    match spec["completionMode"].as_str() {
        None => {}
        Some("Indexed") => indexed(causes, path, spec),
        Some("NonIndexed") => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if !spec[field].is_null() {
                    causes.invalid(&path.child(field), &spec[field], "requires indexed completion mode");
                }
            }
        }
        Some(_) => {
            let supported = ["NonIndexed", "Indexed"];
            causes.not_supported(&path.child("completionMode"), &spec["completionMode"], &supported);
        }
    }
}

/// Refuses a number above `max`.
fn at_most(causes: &mut Causes, path: &Path<'_>, value: &Value, max: i64, when: &str) {
    if value.as_i64().is_some_and(|number| number > max) {
        causes.invalid(path, value, &format!("must be less than or equal to {max}{when}"));
    }
}

fn indexed(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let [completions_path, parallelism_path, failed_path] =
        ["completions", "parallelism", "maxFailedIndexes"].map(|field| path.child(field));
    let [completions, parallelism, failed] =
        ["completions", "parallelism", "maxFailedIndexes"].map(|field| &spec[field]);
    if completions.is_null() {
        causes.required(&completions_path, "when completion mode is Indexed");
    }
    let when = " when completion mode is Indexed";
    at_most(causes, &parallelism_path, parallelism, INDEXED_PARALLELISM_MAX, when);
    if let (Some(completions), Some(max)) = (completions.as_i64(), failed.as_i64())
        && max > completions
    {
        causes.invalid(&failed_path, failed, "must be less than or equal to completions");
    }
    at_most(causes, &failed_path, failed, FAILED_INDEXES_MAX, "");
    let high = completions.as_i64().is_some_and(|completions| completions > PER_INDEX_COMPLETIONS_SOFT_MAX);
    if high && !spec["backoffLimitPerIndex"].is_null() {
        if failed.is_null() {
            let detail =
                format!("must be specified when completions is above {PER_INDEX_COMPLETIONS_SOFT_MAX}");
            causes.required(&failed_path, &detail);
        }
        let when = format!(
            " when completions are above {PER_INDEX_COMPLETIONS_SOFT_MAX} and used with backoff limit per index"
        );
        at_most(causes, &parallelism_path, parallelism, PER_INDEX_HIGH_COMPLETIONS_MAX, &when);
        at_most(causes, &failed_path, failed, PER_INDEX_HIGH_COMPLETIONS_MAX, &when);
    }
}

fn success_policy(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let policy = &spec["successPolicy"];
    let path = path.child("successPolicy");
    if !is_indexed(spec) {
        causes.invalid_of(&path, "batch.SuccessPolicy", policy, "requires indexed completion mode");
        return;
    }
    let rules = policy["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let path = path.child("rules");
    if rules.is_empty() {
        causes.required(&path, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.len() > SUCCESS_POLICY_RULES_MAX {
        causes.too_many(&path, rules.len(), SUCCESS_POLICY_RULES_MAX);
    }
    for (index, rule) in rules.iter().enumerate() {
        success_policy_rule(causes, &path.index(index), spec, rule);
    }
}

fn success_policy_rule(causes: &mut Causes, path: &Path<'_>, spec: &Value, rule: &Value) {
    let count = &rule["succeededCount"];
    let indexes = rule["succeededIndexes"].as_str();
    if count.is_null() && indexes.is_none() {
        causes.required(path, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    let mut listed = None;
    if let Some(text) = indexes {
        let path = path.child("succeededIndexes");
        if text.len() > SUCCEEDED_INDEXES_LENGTH_MAX {
            causes.too_long(&path, SUCCEEDED_INDEXES_LENGTH_MAX);
        }
        // A malformed list counts as a list without indexes.
        listed = Some(match index_list::parse(text, completions) {
            Ok(ranges) => index_list::count(&ranges),
            Err(reason) => {
                causes.invalid_str(&path, text, &format!("error parsing succeededIndexes: {reason}"));
                0
            }
        });
    }
    if let Some(number) = count.as_i64() {
        let path = path.child("succeededCount");
        causes.non_negative(&path, count);
        if number > completions {
            let when = " (the number of specified completions)";
            at_most(causes, &path, count, completions, when);
        }
        if let Some(listed) = listed {
            let when = " (the number of indexes in the specified succeededIndexes field)";
            at_most(causes, &path, count, listed, when);
        }
    }
}

fn pod_replacement_policy(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let policy = &spec["podReplacementPolicy"];
    let supported: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    if policy.as_str().is_some_and(|policy| !supported.contains(&policy)) {
        causes.not_supported(&path.child("podReplacementPolicy"), policy, supported);
    }
}

fn restart_policy(causes: &mut Causes, path: &Path<'_>, spec: &Value) {
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let template_path = path.child("template");
    let pod_path = template_path.child("spec");
    let path = pod_path.child("restartPolicy");
    match policy.as_str().unwrap_or_default() {
        "" | "Always" => causes.required(&path, "valid values: \"OnFailure\", \"Never\""),
        "Never" => {}
        "OnFailure" if spec["podFailurePolicy"].is_null() => {}
        "OnFailure" => {
            causes.invalid(&path, policy, "only \"Never\" is supported when podFailurePolicy is specified")
        }
        _ => causes.not_supported(&path, policy, &["OnFailure", "Never"]),
    }
}
