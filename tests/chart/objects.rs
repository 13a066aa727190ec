//! The rendered objects: valid, the same as before, and consistent.

use std::process::Command;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::render::{ValueSet, objects_of, of_kind, only, value_sets};
use crate::tools::{helms, text_of, tool};
use crate::{KUBERNETES, NEWEST, project, updating};

/// As a stream of YAML.
pub(crate) fn stream(objects: &[Value]) -> String {
    objects.iter().map(|object| format!("---\n{}", serde_saphyr::to_string(object).unwrap())).collect()
}

#[test]
fn objects_fit_the_schemas_of_kubernetes() {
    let Some(validate) = tool("kubernetes-validate") else { return };
    for helm in helms() {
        for kubernetes in KUBERNETES {
            let folder = tempfile::tempdir().unwrap();
            let mut command = Command::new(&validate);
            command.args(["--strict", "--kubernetes-version", kubernetes]);
            for set in value_sets() {
                let mut objects = set.objects(&helm, kubernetes, &[]);
                // Kinds of the Prometheus Operator are not among Kubernetes' own.
                objects.retain(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
                let file = folder.path().join(&set.name).with_extension("yaml");
                std::fs::write(&file, stream(&objects)).unwrap();
                command.arg(file);
            }
            let output = command.output().unwrap();
            let text = text_of(&output);
            let problems: Vec<_> = text.lines().filter(|line| !line.starts_with("INFO")).collect();
            assert!(output.status.success() && problems.is_empty(), "{helm}, {kubernetes}: {problems:#?}");
        }
    }
}

/// Replaces the dashboards of a ConfigMap, which are thousands of lines, by where they are.
fn shorten_dashboards(map: &mut Value) {
    for (name, text) in map["data"].as_object_mut().into_iter().flatten() {
        let file = project("charts/yardmaster/files/dashboards").join(name);
        // Users add maps of their own.
        let Ok(file) = std::fs::read_to_string(file) else { continue };
        assert_eq!(text.as_str(), Some(file.trim()), "{name}");
        *text = json!(format!("files/dashboards/{name}"));
    }
}

#[test]
fn objects_are_those_of_the_snapshots() {
    for helm in helms() {
        for set in value_sets() {
            let mut objects = set.objects(&helm, NEWEST, &[]);
            objects.iter_mut().filter(|object| object["kind"] == "ConfigMap").for_each(shorten_dashboards);
            let file = project("tests/chart/snapshots").join(&set.name).with_extension("yaml");
            let now = stream(&objects);
            if updating() {
                std::fs::create_dir_all(file.parent().unwrap()).unwrap();
                std::fs::write(&file, &now).unwrap();
            }
            let before = std::fs::read_to_string(&file).unwrap_or_default();
            if objects_of(&before) != objects {
                let diff =
                    TextDiff::from_lines(&before, &now).unified_diff().header("snapshot", "now").to_string();
                panic!("{helm}, {set} (YARDMASTER_UPDATE=1 takes it over):\n{diff}");
            }
        }
    }
}

#[test]
fn only_defaulting_depends_on_the_version_of_kubernetes() {
    let versions = |objects: &[Value]| -> Vec<Value> {
        let policies = ["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"];
        policies
            .iter()
            .flat_map(|kind| of_kind(objects, kind))
            .map(|policy| policy["apiVersion"].clone())
            .collect()
    };
    for helm in helms() {
        for set in value_sets() {
            let mut rendered = KUBERNETES.map(|kubernetes| set.objects(&helm, kubernetes, &[]));
            if matches!(&*set.name, "everything" | "one-node") {
                let wanted = [
                    json!([]),
                    json!(["admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1beta1"]),
                    json!(["admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1"]),
                ];
                assert_eq!(rendered.each_ref().map(|objects| Value::from(versions(objects))), wanted);
            }
            for objects in &mut rendered {
                objects.retain(|object| !object["kind"].as_str().unwrap().starts_with("MutatingAdmission"));
            }
            assert!(rendered.windows(2).all(|pair| pair[0] == pair[1]), "{helm}, {set}");
        }
    }
}

/// Labels that a selector wants, and whether these are among them.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().unwrap();
    assert!(!wanted.is_empty());
    wanted.iter().all(|(name, value)| labels[name] == *value)
}

#[test]
fn selectors_find_replicas_and_no_other_pods() {
    for helm in helms() {
        for set in value_sets() {
            let objects = set.objects(&helm, NEWEST, &[]);
            let deployment = only(&objects, "Deployment");
            let replica = &deployment["spec"]["template"]["metadata"]["labels"];
            let others: Vec<_> =
                of_kind(&objects, "Pod").iter().map(|pod| &pod["metadata"]["labels"]).collect();
            let mut selectors = vec![&deployment["spec"]["selector"]["matchLabels"]];
            for (kind, path) in [
                ("PodDisruptionBudget", "/spec/selector/matchLabels"),
                ("PodMonitor", "/spec/selector/matchLabels"),
                ("Service", "/spec/selector"),
            ] {
                selectors.extend(of_kind(&objects, kind).iter().map(|object| object.pointer(path).unwrap()));
            }
            for selector in selectors {
                assert!(selects(selector, replica), "{helm}, {set}: {selector}");
                assert!(!others.iter().any(|pod| selects(selector, pod)), "{helm}, {set}: {selector}");
            }
            for policy in of_kind(&objects, "NetworkPolicy") {
                let selector = &policy["spec"]["podSelector"]["matchLabels"];
                assert!(
                    [&[replica][..], &others].concat().iter().all(|pod| selects(selector, pod)),
                    "{helm}, {set}"
                );
            }
            for monitor in of_kind(&objects, "ServiceMonitor") {
                let selector = &monitor["spec"]["selector"]["matchLabels"];
                assert!(selects(selector, &only(&objects, "Service")["metadata"]["labels"]), "{helm}, {set}");
            }
        }
    }
}

#[test]
fn every_object_has_the_common_labels_and_annotations() {
    for helm in helms() {
        for object in ValueSet::named("custom-names").objects(&helm, NEWEST, &[]) {
            let metadata = &object["metadata"];
            assert_eq!(metadata["labels"]["cost-center"], "007", "{helm}: {object}");
            assert_eq!(metadata["annotations"]["owner"], "batch@example.com", "{helm}: {object}");
        }
    }
}

#[test]
fn on_openshift_the_cluster_chooses_the_user() {
    for helm in helms() {
        for (set, user) in [("defaults", json!(65532)), ("openshift", Value::Null)] {
            let objects = ValueSet::named(set).objects(&helm, NEWEST, &[]);
            let replica = &only(&objects, "Deployment")["spec"]["template"]["spec"];
            let pods = of_kind(&objects, "Pod").into_iter().map(|pod| &pod["spec"]);
            for pod in pods.chain([replica]) {
                let context = &pod["securityContext"];
                assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&user, &user), "{helm}, {set}");
                assert_eq!(context["runAsNonRoot"], true, "{helm}, {set}");
            }
        }
    }
}
