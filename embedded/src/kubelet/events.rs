//! Events about pods, as shown by `kubectl describe`.

use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::pod::PodKey;

/// Publishes events. Losing one is harmless.
#[derive(Clone)]
pub(super) struct Events(Recorder);

impl Events {
    /// A publisher for a component of this node.
    pub(super) fn new(client: kube::Client, component: &str, node: &str) -> Self {
        let reporter = Reporter { controller: component.into(), instance: Some(node.into()) };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes a Warning about the pod.
    pub(super) async fn warn(&self, pod: &PodKey, reason: &str, note: &str) {
        self.publish(EventType::Warning, pod, reason, note).await;
    }

    /// Publishes something about the pod that is no Warning.
    pub(super) async fn note(&self, pod: &PodKey, reason: &str, note: &str) {
        self.publish(EventType::Normal, pod, reason, note).await;
    }

    async fn publish(&self, type_: EventType, pod: &PodKey, reason: &str, note: &str) {
        let reference = ObjectReference {
            api_version: Some(core::Pod::api_version(&()).into_owned()),
            kind: Some(core::Pod::kind(&()).into_owned()),
            namespace: Some(pod.namespace.clone()),
            name: Some(pod.name.clone()),
            uid: Some(pod.uid.clone()),
            ..ObjectReference::default()
        };
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note.into()),
            action: reason.into(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &reference).await {
            tracing::debug!(%pod, %error, "cannot publish an event");
        }
    }
}
