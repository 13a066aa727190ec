//! The answers of a real API server to the objects. It keeps none of them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::objects::stream;
use crate::render::value_sets;
use crate::tools::{helms, text_of, tool};

fn kubectl(program: &Path, cluster: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(cluster);
    command
}

/// `MAJOR.MINOR` of a cluster.
fn version(program: &Path, cluster: &Path) -> String {
    let output = kubectl(program, cluster).args(["version", "--output", "json"]).output().unwrap();
    assert!(output.status.success(), "{}", text_of(&output));
    let version: Value = serde_json::from_slice(&output.stdout).unwrap();
    let part = |name: &str| version["serverVersion"][name].as_str().unwrap().trim_end_matches('+').to_owned();
    format!("{}.{}", part("major"), part("minor"))
}

#[test]
fn an_api_server_takes_the_objects() {
    let Some(cluster) = std::env::var_os("YARDMASTER_KUBECONFIG") else {
        eprintln!("skipped: YARDMASTER_KUBECONFIG names no cluster");
        return;
    };
    let cluster = Path::new(&cluster);
    let Some(program) = tool("kubectl") else { return };
    let Some(helm) = helms().pop() else { return };
    let kubernetes = version(&program, cluster);
    let folder = tempfile::tempdir().unwrap();
    for set in value_sets() {
        // Namespaces that the objects would be in need not exist.
        let mut more = vec!["--namespace", "default", "--set", "controller.leaseNamespace=default"];
        if matches!(&*kubernetes, "1.33" | "1.34" | "1.35") {
            more.extend(["--set", "defaulting.enabled=false"]);
        }
        let mut objects = set.objects(&helm, &kubernetes, &more);
        objects.retain(|object| object["apiVersion"] != "monitoring.coreos.com/v1");
        for pod in objects.iter_mut().filter(|object| object["kind"] == "Pod") {
            // Their accounts are not there either.
            pod["spec"]["serviceAccountName"] = json!("default");
        }
        let file = folder.path().join(&set.name).with_extension("yaml");
        std::fs::write(&file, stream(&objects)).unwrap();
        let mut command = kubectl(&program, cluster);
        command.args(["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f"]).arg(&file);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{set}:\n{}", text_of(&output));
        let taken = String::from_utf8(output.stdout).unwrap().lines().count();
        assert_eq!(taken, objects.len(), "{set}");
    }
}
