//! The chart's rights are exactly those that the controller needs: with them nothing is refused, and without any one of them
//! something is.
//!
//! Helm renders the chart. The real program runs with the rendered arguments, as the rendered service
//! account. The embedded API server has RBAC and OwnerReferencesPermissionEnforcement. `.ci/install-tools`
//! brings Helm; without it there is nothing to test, except in CI. With `YARDMASTER_KUBECONFIG`, the
//! kubeconfig of an administrator, it runs on that cluster, too.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../binary/mod.rs"]
mod binary;
mod case;
mod leaving;
#[path = "../chart/render.rs"]
#[allow(dead_code)]
mod render;
#[path = "../chart/tools.rs"]
#[allow(dead_code)]
mod tools;
mod work;
mod yard;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use nix::sys::signal::Signal;

use crate::case::{Case, Right};
use crate::tools::helms;
use crate::work::{Work, hand_over, work};
use crate::yard::Yard;

/// Longest time that a run may take; with a missing right, until something is refused.
const LIMIT: Duration = Duration::from_secs(180);
/// Runs with a missing right at a time. Each mostly waits.
const PARALLEL: usize = 6;

/// A file or folder of the project.
fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn chart() -> PathBuf {
    project("charts/yardmaster")
}

/// A feature gate.
fn gate(name: &str, on: bool) -> BTreeMap<String, bool> {
    BTreeMap::from([(name.to_owned(), on)])
}

/// Runs everything that the case is for on two replicas, one of which hands its shards over to the other.
async fn runs(case: &Case, mut yard: Yard) {
    yard.join(case, 2);
    let todo = Work::of(case, yard.injects_faults());
    let done = async {
        tokio::join!(work(&yard.client, &todo), hand_over(&yard, &todo));
    };
    tokio::time::timeout(LIMIT, done)
        .await
        .unwrap_or_else(|_| panic!("{case} does not end; {:#?}\n{}", yard.denials(), yard.logs()));
    yard.leave();
    let denials = yard.denials();
    assert!(denials.is_empty(), "{case}: {denials:#?}");
    yard.end(case).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_rights_of_the_chart_nothing_is_refused() {
    let Some(helm) = helms().pop() else { return };
    let cases = Case::all(&helm);
    // API servers differ in whether they serve streaming lists.
    let without_streaming_lists = cases.iter().take(1).map(|case| (case, gate("WatchList", false)));
    let all = cases.iter().map(|case| (case, BTreeMap::new())).chain(without_streaming_lists);
    futures::stream::iter(all)
        .for_each_concurrent(PARALLEL, |(case, gates)| async move {
            runs(case, Yard::start(case, gates).await).await;
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_any_one_right_something_is_refused() {
    let Some(helm) = helms().pop() else { return };
    let mut rights: BTreeMap<Right, Case> = BTreeMap::new();
    for case in Case::all(&helm) {
        for right in case.rights() {
            rights.entry(right).or_insert_with(|| case.clone());
        }
    }
    assert!(rights.len() >= 25, "{rights:#?}");
    let failures: Vec<String> = futures::stream::iter(rights)
        .map(|(right, case)| async move { refused_without(&right, &case.without(&right)).await })
        .buffer_unordered(PARALLEL)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Runs a case that lacks a right until something is refused; what is wrong if nothing is, or if it is something else.
async fn refused_without(right: &Right, case: &Case) -> Option<String> {
    // All lists are then of their own, and not the beginning of a watch.
    let mut yard = Yard::start(case, gate("WatchList", false)).await;
    yard.join(case, 1);
    let refused = yard.denied();
    let all_done = async {
        work(&yard.client, &Work::of(case, true)).await;
        yard.signal_all(Signal::SIGTERM);
        // The last requests are those of a replica that leaves.
        while !yard.all_ended() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let wrong = tokio::select! {
        denial = refused => {
            (!right.is_meant_by(&denial)).then(|| format!("without {right} this is refused: {denial:?}"))
        }
        () = all_done => {
            let late = yard.denials();
            late.is_empty().then(|| format!("{right} is not needed: {case} runs without it"))
        }
        () = tokio::time::sleep(LIMIT) => {
            Some(format!("without {right}, {case} neither ends nor is anything refused:\n{}", yard.logs()))
        }
    };
    yard.end(case).await;
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_real_cluster_nothing_is_refused() {
    let Some(kubeconfig) = std::env::var_os("YARDMASTER_KUBECONFIG") else {
        eprintln!("skipped: YARDMASTER_KUBECONFIG names no cluster");
        return;
    };
    let Some(helm) = helms().pop() else { return };
    for case in Case::all(&helm) {
        // The cluster may have a Job controller of its own.
        if case.in_place {
            continue;
        }
        let Some(yard) = Yard::on_a_real_cluster(&case, Path::new(&kubeconfig)).await else {
            eprintln!("skipped: {case}: the cluster does not serve what it needs");
            continue;
        };
        runs(&case, yard).await;
    }
}
