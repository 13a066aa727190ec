//! Panics in parts of a replica.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::json;
use yardmaster::actors::test_hooks::{Part, PartHook, ReconcileHook, ShardHook, TestHooks};
use yardmaster::actors::{ControllerConfig, ControllerError, Fatal};

use super::settings;
use crate::binary::PATIENCE;
use crate::cluster::Cluster;

fn panicking_for(name: &'static str, panics: impl Fn() -> bool + Send + Sync + 'static) -> ControllerConfig {
    let hook = move |job: &yardmaster::job::spec::Job| {
        assert!(&*job.name != name || !panics(), "a bug that {name} meets");
    };
    ControllerConfig {
        test_hooks: TestHooks {
            before_reconcile: Some(ReconcileHook(Arc::new(hook))),
            ..TestHooks::default()
        },
        ..settings()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_one_job_does_not_affect_others() {
    let cluster = Cluster::start().await;
    let broken = Arc::new(AtomicBool::new(true));
    let panics = broken.clone();
    let controller = cluster.controller(panicking_for("broken", move || panics.load(Ordering::SeqCst))).await;
    cluster.create("broken", json!({"completions": 5, "parallelism": 2}), "10ms").await;
    for number in 0..8 {
        cluster.create(&format!("sound-{number}"), json!({"completions": 5, "parallelism": 2}), "10ms").await;
    }
    for number in 0..8 {
        cluster.assert_exact(&format!("sound-{number}"), 5).await;
    }
    assert!(cluster.pods_of("broken").await.is_empty());
    // The bug is gone and the Job is unchanged: it is retried without a trigger.
    broken.store(false, Ordering::SeqCst);
    cluster.assert_exact("broken", 5).await;
    cluster.assert_pods_ever(9 * 5).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_in_the_middle_of_a_job_change_no_count() {
    let cluster = Cluster::start().await;
    let looks = AtomicU32::new(0);
    // Every third reconcile of the Job panics, ten times.
    let panics = move || {
        let look = looks.fetch_add(1, Ordering::SeqCst);
        look < 30 && look % 3 == 2
    };
    let controller = cluster.controller(panicking_for("shaky", panics)).await;
    let spec = json!({"completions": 40, "parallelism": 4, "completionMode": "Indexed"});
    cluster.create("shaky", spec, "10ms").await;
    cluster.create("sound", json!({"completions": 20, "parallelism": 4}), "10ms").await;
    cluster.assert_exact("sound", 20).await;
    cluster.assert_exact("shaky", 40).await;
    cluster.assert_pods_ever(60).await;
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_of_shards_watches_requests_and_the_orphan_controller_change_no_count() {
    let cluster = Cluster::start().await;
    let (shards, parts) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let seen = Arc::new(AtomicU32::new(0));
    let panicked = seen.clone();
    // Each shard panics with its third message, and each part where it first works, and once again.
    let in_shard = move |shard: u32| {
        let mut all = shards.lock().unwrap();
        all.push(shard);
        let third = all.iter().filter(|one| **one == shard).count() == 3;
        drop(all);
        assert!(!third, "a bug in shard {shard}");
    };
    let in_part = move |part: Part| {
        if matches!(part, Part::LeaseManager | Part::Replica) {
            return;
        }
        let mut all = parts.lock().unwrap();
        all.push(part);
        let number = all.iter().filter(|one| **one == part).count();
        drop(all);
        if matches!(number, 1 | 9) {
            panicked.fetch_add(1, Ordering::SeqCst);
            panic!("a bug in {part:?}");
        }
    };
    let test_hooks = TestHooks {
        before_pods: Some(ShardHook(Arc::new(in_shard))),
        at: Some(PartHook(Arc::new(in_part))),
        ..TestHooks::default()
    };
    let controller = cluster.controller(ControllerConfig { test_hooks, ..settings() }).await;
    for number in 0..8 {
        let spec = json!({"completions": 20, "parallelism": 4, "completionMode": "Indexed"});
        cluster.create(&format!("job-{number}"), spec, "10ms").await;
    }
    for number in 0..8 {
        cluster.assert_exact(&format!("job-{number}"), 20).await;
    }
    cluster.assert_pods_ever(160).await;
    assert!(seen.load(Ordering::SeqCst) >= 4, "{seen:?} parts have panicked");
    controller.shutdown().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_of_what_the_whole_replica_depends_on_ends_it_with_a_message() {
    for (part, name) in [(Part::LeaseManager, "the lease manager"), (Part::Replica, "the replica actor")] {
        let cluster = Cluster::start().await;
        let armed = Arc::new(AtomicBool::new(false));
        let panics = armed.clone();
        let hook = move |at: Part| assert!(at != part || !panics.load(Ordering::SeqCst), "a bug in {at:?}");
        let test_hooks = TestHooks { at: Some(PartHook(Arc::new(hook))), ..TestHooks::default() };
        let controller = cluster.controller(ControllerConfig { test_hooks, ..settings() }).await;
        armed.store(true, Ordering::SeqCst);
        cluster.create("any", json!({"completions": 1}), "10ms").await;
        let ended = tokio::time::timeout(PATIENCE, controller.ended()).await.expect("it goes on");
        assert!(matches!(ended, ControllerError::Fatal(Fatal::Panicked(what)) if what == name), "{ended}");
        controller.abort().await;
        cluster.end().await;
    }
}
