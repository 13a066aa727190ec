//! Events about pods, as shown by `kubectl describe`.

use k8s_openapi::api::core::v1::{self as core, ObjectReference};
use kube::Resource;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::pod::{PodKey, PodSpec, Slot};

/// The subject of an event: a pod, or one of its containers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pod: &'a PodKey,
    container: Option<(Slot, &'a str)>,
}

impl<'a> Subject<'a> {
    /// The pod.
    pub(super) fn pod(pod: &'a PodKey) -> Self {
        Self { pod, container: None }
    }

    /// A container of the pod.
    pub(super) fn container(pod: &'a PodKey, spec: &'a PodSpec, slot: Slot) -> Self {
        Self { pod, container: Some((slot, &spec.container(slot).name)) }
    }

    fn reference(self) -> ObjectReference {
        let list = |slot| match slot {
            Slot::Init(_) => "initContainers",
            Slot::Main(_) => "containers",
        };
        ObjectReference {
            api_version: Some(core::Pod::api_version(&()).into_owned()),
            kind: Some(core::Pod::kind(&()).into_owned()),
            namespace: Some(self.pod.namespace.clone()),
            name: Some(self.pod.name.clone()),
            uid: Some(self.pod.uid.clone()),
            field_path: self.container.map(|(slot, name)| format!("spec.{}{{{name}}}", list(slot))),
            ..ObjectReference::default()
        }
    }
}

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
        self.tell(Subject::pod(pod), true, reason, note).await;
    }

    /// Publishes something about the pod that is no Warning.
    pub(super) async fn note(&self, pod: &PodKey, reason: &str, note: &str) {
        self.tell(Subject::pod(pod), false, reason, note).await;
    }

    /// Publishes something about a pod or a container.
    pub(super) async fn tell(&self, subject: Subject<'_>, is_warning: bool, reason: &str, note: &str) {
        let type_ = if is_warning { EventType::Warning } else { EventType::Normal };
        self.publish(type_, subject.reference(), reason, note).await;
    }

    /// Publishes in the background that a container was created and has started.
    pub(super) fn note_start(&self, subject: Subject<'_>) {
        let (events, reference) = (self.clone(), subject.reference());
        tokio::spawn(async move {
            for (reason, note) in [("Created", "Container created"), ("Started", "Container started")] {
                events.publish(EventType::Normal, reference.clone(), reason, note).await;
            }
        });
    }

    async fn publish(&self, type_: EventType, reference: ObjectReference, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(note.into()),
            action: action(reason, note).into(),
            secondary: None,
        };
        if let Err(error) = self.0.publish(&event, &reference).await {
            let pod = reference.name.unwrap_or_default();
            tracing::debug!(pod, %error, "cannot publish an event");
        }
    }
}

/// The action of an Event. Of Events with one reason and one action only the first is kept. So the action tells apart what a
/// container waits for from why, and one probe from another.
fn action<'a>(reason: &'a str, note: &'a str) -> &'a str {
    let first_word = || note.split(' ').next().filter(|_| reason == "Unhealthy");
    let waits_for = note.strip_prefix("Error: ").filter(|cause| !cause.contains(' '));
    waits_for.or_else(first_word).unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_with_one_reason_have_actions_of_their_own() {
        for (reason, note, expected) in [
            ("Failed", "Failed to pull image \"a\": no route", "Failed"),
            ("Failed", "Error: ErrImagePull", "ErrImagePull"),
            ("Failed", "Error: no such file", "Failed"),
            ("Unhealthy", "Liveness probe failed: timed out after 1 s", "Liveness"),
            ("Started", "Container started", "Started"),
        ] {
            assert_eq!(action(reason, note), expected, "{note}");
        }
    }
}
