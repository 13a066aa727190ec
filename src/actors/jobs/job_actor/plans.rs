//! How the actor carries out a plan.

use super::JobActor;
use crate::actors::messages::job_input::{JobInput, RequestEvent};
use crate::cluster::gate::Turn;
use crate::job::plan::Plan;
use crate::job::pod::{NewPod, Pod};
use crate::job::spec::Job;
use crate::job::state::Created;
use crate::mutants::{Mutant, is};

impl JobActor {
    pub(super) fn carry_out(&mut self, plan: Plan, status_turn: Option<Turn>) {
        self.report_wait(plan.waiting.as_ref());
        self.report_rejections();
        if let (Some(write), Some(turn)) = (plan.status, status_turn) {
            self.requests.write_status(turn, self.seen.clone(), &self.state.job.status, &write);
            self.pending_events = write.events;
            self.sent = Some(write.status);
            if is(Mutant::StatusBelievedWhenSent)
                && let Some(status) = self.sent.clone()
            {
                self.state.observe_job(Job { status, ..self.state.job.clone() });
            }
        }
        plan.events.iter().for_each(|event| self.report(event));
        if plan.withdraw {
            self.requests.creations.withdraw();
        }
        for pod in plan.releases {
            match self.state.pods.get(&pod.uid) {
                Some(&Pod { version, .. }) if self.state.is_gone() => {
                    self.requests.release_unchanged(pod, version);
                }
                known => {
                    let unapplied = known.filter(|pod| pod.phase.is_final() && !pod.applied);
                    let unapplied = unapplied.map(|pod| pod.version);
                    self.requests.release(pod, unapplied);
                }
            }
        }
        for deletion in plan.deletes {
            self.requests.delete(deletion);
        }
        let job = &self.state.job;
        if self.pod_encoding.wants_spec(plan.creates.len(), &self.state, self.seen.generation) {
            self.requests.read_pod_spec();
        }
        if !plan.creates.is_empty() {
            self.create(plan.creates);
        }
        if let Some(request) = plan.gang {
            self.requests.ensure_gang(job, request);
        }
        if plan.delete_job {
            self.requests.delete_job(self.seen.clone());
        }
    }

    fn create(&self, pods: Vec<NewPod>) {
        let job = &self.state.job;
        let pod_group = self.state.gang.group().map(Box::from);
        if !job.spec.template.is_kept() {
            let template = &job.spec.template;
            let create = |new| self.requests.create_from_live(template, new, pod_group.clone());
            return pods.into_iter().for_each(create);
        }
        let maker = self.requests.maker(job, pod_group);
        for new in pods {
            let overlay = self.requests.overlay(job, &new);
            match &maker {
                Ok(maker) => self.requests.create(maker.manifest(new).with_overlay(overlay)),
                Err(error) => self.inbox.push(JobInput::Created {
                    place: new.place,
                    answer: Created::Refused,
                    event: RequestEvent::Refused(error.to_string().into()),
                }),
            }
        }
    }
}
