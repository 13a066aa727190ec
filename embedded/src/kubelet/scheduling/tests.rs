//! The order in which waiting pods get a place on the node.

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(name: &str, requests: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
    })
}

fn read(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

impl Scheduler {
    fn with(total: Value) -> Self {
        let mut scheduler = Self::default();
        let node = json!({
            "metadata": {"name": "node", "labels": {"kubernetes.io/hostname": "node", "disk": "ssd"}},
            "status": {"allocatable": total},
        });
        scheduler.node(NodeView::of(&serde_json::from_value(node).unwrap()));
        scheduler
    }

    fn add(&mut self, pod: &Value) {
        let pod = read(pod);
        self.wait(PodKey::of(&pod), &pod);
    }

    fn started(&mut self) -> Vec<String> {
        self.start().into_iter().map(|key| key.name).collect()
    }
}

#[test]
fn as_many_pods_run_as_there_are_cpus() {
    let mut scheduler = Scheduler::with(json!({"cpu": "8", "pods": "500"}));
    for index in 0..100 {
        scheduler.add(&pod(&format!("p{index}"), json!({"cpu": "1"})));
    }
    assert_eq!(scheduler.started().len(), 8);
    assert_eq!(scheduler.started().len(), 0);
    scheduler.leave("p3");
    assert_eq!(scheduler.started(), ["p8"]);
    let reasons = scheduler.explain();
    let expected = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption \
                    victims found for incoming pod.";
    assert!(reasons.iter().all(|reason| reason.message == expected), "{reasons:?}");
    assert_eq!(reasons.len(), 91);
}

#[test]
fn a_small_pod_passes_a_large_one_only_if_it_takes_nothing_of_it() {
    let mut scheduler = Scheduler::with(json!({"cpu": "8", "memory": "8Gi", "pods": "500"}));
    scheduler.add(&pod("runs", json!({"cpu": "6"})));
    assert_eq!(scheduler.started(), ["runs"]);
    scheduler.add(&pod("large", json!({"cpu": "4", "memory": "4Gi"})));
    scheduler.add(&pod("delays-large", json!({"cpu": "1"})));
    scheduler.add(&pod("free", json!({})));
    scheduler.add(&pod("beside", json!({"memory": "4Gi"})));
    scheduler.add(&pod("too-much-memory", json!({"memory": "1Gi"})));
    assert_eq!(scheduler.started(), ["free", "beside"]);
    scheduler.leave("runs");
    assert_eq!(scheduler.started(), ["large", "delays-large"]);
    scheduler.leave("large");
    assert_eq!(scheduler.started(), ["too-much-memory"]);
}

#[test]
fn a_port_of_the_machine_is_one_pods_at_a_time() {
    let mut scheduler = Scheduler::with(json!({"cpu": "8", "pods": "500"}));
    for name in ["first", "second"] {
        let mut pod = pod(name, json!({}));
        pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080}]);
        scheduler.add(&pod);
    }
    assert_eq!(scheduler.started(), ["first"]);
    let expected = "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: \
                    0/1 nodes are available: 1 No preemption victims found for incoming pod.";
    assert_eq!(scheduler.explain()[0].message, expected);
    scheduler.leave("first");
    assert_eq!(scheduler.started(), ["second"]);
}

#[test]
fn the_more_important_pod_is_first_and_then_the_older() {
    let mut scheduler = Scheduler::with(json!({"cpu": "1", "pods": "500"}));
    let with = |name: &str, priority: i32, created: &str| {
        let mut pod = pod(name, json!({"cpu": "1"}));
        pod["spec"]["priority"] = priority.into();
        pod["metadata"]["creationTimestamp"] = created.into();
        pod
    };
    scheduler.add(&with("young", 0, "2026-01-01T00:00:09Z"));
    scheduler.add(&with("old", 0, "2026-01-01T00:00:01Z"));
    scheduler.add(&with("important", 7, "2026-01-01T00:00:10Z"));
    for expected in ["important", "old", "young"] {
        assert_eq!(scheduler.started(), [expected]);
        scheduler.leave(expected);
    }
}

#[test]
fn a_pod_in_the_place_of_another_is_as_old_as_its_owner() {
    let mut scheduler = Scheduler::with(json!({"cpu": "4", "pods": "500"}));
    let of = |owner: &str, name: &str, cpu: &str, second: u32| {
        let mut pod = pod(name, json!({"cpu": cpu}));
        let reference =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": true});
        pod["metadata"]["ownerReferences"] = json!([reference]);
        pod["metadata"]["creationTimestamp"] = format!("2026-01-01T00:00:{second:02}Z").into();
        pod
    };
    scheduler.add(&of("train", "train-0", "2", 1));
    scheduler.add(&of("train", "train-1", "2", 1));
    assert_eq!(scheduler.started(), ["train-0", "train-1"]);
    scheduler.add(&of("large", "large-0", "4", 2));
    // Its peer waits for it.
    scheduler.leave("train-1");
    scheduler.add(&of("train", "train-1b", "2", 3));
    assert_eq!(scheduler.started(), ["train-1b"]);
}

#[test]
fn a_pod_that_is_withdrawn_holds_up_nobody_and_one_that_asks_nothing_is_never_held_up() {
    let mut scheduler = Scheduler::with(json!({"cpu": "4", "pods": "3"}));
    scheduler.add(&pod("runs", json!({"cpu": "1"})));
    assert_eq!(scheduler.started(), ["runs"]);
    for name in ["big", "bigger", "biggest"] {
        scheduler.add(&pod(name, json!({"cpu": "4"})));
    }
    scheduler.add(&pod("small", json!({"cpu": "1"})));
    scheduler.add(&pod("free", json!({})));
    assert_eq!(scheduler.started(), ["free"]);
    for name in ["big", "bigger", "biggest"] {
        assert!(scheduler.withdraw(name));
    }
    assert_eq!(scheduler.started(), ["small"]);
}

#[test]
fn what_the_node_never_has_holds_up_nobody() {
    let mut scheduler = Scheduler::with(json!({"cpu": "8", "pods": "500"}));
    scheduler.add(&pod("gpus", json!({"cpu": "4", "nvidia.com/gpu": "1"})));
    scheduler.add(&pod("huge", json!({"cpu": "64"})));
    scheduler.add(&pod("all", json!({"cpu": "8"})));
    assert_eq!(scheduler.started(), ["all"]);
    let reasons = scheduler.explain();
    assert!(reasons[0].message.contains("1 Insufficient cpu, 1 Insufficient nvidia.com/gpu."), "{reasons:?}");
}

#[test]
fn pods_that_exclude_each_other_run_one_after_the_other() {
    let mut scheduler = Scheduler::with(json!({"cpu": "8", "pods": "500"}));
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}});
    for name in ["first", "second"] {
        let mut pod = pod(name, json!({"cpu": "1"}));
        pod["metadata"]["labels"] = json!({"a": "b"});
        pod["spec"]["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
        scheduler.add(&pod);
    }
    assert_eq!(scheduler.started(), ["first"]);
    assert!(scheduler.explain()[0].message.contains("1 node(s) didn't match pod anti-affinity rules."));
    scheduler.leave("first");
    assert_eq!(scheduler.started(), ["second"]);
}

#[test]
fn a_pod_that_has_a_place_counts_whoever_gave_it() {
    let mut scheduler = Scheduler::with(json!({"cpu": "2", "pods": "500"}));
    let given = read(&pod("given", json!({"cpu": "2"})));
    scheduler.place(PodKey::of(&given), &given);
    scheduler.add(&pod("waits", json!({"cpu": "1"})));
    assert_eq!(scheduler.started().len(), 0);
    scheduler.leave("given");
    assert_eq!(scheduler.started(), ["waits"]);
}

proptest! {
    /// No more is used than there is, and a free node starts every pod that fits on it.
    #[test]
    fn the_node_is_never_overcommitted_and_never_stands_still(
        asked in prop::collection::vec((0_u64..5, 0_u64..5), 1..40),
        ends in prop::collection::vec(any::<prop::sample::Index>(), 0..80),
    ) {
        let mut scheduler = Scheduler::with(json!({"cpu": "4", "memory": "4", "pods": "6"}));
        for (index, (cpu, memory)) in asked.iter().enumerate() {
            let requests = json!({"cpu": cpu.to_string(), "memory": memory.to_string()});
            scheduler.add(&pod(&format!("p{index}"), requests));
        }
        let mut running = Vec::new();
        for end in ends.iter().map(Some).chain(std::iter::repeat(None)) {
            running.extend(scheduler.started());
            prop_assert!(scheduler.used.lacking(&Amounts::default(), &scheduler.node.total).is_empty());
            prop_assert!(!running.is_empty() || scheduler.waiting.is_empty());
            if running.is_empty() {
                break;
            }
            let at = end.map_or(0, |end| end.index(running.len()));
            scheduler.leave(&running.swap_remove(at));
        }
    }
}
