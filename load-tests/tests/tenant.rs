//! Attacks by a tenant on an embedded cluster, in a program of their own: no other load disturbs what they measure.
#![allow(clippy::unwrap_used)]

mod program;

use program::load_tests;
use serde_json::{Value, json};

/// Groups of attacks that are played at the same time, each on an API server of its own: most of the time they wait.
const GROUPS: usize = 4;

/// All attacks, as the program names them: a new one is played without a change here.
fn all_attacks() -> Vec<String> {
    let output = load_tests(&["tenant", "--attack", "of-nobody"], None);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let (_, names) = error.split_once("some of ").unwrap_or_else(|| panic!("no names: {error}"));
    names.lines().next().unwrap().split(", ").map(|name| name.trim().to_owned()).collect()
}

/// Plays these attacks, and returns the lines about the attacks that broke a limit. Latencies may differ by
/// 15 s: on a machine with a load of 13, debug builds differ by 5 s without any fault. The test still finds a
/// Job that stands still.
fn broken_by(attacks: &str) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tenant.json");
    let scale =
        ["--scale", "small", "--shards", "8", "--patience", "60s", "--recovery", "60s", "--noise", "15s"];
    let output = load_tests(&[&["tenant", "--attack", attacks], &scale[..]].concat(), Some(&file));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let report = std::fs::read(&file).unwrap_or_else(|_| panic!("{attacks}: no report: {out}{err}"));
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["limited_rights"], true, "the tenant has the rights of a tenant");
    let outcomes = report["attacks"].as_array().unwrap();
    let (broken, held): (Vec<_>, Vec<_>) = outcomes.iter().partition(|one| one["broken"] != json!([]));
    for outcome in &held {
        assert!(outcome["tenant_writes"].as_u64() > Some(0), "nothing was played: {outcome:#}");
    }
    let last = format!("attacks {}: broken {}, skipped 0", attacks.split(',').count(), broken.len());
    assert_eq!(
        (out.lines().last(), output.status.success()),
        (Some(&*last), broken.is_empty()),
        "{out}{err}"
    );
    assert!(std::fs::read_to_string(file.with_extension("html")).unwrap().contains("<svg"));
    out.lines().filter(|line| line.contains("BROKEN")).map(str::to_owned).collect()
}

#[test]
fn a_tenant_does_not_reach_the_jobs_of_others() {
    let attacks = all_attacks();
    assert!(attacks.len() >= 28, "{attacks:?}");
    // Neighbours are alike, and go to different groups.
    let group = |number| attacks.iter().skip(number).step_by(GROUPS).cloned().collect::<Vec<_>>().join(",");
    let broken = std::thread::scope(|scope| {
        let played: Vec<_> =
            (0..GROUPS).map(group).map(|attacks| scope.spawn(move || broken_by(&attacks))).collect();
        played.into_iter().flat_map(|attacks| attacks.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
