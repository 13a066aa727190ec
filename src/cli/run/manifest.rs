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
use crate::cli::file_problem::file_problem;
use crate::telemetry::printable::OneLine;

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

/// Files that are not taken: one line each.
#[derive(Debug)]
pub(super) struct Refused {
    /// All problems.
    pub(super) problems: Vec<String>,
    /// What may have led to them.
    pub(super) notes: Vec<String>,
}

/// Reads all files, with Jobs whose pods run on this host. What a cluster has written into Jobs is left out if `exported` is set;
/// otherwise it is a problem where a cluster would refuse it.
pub(super) fn load(
    files: &[PathBuf],
    namespace: Option<&str>,
    exported: bool,
    host: Host,
) -> Result<Loaded, Refused> {
    let loaded = Loaded { manifests: Vec::new(), notes: Vec::new() };
    let (problems, names) = (Vec::new(), HashMap::new());
    let mut loader = Loader { namespace, exported, host, loaded, problems, names };
    for file in files {
        loader.file(file);
    }
    if loader.loaded.manifests.is_empty() && loader.problems.is_empty() {
        loader.problems.push(format!("{}: no Job in it", label(&files[0])));
    }
    let Loader { loaded, problems, .. } = loader;
    if problems.is_empty() { Ok(loaded) } else { Err(Refused { problems, notes: loaded.notes }) }
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

/// What a document says it is.
type Type<'a> = (Option<&'a str>, Option<&'a str>);

/// A file that is being read.
#[derive(Clone, Copy)]
struct Origin<'a> {
    label: &'a str,
    source: &'a Source,
}

impl Origin<'_> {
    /// A line about a place in the file.
    fn line(&self, at: usize, text: impl Display) -> String {
        format!("{}: {}: {}", self.label, self.source.position(at), OneLine(&text.to_string()))
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
                Ok(document) => {
                    self.repeated(origin, &document);
                    self.document(origin, &document, (None, None));
                }
                Err(error) => self.problems.push(origin.line(error.at, error)),
            }
        }
    }

    /// Notes the keys that a document has twice: a value that does not count may be the one that a problem misses.
    fn repeated(&mut self, origin: Origin<'_>, document: &Node) {
        for Repeated { field, earlier, at } in document.repeated() {
            let first = origin.source.position(earlier);
            let text = format!("{field} is there twice, first in {first}: this one counts");
            self.loaded.notes.push(origin.line(at, text));
        }
    }

    /// Reads a document. One that says nothing of its type is of the type that the list around it has.
    fn document(&mut self, origin: Origin<'_>, document: &Node, listed: Type<'_>) {
        let given = (document.text("apiVersion"), document.text("kind"));
        let known = match if given == (None, None) { listed } else { given } {
            _ if has_objects(document) => ("", format!("a list of objects: {WRAP}")),
            _ if !matches!(document.content, Content::Map(_)) => {
                ("", "not a manifest: expected fields such as `kind: Job`".to_owned())
            }
            _ if is_mistyped(document, "apiVersion") => {
                ("apiVersion", "apiVersion: must be a string".to_owned())
            }
            _ if is_mistyped(document, "kind") => ("kind", "kind: must be a string".to_owned()),
            (Some("batch/v1"), Some("Job")) => return self.job(origin, document),
            (version, Some(kind)) if kind.ends_with("List") && document.get("items").is_some() => {
                return self.list(origin, document, (version, kind.strip_suffix("List")));
            }
            (_, None) => ("kind", "kind: Required value: yardmaster runs batch/v1 Job".to_owned()),
            (version, Some("Job")) => {
                let version = version.unwrap_or_default();
                let text = format!("apiVersion {version:?} is not supported: yardmaster runs batch/v1 Job");
                ("apiVersion", text)
            }
            (version, Some(kind)) => ("kind", refusal::kind(version, kind)),
        };
        let (field, text) = known;
        self.problems.push(origin.line(document.place(field), text));
    }

    /// Reads the elements of a list, which may lack their type: that of a `JobList` is `Job`, that of a `List` is not known.
    fn list(&mut self, origin: Origin<'_>, document: &Node, (version, kind): Type<'_>) {
        let listed = (version, kind.filter(|kind| !kind.is_empty()));
        match document.get("items").map(|items| (items.is_null(), &items.content)) {
            Some((_, Content::List(items))) => {
                items.iter().for_each(|item| self.document(origin, item, listed));
            }
            None | Some((true, _)) => {}
            Some(_) => self.problems.push(origin.line(document.place("items"), "items: must be a list")),
        }
    }

    fn job(&mut self, origin: Origin<'_>, document: &Node) {
        let line = |field: &str, text: &str| origin.line(document.place(field), text);
        let mut job = document.to_value();
        job["apiVersion"] = json!("batch/v1");
        job["kind"] = json!("Job");
        let given =
            job["metadata"]["namespace"].as_str().filter(|given| !given.is_empty()).map(str::to_owned);
        if let (Some(given), Some(wanted)) = (&given, self.namespace)
            && given != wanted
        {
            let text = format!("metadata.namespace: {given:?} is not the --namespace {wanted:?}");
            return self.problems.push(line("metadata.namespace", &text));
        }
        let namespace = given.or(self.namespace.map(str::to_owned)).unwrap_or_else(|| "default".into());
        // A namespace of a wrong type stays, so that it is refused.
        if job["metadata"].is_object()
            && matches!(&job["metadata"]["namespace"], Value::Null | Value::String(_))
        {
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

/// What makes one document of the list that `jq -s` prints.
const WRAP: &str = r#"wrap it into `{"apiVersion": "v1", "kind": "List", "items": […]}`"#;

/// Whether it is a list with objects in it.
fn has_objects(document: &Node) -> bool {
    matches!(&document.content, Content::List(items) if items.iter().any(|item| item.get("kind").is_some()))
}

/// Whether a field is there, and is no text.
fn is_mistyped(document: &Node, field: &str) -> bool {
    document.get(field).is_some_and(|value| !value.is_null()) && document.text(field).is_none()
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
    read.map(|_| bytes).map_err(|error| file_problem(&error))
}
