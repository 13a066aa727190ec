//! No label takes values without bound.

use std::collections::{BTreeMap, BTreeSet};

use yardmaster::job::plan::Wait;

use super::load::LOAD;

/// All values that a label may have, whatever users do. Returns `None` for numbers within a known range.
fn values(label: &str) -> Option<&'static [&'static str]> {
    Some(match label {
        "completion_mode" => &["Indexed", "NonIndexed"],
        "result" => &["success", "error", "succeeded", "failed"],
        "status" => &["succeeded", "failed"],
        "action" => &[
            "reconciling",
            "tracking",
            "pods_created",
            "pods_deleted",
            "FailJob",
            "FailIndex",
            "Ignore",
            "Count",
        ],
        "event" => &["add", "delete"],
        "backoffLimit" => &["perIndex", "global"],
        "direction" => &["acquired", "released", "lost"],
        "priority" => &["status", "finalizer", "delete", "create", "progress", "report", "event"],
        "name" => &["job"],
        "method" => &["GET", "POST", "PUT", "PATCH", "DELETE", "OTHER"],
        "verb" => &[
            "GET", "POST", "PUT", "PATCH", "DELETE", "OTHER", "create", "patch", "delete", "get", "list",
            "update", "watch",
        ],
        "resource" => {
            &["jobs", "jobs/status", "pods", "events", "leases", "workloads", "podgroups", "namespaces"]
        }
        "type" => &["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "UNREADABLE"],
        "version" => &[env!("CARGO_PKG_VERSION")],
        _ => return None,
    })
}

/// Values of `reason` differ from metric to metric.
fn reasons(metric: &str) -> Vec<&'static str> {
    match metric {
        "yardmaster_waiting_jobs" => Wait::REASONS.to_vec(),
        "yardmaster_lost_events_total" => vec!["spam", "queue_full", "refused"],
        "job_controller_job_pods_creation_total" => {
            vec!["new", "recreate_failed", "recreate_terminating_or_failed"]
        }
        "job_controller_jobs_finished_total" => vec![
            "CompletionsReached",
            "SuccessPolicy",
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "PodFailurePolicy",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
            "Other",
        ],
        other => panic!("{other} has no reasons"),
    }
}

#[test]
fn every_label_has_a_known_set_of_values() {
    for (name, labels) in LOAD.both.series.keys() {
        for (label, value) in labels {
            let known = match (label.as_str(), values(label)) {
                (_, Some(values)) => values.contains(&value.as_str()),
                ("reason", _) => reasons(name).contains(&value.as_str()),
                ("code", _) => value == "<error>" || value.parse::<u16>().is_ok_and(|code| code < 600),
                ("le", _) => value == "+Inf" || value.parse::<f64>().is_ok(),
                ("host", _) => *value == LOAD.host,
                // `users_cannot_make_series_without_bound` is its bound.
                ("controller_name", _) => name == "job_controller_jobs_by_external_controller_total",
                _ => false,
            };
            assert!(known, "{name}: {label}={value:?}");
        }
    }
}

#[test]
fn no_label_names_a_job_or_a_pod() {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (_, series) in LOAD.both.series.keys() {
        series.iter().for_each(|(label, value)| _ = labels.entry(label).or_default().insert(value));
    }
    for job in ["indexed", "plain", "fails", "fail-job", "fail-index", "expires", "suspended", "default"] {
        for (label, values) in &labels {
            assert!(!values.iter().any(|value| value.contains(job)), "{label}: {values:?}");
        }
    }
}
