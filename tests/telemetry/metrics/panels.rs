//! Every query of every panel shows something of a real load, as Prometheus itself evaluates it.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::load::LOAD;
use super::names::promtool;
use super::queries::{chart, text_of, without_variables};
use super::scrape::Scrape;

/// Variables of the dashboard, each of which may have any value.
const VARIABLES: [&str; 4] = ["$cluster", "$namespace", "$job", "$replica"];
/// The labels that Prometheus gives to the series of a replica.
const TARGET: &str = r#"cluster="c", namespace="batch", job="yardmaster", instance="10.0.0.1:8080""#;

/// The panels' queries.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text_of("dashboards/yardmaster.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|panel| panel["type"] != "row");
    let mut queries = Vec::new();
    for panel in panels {
        let targets = panel["targets"].as_array().unwrap_or_else(|| panic!("no queries: {}", panel["title"]));
        assert!(!targets.is_empty(), "no queries: {}", panel["title"]);
        for target in targets {
            let expr = without_variables(target["expr"].as_str().unwrap());
            queries.push(VARIABLES.iter().fold(expr, |expr, variable| expr.replace(variable, ".*")));
        }
    }
    queries
}

/// Three recordings of the metrics of a load, ten minutes apart: before it, while a Job waits, and after it.
fn series(waiting: &Scrape, after: &Scrape) -> Vec<Value> {
    let names: BTreeSet<_> = waiting.series.keys().chain(after.series.keys()).collect();
    let series = names.into_iter().map(|key| {
        let (name, labels) = key;
        let labels = labels.iter().map(|(label, value)| format!("{label}={value:?}, "));
        let at = |scrape: &Scrape| scrape.series.get(key).copied().unwrap_or(0.0);
        json!({
            "series": format!("{name}{{{}{TARGET}}}", labels.collect::<String>()),
            "values": format!("0x9 {}x9 {}x9", at(waiting), at(after)),
        })
    });
    series.collect()
}

/// Evaluates queries, each of which must have a value that is a number when one of the recordings is new. promtool takes few
/// samples, so other times are left out.
fn evaluate(queries: &[String]) -> Option<Output> {
    let promtool = promtool()?;
    let shows_something = |query: &String| {
        json!({
            "expr": format!("count(max_over_time((({query}) >= 0)[29m:10m])) > bool 0"),
            "eval_time": "29m",
            "exp_samples": [{"labels": "{}", "value": 1}],
        })
    };
    let tests = json!({
        "rule_files": [chart("rules/yardmaster.yaml")],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": series(&LOAD.while_waiting, &LOAD.both),
            "promql_expr_test": queries.iter().map(shows_something).collect::<Vec<_>>(),
        }],
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("panels.yaml");
    std::fs::write(&file, tests.to_string()).unwrap();
    Some(Command::new(promtool).args(["test", "rules"]).arg(file).output().unwrap())
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn every_panel_shows_something_of_a_load() {
    let queries = queries();
    assert!(queries.len() > 60, "{} queries", queries.len());
    let Some(output) = evaluate(&queries) else { return };
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_panel_whose_metric_has_another_name_shows_nothing() {
    let renamed = |query: &String| query.replace("yardmaster_owned_shards", "yardmaster_owned_shard");
    let queries = queries();
    let panel = queries.iter().find(|query| query.starts_with("yardmaster_owned_shards")).unwrap();
    let Some(output) = evaluate(&[renamed(panel)]) else { return };
    assert!(
        !output.status.success() && said(&output).contains("yardmaster_owned_shard{"),
        "{}",
        said(&output)
    );
}
