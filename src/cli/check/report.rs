//! The findings of the checks, as lines and as JSON.

use serde::Serialize;

use crate::cli::console;
use crate::telemetry::printable::{self, OneLine};

/// The name of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckId {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
}

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    Ok,
    Warning,
    Failed,
    /// It could not be found out, and that says nothing about the cluster.
    Skipped,
}

impl Status {
    fn mark(self, terminal: bool) -> &'static str {
        match (self, terminal) {
            (Self::Ok, true) => "√",
            (Self::Ok, false) => "ok",
            (Self::Warning, true) => "‼",
            (Self::Warning, false) => "warn",
            (Self::Failed, true) => "×",
            (Self::Failed, false) => "FAIL",
            (Self::Skipped, true) => "-",
            (Self::Skipped, false) => "skip",
        }
    }
}

/// The result of a check, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) status: Status,
    pub(super) message: String,
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(message: impl Into<String>) -> Self {
        Self { status: Status::Ok, message: message.into(), remedy: None }
    }

    pub(super) fn warning(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn failed(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Failed, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub(super) fn skipped(message: impl Into<String>) -> Self {
        Self { status: Status::Skipped, message: message.into(), remedy: None }
    }
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    group: &'static str,
    #[serde(flatten)]
    finding: Finding,
}

/// All checks so far.
#[derive(Debug)]
pub(super) struct Report {
    /// Whether lines are printed, and whether for a terminal.
    printing: Option<bool>,
    checks: Vec<Check>,
}

impl Report {
    /// A report that prints nothing by itself.
    pub(super) fn silent() -> Self {
        Self { printing: None, checks: Vec::new() }
    }

    /// A report that prints each finding as it comes.
    pub(super) fn printing(terminal: bool) -> Self {
        Self { printing: Some(terminal), checks: Vec::new() }
    }

    pub(super) fn add(&mut self, id: CheckId, finding: Finding) {
        let check = Check { name: id.name, group: id.group, finding };
        if let Some(terminal) = self.printing {
            // If it cannot be written now, the summary cannot either, and that is an error.
            let _unwritten = console::print(check.text(terminal));
        }
        self.checks.push(check);
    }

    /// Whether no check failed.
    pub(super) fn is_ok(&self) -> bool {
        self.count(Status::Failed) == 0
    }

    fn count(&self, status: Status) -> usize {
        self.checks.iter().filter(|check| check.finding.status == status).count()
    }

    /// The last line.
    pub(super) fn summary(&self) -> String {
        let count = |status, singular: &str, plural: &str| match self.count(status) {
            0 => None,
            1 => Some(format!("1 {singular}")),
            count => Some(format!("{count} {plural}")),
        };
        let parts: Vec<String> = [
            count(Status::Failed, "check failed", "checks failed"),
            count(Status::Warning, "warning", "warnings"),
            count(Status::Skipped, "skipped", "skipped"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "All is well.".to_owned() } else { format!("{}.", parts.join(", ")) }
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        let report = serde_json::json!({"ok": self.is_ok(), "checks": self.checks});
        serde_json::to_string(&report).map(|text| printable::json(&text))
    }
}

impl Check {
    fn text(&self, terminal: bool) -> String {
        let width = if terminal { 1 } else { 4 };
        let mark = self.finding.status.mark(terminal);
        let line = format!("{mark:<width$} {}: {}", self.name, OneLine(&self.finding.message));
        match &self.finding.remedy {
            Some(remedy) => format!("{line}\n{:width$} {}", "", OneLine(remedy)),
            None => line,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ID: CheckId = CheckId { group: "g", name: "n" };

    #[test]
    fn a_check_is_a_line_and_its_remedy_another() {
        let check = |finding| Check { name: ID.name, group: ID.group, finding };
        for (finding, plain, terminal) in [
            (Finding::ok("fine"), "ok   n: fine", "√ n: fine"),
            (Finding::warning("late", "wait"), "warn n: late\n     wait", "‼ n: late\n  wait"),
            (Finding::failed("broken", "mend it"), "FAIL n: broken\n     mend it", "× n: broken\n  mend it"),
            (Finding::skipped("unknown"), "skip n: unknown", "- n: unknown"),
        ] {
            let check = check(finding);
            assert_eq!((&*check.text(false), &*check.text(true)), (plain, terminal));
        }
    }

    #[test]
    fn only_failures_fail_the_report() {
        let mut report = Report::silent();
        assert_eq!(report.summary(), "All is well.");
        report.add(ID, Finding::ok("fine"));
        report.add(ID, Finding::warning("late", "wait"));
        report.add(ID, Finding::skipped("unknown"));
        assert!(report.is_ok());
        assert_eq!(report.summary(), "1 warning, 1 skipped.");
        report.add(ID, Finding::failed("broken", "mend it"));
        report.add(ID, Finding::failed("broken", "mend it"));
        assert!(!report.is_ok());
        assert_eq!(report.summary(), "2 checks failed, 1 warning, 1 skipped.");
        let json: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(json["ok"], false);
        assert_eq!(
            json["checks"][3],
            serde_json::json!({"name": "n", "group": "g", "status": "failed", "message": "broken", "remedy": "mend it"})
        );
        assert_eq!(json["checks"][0]["remedy"], serde_json::Value::Null);
    }
}
