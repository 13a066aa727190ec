//! The chart's dashboard, drawn from a small recording of two replicas with Jobs.
#![allow(clippy::unwrap_used)]

mod program;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;

use program::load_tests;

/// Two replicas in place of the built-in controller, with Jobs of all kinds. The second starts after 15 s. Series that
/// no panel needs are left out.
const RECORDING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/metrics/recording.txt");
const DASHBOARD: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/yardmaster/files/dashboards/yardmaster.json");

/// Panels of which the recording has something to show, of each kind.
const WITH_DATA: [&str; 10] = [
    "Replicas",
    "Jobs finished",
    "Jobs held",
    "Pods created",
    "Creation to first pod",
    "Creation to first pod, all Jobs",
    "Shards by owner",
    "Requests by resource",
    // From a rule that records, and not from a metric.
    "Failed requests",
    "Memory",
];

/// Panels of which it has nothing: no TTL expires, and hand-overs are done before the first scrape of their replica.
const WITHOUT_DATA: [&str; 2] = ["Duration of hand-overs", "TTL"];

/// The output of `panels`, if promtool is there. In CI it must be.
fn panels(args: &[&str]) -> Option<Output> {
    let output = load_tests(&[&["panels"][..], args].concat(), None);
    if String::from_utf8_lossy(&output.stderr).contains("promtool is not found") {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci.is_empty()), "promtool is not found");
        eprintln!("skipped: promtool is not found; .ci/install-tools FOLDER brings it");
        return None;
    }
    Some(output)
}

/// Draws the recording. Returns the picture, and the titles of the panels that are reported to have no data.
fn drawn() -> Option<(String, BTreeSet<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("panels.svg");
    let output = panels(&[RECORDING, "--svg", svg.to_str().unwrap()])?;
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let empty = said.lines().filter_map(|line| line.strip_prefix("no data: ")).map(str::to_owned).collect();
    Some((std::fs::read_to_string(svg).unwrap(), empty))
}

#[test]
fn each_panel_has_lines_or_says_that_there_is_no_data() {
    let Some((svg, empty)) = drawn() else { return };
    // A line is two pixels wide. A number is large, a cell is faint, and a heading is bold.
    let content =
        ["stroke-width=\"2\"", "<circle", "font-size=\"36\"", "fill-opacity", "font-weight=\"bold\""];
    let mut titles = Vec::new();
    for panel in svg.split("<g class=\"panel\"").skip(1) {
        let (title, picture) = panel.split_once("<title>").unwrap().1.split_once("</title>").unwrap();
        let is_empty = picture.contains("no data");
        let has_content = content.iter().any(|part| picture.contains(part));
        assert_ne!(has_content, is_empty, "{title}: {picture}");
        assert!(!is_empty || empty.contains(title), "{title}: {empty:?}");
        titles.push(title.to_owned());
    }
    let dashboard: serde_json::Value =
        serde_json::from_slice(&std::fs::read(Path::new(DASHBOARD)).unwrap()).unwrap();
    assert_eq!(titles.len(), dashboard["panels"].as_array().unwrap().len());
    for title in WITH_DATA {
        assert!(titles.iter().any(|drawn| drawn == title) && !empty.contains(title), "{title}: {empty:?}");
    }
    for title in WITHOUT_DATA {
        assert!(empty.contains(title), "{title}: {empty:?}");
    }
}

#[test]
fn a_query_that_cannot_be_evaluated_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let [file, svg] = ["dashboard.json", "panels.svg"].map(|name| folder.path().join(name));
    let dashboard = std::fs::read_to_string(DASHBOARD).unwrap();
    std::fs::write(&file, dashboard.replace("sum(yardmaster_held_jobs", "sun(yardmaster_held_jobs")).unwrap();
    let (file, picture) = (file.to_str().unwrap(), svg.to_str().unwrap());
    let Some(output) = panels(&[RECORDING, "--dashboard", file, "--svg", picture]) else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("sun(yardmaster_held_jobs") && !svg.exists(), "{said}");
}
