#![allow(clippy::unwrap_used)]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::telemetry::traces::JobName;

/// The bytes of the log.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

fn logging(format: LogFormat, repeats: Repeats) -> (Written, DefaultGuard) {
    let written = Written::default();
    let writer = written.clone();
    let layer = layer(format, "info", move || writer.clone(), repeats).unwrap();
    let subscriber = tracing_subscriber::registry().with(layer);
    (written, tracing::subscriber::set_default(subscriber))
}

const UID: &str = "0b8f5a3e-9d4c-4a51-8a2b-6f7e1c2d3e4f";

#[test]
fn a_line_about_a_job_has_the_attributes_of_its_spans_and_its_trace() {
    let job = JobName { namespace: "n", name: "j", uid: UID };
    let (written, _logging) = logging(LogFormat::Json, Repeats::default());
    log_job!(warn, job, refusal = "no", "status not written");
    let line: Value = serde_json::from_str(&written.lines()[0]).unwrap();
    for (field, expected) in [
        ("level", "WARN"),
        ("message", "status not written"),
        ("refusal", "no"),
        ("k8s.namespace.name", "n"),
        ("k8s.job.name", "j"),
        ("k8s.job.uid", UID),
        ("trace_id", "0b8f5a3e9d4c4a518a2b6f7e1c2d3e4f"),
    ] {
        assert_eq!(line[field], expected, "{field} in {line}");
    }
    assert_eq!(line["span_id"].as_str().map(str::len), Some(16), "{line}");
    drop(_logging);

    let (written, _logging) = logging(LogFormat::Text, Repeats::default());
    log_job!(info, job, "hello");
    let line = written.lines().remove(0);
    assert!(line.contains("trace_id=0b8f5a3e9d4c4a518a2b6f7e1c2d3e4f"), "{line}");
}

fn claim_fails(claim: usize, error: &str) {
    tracing::warn!(error, name = format!("claim-{claim}"), "a Lease was not written");
}

#[tokio::test(start_paused = true)]
async fn claims_that_fail_together_make_one_line_and_a_count() {
    let repeats = Repeats::default();
    let (written, _logging) = logging(LogFormat::Json, repeats.clone());
    tokio::spawn(repeats.report());
    for claim in 0..64 {
        claim_fails(claim, "timeout");
    }
    claim_fails(64, "forbidden");
    tracing::info!("other lines are written");
    tracing::info!("other lines are written");
    let lines = written.lines();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].contains("claim-0") && lines[1].contains("forbidden"), "{lines:?}");

    tokio::time::sleep(Duration::from_secs(21)).await;
    let lines = written.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line: Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["times"], &line["reason"]), (&63.into(), &"timeout".into()), "{line}");
    assert_eq!(line["message"], "repeated: a Lease was not written");

    claim_fails(3, "timeout");
    assert_eq!(written.lines().len(), 1, "it is news again");
}

#[test]
fn no_value_forges_a_line_of_text() {
    let (written, _logging) = logging(LogFormat::Text, Repeats::default());
    let refusal = "no\n2026-01-01T00:00:00Z  INFO forged\r\u{7}\u{1b}[2J";
    tracing::warn!(%refusal, uid = %"u\nforged", "status not written\nforged");
    let lines = written.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(!lines[0].contains(|c: char| c.is_control()), "{lines:?}");
    assert!(lines[0].contains(r"no\u{a}2026"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn lines_whose_reasons_always_differ_are_counted_too() {
    let repeats = Repeats::default();
    let (written, _logging) = logging(LogFormat::Json, repeats.clone());
    tokio::spawn(repeats.report());
    for number in 0..5_000 {
        claim_fails(number, &format!("reason {number}"));
    }
    let lines = written.lines().len();
    assert!(lines < 600, "{lines} lines");
    tokio::time::sleep(Duration::from_secs(21)).await;
    let counted = written.lines();
    assert!(counted.iter().any(|line| line.contains("several")), "{counted:?}");
    claim_fails(0, "reason 0");
    assert_eq!(written.lines().len(), 1, "it is news again");
}
