//! Events about the pods of a Job: in replacement mode one for each pod, as the built-in controller tells them, else one for
//! each batch.

/// What was done to pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodAction {
    /// They were created.
    Created,
    /// They were deleted.
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

/// What has been done to pods and is to be told.
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
    /// Nothing yet, for a controller that tells of each pod, or of batches.
    pub fn new(one_by_one: bool) -> Self {
        Self { one_by_one, created: Batch::default(), deleted: Batch::default() }
    }

    /// Takes in that something was done to a pod: the message to tell at once, if there is one.
    pub fn note(&mut self, deed: PodAction, pod: Box<str>) -> Option<String> {
        if self.one_by_one {
            return Some(format!("{} pod: {pod}", deed.verb()));
        }
        let batch = match deed {
            PodAction::Created => &mut self.created,
            PodAction::Deleted => &mut self.deleted,
        };
        batch.pods += 1;
        batch.last = pod;
        None
    }

    /// The messages about all that has been noted since they were last asked for.
    pub fn take(&mut self) -> impl Iterator<Item = (PodAction, String)> + use<> {
        let created = std::mem::take(&mut self.created).message(PodAction::Created);
        let deleted = std::mem::take(&mut self.deleted).message(PodAction::Deleted);
        created.into_iter().chain(deleted)
    }
}

impl Batch {
    fn message(self, deed: PodAction) -> Option<(PodAction, String)> {
        let verb = deed.verb();
        let message = match self.pods {
            0 => return None,
            1 => format!("{verb} pod: {}", self.last),
            pods => format!("{verb} {pods} pods"),
        };
        Some((deed, message))
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
        let told: Vec<_> = events.take().collect();
        let expected = [(PodAction::Created, "Created 3 pods"), (PodAction::Deleted, "Deleted pod: d")];
        assert_eq!(told, expected.map(|(deed, message)| (deed, message.to_owned())));
        assert_eq!(events.take().count(), 0);
    }
}
