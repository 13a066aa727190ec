//! The pods that are made from a Job's template.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde::Serialize;

use super::json::json_text;
use super::names;
use super::overlay::Overlay;
use super::pod::{Behind, IndexFailures, NewPod, Place};
use super::pod_name::{generate_prefix, pod_name};
use super::protobuf::{Writer, core_object, field};
use super::spec::{Job, JobSpec};
use super::template::{FailureCounts, Parts, ProtobufParts, TemplateError};
use super::uid::Uid;
use crate::mutants::{Mutant, is};

/// Capacity for the parts of a pod that are not shared, names excluded.
const OWN_LENGTH: usize = 560;
/// How often the Job's name occurs in a pod.
const NAMES: usize = 4;

/// The parts that all pods of a Job have in common.
#[derive(Debug)]
pub struct Maker {
    namespace: Arc<str>,
    job: Arc<str>,
    uid: Uid,
    indexed: bool,
    finalizer: &'static str,
    shard: u32,
    /// `spec.schedulingGroup.podGroupName`, for Jobs that are scheduled as a gang.
    pod_group: Option<Box<str>>,
    spec: Arc<JobSpec>,
    template: TemplateParts,
}

/// The parts of a template, in one of the encodings.
#[derive(Clone, Debug)]
enum TemplateParts {
    Json(Arc<Parts>),
    Protobuf(Arc<ProtobufParts>),
}

/// A pod to be created. It has no body before that is asked for: many may wait for their turn, and a body has as many bytes
/// as the template.
#[derive(Clone, Debug)]
pub struct PodManifest {
    maker: Arc<Maker>,
    new: NewPod,
    /// Absent if it adds nothing.
    overlay: Option<Arc<Overlay>>,
}

/// An encoding of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
}

impl Maker {
    /// The maker of pods of this reading of a Job. It uses protobuf if the template is known in protobuf and the pods
    /// are in no group. `finalizer`: the tracking finalizer.
    ///
    /// # Errors
    /// When the template has a form that the API server would not accept.
    pub fn new(
        job: &Job,
        finalizer: &'static str,
        shard: u32,
        pod_group: Option<Box<str>>,
    ) -> Result<Arc<Self>, TemplateError> {
        // From here on, nothing in them needs escaping.
        for name in [&*job.name, &*job.namespace, pod_group.as_deref().unwrap_or_default()] {
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
                return Err(TemplateError::NoName(name.into()));
            }
        }
        let (template, indexed) = (&job.spec.template, job.spec.completion.indexes().is_some());
        let template = match template.protobuf_parts().filter(|_| pod_group.is_none()) {
            Some(parts) => TemplateParts::Protobuf(parts),
            None => TemplateParts::Json(template.parts(indexed)?),
        };
        let (namespace, uid, spec) = (job.namespace.clone(), job.uid.clone(), job.spec.clone());
        let job = job.name.clone();
        Ok(Arc::new(Self { namespace, job, uid, indexed, finalizer, shard, pod_group, spec, template }))
    }

    /// The pod of a plan.
    pub fn manifest(self: &Arc<Self>, new: NewPod) -> PodManifest {
        PodManifest { maker: self.clone(), new, overlay: None }
    }

    /// The parts of the template with an overlay. If that cannot be added, the template is one that the API server refuses
    /// anyway, and says why.
    fn with_overlay(&self, overlay: &Arc<Overlay>) -> TemplateParts {
        let template = &self.spec.template;
        let overlaid = match &self.template {
            TemplateParts::Json(_) => template.overlaid(self.indexed, overlay).map(TemplateParts::Json),
            TemplateParts::Protobuf(parts) => {
                template.overlaid_in_protobuf(self.indexed, parts, overlay).map(TemplateParts::Protobuf)
            }
        };
        overlaid.unwrap_or_else(|_| self.template.clone())
    }

    fn owner(&self) -> OwnerReference<'_> {
        OwnerReference::new(&self.job, &self.uid)
    }
}

impl PodManifest {
    /// The pod with an overlay.
    #[must_use]
    pub fn with_overlay(self, overlay: Option<Arc<Overlay>>) -> Self {
        Self { overlay, ..self }
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &Arc<str> {
        &self.maker.namespace
    }

    /// `metadata.name`.
    pub fn name(&self) -> String {
        pod_name(&self.maker.job, &self.maker.uid.to_string(), self.index(), self.new.place)
    }

    /// Its place in the Job.
    pub fn place(&self) -> Place {
        self.new.place
    }

    /// The pods that the Job needs after this one.
    pub fn behind(&self) -> Behind {
        self.new.behind
    }

    /// The attempt that it belongs to, if the pods of the Job restart together; 0 of other Jobs.
    pub fn attempt(&self) -> u32 {
        self.new.lineage.as_ref().map_or(0, |lineage| lineage.attempt)
    }

    /// The completion index, for an Indexed Job.
    pub fn index(&self) -> Option<u32> {
        self.maker.indexed.then_some(self.new.place.number)
    }

    /// The encoding of the body.
    pub fn encoding(&self) -> Encoding {
        match self.maker.template {
            TemplateParts::Json(_) => Encoding::Json,
            TemplateParts::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// The whole object, composed anew.
    pub fn body(&self) -> Bytes {
        let name = if is(Mutant::RandomPodNames) { String::new() } else { self.name() };
        let overlay = self.overlay.as_deref();
        let own = Own { maker: &self.maker, new: &self.new, overlay, index: self.index(), name: &name };
        let overlaid = self.overlay.as_ref().map(|overlay| self.maker.with_overlay(overlay));
        match overlaid.as_ref().unwrap_or(&self.maker.template) {
            TemplateParts::Json(parts) => own.json(parts),
            TemplateParts::Protobuf(parts) => own.protobuf(parts),
        }
    }

    /// If this pod is in protobuf, further ones are made in JSON: somebody on the way to the API server may not read protobuf.
    pub fn avoid_protobuf(&self) {
        if let TemplateParts::Protobuf(parts) = &self.maker.template {
            parts.are_avoided.store(true, Ordering::Relaxed);
        }
    }
}

/// The fields of a pod beside its Job's template.
#[derive(Clone, Copy)]
struct Own<'a> {
    maker: &'a Maker,
    new: &'a NewPod,
    overlay: Option<&'a Overlay>,
    index: Option<u32>,
    name: &'a str,
}

impl Own<'_> {
    /// About how many bytes it adds.
    fn own_length(self) -> usize {
        OWN_LENGTH + NAMES * self.maker.job.len() + self.maker.namespace.len()
    }

    fn json(self, parts: &Parts) -> Bytes {
        let Maker { job, namespace, .. } = self.maker;
        let Parts { labels, annotations, failure_counts, spec, finalizers, .. } = parts;
        let mut body =
            String::with_capacity(self.own_length() + labels.len() + annotations.len() + spec.len());
        body.extend([
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":""#,
            self.name,
            r#"","generateName":""#,
            &generate_prefix(job, self.index),
            r#"","namespace":""#,
            namespace,
            r#"","labels":{"#,
        ]);
        let mut members = Members(&mut body);
        self.labels(&mut members);
        members.all(labels);
        body.push_str(r#"},"annotations":{"#);
        let mut members = Members(&mut body);
        self.annotations(&mut members);
        let given = self.failure_counts(&mut members, failure_counts);
        given.into_iter().flatten().for_each(|given| members.all(given));
        members.all(annotations);
        let finalizers = json_text(&with_tracking(finalizers, self.maker.finalizer));
        body.extend([r#"},"finalizers":"#, &finalizers, r#","ownerReferences":["#]);
        body.extend([&json_text(&self.maker.owner()), r#"]},"spec":{"#]);
        let mut members = Members(&mut body);
        if let Some(index) = self.index {
            members.text("hostname", format_args!("{job}-{index}"));
        }
        if let Some(group) = &self.maker.pod_group {
            members.all(&format!(r#""schedulingGroup":{{"podGroupName":"{group}"}}"#));
        }
        members.all(spec);
        body.push_str("}}");
        body.into()
    }

    fn protobuf(self, parts: &ProtobufParts) -> Bytes {
        let given = parts.labels.len() + parts.annotations.len() + parts.spec.len();
        core_object("Pod", self.own_length() + given, |pod| {
            pod.message(1, |metadata| self.metadata_in_protobuf(metadata, parts));
            pod.message(2, |spec| {
                if let Some(index) = self.index {
                    spec.bytes(field::HOSTNAME, format!("{}-{index}", self.maker.job).as_bytes());
                }
                spec.append(&parts.spec);
            });
        })
    }

    fn metadata_in_protobuf(self, metadata: &mut Writer, parts: &ProtobufParts) {
        let Maker { job, namespace, .. } = self.maker;
        metadata.bytes(1, self.name.as_bytes());
        metadata.bytes(2, generate_prefix(job, self.index).as_bytes());
        metadata.bytes(3, namespace.as_bytes());
        self.labels(&mut Entries { message: metadata, number: field::LABELS });
        metadata.append(&parts.labels);
        self.annotations(&mut Entries { message: metadata, number: field::ANNOTATIONS });
        let mut entries = Entries { message: metadata, number: field::ANNOTATIONS };
        let given = self.failure_counts(&mut entries, &parts.failure_counts);
        given.into_iter().flatten().for_each(|given| metadata.append(given));
        metadata.append(&parts.annotations);
        self.maker.owner().write(metadata);
        for finalizer in with_tracking(&parts.finalizers, self.maker.finalizer) {
            metadata.bytes(14, finalizer.as_bytes());
        }
    }

    fn labels(self, texts: &mut impl Texts) {
        texts.text(names::SHARD_LABEL, self.maker.shard);
        if let Some(index) = self.index {
            texts.text(names::COMPLETION_INDEX, index);
        }
        let overlay = self.overlay.iter().flat_map(|overlay| &overlay.labels);
        overlay.for_each(|(key, value)| texts.text(key, value));
    }

    fn annotations(self, texts: &mut impl Texts) {
        let Place { number, attempt } = self.new.place;
        texts.text(names::PLACE_ANNOTATION, format_args!("{number}/{attempt}"));
        if let Some(streak) = self.new.backoff {
            texts.text(names::BACKOFF_ANNOTATION, format_args!("{}@{}", streak.failures, streak.last));
        }
        if let Some(index) = self.index {
            texts.text(names::COMPLETION_INDEX, index);
        }
        let overlay = self.overlay.iter().flat_map(|overlay| &overlay.annotations);
        overlay.for_each(|(key, value)| texts.text(key, value));
    }

    /// Adds the earlier failures of the index, and returns the template's own counts that stand. As with the built-in
    /// controller, that of ignored failures stands until one was ignored.
    fn failure_counts<'p, T>(
        self,
        texts: &mut impl Texts,
        given: &'p FailureCounts<T>,
    ) -> [Option<&'p T>; 2] {
        let Some(IndexFailures { counted, ignored }) = self.new.index_failures else {
            return [Some(&given.counted), Some(&given.ignored)];
        };
        texts.text(names::INDEX_FAILURE_COUNT, counted);
        if ignored == 0 {
            return [None, Some(&given.ignored)];
        }
        texts.text(names::INDEX_IGNORED_FAILURE_COUNT, ignored);
        [None; 2]
    }
}

/// Finalizers of the template, and ours.
fn with_tracking<'a>(given: &'a [String], tracking: &'a str) -> Vec<&'a str> {
    let tracking = Some(tracking).filter(|tracking| !given.iter().any(|finalizer| finalizer == tracking));
    given.iter().map(String::as_str).chain(tracking).collect()
}

/// Labels or annotations.
trait Texts {
    /// Adds one with a text in which nothing needs escaping.
    fn text(&mut self, key: &str, value: impl Display);
}

/// Writes the members of a JSON object.
struct Members<'a>(&'a mut String);

impl Texts for Members<'_> {
    fn text(&mut self, key: &str, value: impl Display) {
        self.separate();
        // Writing to a string never fails.
        let _ = write!(self.0, r#""{key}":"{value}""#);
    }
}

impl Members<'_> {
    /// Members that are text already.
    fn all(&mut self, members: &str) {
        if !members.is_empty() {
            self.separate();
            self.0.push_str(members);
        }
    }

    fn separate(&mut self) {
        if !self.0.ends_with('{') {
            self.0.push(',');
        }
    }
}

/// Writes the entries of a map in protobuf.
struct Entries<'a> {
    message: &'a mut Writer,
    /// Number of the map's field.
    number: u32,
}

impl Texts for Entries<'_> {
    fn text(&mut self, key: &str, value: impl Display) {
        self.message.entry(self.number, key, &value.to_string());
    }
}

/// The reference that makes a Job the controller of an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    uid: &'a Uid,
    controller: bool,
    block_owner_deletion: bool,
}

impl<'a> OwnerReference<'a> {
    /// The reference to this Job.
    pub fn of(job: &'a Job) -> Self {
        Self::new(&job.name, &job.uid)
    }

    fn new(name: &'a str, uid: &'a Uid) -> Self {
        let (api_version, kind) = ("batch/v1", "Job");
        Self { api_version, kind, name, uid, controller: true, block_owner_deletion: true }
    }

    /// Adds the reference to the metadata of an object in protobuf.
    fn write(&self, metadata: &mut Writer) {
        metadata.message(13, |reference| {
            reference.bytes(1, self.kind.as_bytes());
            reference.bytes(3, self.name.as_bytes());
            reference.bytes(4, self.uid.to_string().as_bytes());
            reference.bytes(5, self.api_version.as_bytes());
            reference.number(6, self.controller.into());
            reference.number(7, self.block_owner_deletion.into());
        });
    }
}

#[cfg(test)]
mod tests;
