//! Replays recorded requests and answers of kube-apiserver against the embedded API server.
//!
//! `YARDMASTER_TRANSCRIPTS` names another folder of recordings, `YARDMASTER_KUBECONFIG` another server. An
//! argument that is not a flag selects the cases whose `group/name` contains it. Cases listed in
//! `known-differences.txt` beside the recordings may fail. Every other case must pass. A listed case that
//! passes is an error too, so the list can only shrink.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "apiserver/compare.rs"]
mod compare;
#[path = "apiserver/replay.rs"]
mod replay;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::StreamExt as _;
use serde_json::Value;

/// Number of cases that run at a time. They spend most of their time waiting for watches to end.
const PARALLEL: usize = 16;

struct Case {
    name: String,
    transcript: Value,
}

#[tokio::main]
async fn main() -> ExitCode {
    let folder = std::env::var_os("YARDMASTER_TRANSCRIPTS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/apiserver"), PathBuf::from);
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let known = known_differences(&folder);
    let cases: Vec<Case> = load(&folder).into_iter().filter(|case| case.name.contains(&filter)).collect();
    let mut results: BTreeMap<String, Vec<String>> = futures::stream::iter(&cases)
        .map(|case| async {
            let group = case.name.split('/').next().unwrap_or_default();
            (case.name.clone(), replay::run(group, &case.transcript).await)
        })
        .buffer_unordered(PARALLEL)
        .collect()
        .await;
    let mut wrong = 0;
    let mut passed = 0;
    for (name, differences) in &mut results {
        let verdict = match (differences.is_empty(), known.get(name)) {
            (true, None) => {
                passed += 1;
                "ok".to_owned()
            }
            (true, Some(_)) => {
                wrong += 1;
                "FAILED: passes, but is listed in known-differences.txt".to_owned()
            }
            (false, Some(reason)) => {
                differences.clear();
                format!("known difference: {reason}")
            }
            (false, None) => {
                wrong += 1;
                "FAILED".to_owned()
            }
        };
        println!("transcript {name} ... {verdict}");
        for difference in differences.iter() {
            println!("    {difference}");
        }
    }
    println!("{passed} of {} recorded cases met, {} known differences", results.len(), known.len());
    if wrong == 0 && !cases.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// All cases of the folder, named `group/case`. Files without cases hold recordings in another form.
fn load(folder: &Path) -> Vec<Case> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = std::fs::read(&file).unwrap();
        let recording: Value = serde_json::from_slice(&text).unwrap();
        let group = recording["group"].as_str().unwrap_or_default();
        for case in recording["cases"].as_array().into_iter().flatten() {
            let name = format!("{group}/{}", case["name"].as_str().unwrap());
            cases.push(Case { name, transcript: case.clone() });
        }
    }
    cases
}

/// Reasons by `group/case`, from lines of `group/case: reason`.
fn known_differences(folder: &Path) -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(folder.join("known-differences.txt")).unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (name, reason) = line.split_once(": ").expect("a known difference needs a reason");
            (name.to_owned(), reason.to_owned())
        })
        .collect()
}
