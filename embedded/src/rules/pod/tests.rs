//! Tests of rarely used rules of pods.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::super::decode;
use super::super::{PodStrategy, Strategy as _, Subresource};

/// A pod with one container, changed by a merge patch.
fn pod(patch: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    });
    json_patch::merge(&mut pod, &patch);
    let mut pod = decode::from_value("v1", "Pod", pod).unwrap().object;
    PodStrategy.default_object(&mut pod);
    PodStrategy.prepare_create(&mut pod);
    pod
}

/// Causes of a pod with this spec, as `field: message`.
fn causes(spec: Value) -> Vec<String> {
    let causes = PodStrategy.validate_create(&pod(json!({ "spec": spec })));
    causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

/// Causes of a pod with this container.
fn container_causes(patch: Value) -> Vec<String> {
    let mut container = json!({"name": "c", "image": "i"});
    json_patch::merge(&mut container, &patch);
    causes(json!({ "containers": [container] }))
}

#[test]
fn the_environment_can_refer_to_fields_of_the_pod() {
    let reference = |path: &str| {
        container_causes(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}))
    };
    assert_eq!(reference("metadata.labels['a.b/c']"), [""; 0]);
    assert_eq!(reference("status.podIP"), [""; 0]);
    assert!(reference("status.phase")[0].contains("fieldPath: Unsupported value: \"status.phase\""));
    assert!(reference("spec.nothing")[0].ends_with("field label not supported: spec.nothing"));
}

#[test]
fn a_probe_has_one_handler() {
    let probe = |probe: Value| container_causes(json!({ "livenessProbe": probe }));
    assert_eq!(probe(json!({"exec": {"command": ["true"]}})), [""; 0]);
    let path = "spec.containers[0].livenessProbe";
    assert_eq!(probe(json!({})), [format!("{path}: Required value: must specify a handler type")]);
    assert_eq!(
        probe(json!({"exec": {"command": ["true"]}, "tcpSocket": {"port": 1}})),
        [format!("{path}.tcpSocket: Forbidden: may not specify more than 1 handler type")]
    );
    assert_eq!(
        probe(json!({"httpGet": {"port": 0}, "successThreshold": 2})),
        [
            format!("{path}.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive"),
            format!("{path}.successThreshold: Invalid value: 2: must be 1"),
        ]
    );
}

#[test]
fn init_containers_share_names_but_not_probes() {
    let init = json!([{"name": "c", "image": "i", "readinessProbe": {"exec": {"command": ["true"]}}}]);
    assert_eq!(
        causes(json!({ "initContainers": init })),
        [
            "spec.initContainers[0].name: Duplicate value: \"c\"",
            "spec.initContainers[0].readinessProbe: Forbidden: \
             may not be set for init containers without restartPolicy=Always",
        ]
    );
}

#[test]
fn extended_resources_cannot_be_overcommitted() {
    let causes = container_causes(json!({"resources": {"requests": {"example.com/gpu": "1"}}}));
    let wanted = "spec.containers[0].resources.limits: Required value: \
                  Limit must be set for non overcommitable resources";
    assert_eq!(causes, [wanted]);
}

#[test]
fn a_pod_keeps_its_containers_and_tolerations() {
    let old = pod(json!({}));
    let change = |patch: Value| -> Vec<String> {
        let mut new = old.clone();
        json_patch::merge(&mut new, &patch);
        PodStrategy.prepare_update(Subresource::Main, &old, &mut new);
        let causes = PodStrategy.validate_update(Subresource::Main, &old, &new);
        causes.into_iter().map(|cause| cause.field).collect()
    };
    let two = json!([old["spec"]["containers"][0], {"name": "d", "image": "i", "imagePullPolicy": "Always",
        "terminationMessagePolicy": "File", "terminationMessagePath": "/x", "resources": {}}]);
    assert_eq!(change(json!({"spec": {"containers": two}})), ["spec.containers"]);
    assert_eq!(change(json!({"spec": {"tolerations": []}})), ["spec.tolerations"]);
    let mut more = old["spec"]["tolerations"].clone();
    more.as_array_mut().unwrap().push(json!({"key": "a", "operator": "Exists"}));
    assert_eq!(change(json!({"spec": {"tolerations": more}})), [""; 0]);
    assert_eq!(change(json!({"spec": {"hostname": "x"}})), ["spec"]);
}

#[test]
fn the_address_of_a_pod_has_two_fields() {
    let status = |status: Value| {
        let mut pod = json!({ "status": status });
        PodStrategy.default_object(&mut pod);
        (pod["status"]["podIP"].clone(), pod["status"]["podIPs"].clone())
    };
    let both = |ip: &str| (json!(ip), json!([{ "ip": ip }]));
    assert_eq!(status(json!({"podIP": "10.0.0.1"})), both("10.0.0.1"));
    assert_eq!(status(json!({"podIPs": [{"ip": "10.0.0.1"}]})), both("10.0.0.1"));
    assert_eq!(status(json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.1"}]})), both("10.0.0.2"));
    assert_eq!(status(json!({})), (Value::Null, Value::Null));
}

#[test]
fn a_container_leaves_its_end_if_its_pod_itself_or_one_of_its_rules_starts_it_again() {
    let with = |exit_code: i32, own: Value, state: Value| {
        let mut container = json!({"name": "c", "image": "i"});
        json_patch::merge(&mut container, &own);
        let mut old = pod(json!({"spec": {"restartPolicy": "Never", "containers": [container]}}));
        let mut new = old.clone();
        old["status"]["containerStatuses"] =
            json!([{"name": "c", "state": {"terminated": {"exitCode": exit_code}}}]);
        new["status"]["containerStatuses"] = json!([{"name": "c", "state": state}]);
        PodStrategy.validate_update(Subresource::Status, &old, &new).len()
    };
    let rules = |operator: &str| {
        let rule = json!({"action": "Restart", "exitCodes": {"operator": operator, "values": [42]}});
        json!({"restartPolicy": "Never", "restartPolicyRules": [rule]})
    };
    for (exit_code, own, refused) in [
        (42, json!({}), 1),
        (42, rules("In"), 0),
        (41, rules("In"), 1),
        (41, rules("NotIn"), 0),
        (1, json!({"restartPolicy": "OnFailure"}), 0),
        (0, json!({"restartPolicy": "OnFailure"}), 1),
        (0, json!({"restartPolicy": "Always"}), 0),
    ] {
        assert_eq!(with(exit_code, own.clone(), json!({"running": {}})), refused, "{exit_code} {own}");
    }
}
