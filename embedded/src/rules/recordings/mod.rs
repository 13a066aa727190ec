//! Replays the recorded creations, updates and status writes of a real API server directly on the strategies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod compare;
mod replay;

use std::path::Path;

use serde_json::Value;

use replay::{Outcome, Replay};

/// Groups of recordings. Some of their cases need more than the rules (storage, deletion, patch directives).
const GROUPS: &[&str] = &[
    "job-create",
    "job-validation",
    "job-update",
    "job-status",
    "job-edges",
    "leases",
    "events",
    "gang",
    "pods",
    "refusals",
    "server-side-apply",
];

fn cases(group: &str) -> Vec<Value> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/apiserver").join(format!("{group}.json"));
    let recording: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    recording["cases"].as_array().unwrap().clone()
}

#[test]
fn strategies_answer_as_recorded() {
    let mut failures = Vec::new();
    for group in GROUPS.iter().copied() {
        let (mut agree, mut differ, mut out_of_scope) = (0, 0, 0);
        for case in cases(group) {
            let replay = Replay::new(group == "server-side-apply");
            for outcome in replay.run(&case) {
                match outcome {
                    Outcome::Agrees => agree += 1,
                    Outcome::OutOfScope => out_of_scope += 1,
                    Outcome::Differs(difference) => {
                        differ += 1;
                        failures.push(format!("{}: {difference}", case["name"].as_str().unwrap()));
                    }
                }
            }
        }
        println!("{group}: {agree} steps agree, {differ} differ, {out_of_scope} are beyond the rules");
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
}
