//! Reports of a Job's actor: Events, and why it creates no pods.

use super::JobActor;
use crate::actors::jobs::pod_events::PodAction;
use crate::actors::messages::job_input::RequestEvent;
use crate::cluster::events::{Event, EventType};
use crate::job::plan::{JobEvent, Wait};

impl JobActor {
    /// Records Events about actions on pods since the last call.
    pub(super) fn report_pod_events(&mut self) {
        for (action, message) in self.pod_events.take() {
            self.record(EventType::Normal, action.reason(), &message, false);
        }
    }

    pub(super) fn report_events(&mut self) {
        for event in std::mem::take(&mut self.pending_events) {
            self.report(&event);
        }
    }

    /// Records why no pod is created, where that has changed.
    pub(super) fn report_wait(&mut self, wait: Option<&Wait>) {
        self.tracer.waits(wait, self.refusal.as_deref(), self.requests.cx.clock.now());
        if self.waiting.as_ref() != wait {
            self.requests.waits.write(&self.state.job, wait, self.refusal.as_ref());
            self.waiting = wait.cloned();
        }
    }

    /// Records an Event about each annotation with a wrong value, once while the value stays.
    pub(super) fn report_rejections(&mut self) {
        let job = &self.state.job;
        if job.options.rejected == self.reported_rejections || job.status.finished().is_some() {
            return;
        }
        let rejected = job.options.rejected.clone();
        for annotation in rejected.iter().filter(|annotation| !self.reported_rejections.contains(annotation))
        {
            self.record(EventType::Warning, "InvalidAnnotation", &annotation.to_string(), false);
        }
        self.reported_rejections = rejected;
    }

    pub(super) fn report(&self, event: &JobEvent) {
        let kind = if event.warning { EventType::Warning } else { EventType::Normal };
        self.record(kind, &event.reason, &event.message, event.terminal);
    }

    pub(super) fn report_pod(&mut self, event: RequestEvent, done: PodAction, refused: (&str, &str)) {
        match event {
            RequestEvent::Nothing => {}
            RequestEvent::Done(pod) => {
                if let Some(message) = self.pod_events.note(done, pod) {
                    self.record(EventType::Normal, done.reason(), &message, false);
                }
            }
            RequestEvent::Refused(why) => {
                self.record(EventType::Warning, refused.0, &format!("{}: {why}", refused.1), false);
            }
        }
    }

    fn record(&self, kind: EventType, reason: &str, message: &str, must: bool) {
        self.requests.cx.recorder.record(Event {
            about: self.requests.job.clone(),
            kind,
            reason: reason.into(),
            message: message.into(),
            at: self.now(),
            must,
        });
    }
}
