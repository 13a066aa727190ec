//! The known state of a Job's gang. The rules are in [`gang`](super::gang).

use std::sync::Arc;

/// The answer to a [`GangRequest`](super::plan::GangRequest).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GangAnswer {
    /// The PodGroup that new pods name; `None`: pods belong to no gang.
    Group(Option<Arc<str>>),
    /// Refused, or the outcome is unknown.
    Refused,
}

/// The known state of a Job's gang.
#[derive(Clone, Debug, Default)]
pub struct Gang {
    /// The objects of a new Job exist, or will never be created.
    ensured: bool,
    knowledge: Knowledge,
}

#[derive(Clone, Debug, Default)]
enum Knowledge {
    /// Nothing, or nothing current.
    #[default]
    None,
    /// A request is under way.
    Asked,
    /// Valid for the pods that are created in one go.
    Group(Option<Arc<str>>),
}

impl Gang {
    /// The PodGroup that pods created now must name.
    pub fn group(&self) -> Option<&str> {
        match &self.knowledge {
            Knowledge::Group(group) => group.as_deref(),
            _ => None,
        }
    }

    /// Whether the objects of a new Job exist, or will never be created.
    pub(super) fn is_ensured(&self) -> bool {
        self.ensured
    }

    /// Whether it is known which PodGroup, if any, pods created now must name.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.knowledge, Knowledge::Group(_))
    }

    /// Whether a request is under way.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.knowledge, Knowledge::Asked)
    }

    /// Marks a request as under way.
    pub(super) fn ask(&mut self) {
        self.knowledge = Knowledge::Asked;
    }

    /// Takes in the answer.
    pub(super) fn answered(&mut self, answer: GangAnswer) {
        self.knowledge = match answer {
            GangAnswer::Group(group) => {
                self.ensured = true;
                Knowledge::Group(group)
            }
            GangAnswer::Refused => Knowledge::None,
        };
    }

    /// Drops the known group while no pod is being created: the gang may change before the next one.
    pub(super) fn forget(&mut self) {
        if matches!(self.knowledge, Knowledge::Group(_)) {
            self.knowledge = Knowledge::None;
        }
    }
}
