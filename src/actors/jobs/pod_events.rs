//! Events about the pods of a Job. In replacement mode there is one for each pod, like with the built-in
//! controller, otherwise one for each batch.

/// An action on pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// The pods were created.
    Created,
    /// The pods were deleted.
    Deleted,
}

impl PodAction {
    /// `reason` of the Event.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Created => "SuccessfulCreate",
            Self::Deleted => "SuccessfulDelete",
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Deleted => "Deleted",
        }
    }
}

/// The actions on pods that have no Event yet.
#[derive(Debug)]
pub struct PodEvents {
    one_by_one: bool,
    created: Batch,
    deleted: Batch,
}

#[derive(Debug, Default)]
struct Batch {
    pods: u32,
    last: Box<str>,
}

impl PodEvents {
    /// No actions yet. `one_by_one`: each pod has an Event of its own.
    pub fn new(one_by_one: bool) -> Self {
        Self { one_by_one, created: Batch::default(), deleted: Batch::default() }
    }

    /// Records an action on a pod. Returns the message to record at once, if there is one.
    pub fn note(&mut self, action: PodAction, pod: Box<str>) -> Option<String> {
        if self.one_by_one {
            return Some(format!("{} pod: {pod}", action.verb()));
        }
        let batch = match action {
            PodAction::Created => &mut self.created,
            PodAction::Deleted => &mut self.deleted,
        };
        batch.pods += 1;
        batch.last = pod;
        None
    }

    /// The messages about all actions noted since the last call.
    pub fn take(&mut self) -> impl Iterator<Item = (PodAction, String)> + use<> {
        let created = std::mem::take(&mut self.created).message(PodAction::Created);
        let deleted = std::mem::take(&mut self.deleted).message(PodAction::Deleted);
        created.into_iter().chain(deleted)
    }
}

impl Batch {
    fn message(self, action: PodAction) -> Option<(PodAction, String)> {
        let verb = action.verb();
        let message = match self.pods {
            0 => return None,
            1 => format!("{verb} pod: {}", self.last),
            pods => format!("{verb} {pods} pods"),
        };
        Some((action, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_ins_events_are_about_one_pod_each() {
        let mut events = PodEvents::new(true);
        assert_eq!(events.note(PodAction::Created, "a".into()).as_deref(), Some("Created pod: a"));
        assert_eq!(events.note(PodAction::Deleted, "a".into()).as_deref(), Some("Deleted pod: a"));
        assert_eq!(events.take().count(), 0);
    }

    #[test]
    fn a_batch_has_one_event() {
        let mut events = PodEvents::new(false);
        for pod in ["a", "b", "c"] {
            assert_eq!(events.note(PodAction::Created, pod.into()), None);
        }
        assert_eq!(events.note(PodAction::Deleted, "d".into()), None);
        let messages: Vec<_> = events.take().collect();
        let expected = [(PodAction::Created, "Created 3 pods"), (PodAction::Deleted, "Deleted pod: d")];
        assert_eq!(messages, expected.map(|(action, message)| (action, message.to_owned())));
        assert_eq!(events.take().count(), 0);
    }
}
