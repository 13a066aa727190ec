//! The chart's alerts and dashboard: that Prometheus takes them, that alerts fire when they should, and that each leads
//! somewhere.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use crate::tools::{text_of, tool};
use crate::{project, yaml};

// Only its anchors are needed here.
#[allow(dead_code)]
#[path = "../markdown/mod.rs"]
mod markdown;

const RULES: &str = "charts/yardmaster/files/rules/yardmaster.yaml";
const CASES: &str = "tests/chart/alerts/yardmaster.yaml";
const DASHBOARD: &str = "charts/yardmaster/files/dashboards/yardmaster.json";
const RUNBOOKS: &str = "https://github.com/yardmaster-dev/yardmaster/blob/main/docs/runbooks.md#";

/// The alerts of the chart.
const ALERTS: [&str; 10] = [
    "YardmasterDown",
    "YardmasterShardsUnowned",
    "YardmasterHeartbeatOld",
    "YardmasterHandoverSlow",
    "YardmasterReactionSlow",
    "YardmasterWriteQueueGrowing",
    "YardmasterApiErrors",
    "YardmasterFencedWrites",
    "YardmasterFinalizersStuck",
    "YardmasterEventsLost",
];

fn alerts() -> Vec<Value> {
    let groups = yaml(RULES)["groups"].as_array().unwrap().clone();
    let rules = groups.iter().flat_map(|group| group["rules"].as_array().unwrap());
    rules.filter(|rule| rule["alert"].is_string()).cloned().collect()
}

fn promtool(arguments: &[&str], file: &str) {
    let Some(promtool) = tool("promtool") else { return };
    let output = Command::new(promtool).args(arguments).arg(project(file)).output().unwrap();
    assert!(output.status.success(), "promtool {arguments:?} {file}:\n{}", text_of(&output));
}

#[test]
fn prometheus_takes_the_rules() {
    promtool(&["check", "rules", "--lint=all", "--lint-fatal"], RULES);
}

#[test]
fn alerts_fire_when_they_should_and_only_then() {
    promtool(&["test", "rules"], CASES);
}

#[test]
fn each_alert_has_a_case_that_fires_and_one_that_does_not() {
    let cases = yaml(CASES);
    let tests = cases["tests"].as_array().unwrap();
    let checks = tests.iter().flat_map(|test| test["alert_rule_test"].as_array().unwrap());
    let seen: BTreeSet<(&str, bool)> = checks
        .map(|check| {
            let expected = check["exp_alerts"].as_array().unwrap();
            (check["alertname"].as_str().unwrap(), !expected.is_empty())
        })
        .collect();
    let wanted = ALERTS.iter().flat_map(|alert| [(*alert, false), (*alert, true)]).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn each_alert_says_what_is_wrong_and_leads_to_its_runbook() {
    let alerts = alerts();
    let names: Vec<_> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(names, ALERTS);
    let runbooks = markdown::Page::read(&project("docs/runbooks.md"));
    for alert in &alerts {
        let (name, notes) = (alert["alert"].as_str().unwrap(), &alert["annotations"]);
        let severity = alert["labels"]["severity"].as_str().unwrap();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        let summary = notes["summary"].as_str().unwrap();
        assert!(!summary.contains("{{"), "{name}: the same summary for all replicas, so that they group");
        assert!(notes["description"].as_str().unwrap().contains("{{ $labels.namespace }}"), "{name}");
        let anchor = notes["runbook_url"].as_str().unwrap().strip_prefix(RUNBOOKS).unwrap();
        assert_eq!(anchor, name.to_lowercase());
        assert!(runbooks.anchors.contains(anchor), "docs/runbooks.md has no section {name}");
    }
}

/// All objects within a value.
fn objects(value: &Value) -> Vec<&Value> {
    let within: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => vec![],
    };
    value.is_object().then_some(value).into_iter().chain(within.into_iter().flat_map(objects)).collect()
}

#[test]
fn the_dashboard_is_at_home_in_any_grafana() {
    let text = std::fs::read_to_string(project(DASHBOARD)).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let sources: BTreeSet<_> =
        objects(&dashboard).iter().filter_map(|object| object["datasource"]["uid"].as_str()).collect();
    assert_eq!(sources, BTreeSet::from(["${datasource}", "-- Grafana --"]));
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let variables: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(variables, ["datasource", "cluster", "namespace", "job", "replica", "trace_ui"]);

    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
    let (rows, panels): (Vec<_>, Vec<_>) = panels.iter().partition(|panel| panel["type"] == "row");
    let rows: Vec<_> = rows.iter().map(|row| row["title"].as_str().unwrap()).collect();
    let wanted = [
        "Overview",
        "Jobs",
        "Pods",
        "Latencies",
        "Shards and hand-overs",
        "Write gate",
        "API server",
        "Per replica",
    ];
    assert_eq!(rows, wanted);
    for panel in &panels {
        let title = panel["title"].as_str().unwrap();
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}");
        let unit = [&panel["fieldConfig"]["defaults"]["unit"], &panel["options"]["yAxis"]["unit"]];
        assert!(unit.iter().any(|unit| unit.is_string()), "{title}");
    }
    assert_no_overlap(&panels);
    let traced = objects(&dashboard).into_iter().filter(|object| object["exemplar"] == true).count();
    assert!(traced >= 10, "{traced} queries with exemplars");
    assert!(text.contains("${trace_ui}/search?service=yardmaster"));
}

/// Panels that overlap are moved by Grafana, which makes every save a change.
fn assert_no_overlap(panels: &[&Value]) {
    let mut cells = BTreeSet::new();
    for panel in panels {
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && cells.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
}
