//! Every query of the dashboard and of the rules asks for what a load really makes: metrics, labels and values.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

use promql_parser::label::MatchOp;
use promql_parser::parser::{self, Expr, VectorSelector};
use promql_parser::util::{ExprVisitor, walk_expr};
use serde_json::Value;

use super::load::LOAD;

/// Labels that Prometheus adds to all series of a target.
const OF_TARGET: [&str; 4] = ["cluster", "namespace", "job", "instance"];

/// A query, and where it is.
#[derive(Debug)]
struct Query {
    place: String,
    expr: String,
    /// Labels that its legend shows.
    legend: Vec<String>,
}

/// The selectors and labels of a query.
#[derive(Default)]
struct Parts {
    selectors: Vec<VectorSelector>,
    grouped_by: BTreeSet<String>,
}

impl ExprVisitor for Parts {
    type Error = Infallible;

    fn pre_visit(&mut self, expr: &Expr) -> Result<bool, Infallible> {
        let modifier = match expr {
            Expr::VectorSelector(selector) => {
                self.selectors.push(selector.clone());
                None
            }
            Expr::MatrixSelector(range) => {
                self.selectors.push(range.vs.clone());
                None
            }
            Expr::Aggregate(aggregate) => aggregate.modifier.as_ref(),
            Expr::Binary(binary) => binary.modifier.as_ref().and_then(|with| with.matching.as_ref()),
            _ => None,
        };
        self.grouped_by.extend(modifier.iter().flat_map(|with| with.labels().labels.clone()));
        Ok(true)
    }
}

pub(super) fn chart(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts/yardmaster/files").join(path)
}

pub(super) fn text_of(path: &str) -> String {
    std::fs::read_to_string(chart(path)).unwrap()
}

/// Replaces Grafana's variables by values.
pub(super) fn without_variables(expr: &str) -> String {
    expr.replace("$__rate_interval", "5m").replace("$__range", "1h")
}

/// All objects within a value.
fn objects(value: &Value) -> Vec<&Value> {
    let within: Vec<&Value> = match value {
        Value::Object(fields) => fields.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => vec![],
    };
    let own = value.is_object().then_some(value);
    own.into_iter().chain(within.into_iter().flat_map(objects)).collect()
}

/// The names in `{{...}}`.
fn names_in(legend: &str) -> Vec<String> {
    let parts = legend.split("{{").skip(1).filter_map(|part| part.split_once("}}"));
    parts.map(|(name, _)| name.trim().to_owned()).collect()
}

fn dashboard_queries() -> Vec<Query> {
    let dashboard: Value = serde_json::from_str(&text_of("dashboards/yardmaster.json")).unwrap();
    let mut queries = Vec::new();
    for object in objects(&dashboard) {
        if let Some(expr) = object["expr"].as_str() {
            let legend = [&object["legendFormat"], &object["textFormat"]];
            queries.push(Query {
                place: format!("dashboard: {expr}"),
                expr: without_variables(expr),
                legend: legend.iter().filter_map(|text| text.as_str()).flat_map(names_in).collect(),
            });
        }
        if let Some(definition) = object["definition"].as_str() {
            let arguments = definition.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (selector, label) = arguments.rsplit_once(", ").unwrap();
            queries.push(Query {
                place: format!("variable: {definition}"),
                expr: selector.to_owned(),
                legend: vec![label.to_owned()],
            });
        }
    }
    queries
}

/// The rules, and by name the labels of what they record.
fn rules() -> (Vec<Query>, BTreeMap<String, BTreeSet<String>>) {
    let rules: Value = serde_saphyr::from_str(&text_of("rules/yardmaster.yaml")).unwrap();
    let (mut queries, mut recorded) = (Vec::new(), BTreeMap::new());
    for rule in objects(&rules).into_iter().filter(|object| object["expr"].is_string()) {
        let expr = rule["expr"].as_str().unwrap().to_owned();
        let text = serde_json::to_string(&rule["annotations"]).unwrap();
        let used = text.split("$labels.").skip(1);
        let until = |c: char| !c.is_alphanumeric() && c != '_';
        let legend = used.map(|rest| rest.split(until).next().unwrap().to_owned()).collect();
        if let Some(name) = rule["record"].as_str() {
            recorded.insert(name.to_owned(), parts_of(&expr).grouped_by);
        }
        let name = rule["record"].as_str().or(rule["alert"].as_str()).unwrap();
        queries.push(Query { place: format!("rule {name}"), expr, legend });
    }
    (queries, recorded)
}

fn parts_of(expr: &str) -> Parts {
    let parsed = parser::parse(expr).unwrap_or_else(|error| panic!("{expr}: {error}"));
    let mut parts = Parts::default();
    walk_expr(&mut parts, &parsed).unwrap();
    parts
}

/// The values that a label has in the series of a metric; `None` if there are no such series.
fn values(metric: &str, label: &str) -> Option<BTreeSet<&'static str>> {
    let mut of_metric = LOAD.both.series.keys().filter(|(name, _)| name == metric).peekable();
    of_metric.peek()?;
    Some(of_metric.filter_map(|(_, labels)| labels.get(label)).map(String::as_str).collect())
}

/// The labels of a metric or of what a rule records.
fn labels(metric: &str, recorded: &BTreeMap<String, BTreeSet<String>>) -> Option<BTreeSet<String>> {
    let of_target = OF_TARGET.map(str::to_owned);
    if let Some(labels) = recorded.get(metric) {
        return Some(labels.iter().cloned().chain(of_target).collect());
    }
    let mut series = LOAD.both.series.keys().filter(|(name, _)| name == metric).peekable();
    series.peek()?;
    Some(series.flat_map(|(_, labels)| labels.keys().cloned()).chain(of_target).collect())
}

#[test]
fn every_query_asks_for_what_a_load_makes() {
    let (from_rules, recorded) = rules();
    let queries: Vec<Query> = from_rules.into_iter().chain(dashboard_queries()).collect();
    assert!(queries.len() > 60, "{} queries", queries.len());
    for Query { place, expr, legend } in &queries {
        let parts = parts_of(expr);
        let mut known = BTreeSet::new();
        for selector in &parts.selectors {
            let metric = selector.name.as_deref().unwrap_or_else(|| panic!("{place}: no name"));
            let labels = labels(metric, &recorded);
            let labels = labels.unwrap_or_else(|| panic!("{place}: a load makes no {metric}"));
            for matcher in &selector.matchers.matchers {
                let name = &matcher.name;
                assert!(labels.contains(name), "{place}: {metric} has no label {name}");
                assert_possible(place, metric, matcher);
            }
            known.extend(labels);
        }
        for label in parts.grouped_by.iter().chain(legend) {
            assert!(known.contains(label), "{place}: no series has the label {label}");
        }
    }
}

/// Asserts that a load makes a value that a matcher names. Codes of errors need no error to be possible.
fn assert_possible(place: &str, metric: &str, matcher: &promql_parser::label::Matcher) {
    let Some(values) = values(metric, &matcher.name) else { return };
    let target = OF_TARGET.contains(&matcher.name.as_str()) || matcher.name == "code";
    let possible = match &matcher.op {
        _ if target => true,
        MatchOp::Equal | MatchOp::NotEqual => values.contains(matcher.value.as_str()),
        MatchOp::Re(regex) | MatchOp::NotRe(regex) => values.iter().any(|value| regex.is_match(value)),
    };
    assert!(possible, "{place}: {metric} has no {}, only {values:?}", matcher.value);
}

/// The queries are parsed as Prometheus does: a misspelt one does not pass.
#[test]
fn the_check_finds_what_is_wrong() {
    assert_eq!(labels("yardmaster_owned_shard", &BTreeMap::new()), None);
    assert!(!labels("yardmaster_owned_shards", &BTreeMap::new()).unwrap().contains("shard"));
    assert!(parser::parse("sum by (le (rate(x[5m]))").is_err());
    let parts = parts_of("sum by (a) (rate(x{b=\"1\"}[5m])) / on (c) y");
    let names: Vec<_> = parts.selectors.iter().filter_map(|selector| selector.name.as_deref()).collect();
    assert_eq!(names, ["x", "y"]);
    assert_eq!(parts.grouped_by, ["a", "c"].map(str::to_owned).into());
}

#[test]
fn every_metric_of_ours_is_on_the_dashboard_or_in_a_rule() {
    let (from_rules, _) = rules();
    let all: Vec<Query> = from_rules.into_iter().chain(dashboard_queries()).collect();
    let used: String = all.into_iter().map(|query| query.expr + "\n").collect();
    let ours = LOAD.both.types.keys().filter(|name| !name.starts_with("process_"));
    let unused: Vec<_> = ours.filter(|name| !used.contains(name.as_str())).collect();
    // Their neighbours show the same.
    let known = [
        "workqueue_adds_total",
        "workqueue_retries_total",
        "workqueue_unfinished_work_seconds",
        "workqueue_work_duration_seconds",
    ];
    assert_eq!(unused, known);
}
