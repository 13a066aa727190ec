//! The served metrics are well-formed, and `docs/metrics.md` lists them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::load::LOAD;
use super::scrape::Scrape;

/// promtool, if it is there. In CI it must be.
pub(super) fn promtool() -> Option<PathBuf> {
    let found = which::which("promtool").ok();
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "promtool is not found");
        eprintln!("skipped: promtool is not found; .ci/install-tools FOLDER brings it");
    }
    found
}

/// A label that Kubernetes has named against the custom.
const KUBERNETES_OWN: &str =
    "job_controller_job_finished_indexes_total label names should be written in 'snake_case' not 'camelCase'";

#[test]
fn promtool_finds_nothing_wrong_with_what_a_controller_serves() {
    let Some(promtool) = promtool() else { return };
    let mut command = Command::new(promtool);
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(LOAD.text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    let said: Vec<_> = said.lines().filter(|line| !line.is_empty() && *line != KUBERNETES_OWN).collect();
    assert!(said.is_empty(), "{said:#?}\n{}", LOAD.text);
}

#[test]
fn both_formats_serve_the_same_series() {
    let names = |text: &str| -> BTreeSet<_> {
        let series = Scrape::of(text).series.into_keys();
        // Requests go on between the two.
        series.filter(|(name, _)| !name.contains("api_request") && !name.contains("rest_client")).collect()
    };
    assert!(LOAD.open_metrics.ends_with("# EOF\n"));
    assert_eq!(names(&LOAD.open_metrics), names(&LOAD.text));
}

/// A row of the table in `docs/metrics.md`: type and labels.
type Row = (String, BTreeSet<String>);

fn documented() -> BTreeMap<String, Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut rows = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else { continue };
        assert!(!meaning.is_empty(), "{line}");
        let labels = labels.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        let row = (kind.to_owned(), labels);
        assert!(rows.insert(name.trim_matches('`').to_owned(), row).is_none(), "{name} twice");
    }
    rows
}

#[test]
fn the_documentation_lists_what_is_served() {
    let served: BTreeMap<String, Row> = LOAD
        .both
        .types
        .iter()
        .map(|(name, kind)| (name.clone(), (kind.clone(), LOAD.both.labels_of(name))))
        .collect();
    let documented = documented();
    for (name, row) in &served {
        assert_eq!(documented.get(name), Some(row), "{name} in docs/metrics.md");
    }
    let vanished: Vec<_> = documented.keys().filter(|name| !served.contains_key(*name)).collect();
    assert!(vanished.is_empty(), "{vanished:?}");
}
