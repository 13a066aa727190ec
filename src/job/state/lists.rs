//! Lists of the pods of a Job, and what they say of pods that they do not show.

use super::JobState;
use super::answers::Finds;
use crate::job::uid::{Uid, UidSet};

impl JobState {
    /// Whether pods exist, by the status or by what is known, that a complete list of `version` does not show.
    /// A list that goes by labels lacks pods whose label is missing or wrong.
    pub fn lacks_pods(&self, listed: &UidSet, version: u64) -> bool {
        if self.gone || self.job.status.finished().is_some() {
            // It decides nothing more, but must release the pods that it knows.
            return self.pods.lacks_tracked(listed, version);
        }
        let status = &self.job.status;
        let is_shown = |uid: &Uid| {
            listed.contains(uid) || self.shown_released.contains(uid) || self.pods.get(uid).is_some()
        };
        let uncounted = status.uncounted.iter().flat_map(|u| u.succeeded.iter().chain(&u.failed));
        status.active as usize > self.pods.len()
            || !uncounted.into_iter().all(is_shown)
            || self.pods.lacks_tracked(listed, version)
    }

    /// Takes in that a list of the Job's pods begins.
    pub fn pods_listing(&mut self) {
        self.pods.listing();
    }

    /// Takes in a complete list of all pods of the Job, whatever labels they have. If pods of the status do
    /// not exist, another client has released them, and may have counted them: the status is older than
    /// that.
    pub fn listed_live(&mut self, listed: &UidSet, version: u64) {
        if self.lacks_pods(listed, version) {
            self.pods.released_unseen();
        }
        self.pods.listed_live(listed, version);
        self.lost_creations.clear();
        if self.finds == Finds::Found {
            self.finds = Finds::Listed;
        }
    }

    /// Takes in a complete list of the Job's pods: missing pods with a reading up to `version` are gone. The
    /// first list completes the history of failures that pods carry.
    pub fn pods_listed(&mut self, listed: &UidSet, version: u64) {
        self.pods.retain_listed(listed, version);
        self.shown_released = UidSet::default();
        self.released_and_left = UidSet::default();
        self.streak = self.streak.or(self.pods.take_history().streak());
    }
}
