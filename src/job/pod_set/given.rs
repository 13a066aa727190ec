//! The places that a Job has given to its pods.
//!
//! A place is an annotation, which anybody who may change pods can write. The name of a pod never changes and follows from its
//! place, so a pod with another name has no place. Names can be derived by others, too. Places are therefore bounded: whatever
//! is read, names are left for the pods that follow.

use std::sync::Arc;

use crate::job::pod::Place;
use crate::job::pod_name::{generate_prefix, pod_name};
use crate::job::spec::{Completion, Job};
use crate::job::uid::Uid;

/// The highest number and the highest attempt that are read. Kubernetes has no more indexes, and counts no more failures of one.
/// Twice as many fit the type.
const LAST_READ: u32 = i32::MAX.unsigned_abs();

/// How many names the Job has used before, as far as its status tells. The author of the Job may write any number: names are
/// left for the pods that follow.
pub(super) fn names_used(job: &Job) -> u32 {
    job.status.names_used.min(LAST_READ / 2)
}

/// The facts from which a Job derives the names of its pods.
#[derive(Clone, Debug)]
pub(super) struct Given {
    job: Arc<str>,
    uid: Uid,
}

impl Given {
    /// The places of this Job.
    pub(super) fn by(job: &Job) -> Self {
        Self { job: job.name.clone(), uid: job.uid.clone() }
    }

    /// The place that the pod of this name claims, if the Job has given it.
    pub(super) fn place(&self, claimed: Option<Place>, name: &str, completion: Completion) -> Option<Place> {
        let place = claimed.filter(|place| place.number <= LAST_READ && place.attempt <= LAST_READ)?;
        let index = completion.indexes().map(|_| place.number);
        // An ordinal has one pod.
        let is_possible = index.is_some() || place.attempt == 0;
        let is_given = || *name == self.uid.with_text(|uid| pod_name(&self.job, uid, index, place));
        (is_possible && is_given()).then_some(place)
    }

    /// Whether this is a name that a controller gives to pods of an index of the Job. A name has one index, whatever the
    /// annotations of its pod say.
    pub(super) fn is_named_for(&self, name: &str, index: u32) -> bool {
        name.starts_with(&generate_prefix(&self.job, Some(index)))
    }
}
