//! All kinds of writes, and the HTTP request of each.

use std::sync::Arc;

use bytes::Bytes;
use http::uri::InvalidUri;
use http::{HeaderValue, Method, Request, header};
use serde_json::json;

use super::answer::{Answer, WriteError};
use crate::cluster::resource::Resource;
use crate::cluster::wire::ResourceVersion;
use crate::job::manifest::{Encoding, PodManifest};
use crate::job::uid::Uid;
use crate::telemetry::metrics::labels::ApiCallLabels;
use crate::telemetry::traces::CallTarget;

/// A write of one object. Bodies are JSON, except for creations of pods and Events.
#[derive(Clone, Debug)]
pub enum Write {
    /// Creates a pod.
    CreatePod {
        /// The pod.
        pod: PodManifest,
    },
    /// Patches a pod by a strategic merge patch that names the UID. The answer is not read.
    PatchPod {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Box<str>,
        /// The patch.
        body: Bytes,
    },
    /// The same as [`Write::PatchPod`], answered with the pod.
    PatchAndReadPod {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Box<str>,
        /// The patch.
        body: Bytes,
    },
    /// Deletes a pod if it is still the same one.
    DeletePod {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Box<str>,
        /// UID precondition.
        uid: Uid,
        /// `gracePeriodSeconds`, if it is not that of the pod.
        grace_seconds: Option<u64>,
    },
    /// Patches a Job's status by a strategic merge patch that names the version. The answer is the
    /// next version; the rest of the Job is unchanged.
    PatchJobStatus {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Arc<str>,
        /// The patch.
        body: Bytes,
    },
    /// Deletes a Job if it is still the same one. It stays until its pods are gone.
    DeleteJob {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Arc<str>,
        /// UID precondition.
        uid: Uid,
        /// `resourceVersion` precondition: the Job, and so its TTL, has not changed since it was read.
        version: ResourceVersion,
    },
    /// Creates an Event.
    CreateEvent {
        /// Namespace.
        namespace: Arc<str>,
        /// The Event.
        body: Bytes,
        /// The encoding of the body.
        encoding: Encoding,
    },
    /// Patches an Event by a strategic merge patch.
    PatchEvent {
        /// Namespace.
        namespace: Arc<str>,
        /// Name.
        name: Box<str>,
        /// The patch.
        body: Bytes,
    },
    /// Creates an object of another resource.
    Create {
        /// Its resource.
        resource: Resource,
        /// Namespace.
        namespace: Arc<str>,
        /// The object.
        body: Bytes,
    },
}

/// The content of a successful answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Pod,
    /// The metadata of a pod that was just created: it has no status yet, and its spec is known.
    NewPod,
    /// The deleted object, or a Status in its place.
    Deleted,
    /// The new version of the object.
    Version,
    Object,
    /// Nothing that is read.
    Nothing,
}

/// A write as an HTTP request without its body, and its name in traces.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) span: &'static str,
    pub(super) labels: ApiCallLabels,
    pub(super) expected: Expected,
    /// The write concerns an object that existed: its absence is an answer, not a failure.
    pub(super) of_existing: bool,
    method: Method,
    path: String,
    content_type: &'static HeaderValue,
}

// Static, since every new header value is validated byte by byte.
static JSON: HeaderValue = HeaderValue::from_static("application/json");
static PROTOBUF: HeaderValue = HeaderValue::from_static("application/vnd.kubernetes.protobuf");
/// `Accept` for an answer without spec and status, which would not be read. In protobuf it is cheaper to make, and is read
/// without scanning `managedFields`, its larger part.
static METADATA_IN_PROTOBUF: HeaderValue = HeaderValue::from_static(
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
     application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
);
static STRATEGIC_MERGE_PATCH: HeaderValue =
    HeaderValue::from_static("application/strategic-merge-patch+json");

fn content_type(encoding: Encoding) -> &'static HeaderValue {
    match encoding {
        Encoding::Json => &JSON,
        Encoding::Protobuf => &PROTOBUF,
    }
}

impl Write {
    /// The namespace of its object.
    pub(super) fn namespace(&self) -> &Arc<str> {
        match self {
            Self::CreatePod { pod } => pod.namespace(),
            Self::PatchPod { namespace, .. }
            | Self::PatchAndReadPod { namespace, .. }
            | Self::DeletePod { namespace, .. }
            | Self::PatchJobStatus { namespace, .. }
            | Self::DeleteJob { namespace, .. }
            | Self::CreateEvent { namespace, .. }
            | Self::PatchEvent { namespace, .. }
            | Self::Create { namespace, .. } => namespace,
        }
    }

    /// The HTTP request of this write, without its body.
    pub(super) fn call(&self) -> Call {
        let (pods, jobs, events) = (Resource::PODS, Resource::JOBS, Resource::EVENTS);
        match self {
            Self::CreatePod { pod } => {
                let create = Call::create("api.create_pod", pods, Expected::NewPod, pod.namespace());
                Call { content_type: content_type(pod.encoding()), ..create }
            }
            Self::PatchPod { namespace, name, .. } => Call::patch_pod(Expected::Nothing, namespace, name),
            Self::PatchAndReadPod { namespace, name, .. } => Call::patch_pod(Expected::Pod, namespace, name),
            Self::DeletePod { namespace, name, .. } => {
                Call::delete("api.delete_pod", pods, Expected::Deleted, namespace, name)
            }
            Self::PatchJobStatus { namespace, name, .. } => {
                let patch = Call::patch("api.patch_status", jobs, Expected::Version, namespace, name);
                let path = format!("{}/status", patch.path);
                Call { path, labels: ApiCallLabels { resource: "jobs/status", ..patch.labels }, ..patch }
            }
            Self::DeleteJob { namespace, name, .. } => {
                Call::delete("api.delete_job", jobs, Expected::Nothing, namespace, name)
            }
            Self::CreateEvent { namespace, encoding, .. } => {
                let create = Call::create("api.create_event", events, Expected::Nothing, namespace);
                Call { content_type: content_type(*encoding), ..create }
            }
            Self::PatchEvent { namespace, name, .. } => {
                Call::patch("api.patch_event", events, Expected::Nothing, namespace, name)
            }
            Self::Create { resource, namespace, .. } => {
                Call::create("api.create", *resource, Expected::Object, namespace)
            }
        }
    }

    /// The body of its request. The body of a pod is composed here, when the write leaves.
    pub(super) fn body(&self) -> Bytes {
        match self {
            Self::CreatePod { pod } => pod.body(),
            Self::PatchPod { body, .. }
            | Self::PatchAndReadPod { body, .. }
            | Self::PatchJobStatus { body, .. }
            | Self::CreateEvent { body, .. }
            | Self::PatchEvent { body, .. }
            | Self::Create { body, .. } => body.clone(),
            Self::DeletePod { uid, grace_seconds, .. } => {
                let mut options = delete_options(uid);
                if let Some(seconds) = grace_seconds {
                    options["gracePeriodSeconds"] = (*seconds).into();
                }
                options.to_string().into()
            }
            Self::DeleteJob { uid, version, .. } => {
                let mut options = delete_options(uid);
                options["preconditions"]["resourceVersion"] = version.as_str().into();
                options["propagationPolicy"] = "Foreground".into();
                options.to_string().into()
            }
        }
    }
}

impl Write {
    /// The subject of the write, for its span.
    pub(super) fn target(&self, result: &Result<Answer, WriteError>) -> CallTarget {
        let call = self.call();
        let pod = match (self, result) {
            (
                Self::PatchPod { name, .. }
                | Self::PatchAndReadPod { name, .. }
                | Self::DeletePod { name, .. },
                _,
            ) => Some(name.to_string()),
            (Self::CreatePod { .. }, Ok(Answer::Pod(pod))) => Some(pod.pod.name.to_string()),
            _ => None,
        };
        CallTarget { method: call.method.to_string(), template: template(&call.path), pod }
    }
}

/// The path of a request with placeholders for the namespace and the object.
fn template(path: &str) -> String {
    const PLACEHOLDERS: [(usize, &str); 2] = [(0, "{namespace}"), (2, "{name}")];
    let (mut after, mut parts) = (None, Vec::new());
    for part in path.split('?').next().unwrap_or_default().split('/') {
        let shown =
            PLACEHOLDERS.iter().find(|(place, _)| after == Some(*place)).map_or(part, |(_, name)| name);
        parts.push(shown);
        after = after.map(|place| place + 1).or_else(|| (part == "namespaces").then_some(0));
    }
    parts.join("/")
}

fn delete_options(uid: &Uid) -> serde_json::Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": uid}})
}

impl Call {
    fn create(span: &'static str, resource: Resource, expected: Expected, namespace: &str) -> Self {
        Self {
            span,
            labels: ApiCallLabels { verb: "create", resource: resource.plural },
            expected,
            of_existing: false,
            method: Method::POST,
            path: resource.path(Some(namespace)),
            content_type: &JSON,
        }
    }

    fn patch(
        span: &'static str,
        resource: Resource,
        expected: Expected,
        namespace: &str,
        name: &str,
    ) -> Self {
        Self {
            labels: ApiCallLabels { verb: "patch", resource: resource.plural },
            of_existing: true,
            method: Method::PATCH,
            path: resource.object_path(namespace, name),
            content_type: &STRATEGIC_MERGE_PATCH,
            ..Self::create(span, resource, expected, namespace)
        }
    }

    fn patch_pod(expected: Expected, namespace: &str, name: &str) -> Self {
        let patch = Self::patch("api.patch_pod", Resource::PODS, expected, namespace, name);
        // The API server would look for unknown fields in the whole pod.
        let path = format!("{}?fieldValidation=Ignore", patch.path);
        Self { path, ..patch }
    }

    fn delete(
        span: &'static str,
        resource: Resource,
        expected: Expected,
        namespace: &str,
        name: &str,
    ) -> Self {
        Self {
            labels: ApiCallLabels { verb: "delete", resource: resource.plural },
            method: Method::DELETE,
            content_type: &JSON,
            ..Self::patch(span, resource, expected, namespace, name)
        }
    }

    /// # Errors
    /// When a namespace or name is not valid in a path: no object has such a name.
    pub(super) fn into_request(self, body: Bytes) -> Result<Request<Bytes>, InvalidUri> {
        let accept = match self.expected {
            Expected::NewPod | Expected::Version | Expected::Nothing => &METADATA_IN_PROTOBUF,
            Expected::Pod | Expected::Deleted | Expected::Object => &JSON,
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.path.try_into()?;
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        headers.insert(header::ACCEPT, accept.clone());
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::template;

    #[test]
    fn a_template_names_no_object() {
        for (path, expected) in [
            ("/api/v1/namespaces/n/pods", "/api/v1/namespaces/{namespace}/pods"),
            ("/api/v1/namespaces/n/pods/p", "/api/v1/namespaces/{namespace}/pods/{name}"),
            (
                "/apis/batch/v1/namespaces/namespaces/jobs/j/status",
                "/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status",
            ),
            ("/api/v1/pods", "/api/v1/pods"),
            ("/api/v1/namespaces/n/pods/p?a=b/c", "/api/v1/namespaces/{namespace}/pods/{name}"),
        ] {
            assert_eq!(template(path), expected);
        }
    }
}
