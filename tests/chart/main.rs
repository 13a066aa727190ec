//! The Helm chart: what Helm makes of it, what Kubernetes' schemas and the program itself say to that, and that its texts are
//! true. `.ci/install-tools` brings the tools; without them the checks that need them are skipped, except in CI.
//!
//! `YARDMASTER_UPDATE=1` rewrites the snapshots and the table of values in the chart's README. With `YARDMASTER_KUBECONFIG`
//! that cluster's API server looks at the objects, too, and keeps none.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod alerts;
#[path = "../binary/mod.rs"]
mod binary;
#[path = "../cluster/mod.rs"]
mod cluster;
mod files;
mod objects;
mod program;
mod render;
mod rights;
mod server;
mod tools;
mod values;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::render::{ValueSet, value_sets};
use crate::tools::{helms, text_of};

/// Versions of Kubernetes that the chart is checked for: the oldest, one with a beta API for defaulting, the newest.
const KUBERNETES: [&str; 3] = ["1.32", "1.34", "1.36"];
/// The version that things are checked with which do not depend on it.
const NEWEST: &str = "1.36";

/// A file or folder of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn chart() -> PathBuf {
    project("charts/yardmaster")
}

/// The YAML of a file of the project.
fn yaml(path: &str) -> Value {
    let text = std::fs::read_to_string(project(path)).unwrap();
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Whether files that tests compare with are to be rewritten.
fn updating() -> bool {
    std::env::var_os("YARDMASTER_UPDATE").is_some()
}

#[test]
fn lint_finds_nothing() {
    for helm in helms() {
        for set in value_sets() {
            let linted =
                helm.command(["lint", "--strict"]).arg(chart()).arg("-f").arg(&set.path).output().unwrap();
            assert!(linted.status.success(), "{helm} lint, {set}:\n{}", text_of(&linted));
        }
    }
}

#[test]
fn wrong_values_are_refused_by_the_name_of_the_field() {
    let cases = yaml("tests/chart/wrong-values.yaml");
    let cases = cases.as_array().unwrap();
    assert!(cases.len() >= 15);
    for helm in helms() {
        for case in cases {
            let file = tempfile::NamedTempFile::with_suffix(".json").unwrap();
            serde_json::to_writer(&file, &case["values"]).unwrap();
            let version = case["kubernetes"].as_str().unwrap_or("1.36.0");
            let mut command = helm.template(["--kube-version", version]);
            let output = command.arg("-f").arg(file.path()).output().unwrap();
            assert!(!output.status.success(), "{helm} takes {case}");
            let message = String::from_utf8(output.stderr).unwrap();
            let field = case["field"].as_str().unwrap();
            assert!(names(&message, field), "{helm} does not name {field}:\n{message}");
            let says = case["says"].as_str().unwrap_or_default();
            assert!(message.contains(says), "{helm} does not say {says:?}:\n{message}");
        }
    }
}

/// Whether a message names a field: by its whole path, or by its name in an object. The latter holds for
/// fields that are not allowed.
fn names(message: &str, field: &str) -> bool {
    let path =
        |field: &str| message.contains(field) || message.contains(&format!("/{}", field.replace('.', "/")));
    let too_many = |(object, field): (&str, &str)| {
        let named = [format!("property {field} is not allowed"), format!("properties '{field}' not allowed")];
        path(object) && named.iter().any(|named| message.contains(named))
    };
    path(field) || field.rsplit_once('.').is_some_and(too_many)
}

#[test]
fn versions_are_those_of_the_program() {
    let chart = yaml("charts/yardmaster/Chart.yaml");
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
    let dockerfile = std::fs::read_to_string(project("Dockerfile")).unwrap();
    assert!(dockerfile.contains(&format!("\nARG VERSION={}\n", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn notes_tell_the_next_commands() {
    // Helm 3 shows notes only with a cluster.
    let Some(helm) = helms().into_iter().find(|helm| helm.major() == 4) else { return };
    for (set, wanted) in [
        ("defaults", r#"-p '{"spec":{"managedBy":"yardmaster.dev/job-controller"}}'"#),
        ("in-place", "--controllers=*,-job-controller"),
        ("one-node", "in a namespace that defaulting.namespaceSelector selects"),
        ("minimal", "yardmaster check --lease-namespace batch"),
    ] {
        let set = ValueSet::named(set);
        let mut command =
            helm.command(["install", render::RELEASE, "--dry-run=client", "--namespace", render::NAMESPACE]);
        let output = command.arg(chart()).arg("-f").arg(&set.path).output().unwrap();
        let text = text_of(&output);
        let (_, notes) = text.split_once("NOTES:").unwrap_or_else(|| panic!("{set}: no notes in\n{text}"));
        for wanted in
            ["kubectl -n batch rollout status deployment/yard-yardmaster", "yardmaster status", wanted]
        {
            assert!(notes.contains(wanted), "{set}: no {wanted:?} in\n{notes}");
        }
    }
}
