//! Takes the objects out of the text of manifests.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;

use serde_json::{Value, json};
use yardmaster_manifest::{Content, Node, Repeated, Source};

#[cfg(feature = "embedded")]
use super::check;
use super::companion::{Companion, Kind};
use super::cronjob::CRON_JOB;
use super::manifest::{Loaded, Manifest, Refused, Selection, label};
use super::{Host, cronjob, refusal};
use crate::cli::export;
use crate::telemetry::printable::OneLine;

/// The kind of Jobs.
const JOB: &str = "Job";

pub(super) struct Loader<'a> {
    selection: Selection<'a>,
    #[cfg_attr(
        not(feature = "embedded"),
        expect(dead_code, reason = "asked before the embedded cluster starts")
    )]
    host: &'a Host,
    loaded: Loaded,
    problems: Vec<Problem>,
    /// Where an object was first defined.
    places: HashMap<ObjectId, String>,
    /// The CronJobs that were found of those that run now.
    chosen: HashSet<String>,
}

/// An error, in one line.
struct Problem {
    text: String,
    /// The object that makes it none, if one of the files has it.
    unless: Option<ObjectId>,
}

/// Kind, namespace and name of an object. The namespace is empty for kinds that have none.
type ObjectId = (&'static str, String, String);

/// `apiVersion` and `kind` of a document.
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
        format!("{}: {}", self.place(at), OneLine(&text.to_string()))
    }

    fn place(&self, at: usize) -> String {
        format!("{}: {}", self.label, self.source.position(at))
    }
}

impl<'a> Loader<'a> {
    pub(super) fn new(selection: Selection<'a>, host: &'a Host) -> Self {
        let (loaded, problems) = (Loaded::default(), Vec::new());
        Self { selection, host, loaded, problems, places: HashMap::new(), chosen: HashSet::new() }
    }

    /// Reads a text, whose problems begin with this label.
    pub(super) fn text(&mut self, label: &str, read: Result<Vec<u8>, String>) {
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return self.problem(format!("{label}: {error}")),
        };
        let source = Source::new(&bytes);
        let origin = Origin { label, source: &source };
        for document in source.documents() {
            match document {
                Ok(document) => {
                    self.repeated(origin, &document);
                    self.document(origin, &document, (None, None));
                }
                Err(error) => self.problem(origin.line(error.at, error)),
            }
        }
    }

    /// All objects, if there are no problems.
    pub(super) fn finish(mut self) -> Result<Loaded, Refused> {
        for name in self.selection.cronjobs {
            if !self.chosen.contains(name) {
                self.problem(format!("--cronjob {name}: no CronJob of this name in the files"));
            }
        }
        if self.loaded.manifests.is_empty() && self.problems.is_empty() {
            let Selection { files, kustomizations, .. } = self.selection;
            let first = files.first().map(|file| label(file));
            let first = first.or_else(|| Some(format!("-k {}", kustomizations.first()?.display())));
            self.problem(format!("{}: no Job in it", first.unwrap_or_default()));
        }
        let Self { loaded, problems, places, .. } = self;
        let stays = |problem: &Problem| problem.unless.as_ref().is_none_or(|id| !places.contains_key(id));
        let problems: Vec<_> = problems.into_iter().filter(stays).map(|problem| problem.text).collect();
        if problems.is_empty() { Ok(loaded) } else { Err(Refused { problems, notes: loaded.notes }) }
    }

    fn problem(&mut self, text: String) {
        self.problems.push(Problem { text, unless: None });
    }

    /// Notes the keys that a document has twice: a value that does not count may be the one that a problem misses.
    fn repeated(&mut self, origin: Origin<'_>, document: &Node) {
        for Repeated { field, earlier, at } in document.repeated() {
            let first = origin.source.position(earlier);
            let text = format!("{field} is there twice, first in {first}: this one counts");
            self.loaded.notes.push(origin.line(at, text));
        }
    }

    /// Reads a document. If it names no type, it has that of the elements of the list around it.
    fn document(&mut self, origin: Origin<'_>, document: &Node, listed: Type<'_>) {
        let given = (document.text("apiVersion"), document.text("kind"));
        let (field, text) = match if given == (None, None) { listed } else { given } {
            _ if has_objects(document) => ("", format!("a list of objects: {WRAP}")),
            _ if !matches!(document.content, Content::Map(_)) => {
                ("", "not a manifest: expected fields such as `kind: Job`".to_owned())
            }
            _ if is_mistyped(document, "apiVersion") => {
                ("apiVersion", "apiVersion: must be a string".to_owned())
            }
            _ if is_mistyped(document, "kind") => ("kind", "kind: must be a string".to_owned()),
            (Some("batch/v1"), Some(JOB)) => return self.job(origin, document),
            (version, Some(kind)) if kind.ends_with("List") && document.get("items").is_some() => {
                return self.list(origin, document, (version, kind.strip_suffix("List")));
            }
            (_, None) => ("kind", "kind: Required value: yardmaster runs batch/v1 Job".to_owned()),
            (version, Some(JOB)) => {
                let version = version.unwrap_or_default();
                let text = format!("apiVersion {version:?} is not supported: yardmaster runs batch/v1 Job");
                ("apiVersion", text)
            }
            (version, Some(kind)) => return self.other(origin, document, version.unwrap_or_default(), kind),
        };
        self.problem(origin.line(document.place(field), text));
    }

    /// Reads the elements of a list, which may lack their type: that of a `JobList` is `Job`, that of a `List` is not known.
    fn list(&mut self, origin: Origin<'_>, document: &Node, (version, kind): Type<'_>) {
        let listed = (version, kind.filter(|kind| !kind.is_empty()));
        match document.get("items").map(|items| (items.is_null(), &items.content)) {
            Some((_, Content::List(items))) => {
                items.iter().for_each(|item| self.document(origin, item, listed));
            }
            None | Some((true, _)) => {}
            Some(_) => self.problem(origin.line(document.place("items"), "items: must be a list")),
        }
    }

    /// Reads an object of another kind than Job.
    fn other(&mut self, origin: Origin<'_>, document: &Node, version: &str, kind: &str) {
        if let Some(kind) = Kind::find(version, kind) {
            return self.companion(origin, document, kind);
        }
        let name = document.get("metadata").and_then(|metadata| metadata.text("name")).unwrap_or_default();
        let is_cron_job = (version, kind) == ("batch/v1", CRON_JOB);
        if is_cron_job && self.selection.cronjobs.iter().any(|chosen| chosen == name) {
            self.chosen.insert(name.to_owned());
            return self.cron_job(origin, document);
        }
        // If a CronJob was chosen, the others are left out.
        let is_left_out = is_cron_job && !self.selection.cronjobs.is_empty();
        if is_left_out || self.selection.ignore_others {
            return self
                .loaded
                .notes
                .push(origin.line(document.place("kind"), format!("{kind} {name:?} is left out")));
        }
        self.problem(origin.line(document.place("kind"), refusal::kind(kind)));
    }

    fn companion(&mut self, origin: Origin<'_>, document: &Node, kind: &'static Kind) {
        let Some(Placed { mut object, namespace }) =
            self.placed(origin, document, kind.name, kind.is_namespaced)
        else {
            return;
        };
        export::clean_metadata(&mut object);
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.name);
        let place = document.place("metadata.name");
        match document.get("metadata").and_then(|metadata| metadata.text("name")) {
            Some(name) if !name.is_empty() => {
                let (name, place) = (name.to_owned(), origin.place(document.place("")));
                self.loaded.companions.push(Companion { kind, name, namespace, object, place });
            }
            _ => self.problem(origin.line(place, "metadata.name: Required value: must be a string")),
        }
    }

    fn job(&mut self, origin: Origin<'_>, document: &Node) {
        let Some(Placed { mut object, namespace }) = self.placed(origin, document, JOB, true) else { return };
        object["apiVersion"] = json!("batch/v1");
        object["kind"] = json!(JOB);
        self.clean(origin, document, &mut object);
        self.runs(|field, text| origin.line(document.place(field), text), object, namespace);
    }

    /// Reads a CronJob that runs now.
    fn cron_job(&mut self, origin: Origin<'_>, document: &Node) {
        let Some(Placed { object, namespace }) = self.placed(origin, document, CRON_JOB, true) else {
            return;
        };
        let Some(job) = cronjob::job_now(&object) else {
            let place = document.place("spec.jobTemplate");
            return self.problem(origin.line(place, "spec.jobTemplate: Required value: must be a map"));
        };
        self.runs(|field, text| origin.line(document.place(&cronjob::place(field)), text), job, namespace);
    }

    /// Takes a Job of the command line.
    pub(super) fn composed(&mut self, job: &Value) {
        let namespace = self.selection.namespace.unwrap_or("default").to_owned();
        let mut job = job.clone();
        job["metadata"]["namespace"] = json!(namespace);
        self.runs(|_, text| format!("command line: {}", OneLine(text)), job, Some(namespace));
    }

    /// Checks a Job, and takes it. `line` makes a line of a problem with a field.
    fn runs(&mut self, line: impl Fn(&str, &str) -> String, job: Value, namespace: Option<String>) {
        let namespace = namespace.unwrap_or_default();
        #[cfg(feature = "embedded")]
        for check::Problem { field, text, missing } in check::problems(&job, self.host) {
            let within = |kind| if Kind::is_in_namespace(kind) { namespace.clone() } else { String::new() };
            let unless = missing.map(|(kind, name)| (kind, within(kind), name));
            self.problems.push(Problem { text: line(&field, &text), unless });
        }
        #[cfg(not(feature = "embedded"))]
        drop(line);
        self.loaded.manifests.push(Manifest { job, namespace });
    }

    /// The object of a document with its namespace, if it is in one; `None` if it cannot be there.
    fn placed(
        &mut self,
        origin: Origin<'_>,
        document: &Node,
        kind: &'static str,
        is_namespaced: bool,
    ) -> Option<Placed> {
        let line = |field: &str, text: &str| origin.line(document.place(field), text);
        let mut object = document.to_value();
        let namespace = if is_namespaced {
            let given = object["metadata"]["namespace"].as_str().filter(|given| !given.is_empty());
            if let (Some(given), Some(wanted)) = (given, self.selection.namespace)
                && given != wanted
            {
                let text = format!("metadata.namespace: {given:?} is not the --namespace {wanted:?}");
                self.problem(line("metadata.namespace", &text));
                return None;
            }
            Some(given.or(self.selection.namespace).unwrap_or("default").to_owned())
        } else {
            // An API server takes it for nothing.
            if let Some(metadata) = object["metadata"].as_object_mut() {
                metadata.remove("namespace");
            }
            None
        };
        // A namespace of a wrong type stays, so that it is refused.
        if let Some(namespace) = &namespace
            && object["metadata"].is_object()
            && matches!(&object["metadata"]["namespace"], Value::Null | Value::String(_))
        {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if let Some(name) = object["metadata"]["name"].as_str() {
            let within = namespace.clone().unwrap_or_default();
            let called = if is_namespaced { format!("{within}/{name}") } else { name.to_owned() };
            let place = origin.source.position(document.place("metadata.name"));
            let id = (kind, within, name.to_owned());
            if let Some(first) = self.places.insert(id, format!("{}, {place}", origin.label)) {
                self.problem(line(
                    "metadata.name",
                    &format!("{kind} {called} is already defined in {first}"),
                ));
            }
        }
        Some(Placed { object, namespace })
    }

    /// Takes out what another cluster has written into the Job. Without leave to do so, it is a problem if no cluster would take
    /// the Job as it is.
    fn clean(&mut self, origin: Origin<'_>, document: &Node, job: &mut Value) {
        let fields = export::in_the_way(job);
        if let Some((first, _)) = fields.first()
            && !self.selection.exported
        {
            let listed: Vec<_> = fields.iter().map(|(field, why)| format!("{field}{why}")).collect();
            let text = format!(
                "{} must not be set: a cluster has written this Job: remove what it has written, or run with --exported",
                listed.join(", ")
            );
            self.problem(origin.line(document.place(first), text));
        }
        if self.selection.exported || !fields.is_empty() {
            export::clean(job);
        }
    }
}

/// An object, and the namespace that it is in.
struct Placed {
    object: Value,
    namespace: Option<String>,
}

/// The advice that makes one document of the list that `jq -s` prints.
const WRAP: &str = r#"wrap it into `{"apiVersion": "v1", "kind": "List", "items": […]}`"#;

/// Whether it is a list with objects in it.
fn has_objects(document: &Node) -> bool {
    matches!(&document.content, Content::List(items) if items.iter().any(|item| item.get("kind").is_some()))
}

/// Whether a field is there, and is no text.
fn is_mistyped(document: &Node, field: &str) -> bool {
    document.get(field).is_some_and(|value| !value.is_null()) && document.text(field).is_none()
}
