//! Reads and checks Job manifests: all problems are found before any Job is created.

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::located::{self, Document};
use super::{Host, refusal};
#[cfg(feature = "embedded")]
use super::{check, preflight, view::is_ours};
#[cfg(feature = "embedded")]
use crate::cli::embedded::workspace;

/// A Job to create.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The Job as in the file, with its namespace filled in.
    pub(super) job: Value,
    /// The namespace of the Job.
    pub(super) namespace: String,
}

/// Reads all files, with Jobs whose pods run there; an error lists all problems, one line each.
pub(super) fn load(
    files: &[PathBuf],
    namespace: Option<&str>,
    host: Host,
) -> Result<Vec<Manifest>, Vec<String>> {
    let (manifests, problems) = (Vec::new(), Vec::new());
    let mut loader = Loader { namespace, host, manifests, problems, names: HashMap::new() };
    for file in files {
        loader.file(file);
    }
    if loader.manifests.is_empty() && loader.problems.is_empty() {
        loader.problems.push(format!("{}: no Job in it", label(&files[0])));
    }
    if loader.problems.is_empty() { Ok(loader.manifests) } else { Err(loader.problems) }
}

struct Loader<'a> {
    namespace: Option<&'a str>,
    #[cfg_attr(
        not(feature = "embedded"),
        expect(dead_code, reason = "asked before the embedded cluster starts")
    )]
    host: Host,
    manifests: Vec<Manifest>,
    problems: Vec<String>,
    /// The file that first defined a Job, by its namespace and name.
    names: HashMap<(String, String), String>,
}

impl Loader<'_> {
    fn file(&mut self, file: &Path) {
        let label = label(file);
        let text = match read(file) {
            Ok(text) => text,
            Err(error) => return self.problems.push(format!("{label}: {error}")),
        };
        match located::parse(&text) {
            Ok(documents) => documents.iter().for_each(|document| self.document(&label, document)),
            Err(error) => {
                let line = error.line.map(|line| format!("line {line}: ")).unwrap_or_default();
                let message = refusal::template(&text).unwrap_or(&error.message);
                self.problems.push(format!("{label}: {line}{message}"));
            }
        }
    }

    fn document(&mut self, label: &str, document: &Document) {
        let value = &document.value;
        if value.is_null() {
            return;
        }
        if !value.is_object() {
            let line = document.line("").map(|line| format!("line {line}: ")).unwrap_or_default();
            return self
                .problems
                .push(format!("{label}: {line}not a manifest: expected fields such as `kind: Job`"));
        }
        let (version, kind) = (value["apiVersion"].as_str(), value["kind"].as_str());
        match (version, kind) {
            (Some("batch/v1"), Some("Job")) => self.job(label, document),
            (Some("v1"), Some("List")) | (Some("batch/v1"), Some("JobList")) => {
                for (index, item) in value["items"].as_array().into_iter().flatten().enumerate() {
                    self.document(label, &document.item(&format!("items[{index}]"), item.clone()));
                }
            }
            (_, None) => {
                self.problems.push(format!("{label}: kind: Required value: yardmaster runs batch/v1 Job"))
            }
            (version, Some("Job")) => self.problems.push(format!(
                "{label}: apiVersion {} is not supported: yardmaster runs batch/v1 Job",
                version.unwrap_or("\"\"")
            )),
            (version, Some(kind)) => {
                self.problems.push(format!("{label}: {}", refusal::kind(version, kind)));
            }
        }
    }

    fn job(&mut self, label: &str, document: &Document) {
        let mut job = document.value.clone();
        let given = job["metadata"]["namespace"].as_str().map(str::to_owned);
        if let (Some(given), Some(wanted)) = (&given, self.namespace)
            && given != wanted
        {
            let problem = format!("{label}: metadata.namespace: {given:?} is not the --namespace {wanted:?}");
            return self.problems.push(problem);
        }
        let namespace = given.or(self.namespace.map(str::to_owned)).unwrap_or_else(|| "default".into());
        if job["metadata"].is_object() {
            job["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(name) = job["metadata"]["name"].as_str() {
            let key = (namespace.clone(), name.to_owned());
            if let Some(first) = self.names.insert(key, label.to_owned()) {
                self.problems.push(format!("{label}: Job {namespace}/{name} is already defined in {first}"));
            }
        }
        #[cfg(feature = "embedded")]
        self.problems.extend(
            self.problems_of(&job, document).into_iter().map(|problem| format!("{label}: {problem}")),
        );
        self.manifests.push(Manifest { job, namespace });
    }
}

#[cfg(feature = "embedded")]
impl Loader<'_> {
    /// What is wrong with a Job, or else with its pods on this machine.
    fn problems_of(&self, job: &Value, document: &Document) -> Vec<String> {
        let job = match check::job(job, document) {
            Ok(job) => job,
            Err(problems) => return problems,
        };
        let Host::ThisMachine { here } = self.host else { return Vec::new() };
        // The pods of another controller's Job are nobody's here.
        if !job["spec"]["managedBy"].as_str().is_none_or(is_ours) {
            return Vec::new();
        }
        let found = preflight::problems(&job, workspace(here)).into_iter();
        found.map(|(field, text)| check::at(document, &field, format!("{field}: {text}"))).collect()
    }
}

fn label(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

fn read(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => "no such file".to_owned(),
        std::io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        _ => error.to_string(),
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|byte| *byte == b'\n').count();
        format!("line {line}: not UTF-8 text")
    })
}
