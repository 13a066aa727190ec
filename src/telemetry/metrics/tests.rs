#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use super::labels::{
    ApiRequestLabels, BackoffScope, CompletionMode, FinishedIndexLabels, Outcome, SyncAction, SyncLabels,
    SyncResult,
};
use super::*;

fn sync() -> SyncLabels {
    SyncLabels {
        completion_mode: CompletionMode::Indexed,
        result: SyncResult::Success,
        action: SyncAction::PodsCreated,
    }
}

#[test]
fn metrics_have_the_names_labels_and_buckets_of_the_built_in_controller() {
    let metrics = Metrics::new();
    metrics.job_syncs.get_or_create(&sync()).inc();
    metrics.job_sync_duration.get_or_create(&sync()).observe(0.005);
    let index = FinishedIndexLabels { status: Outcome::Succeeded, backoff_limit: BackoffScope::PerIndex };
    metrics.job_finished_indexes.get_or_create(&index).inc_by(3);
    let text = metrics.render();
    let labels = r#"completion_mode="Indexed",result="success",action="pods_created""#;
    for line in [
        "# TYPE job_controller_job_syncs_total counter".to_owned(),
        format!("job_controller_job_syncs_total{{{labels}}} 1"),
        r#"job_controller_job_finished_indexes_total{status="succeeded",backoffLimit="perIndex"} 3"#
            .to_owned(),
        "# TYPE job_controller_job_sync_duration_seconds histogram".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\n{text}");
    }
    let bounds: Vec<f64> = text
        .lines()
        .filter(|l| l.starts_with("job_controller_job_sync_duration_seconds_bucket"))
        .map(|l| l.split("le=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap_or(f64::INFINITY))
        .collect();
    assert_eq!(bounds.len(), 16, "15 bounds and +Inf");
    assert!((bounds[0] - 0.004).abs() < 1e-9 && (bounds[14] - 65.536).abs() < 1e-9, "{bounds:?}");
}

/// Prometheus' text format requires that each family has its type before its samples, each sample belongs to
/// the family above it, and no family occurs twice.
#[test]
fn the_text_is_well_formed() {
    let metrics = Metrics::new();
    metrics.job_syncs.get_or_create(&sync()).inc();
    metrics.job_sync_duration.get_or_create(&sync()).observe(1.0);
    let request = ApiRequestLabels { verb: "create", resource: "pods", code: 201 };
    metrics.api_requests.get_or_create(&request).inc();
    metrics.heartbeat_age.set(0.5);
    let text = metrics.render();
    let mut types: HashMap<&str, &str> = HashMap::new();
    let mut current = "";
    for line in text.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            let (name, kind) = family.split_once(' ').unwrap();
            assert!(types.insert(name, kind).is_none(), "{name} twice");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            current = name;
        } else if let Some(family) = line.strip_prefix("# HELP ") {
            assert!(family.split_once(' ').is_some_and(|(_, help)| !help.is_empty()), "{line}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = match types[current] {
                "histogram" => {
                    ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name)
                }
                _ => name,
            };
            assert_eq!(family, current, "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    assert!(text.ends_with('\n') && !text.contains("_total_total") && !text.contains("# EOF"));
    assert!(
        types.contains_key("yardmaster_fenced_writes_total") && types.contains_key("yardmaster_owned_shards")
    );
}
