//! The names of pods: which places pods claim, and creations that are not answered.

use std::collections::BTreeSet;

use super::{PodSet, Source, given};
use crate::job::index_set::IndexSet;
use crate::job::pod::{Place, Pod};
use crate::job::spec::{Completion, Job};
use crate::mutants::{Mutant, is};

impl PodSet {
    /// Records the place that a pod claims. A user who creates and deletes pods may claim ever more places, and the Job would keep
    /// them as long as it lives. So once its pods have been listed, a few claims are remembered beyond those of its own pods. A
    /// name that is forgotten is another object's, which its creation shows, or free.
    pub(super) fn note_place(&mut self, place: Place) {
        let is_ours = self.pending.get(&place.number).is_some_and(|attempt| *attempt == place.attempt);
        if is_ours {
            self.remember_place(place);
            self.seen_unanswered.insert(place);
            self.no_longer_pending(place);
        } else if self.unmade.get(&place.number) == Some(&place.attempt) {
            self.unmade.remove(&place.number);
            self.remember_place(place);
        } else if !self.remembers_place(place) && self.claims_left > 0 {
            self.remember_place(place);
            self.claims_left -= 1;
        }
    }

    fn remembers_place(&self, place: Place) -> bool {
        match self.spec.completion {
            Completion::Indexed(_) => self.attempts.next_at(place.number) > place.attempt,
            _ => self.taken.contains(place.number),
        }
    }

    fn remember_place(&mut self, place: Place) {
        match self.spec.completion {
            Completion::Indexed(_) => self.attempts.note(place),
            _ => _ = self.taken.insert(place.number),
        }
    }

    /// Gives no name that the Job says was used. All owners read that together with the specification that they create pods
    /// for, so they still derive the same names.
    pub(in super::super) fn follow_names(&mut self, job: &Job) {
        let used = given::names_used(job);
        match self.spec.completion {
            Completion::Indexed(_) => self.attempts.raise(used),
            _ if self.taken.gaps().next() < Some(used) => self.taken.insert_all(&IndexSet::below(used)),
            _ => {}
        }
    }

    /// The number of names that the Job may report as used: ordinals, or attempts at each index. The next owner must repeat a
    /// creation under the same name if its outcome is unknown. So in general only ordinals below the first gap count. If the
    /// Job `rests`, all names count: nobody creates pods, and a later creator reads the number first.
    pub fn names_used(&self, rests: bool, lost: &BTreeSet<Place>) -> u32 {
        let rests = rests && self.pending.is_empty() && self.unmade.is_empty() && lost.is_empty();
        match self.spec.completion {
            Completion::Indexed(_) if rests => self.attempts.end(),
            Completion::Indexed(_) => 0,
            _ if rests => self.taken.end(),
            _ => {
                let unanswered = self.pending.keys().next().copied();
                self.taken.gaps().next().into_iter().chain(unanswered).min().unwrap_or(0)
            }
        }
    }

    fn no_longer_pending(&mut self, place: Place) {
        self.pending.remove(&place.number);
        self.pending_before.remove(&place.number);
        self.refresh_place(place.number);
        if self.pending.is_empty() {
            self.live_list = None;
        }
    }

    /// Marks the creation of a pod as sent.
    pub fn create_sent(&mut self, place: Place) {
        if is(Mutant::CreationsInFlightForgotten) {
            return;
        }
        self.pending.insert(place.number, place.attempt);
        self.unmade.remove(&place.number);
        if self.spec.completion.indexes().is_none() {
            self.taken.insert(place.number);
        }
        self.refresh_place(place.number);
    }

    /// Takes in the answer to a creation. Without a pod, the place is free again. A pod is ignored if the
    /// watch has shown it before, since it may be gone by now.
    pub fn create_answered(&mut self, place: Place, pod: Option<Pod>) {
        self.seen_unanswered.remove(&place);
        if !self.awaits(place) {
            return;
        }
        let is_known_gone = pod.as_ref().is_some_and(|pod| self.is_known_gone(pod));
        self.no_longer_pending(place);
        let Some(pod) = pod else {
            self.taken.remove(place.number);
            self.unmade.insert(place.number, place.attempt);
            return;
        };
        self.remember_place(place);
        if !is_known_gone {
            self.observe(pod, Source::Created);
        } else if pod.tracked {
            // Somebody else must have removed its finalizer, at an unknown version.
            self.released_unseen();
        }
    }

    /// Whether a pod that was just created is missing from a live list that is newer. The shard may have dropped the
    /// watch events of such a pod, since they were older than that list.
    fn is_known_gone(&self, created: &Pod) -> bool {
        let list = self.live_list.as_deref();
        list.is_some_and(|(listed, version)| created.version <= *version && !listed.contains(&created.uid))
    }

    /// Takes in that a name is taken by another object. The next pod at an index gets the next name of that index. An ordinal
    /// is used up: an owner that knew the object as a pod of the Job goes on with the next one, too.
    pub fn name_taken(&mut self, place: Place) {
        self.create_answered(place, None);
        self.unmade.remove(&place.number);
        self.remember_place(place);
    }
}
