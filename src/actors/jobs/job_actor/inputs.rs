//! How the actor handles each input.

use std::sync::Arc;

use jiff::Timestamp;

use super::JobActor;
use super::lifecycle::Lifecycle;
use super::status_turn::StatusTurn;
use crate::actors::jobs::pod_events::PodAction;
use crate::actors::messages::job_input::{AdoptionAttempt, JobInput, ListOrigin, RequestEvent};
use crate::actors::messages::protocol::JobReport;
use crate::cluster::wire::ObservedJob;
use crate::job::state::Created;
use crate::mutants::{Mutant, is};

impl JobActor {
    pub(super) fn take_in(&mut self, input: JobInput) {
        let now = self.now();
        match input {
            JobInput::Job(job) => {
                self.seen_by_shard = self.seen_by_shard.max(job.version.order());
                self.observe(job);
            }
            JobInput::JobGone => self.state.job_vanished(),
            // An adoption may follow, which would be a new decision.
            JobInput::Pod(_) if self.lifecycle == Lifecycle::Draining => {}
            JobInput::Pod(pod) => self.observe_pod(pod, now),
            JobInput::PodGone(uid) => {
                self.tracer.pod_gone(&uid, &self.state, now);
                let is_doubtful = self.state.pods.must_exist(&uid);
                self.state.pod_vanished(&uid);
                self.adoptions.pod_gone(&uid);
                if is_doubtful {
                    self.pods_missing();
                }
            }
            JobInput::Hidden(pod) => self.notice.shard.do_send(JobReport::Hidden(pod)),
            JobInput::RelistAccepted => self.lifecycle.relist_accepted(),
            JobInput::PodsListing => self.list_begins(),
            JobInput::PodsListed { mut listed, version, origin } => {
                if origin != ListOrigin::Live && self.state.lacks_pods(&listed, version) {
                    self.pods_missing();
                } else {
                    match origin {
                        ListOrigin::Live => self.listed_live(&mut listed, version),
                        ListOrigin::Shard => {}
                        ListOrigin::Memory => listed.extend(self.state.pods.counted_uids()),
                    }
                    self.state.pods_listed(&listed, version);
                    self.adoptions.list_complete(version);
                    self.lifecycle.pods_listed();
                }
            }
            JobInput::Created { place, answer, event } => {
                if let Created::Pod(pod) | Created::Found(pod) = &answer {
                    self.tracer.pod_created(pod, now);
                }
                if self.state.outruns_watch(place, &answer) {
                    self.relist();
                }
                self.state.created(place, answer, now);
                if let RequestEvent::Refused(why) = &event {
                    self.refusal = Some(why.as_ref().into());
                }
                self.report_pod(event, PodAction::Created, ("FailedCreate", "Error creating"));
            }
            JobInput::Deleted { pod, answer, event } => {
                self.state.changed(&pod.uid, answer, now);
                self.report_pod(event, PodAction::Deleted, ("FailedDelete", "Error deleting"));
            }
            JobInput::Released { pod, answer } => {
                self.state.changed(&pod, answer, now);
            }
            JobInput::Adopted { orphan, attempt } => {
                let uid = &orphan.pod.uid;
                self.adoptions.answered(uid, &attempt, &mut self.state, now);
                match attempt {
                    AdoptionAttempt::Adopted(pod) => self.adopted(pod, now),
                    AdoptionAttempt::PodGone | AdoptionAttempt::NotOurs(None) => {}
                    AdoptionAttempt::NotOurs(Some(pod)) => {
                        self.notice.shard.do_send(JobReport::Declined(pod));
                    }
                    AdoptionAttempt::Refused(_) => {
                        let pause = self.adoptions.pause(uid, now);
                        self.requests.adopt_after(pause, orphan);
                    }
                    AdoptionAttempt::JobLeaves(pod) => {
                        self.state.job_leaves();
                        pod.into_iter().for_each(|pod| self.notice.shard.do_send(JobReport::Declined(pod)));
                    }
                }
            }
            JobInput::Gang { answer, events } => {
                self.state.gang_answered(answer, now);
                events.iter().for_each(|event| self.report(event));
            }
            JobInput::StatusTurn(turn) => {
                match turn {
                    Some(_) => self.state.status_turn_came(),
                    None => self.state.status_turn_refused(now),
                }
                self.status_turn = turn.map_or(StatusTurn::None, StatusTurn::Here);
            }
            JobInput::StatusWritten(Some(job)) => self.status_written(job, now),
            JobInput::StatusWritten(None) => self.state.status_refused(false, now),
            JobInput::StatusConflict { sent, read } => {
                // If the reading is no newer, the next write would conflict again, as when a webhook answers
                // with 409. A Job of an unknown mode is not applied, so the same is true.
                let explains = |job: &Arc<ObservedJob>| job.job.is_ok() && job.version.order() > sent;
                let is_explained = read.as_ref().is_some_and(explains);
                self.state.status_refused(is_explained, now);
                read.into_iter().for_each(|job| self.observe_live(job));
            }
            JobInput::Read(job) => {
                self.lifecycle.job_read();
                self.caught_up = true;
                match job {
                    Some(job) => self.observe_live(job),
                    // The Job is gone. It gets no pods until the watch shows that, too.
                    None => self.state.job_leaves(),
                }
            }
            // The shard is drained, and the next owner rebuilds the Job. The next plan looks at the predecessors.
            JobInput::Failed | JobInput::Unread | JobInput::PredecessorChanged => {}
            JobInput::PodSpec(read) => {
                self.pod_encoding.take_in(read, &self.state.job, self.seen.generation);
            }
            JobInput::DeletionRefused => self.state.deletion_refused(now),
            JobInput::DeletionNotDue(job) => {
                // If the Job is no newer, it does not explain why the deletion is not due, and a retry would
                // end the same way.
                match job.version.order() > self.seen.version.order() {
                    true => self.state.deletion_not_due(),
                    false => self.state.deletion_refused(now),
                }
                self.observe_live(job);
            }
        }
    }

    /// Applies a live reading. Only the watch's reading shows whether the Job's namespace has room for a new
    /// template.
    fn observe_live(&mut self, mut seen: Arc<ObservedJob>) {
        if seen.job.as_ref().is_ok_and(|job| job.spec.template.is_kept())
            && let Ok(job) = &mut Arc::make_mut(&mut seen).job
        {
            job.take_template(&self.state.job.spec);
        }
        self.observe(seen);
    }

    fn observe(&mut self, seen: Arc<ObservedJob>) {
        let Ok(job) = &seen.job else { return };
        let lacks_template = job.spec.template.is_kept() && !self.state.job.spec.template.is_kept();
        if lacks_template && seen.generation == self.seen.generation {
            // The Job was read live. Only the template is new in the spec.
            self.state.job.spec = job.spec.clone();
            if let Ok(known) = &mut Arc::make_mut(&mut self.seen).job {
                known.spec = job.spec.clone();
            }
        }
        if seen.version.order() <= self.seen.version.order() {
            return;
        }
        let known = [Some(&self.state.job.status), self.sent.as_ref()];
        let is_known = known.into_iter().flatten().any(|status| status.counts_as(&job.status));
        if !is_known {
            // The old status may be long, and is not reported again.
            (self.sent, self.reported_status) = (None, job.status.clone());
        }
        if !is_known && !is(Mutant::PodsNeverDoubted) {
            // Pods that another writer has counted must not be counted again from our older view of them.
            self.relist();
        }
        self.state.observe_job(job.clone());
        self.seen = seen;
        if self.state.job.status.finished().is_some() {
            // The end of the Job must be reported even if the answer to our last write is lost.
            self.tracer.finished(&self.state.job, self.requests.cx.clock.now());
            self.report_events();
        }
    }

    /// The write named the version that it changed, so the Job differs from that version only in its status.
    /// The watch may have shown a later version before the answer arrived.
    fn status_written(&mut self, written: Arc<ObservedJob>, now: Timestamp) {
        if let Ok(job) = &written.job {
            self.meter.progressed(job, &self.reported_status);
            self.reported_status = job.status.clone();
        }
        self.observe(written);
        self.state.status_written(now);
        self.report_pod_events();
        self.report_events();
    }
}
