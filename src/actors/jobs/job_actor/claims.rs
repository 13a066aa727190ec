//! Which pods are the Job's: those that it controls and selects, and those that it adopts.

use std::time::Duration;

use jiff::Timestamp;

use super::JobActor;
use crate::actors::messages::job_input::Orphan;
use crate::actors::messages::protocol::JobReport;
use crate::cluster::wire::ObservedPod;
use crate::job::adoption::{AdoptionDecision, ClaimedPod, ControllerRefMatch, claim};
use crate::job::pod::Pod;
use crate::job::uid::UidSet;

impl JobActor {
    pub(super) fn observe_pod(&mut self, mut observed: Box<ObservedPod>, now: Timestamp) {
        if self.state.pods.knows_newer(&observed.pod) || self.adoptions.is_overtaken(&observed.pod) {
            // The watch is behind an answer. Before it was adopted, for example, the pod had no controller.
            return;
        }
        let job = &self.state.job;
        let controller = match &observed.controller {
            None => ControllerRefMatch::None,
            Some(owner) if owner.job() == Some(&self.requests.job) => ControllerRefMatch::This,
            Some(_) => ControllerRefMatch::Other,
        };
        let is_its = controller == ControllerRefMatch::This;
        let selected = observed.labels.match_selector(&job.spec.selector, is_its);
        let pod = ClaimedPod {
            controller,
            selected,
            deleting: observed.pod.deleting,
            tracked: observed.pod.tracked,
        };
        match claim(pod, self.state.claimant()) {
            AdoptionDecision::Keep => {
                self.adoptions.seen(&observed.pod);
                observed.pod.selected = selected;
                self.tracer.pod_seen(&observed, &self.state, now);
                let failures = &self.requests.cx.last_failures;
                failures.pod_seen(&self.requests.job, &observed, &self.state, now);
                self.state.observe_pod(observed.pod, now);
            }
            AdoptionDecision::Adopt => self.adopt(observed, now),
            AdoptionDecision::Release => {
                self.requests.release_unselected(&observed.pod);
                self.let_go(observed.pod, now);
            }
            AdoptionDecision::Leave => {
                self.state.pod_vanished(&observed.pod.uid);
                if controller == ControllerRefMatch::None {
                    self.notice.shard.do_send(JobReport::Declined(observed));
                }
            }
        }
    }

    /// A pod is not the Job's at present. If it is recorded, it is counted once its finalizer is off.
    /// Otherwise the Job drops it.
    fn let_go(&mut self, mut pod: Pod, now: Timestamp) {
        if self.state.pods.is_uncounted(&pod.uid) {
            pod.selected = false;
            self.state.observe_pod(pod, now);
        } else {
            self.state.pod_vanished(&pod.uid);
        }
    }

    /// Applies a pod that the Job has adopted.
    pub(super) fn adopted(&mut self, pod: Box<ObservedPod>, now: Timestamp) {
        self.state.adopted(&pod.pod.uid);
        self.requests.tell_if_hidden(&pod);
        self.observe_pod(pod, now);
    }

    /// Applies a live list of the Job's pods. It goes by labels, so it lacks those that the Job keeps and
    /// no longer selects. The watch has shown them, and will show when they are gone.
    pub(super) fn listed_live(&mut self, listed: &mut UidSet, version: u64) {
        listed.extend(self.state.pods.unselected().cloned());
        self.state.listed_live(listed, version);
    }

    fn adopt(&mut self, observed: Box<ObservedPod>, now: Timestamp) {
        let pod = observed.pod;
        let recorded = self.state.pods.is_uncounted(&pod.uid);
        let held = pod.tracked && self.state.pods.get(&pod.uid).is_some();
        let orphan = Orphan { pod: (&pod).into(), version: pod.version, held, recorded };
        self.let_go(pod, now);
        let uid = &orphan.pod.uid;
        if self.adoptions.begin(uid, &mut self.state) {
            match self.adoptions.pause(uid, now) {
                Duration::ZERO => self.requests.adopt(orphan),
                pause => self.requests.adopt_after(pause, orphan),
            }
        }
    }
}
