#![allow(clippy::unwrap_used)]

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::*;

fn added(overlay: &Overlay, spec: Value) -> Value {
    let text = RawValue::from_string(spec.to_string()).unwrap();
    let mut fields: SpecFields<'_> = serde_json::from_str(text.get()).unwrap();
    overlay.add_to_json(&mut fields).unwrap();
    serde_json::from_str(to_raw_value(&fields).unwrap().get()).unwrap()
}

fn away_from(required: bool, hosts: &[&str]) -> Overlay {
    let hosts = hosts.iter().map(|host| (*host).into()).collect();
    Overlay { avoidance: Some(HostAvoidance { required, hosts }), ..Overlay::default() }
}

#[test]
fn a_variable_is_added_where_the_container_has_none_of_that_name() {
    let variable = |name, value: &str| Variable { name, value: VariableValue::Text(value.into()) };
    let overlay = Overlay { env: vec![variable("A", "ours"), variable("B", "b")], ..Overlay::default() };
    let (a, b) = (json!({"name": "A", "value": "given"}), json!({"name": "B", "value": "b"}));
    let spec =
        json!({"containers": [{"name": "x", "env": [a]}, {"name": "y"}], "initContainers": [{"env": null}]});
    let added = added(&overlay, spec);
    let ours = json!({"name": "A", "value": "ours"});
    assert_eq!(added["containers"][0], json!({"name": "x", "env": [a, b]}));
    assert_eq!(added["containers"][1]["env"], json!([ours, b]));
    assert_eq!(added["initContainers"][0]["env"], json!([ours, b]));
}

#[test]
fn a_quantity_takes_the_place_of_that_of_its_container() {
    let quantity = |list, amount: &str| Quantity {
        container: "main".into(),
        list,
        resource: "memory",
        amount: amount.into(),
    };
    let quantities = vec![quantity(ResourceList::Limits, "2Gi"), quantity(ResourceList::Requests, "1Gi")];
    let overlay = Overlay { quantities, ..Overlay::default() };
    let given = json!({"limits": {"memory": "1Gi", "cpu": 1}, "claims": [{"name": "c"}]});
    let spec =
        json!({"containers": [{"name": "main", "resources": given}, {"name": "side", "resources": given}]});
    let containers = &added(&overlay, spec)["containers"];
    let expected = json!({
        "limits": {"memory": "2Gi", "cpu": 1}, "requests": {"memory": "1Gi"}, "claims": [{"name": "c"}],
    });
    assert_eq!(containers[0]["resources"], expected);
    assert_eq!(containers[1]["resources"], given);
}

/// Terms are alternatives: an expression in one of them alone would keep the pod away from nothing.
#[test]
fn required_avoidance_narrows_each_term_of_the_template() {
    let avoid = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1", "n2"]});
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["n7"]});
    let required = |terms: Value| json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}});
    let alone = required(json!([{"matchExpressions": [avoid]}]));
    for (given, expected) in [
        (Value::Null, alone.clone()),
        (json!({}), alone.clone()),
        (json!({"nodeAffinity": null}), alone),
        (
            required(json!([{"matchExpressions": [zone]}, {"matchFields": [field]}])),
            required(json!([
                {"matchExpressions": [zone, avoid]},
                {"matchFields": [field], "matchExpressions": [avoid]},
            ])),
        ),
        (required(json!([{}])), required(json!([{}]))),
    ] {
        let pod = added(&away_from(true, &["n1", "n2"]), json!({"affinity": given}));
        assert_eq!(pod["affinity"], expected, "{given}");
    }
}

#[test]
fn preferred_avoidance_is_one_more_preference() {
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let disk =
        json!({"weight": 1, "preference": {"matchExpressions": [{"key": "disk", "operator": "Exists"}]}});
    let pods = json!({"podAffinity": {"x": 1}, "nodeAffinity": {preferred: [disk]}});
    let pod = added(&away_from(false, &["n1"]), json!({"affinity": pods}));
    let avoid = json!({"weight": 100, "preference": {"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n1"]},
    ]}});
    assert_eq!(pod["affinity"], json!({"podAffinity": {"x": 1}, "nodeAffinity": {preferred: [disk, avoid]}}));
}

#[test]
fn a_malformed_field_is_an_error() {
    for spec in [json!({"affinity": 7}), json!({"affinity": {"nodeAffinity": []}})] {
        let text = RawValue::from_string(spec.to_string()).unwrap();
        let mut fields: SpecFields<'_> = serde_json::from_str(text.get()).unwrap();
        assert!(away_from(true, &["n"]).add_to_json(&mut fields).is_err(), "{spec}");
    }
    assert!(away_from(true, &["n"]).added_to_protobuf(&[0x0a, 9]).is_err());
}
