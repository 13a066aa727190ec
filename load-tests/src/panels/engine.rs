//! Evaluates queries by `promtool test rules`: no other part of Prometheus evaluates queries without a server.
//!
//! A recording is the input of one test, with a case for each query and time. The cases expect no value, so promtool
//! prints the values that it finds.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use super::dashboard::SeriesLabels;
use super::recording::Recording;

/// The chart's rules, which some panels show.
const RULES: &str = include_str!("../../../charts/yardmaster/files/rules/yardmaster.yaml");

/// Most times at which a query is evaluated.
const MOST_TIMES: usize = 120;

/// The series that answer a query. Each has a value for each time, which is not a number if there is none.
pub(super) type Answer = BTreeMap<SeriesLabels, Vec<f64>>;

/// The times at which queries are evaluated, in seconds since the first scrape, and the answer of each query.
///
/// # Errors
///
/// If promtool is not there, or cannot evaluate a query.
pub(super) async fn evaluate(recording: &Recording<'_>, exprs: &[String]) -> Result<(Vec<f64>, Vec<Answer>)> {
    let times = times(recording);
    let folder = tempfile::tempdir()?;
    let (rules, tests) = (folder.path().join("rules.yaml"), folder.path().join("panels.yaml"));
    std::fs::write(&rules, RULES)?;
    std::fs::write(&tests, test_file(recording, exprs, &times).to_string())?;
    let output = Command::new("promtool").args(["test", "rules"]).arg(&tests).kill_on_drop(true).output();
    let output = output.await.map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("promtool is not found; .ci/install-tools FOLDER brings it"),
        _ => anyhow!("promtool: {error}"),
    })?;
    let said = [output.stdout, output.stderr].concat();
    let answers = answers(&String::from_utf8_lossy(&said), exprs, times.len())?;
    Ok((times.iter().map(Duration::as_secs_f64).collect(), answers))
}

/// The times of all scrapes, or of every second, third, ..., up to the last.
fn times(recording: &Recording<'_>) -> Vec<Duration> {
    let last = recording.scrapes - 1;
    let step = recording.scrapes.div_ceil(MOST_TIMES);
    (last % step..=last).step_by(step).map(|number| recording.every * number as u32).collect()
}

/// The content of the test file.
fn test_file(recording: &Recording<'_>, exprs: &[String], times: &[Duration]) -> Value {
    let milliseconds = |duration: &Duration| format!("{}ms", duration.as_millis());
    let series = recording.series().map(|(series, values)| json!({"series": series, "values": values}));
    let cases = exprs.iter().enumerate().flat_map(|(query, expr)| {
        times.iter().enumerate().map(move |(number, time)| {
            // A comment of PromQL says which case a line of the output belongs to.
            json!({"expr": format!("#{query}@{number}\n{expr}"), "eval_time": milliseconds(time)})
        })
    });
    let every = milliseconds(&recording.every);
    json!({
        "rule_files": ["rules.yaml"],
        "evaluation_interval": every,
        "tests": [{
            "interval": every,
            "input_series": series.collect::<Vec<_>>(),
            "promql_expr_test": cases.collect::<Vec<_>>(),
        }],
    })
}

/// The answers in the output of promtool.
fn answers(said: &str, exprs: &[String], times: usize) -> Result<Vec<Answer>> {
    let mut answers = vec![Answer::new(); exprs.len()];
    let mut case = None;
    for line in said.lines().map(str::trim) {
        if let Some(expr) = line.strip_prefix("expr: ") {
            let read = case_of(expr).filter(|(query, time)| *query < exprs.len() && *time < times);
            let (query, time) = read.with_context(|| format!("output of promtool: {line}"))?;
            if let Some((_, error)) = line.rsplit_once(", err: ") {
                bail!("{}: {error}", exprs[query]);
            }
            case = Some((query, time));
        } else if let Some(got) = line.strip_prefix("got: ") {
            let (query, time) = case.with_context(|| format!("output of promtool: {line}"))?;
            let samples = samples(got).with_context(|| format!("output of promtool: {line}"))?;
            for (labels, value) in samples {
                let values = answers[query].entry(labels).or_insert_with(|| vec![f64::NAN; times]);
                values[time] = if value.is_finite() { value } else { f64::NAN };
            }
        } else if !["", "FAILED:", "SUCCESS", "exp: nil"].contains(&line)
            && !line.starts_with("Unit Testing:")
        {
            bail!("promtool: {line}");
        }
    }
    Ok(answers)
}

/// The numbers of the query and of the time of a case.
fn case_of(expr: &str) -> Option<(usize, usize)> {
    let (case, _) = expr.strip_prefix("\"#")?.split_once("\\n")?;
    let (query, time) = case.split_once('@')?;
    Some((query.parse().ok()?, time.parse().ok()?))
}

/// Samples as promtool prints them: `{name="value", name="value"} 1E+00, {...} 2E+00`.
fn samples(text: &str) -> Option<Vec<(SeriesLabels, f64)>> {
    let mut samples = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        rest = rest.strip_prefix('{')?;
        let mut labels = SeriesLabels::new();
        while !rest.starts_with('}') {
            let (name, after) = rest.split_once('=')?;
            // The quotes are those of Go, which for texts without control characters are those of JSON.
            let mut value = serde_json::Deserializer::from_str(after).into_iter::<String>();
            labels.insert(name.to_owned(), value.next()?.ok()?);
            rest = &after[value.byte_offset()..];
            rest = rest.strip_prefix(", ").unwrap_or(rest);
        }
        let (value, after) = rest.strip_prefix("} ")?.split_once(", ").unwrap_or((&rest[2..], ""));
        samples.push((labels, value.parse().ok()?));
        rest = after;
    }
    Some(samples)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn labels<const N: usize>(labels: [(&str, &str); N]) -> SeriesLabels {
        labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// The output of promtool 2.42.
    const SAID: &str = r##"Unit Testing:  panels.yaml
  FAILED:
    expr: "#0@1\nrate(a_total[20s])", time: 15s,
        exp: nil
        got: {instance="1", le="+Inf", x="q\"}, {y"} 1.25E-01, {instance="2"} 7E+00
    expr: "#0@2\nrate(a_total[20s])", time: 20s,
        exp: nil
        got: {instance="2"} NaN
    expr: "#2@0\nsum(b)", time: 0s,
        exp: nil
        got: {} +Inf

"##;

    #[test]
    fn values_are_read_from_the_output_of_promtool() {
        let exprs = ["a", "nothing", "b"].map(str::to_owned);
        let answers = answers(SAID, &exprs, 3).unwrap();
        let quoted = labels([("instance", "1"), ("le", "+Inf"), ("x", "q\"}, {y")]);
        let text = |values: &Vec<f64>| format!("{values:?}");
        assert_eq!(text(&answers[0][&quoted]), "[NaN, 0.125, NaN]");
        assert_eq!(text(&answers[0][&labels([("instance", "2")])]), "[NaN, 7.0, NaN]");
        assert!(answers[1].is_empty());
        assert_eq!(text(&answers[2][&labels([])]), "[NaN, NaN, NaN]", "infinity has no place in a picture");
    }

    #[test]
    fn an_error_of_promtool_is_no_missing_value() {
        let exprs = ["rte(a)".to_owned()];
        let query =
            "  FAILED:\n    expr: \"#0@0\\nrte(a)\", time: 15s, err: 2:1: parse error: unknown function";
        let error = format!("{:#}", answers(query, &exprs, 1).unwrap_err());
        assert_eq!(error, "rte(a): 2:1: parse error: unknown function");
        for said in ["  FAILED:\nrules.yaml: yaml: line 3", "    expr: \"#7@0\\nx\", time: 0s,", "got: {} 1"]
        {
            assert!(answers(said, &exprs, 1).is_err(), "{said}");
        }
    }

    #[test]
    fn long_recordings_are_evaluated_at_fewer_times_and_at_the_last() {
        let text: String = (0..1000).map(|number| format!("a 1 {}\n", number * 5)).collect();
        let times = times(&Recording::parse(&text).unwrap());
        assert!((60..=MOST_TIMES).contains(&times.len()), "{}", times.len());
        assert_eq!(times.last(), Some(&Duration::from_secs(999 * 5)));
    }
}
