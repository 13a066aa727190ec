//! Alerts and dashboards: files of the chart that Helm packs into objects.

use std::fs;

use serde_json::{Value, json};
use yardmaster::job::options::TABLE;
use yardmaster::job::options::admission::validations;

use crate::render::{objects_of_chart, of_kind, only};
use crate::tools::{Helm, helms};
use crate::{chart, project};

const ON: [&str; 4] =
    ["--set", "metrics.prometheusRule.enabled=true", "--set", "metrics.dashboards.enabled=true"];
const RULES: &str = r#"groups:
  - name: made-up
    rules:
      - alert: Down
        expr: up == 0
        annotations:
          summary: "{{ $labels.pod }} is down"
"#;
const DASHBOARD: &str = r#"{"title": "Made up", "panels": [{"legendFormat": "{{pod}}"}]}"#;

/// The objects of the chart with these files in place of its own.
fn with_files(helm: &Helm, files: &[(&str, &str)]) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("yardmaster");
    let copied = std::process::Command::new("cp").arg("-r").args([&chart(), &copy]).status().unwrap();
    assert!(copied.success());
    fs::remove_dir_all(copy.join("files")).unwrap();
    for (name, text) in files {
        let file = copy.join("files").join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    objects_of_chart(helm, copy.as_os_str(), &ON)
}

#[test]
fn files_become_rules_and_dashboards_as_they_are() {
    for helm in helms() {
        let two = RULES.replace("made-up", "another");
        let files = [("rules/a.yaml", RULES), ("rules/b.yaml", &two), ("dashboards/Made_Up.json", DASHBOARD)];
        let objects = with_files(&helm, &files);
        let groups =
            |text: &str| serde_saphyr::from_str::<Value>(text).unwrap()["groups"].as_array().unwrap().clone();
        let wanted = [groups(RULES), groups(&two)].concat();
        assert_eq!(only(&objects, "PrometheusRule")["spec"]["groups"], json!(wanted), "{helm}");
        let map = only(&objects, "ConfigMap");
        assert_eq!(map["data"], json!({"Made_Up.json": DASHBOARD}), "{helm}");
        assert_eq!(map["metadata"]["name"], "yard-yardmaster-made-up", "{helm}");
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1", "{helm}");
    }
}

/// The rules of the policy are made from the table that the parser of options is made from.
#[test]
fn the_policy_has_the_rules_of_the_options() {
    let rules: Value = serde_saphyr::from_str(&validations()).unwrap();
    // A rule for each option, and one for options that exclude each other.
    assert_eq!(rules.as_array().unwrap().len(), TABLE.len() + 1);
    for helm in helms() {
        let objects = objects_of_chart(&helm, chart().as_os_str(), &[]);
        let policy = only(&objects, "ValidatingAdmissionPolicy");
        assert_eq!(policy["spec"]["validations"], rules, "{helm}");
    }
}

#[test]
fn without_files_there_are_no_empty_objects() {
    for helm in helms() {
        let objects = with_files(&helm, &[]);
        for kind in ["PrometheusRule", "ConfigMap"] {
            assert!(of_kind(&objects, kind).is_empty(), "{helm}");
        }
    }
}

#[test]
fn the_package_holds_what_the_templates_read() {
    for helm in helms() {
        let folder = tempfile::tempdir().unwrap();
        let packed =
            helm.command(["package", "--destination"]).arg(folder.path()).arg(chart()).output().unwrap();
        assert!(packed.status.success(), "{helm}: {}", crate::text_of(&packed));
        let package = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
        let listed = std::process::Command::new("tar").arg("tzf").arg(package).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let has = |name: &str| listed.lines().any(|line| line == format!("yardmaster/{name}"));
        assert!(has("values.schema.json") && has("README.md") && !has("files/README.md"), "{helm}: {listed}");
        for folder in ["rules", "dashboards"] {
            let Ok(files) = fs::read_dir(project("charts/yardmaster/files").join(folder)) else { continue };
            for file in files {
                let name = file.unwrap().file_name();
                assert!(has(&format!("files/{folder}/{}", name.display())), "{helm}: {listed}");
            }
        }
    }
}
