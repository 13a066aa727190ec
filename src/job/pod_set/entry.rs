//! A pod of a set, and the knowledge of it beyond the pod itself.

use super::classify::Tags;
use crate::job::pod::Pod;

/// A request about a pod that has been sent and not answered. It changes how the pod is classified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PendingRequest {
    /// No request is pending.
    #[default]
    None,
    /// DELETE.
    Delete,
    /// Removal of the finalizer, then DELETE: the pod will not count.
    Forget,
    /// Removal of the finalizer.
    Release,
}

impl PendingRequest {
    /// Whether the request removes the pod, which may still be active on the API server.
    pub(super) fn removes(self) -> bool {
        matches!(self, Self::Delete | Self::Forget)
    }
}

/// A pod of a set.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) pod: Pod,
    pub(super) flight: PendingRequest,
    /// The back-off has taken in the pod's end.
    pub(super) evaluated: bool,
    /// Nothing about the pod is left to be recorded, as far as is known: once it has no finalizer, it is
    /// counted.
    pub(super) recorded: bool,
    /// An answer showed that the pod has no finalizer. The watch may still bring older readings.
    pub(super) released: bool,
    /// The pod has ended and has no finalizer, as the watch shows. It stays in the set because it fails the
    /// Job ([`Ledger::is_open`](super::ledger::Ledger::is_open)).
    pub(super) only_fails_job: bool,
    /// The pod was active when the end of the Job was announced or afterwards, and so is removed by it. Once the end is
    /// announced, such a pod no longer fails its index, whatever becomes of it.
    pub(super) ends_with_job: bool,
    /// An answer showed that the pod no longer exists. The watch has yet to confirm it, and may bring older
    /// readings.
    pub(super) gone: bool,
    /// The tags under which the queues hold the pod.
    pub(super) tags: Option<Tags>,
}

impl Entry {
    /// Whether the pod exists, unless somebody else has removed our finalizer.
    pub(super) fn must_exist(&self) -> bool {
        !self.gone && self.pod.tracked && self.flight == PendingRequest::None
    }

    pub(super) fn of(pod: Pod) -> Self {
        Self {
            pod,
            flight: PendingRequest::None,
            evaluated: false,
            recorded: false,
            released: false,
            only_fails_job: false,
            ends_with_job: false,
            gone: false,
            tags: None,
        }
    }
}
