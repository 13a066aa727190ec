//! Attacks by a tenant on an embedded cluster, in a program of their own: no other load disturbs what they measure.
#![allow(clippy::unwrap_used)]

mod program;

use program::load_tests;
use serde_json::{Value, json};

/// Attacks that are played at the same time, each line on an API server of its own: most of the time they wait.
const ATTACKS: [&str; 4] = [
    "foreign-uid,owner-names,large-answers,interner,owner-circles,readings",
    "selectors,templates,long-selector,environment,statuses",
    "places,options,messages,shard-labels,finalizers,census,shrinking,refusals",
    "creation-flood,suspend-loop,gang,webhooks,policies,vanishing,waiting-pods",
];

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
    let broken = std::thread::scope(|scope| {
        let played = ATTACKS.map(|attacks| scope.spawn(move || broken_by(attacks)));
        played.into_iter().flat_map(|attacks| attacks.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
