//! Reads and checks Job manifests: all problems are found before any Job is created.

use std::collections::HashMap;
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use yardmaster_manifest::{Content, Node, Repeated, Source};

#[cfg(feature = "embedded")]
use super::check;
use super::{Host, export, refusal};

/// A Job to create.
#[derive(Clone, Debug)]
pub(super) struct Manifest {
    /// The Job as in the file, with its namespace filled in.
    pub(super) job: Value,
    /// The namespace of the Job.
    pub(super) namespace: String,
}

/// All Jobs of the files, and what their author should know.
#[derive(Debug)]
pub(super) struct Loaded {
    /// The Jobs to create.
    pub(super) manifests: Vec<Manifest>,
    /// One line each.
    pub(super) notes: Vec<String>,
}

/// Reads all files, with Jobs whose pods run on this host; an error lists all problems, one line each. What a cluster has written
/// into Jobs is left out if `exported` is set; otherwise it is a problem where a cluster would refuse it.
pub(super) fn load(
    files: &[PathBuf],
    namespace: Option<&str>,
    exported: bool,
    host: Host,
) -> Result<Loaded, Vec<String>> {
    let loaded = Loaded { manifests: Vec::new(), notes: Vec::new() };
    let (problems, names) = (Vec::new(), HashMap::new());
    let mut loader = Loader { namespace, exported, host, loaded, problems, names };
    for file in files {
        loader.file(file);
    }
    if loader.loaded.manifests.is_empty() && loader.problems.is_empty() {
        loader.problems.push(format!("{}: no Job in it", label(&files[0])));
    }
    if loader.problems.is_empty() { Ok(loader.loaded) } else { Err(loader.problems) }
}

struct Loader<'a> {
    namespace: Option<&'a str>,
    exported: bool,
    #[cfg_attr(
        not(feature = "embedded"),
        expect(dead_code, reason = "asked before the embedded cluster starts")
    )]
    host: Host,
    loaded: Loaded,
    problems: Vec<String>,
    /// Where a Job was first defined, by its namespace and name.
    names: HashMap<(String, String), String>,
}

/// A file that is being read.
#[derive(Clone, Copy)]
struct Origin<'a> {
    label: &'a str,
    source: &'a Source,
}

impl Origin<'_> {
    /// A line about a place in the file.
    fn line(&self, at: usize, text: impl Display) -> String {
        format!("{}: {}: {text}", self.label, self.source.position(at))
    }
}

impl Loader<'_> {
    fn file(&mut self, file: &Path) {
        let label = label(file);
        let bytes = match read(file) {
            Ok(bytes) => bytes,
            Err(error) => return self.problems.push(format!("{label}: {error}")),
        };
        let source = Source::new(&bytes);
        let origin = Origin { label: &label, source: &source };
        for document in source.documents() {
            match document {
                Ok(document) => self.document(origin, &document),
                Err(error) => self.problems.push(origin.line(error.at, error)),
            }
        }
    }

    fn document(&mut self, origin: Origin<'_>, document: &Node) {
        if document.is_null() {
            return;
        }
        let known = match (document.text("apiVersion"), document.text("kind")) {
            (Some("batch/v1"), Some("Job")) => return self.job(origin, document),
            (Some("v1"), Some("List")) | (Some("batch/v1"), Some("JobList")) => {
                return document.list("items").iter().for_each(|item| self.document(origin, item));
            }
            (_, None) if !matches!(document.content, Content::Map(_)) => {
                ("", "not a manifest: expected fields such as `kind: Job`".to_owned())
            }
            (_, None) => ("kind", "kind: Required value: yardmaster runs batch/v1 Job".to_owned()),
            (version, Some("Job")) => {
                let version = version.unwrap_or("\"\"");
                let text = format!("apiVersion {version} is not supported: yardmaster runs batch/v1 Job");
                ("apiVersion", text)
            }
            (version, Some(kind)) => ("kind", refusal::kind(version, kind)),
        };
        let (field, text) = known;
        self.problems.push(origin.line(document.place(field), text));
    }

    fn job(&mut self, origin: Origin<'_>, document: &Node) {
        let line = |field: &str, text: &str| origin.line(document.place(field), text);
        let mut job = document.to_value();
        let given = job["metadata"]["namespace"].as_str().map(str::to_owned);
        if let (Some(given), Some(wanted)) = (&given, self.namespace)
            && given != wanted
        {
            let text = format!("metadata.namespace: {given:?} is not the --namespace {wanted:?}");
            return self.problems.push(line("metadata.namespace", &text));
        }
        let namespace = given.or(self.namespace.map(str::to_owned)).unwrap_or_else(|| "default".into());
        if job["metadata"].is_object() {
            job["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(name) = job["metadata"]["name"].as_str() {
            let key = (namespace.clone(), name.to_owned());
            let place = origin.source.position(document.place("metadata.name"));
            if let Some(first) = self.names.insert(key, format!("{}, {place}", origin.label)) {
                let text = format!("Job {namespace}/{name} is already defined in {first}");
                self.problems.push(line("metadata.name", &text));
            }
        }
        self.clean(origin, document, &mut job);
        #[cfg(feature = "embedded")]
        for (field, text) in check::problems(&job, self.host) {
            self.problems.push(line(&field, &text));
        }
        for Repeated { field, earlier, at } in document.repeated() {
            let first = origin.source.position(earlier);
            let text = format!("{field} is there twice, first in {first}: this one counts");
            self.loaded.notes.push(origin.line(at, text));
        }
        self.loaded.manifests.push(Manifest { job, namespace });
    }

    /// Takes out what another cluster has written into the Job. Without leave to do so, it is a problem if no cluster would take
    /// the Job as it is.
    fn clean(&mut self, origin: Origin<'_>, document: &Node, job: &mut Value) {
        let fields = export::in_the_way(job);
        if let Some((first, _)) = fields.first()
            && !self.exported
        {
            let listed: Vec<_> = fields.iter().map(|(field, why)| format!("{field}{why}")).collect();
            let text = format!(
                "{} must not be set: a cluster has written this Job: remove what it has written, or run with --exported",
                listed.join(", ")
            );
            self.problems.push(origin.line(document.place(first), text));
        }
        if self.exported || !fields.is_empty() {
            export::clean(job);
        }
    }
}

fn label(file: &Path) -> String {
    if file == Path::new("-") { "standard input".into() } else { file.display().to_string() }
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err("no such file".to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::IsADirectory => Err("is a directory".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}
