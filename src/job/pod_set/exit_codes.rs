//! The exit codes of failed pods, for Jobs that keep the results of their indexes. Other Jobs keep nothing here.

use super::PodSet;
use crate::job::options::Needs;
use crate::job::pod::{Phase, Pod};
use crate::job::uid::{Uid, UidMap};

/// The exit codes of failed pods of a set.
#[derive(Clone, Debug, Default)]
pub(super) struct ExitCodes(UidMap<i32>);

impl ExitCodes {
    /// Nothing is known yet; `None` if the options need nothing.
    pub(super) fn needed(needs: Needs) -> Option<Box<Self>> {
        needs.exit_codes.then(Box::default)
    }

    /// Records what a reading of a pod of the set says.
    pub(super) fn note(&mut self, pod: &Pod) {
        let outcome = pod.outcome.as_ref().filter(|_| pod.phase == Phase::Failed);
        let exit =
            outcome.and_then(|outcome| outcome.containers.iter().chain(&outcome.init_containers).next());
        exit.into_iter().for_each(|exit| _ = self.0.insert(pod.uid.clone(), exit.exit_code));
    }

    /// Drops a pod.
    pub(super) fn forget(&mut self, uid: &Uid) {
        self.0.remove(uid);
    }
}

impl PodSet {
    /// The exit code of the first container of a pod that failed. Nothing unless the Job keeps results.
    pub fn exit_code(&self, uid: &Uid) -> Option<i32> {
        self.exit_codes.as_ref()?.0.get(uid).copied()
    }
}
