//! The objects that Helm makes of the chart with a set of values.

use std::ffi::OsStr;
use std::fmt;
use std::path::PathBuf;

use serde_json::Value;

use crate::project;
use crate::tools::{Helm, text_of};

pub(crate) const RELEASE: &str = "yard";
pub(crate) const NAMESPACE: &str = "batch";

/// Values with which a user may install the chart.
pub(crate) struct ValueSet {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

impl fmt::Display for ValueSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// All sets, in the order of their names.
pub(crate) fn value_sets() -> Vec<ValueSet> {
    let files = std::fs::read_dir(project("tests/chart/values")).unwrap();
    let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 10);
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.into_iter().map(|path| ValueSet { name: name(&path), path }).collect()
}

impl ValueSet {
    pub(crate) fn named(name: &str) -> Self {
        value_sets().into_iter().find(|set| set.name == name).unwrap()
    }

    /// The objects for a cluster of this version; `more` are further arguments.
    pub(crate) fn objects(&self, helm: &Helm, kubernetes: &str, more: &[&str]) -> Vec<Value> {
        let mut command = helm.template(["--kube-version", &format!("{kubernetes}.0")]);
        command.arg("-f").arg(&self.path).args(more);
        // The answer of such a cluster to Helm.
        match kubernetes {
            "1.32" => command.args(["--set", "defaulting.enabled=false"]),
            "1.34" => command
                .args(["--api-versions", "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"]),
            _ => &mut command,
        };
        if self.name == "openshift" {
            command.args(["--api-versions", "security.openshift.io/v1"]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{helm} template, {self}, {kubernetes}:\n{}", text_of(&output));
        objects_of(&String::from_utf8(output.stdout).unwrap())
    }
}

/// The objects of a chart at another place, with the default values and `more` arguments.
pub(crate) fn objects_of_chart(helm: &Helm, chart: &OsStr, more: &[&str]) -> Vec<Value> {
    let mut command =
        helm.command(["template", RELEASE, "--namespace", NAMESPACE, "--kube-version", "1.36.0"]);
    let output = command.arg(chart).args(more).output().unwrap();
    assert!(output.status.success(), "{helm} template:\n{}", text_of(&output));
    objects_of(&String::from_utf8(output.stdout).unwrap())
}

/// The objects in a stream of YAML, by kind, namespace and name.
pub(crate) fn objects_of(text: &str) -> Vec<Value> {
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    objects.retain(|object| !object.is_null());
    objects.sort_by_key(key);
    let twice = objects.windows(2).find(|pair| key(&pair[0]) == key(&pair[1]));
    assert!(twice.is_none(), "two objects of one name: {twice:?}");
    objects
}

fn key(object: &Value) -> [String; 3] {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &object["metadata"];
    assert!(metadata["name"].is_string(), "no name: {object}");
    [text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"])]
}

/// The objects of a kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The only object of a kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    match of_kind(objects, kind)[..] {
        [object] => object,
        ref others => panic!("{} of kind {kind}", others.len()),
    }
}
