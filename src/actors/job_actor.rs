//! The actor of one Job: it owns the Job's state and does nothing but feed it and carry out its plans.

mod lifecycle;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::{Span, field};

use self::lifecycle::Lifecycle;
use super::clock;
use super::inbox::Inbox;
use super::job_input::{AdoptionAttempt, JobInput, RequestEvent};
use super::job_metrics::{self, SyncMeter};
use super::loads::Correction;
use super::pod_events::{PodAction, PodEvents};
use super::protocol::{ExitReason, JobReport};
use super::requests::Requests;
use crate::cluster::events::{Event, EventType, ObjectRef};
use crate::cluster::wire::{ObservedJob, ObservedPod};
use crate::job::adoption::{AdoptionDecision, ControllerRefMatch, claim};
use crate::job::manifest::{Maker, PodManifest};
use crate::job::options::Rejected;
use crate::job::passivation::can_passivate;
use crate::job::plan::{JobEvent, Plan, Wait};
use crate::job::pod::{Pod, PodRef};
use crate::job::reconcile::reconcile;
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::{ConditionKind, JobStatus};
use crate::job::uid::{Uid, UidSet};
use crate::telemetry::traces::JobLife;

/// How long a Job that has just been looked after is left alone.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// There is something in the inbox.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Decide nothing more. Answers to what is under way are still taken in.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DrainJob;

/// Take in what has come, and end.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Halt;

/// The actor of one Job.
pub struct JobActor {
    requests: Arc<Requests>,
    inbox: Inbox<JobInput>,
    /// Boxed: actors are moved several times before they start.
    state: Box<JobState>,
    /// The Job as last observed: the version that the next write changes.
    seen: Arc<ObservedJob>,
    /// Version of the Job that the shard has seen at least: the watch may be behind the answers to our writes.
    seen_by_shard: u64,
    lifecycle: Lifecycle,
    adopting: UidSet,
    /// The last status that we sent.
    sent: Option<JobStatus>,
    /// The last status that metrics and traces know. The watch may show ours before its write is answered.
    told: JobStatus,
    /// What is to be told once the status in flight is written.
    pending_events: Vec<JobEvent>,
    pod_events: PodEvents,
    timer: Option<SpawnHandle>,
    /// When the inbox was last emptied.
    worked: Option<Instant>,
    /// Wrong annotations that the user has been told of.
    reported_rejections: Vec<Rejected>,
    /// Why no pod is created, as last written down, and why the API server last refused one.
    waiting: Option<Wait>,
    refusal: Option<Box<str>>,
    load: Correction,
    notice: EndNotice,
}

/// Tells the shard when the actor is dropped, whatever the reason.
struct EndNotice {
    job: Uid,
    reason: ExitReason,
    shard: Recipient<JobReport>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        self.shard.do_send(JobReport::Ended { job: self.job.clone(), reason: self.reason });
    }
}

impl JobActor {
    /// An actor for this Job, which was `seen` so, and answers to `shard`.
    pub fn new(
        job: Job,
        seen: Arc<ObservedJob>,
        requests: Arc<Requests>,
        shard: Recipient<JobReport>,
    ) -> Self {
        let notice = EndNotice { job: job.uid.clone(), reason: ExitReason::Panic, shard };
        Self {
            load: requests.cx.loads.correction(requests.shard),
            inbox: requests.inbox.clone(),
            pod_events: PodEvents::new(requests.cx.config.replaces_built_in()),
            told: job.status.clone(),
            state: JobState::new(job, requests.cx.config.limits()).into(),
            requests,
            seen_by_shard: seen.version.order(),
            seen,
            lifecycle: Lifecycle::NEW,
            adopting: UidSet::default(),
            sent: None,
            pending_events: Vec::new(),
            timer: None,
            worked: None,
            reported_rejections: Vec::new(),
            waiting: None,
            refusal: None,
            notice,
        }
    }

    fn now(&self) -> Timestamp {
        self.requests.cx.clock.now()
    }

    fn work(&mut self, ctx: &mut Context<Self>) {
        let inputs = self.inbox.take();
        self.worked = Some(Instant::now());
        let span = tracing::debug_span!(
            "reconcile",
            cause = inputs.first().map_or("timer", JobInput::name),
            inputs = inputs.len(),
            pods_changed = inputs.iter().filter(|input| input.is_about_a_pod()).count(),
            plan_size = field::Empty,
        );
        self.requests.cx.config.traces.adopt(&span, &self.state.job.uid);
        let _entered = span.enter();
        for input in inputs {
            self.take_in(input);
        }
        if self.lifecycle != Lifecycle::Ready {
            return;
        }
        if self.state.doubts_status() {
            self.lifecycle.read_job();
            self.state.reading_job();
            self.requests.read();
        } else {
            self.reconcile(&span, ctx);
        }
    }

    fn reconcile(&mut self, span: &Span, ctx: &mut Context<Self>) {
        #[cfg(feature = "test-hooks")]
        if let Some(hook) = &self.requests.cx.config.test_hooks.before_reconcile {
            hook.0(&self.state.job);
        }
        let now = self.now();
        let meter = SyncMeter::start();
        self.state.keep_pace(self.requests.cx.gate.pace());
        let plan = reconcile(&self.state, now);
        self.state.begin(&plan, now);
        self.load.follow(&self.state);
        meter.finish(&self.requests.cx.metrics, &self.state.job, &plan);
        span.record("plan_size", plan.size());
        let wake_at = plan.wake_at;
        let status_follows = plan.status.is_some() || plan.status_waits;
        self.carry_out(plan);
        self.set_timer(wake_at, now, ctx);
        if !status_follows && !self.state.pods.has_flights() {
            // Nothing is coming that these could be told with.
            self.report_pod_events();
        }
        if self.state.is_over() {
            self.end(ExitReason::Over, ctx);
        } else if self.can_passivate(now) {
            self.end(ExitReason::Passivated, ctx);
        }
    }

    /// Whether nothing is left to be done, nothing is under way, and the shard knows of the Job what we know.
    fn can_passivate(&self, now: Timestamp) -> bool {
        can_passivate(&self.state, now)
            && self.pending_events.is_empty()
            && self.seen_by_shard >= self.seen.version.order()
            && self.inbox.is_idle()
    }

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        self.notice.reason = reason;
        ctx.stop();
    }

    fn set_timer(&mut self, wake_at: Option<Timestamp>, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        self.timer = wake_at.map(|at| ctx.run_later(clock::until(at, now), |actor, ctx| actor.work(ctx)));
    }

    fn take_in(&mut self, input: JobInput) {
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
            JobInput::PodGone(uid) => _ = self.state.pod_vanished(&uid),
            JobInput::RelistAccepted => self.lifecycle.relist_accepted(),
            JobInput::PodsListing => self.lifecycle.list_begins(),
            JobInput::PodsListed { listed, version } => {
                self.state.pods_listed(&listed, version);
                self.lifecycle.pods_listed();
            }
            JobInput::Created { place, answer, told } => {
                job_metrics::count_creation(&self.requests.cx.metrics, &self.state.job, place, &answer);
                self.state.created(place, answer, now);
                if let RequestEvent::Refused(why) = &told {
                    self.refusal = Some(why.clone());
                }
                self.report_pod(told, PodAction::Created, ("FailedCreate", "Error creating"));
            }
            JobInput::Deleted { pod, answer, told } => {
                self.state.changed(&pod.uid, answer, now);
                self.report_pod(told, PodAction::Deleted, ("FailedDelete", "Error deleting"));
            }
            JobInput::Released { pod, answer } => {
                job_metrics::count_release(&self.requests.cx.metrics, &answer);
                self.state.changed(&pod, answer, now);
            }
            JobInput::Adopted { pod, attempt } => {
                self.adopting.remove(&pod);
                self.state.adoption_ended();
                match attempt {
                    AdoptionAttempt::Adopted(pod) => self.observe_pod(pod, now),
                    AdoptionAttempt::PodGone => {}
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
            JobInput::StatusWritten(Some(job)) => self.status_written(job, now),
            JobInput::StatusWritten(None) => self.state.status_refused(false, now),
            JobInput::StatusConflict(job) => {
                self.state.status_refused(job.is_some(), now);
                job.into_iter().for_each(|job| self.observe(job));
            }
            JobInput::Read(job) => {
                self.lifecycle.job_read();
                job.into_iter().for_each(|job| self.observe(job));
            }
            JobInput::DeletionRefused => self.state.deletion_refused(now),
        }
    }

    fn observe(&mut self, seen: Arc<ObservedJob>) {
        let Ok(job) = &seen.job else { return };
        if seen.version.order() <= self.seen.version.order() {
            return;
        }
        let known = [Some(&self.state.job.status), self.sent.as_ref()];
        if !known.into_iter().flatten().any(|status| status.counts_as(&job.status)) {
            // Pods that somebody else has counted must not be counted again from what we saw of them before.
            self.lifecycle.relist_requested();
            self.notice.shard.do_send(JobReport::Relist(self.state.job.uid.clone()));
        }
        self.state.observe_job(job.clone());
        self.seen = seen;
        if self.state.job.status.finished().is_some() {
            // Should the answer to our last write be lost, the end must be told all the same.
            self.report_events();
        }
    }

    /// Tells what was done to pods since this was last told.
    fn report_pod_events(&mut self) {
        for (deed, message) in self.pod_events.take() {
            self.record(EventType::Normal, deed.reason(), &message, false);
        }
    }

    fn report_events(&mut self) {
        for event in std::mem::take(&mut self.pending_events) {
            self.report(&event);
        }
    }

    /// The write named the version that it changed: the Job is as it was, but for the status. Unless the watch has shown a later
    /// one before the answer arrived.
    fn status_written(&mut self, written: Arc<ObservedJob>, now: Timestamp) {
        let unfinished = self.told.finished().is_none();
        if let Ok(job) = &written.job {
            job_metrics::count_progress(&self.requests.cx.metrics, job, &self.told);
            self.told = job.status.clone();
        }
        self.observe(written);
        self.state.status_written(now);
        self.report_pod_events();
        if unfinished {
            self.report_life();
        }
        self.report_events();
    }

    /// Tells the trace of a Job that has ended.
    fn report_life(&self) {
        let job = &self.state.job;
        let Some(end) = job.status.finished() else { return };
        self.requests.cx.config.traces.tell(&JobLife {
            namespace: &job.namespace,
            name: &job.name,
            uid: &job.uid.to_string(),
            shard: self.requests.shard.0,
            epoch: self.requests.epoch,
            created: job.created,
            ended: end.last_transition_time.unwrap_or_else(|| self.now()),
            failure: (end.kind == ConditionKind::Failed).then_some(&*end.reason),
        });
    }

    fn observe_pod(&mut self, observed: Box<ObservedPod>, now: Timestamp) {
        let job = &self.state.job;
        let controller = match &observed.controller {
            None => ControllerRefMatch::None,
            Some(owner) if owner.uid == job.uid => ControllerRefMatch::This,
            Some(_) => ControllerRefMatch::Other,
        };
        let selected = job.spec.selector.matches(|key| observed.labels.get(key));
        match claim(controller, selected, observed.pod.deleting, job.deleting || self.state.is_gone()) {
            AdoptionDecision::Keep => _ = self.state.observe_pod(observed.pod, now),
            AdoptionDecision::Adopt if job.status.finished().is_none() => self.adopt(observed.pod.into()),
            AdoptionDecision::Release => {
                self.state.pod_vanished(&observed.pod.uid);
                self.requests.give_up(observed.pod.into());
            }
            AdoptionDecision::Adopt | AdoptionDecision::Leave => {
                self.state.pod_vanished(&observed.pod.uid);
                if controller == ControllerRefMatch::None {
                    self.notice.shard.do_send(JobReport::Declined(observed));
                }
            }
        }
    }

    fn adopt(&mut self, pod: PodRef) {
        self.state.pod_vanished(&pod.uid);
        if self.adopting.insert(pod.uid.clone()) {
            self.state.adoption_begun();
            self.requests.adopt(pod);
        }
    }

    /// Writes down why no pod is created, where that has changed.
    fn report_wait(&mut self, wait: Option<&Wait>) {
        if self.waiting.as_ref() != wait {
            self.requests.waits.write(&self.state.job, wait, self.refusal.as_deref());
            self.waiting = wait.cloned();
        }
    }

    /// Tells of annotations with wrong values, of each once while it stands.
    fn report_rejections(&mut self) {
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

    fn carry_out(&mut self, plan: Plan) {
        self.report_wait(plan.waiting.as_ref());
        self.report_rejections();
        if let Some(write) = plan.status {
            self.pending_events = write.events;
            self.sent = Some(write.status.clone());
            self.requests.write_status(self.seen.clone(), &self.state.job.status, write.status);
        }
        for pod in plan.releases {
            match self.state.pods.get(&pod.uid).filter(|_| self.state.is_gone()) {
                Some(&Pod { version, .. }) => self.requests.release_unchanged(pod, version),
                None => self.requests.release(pod),
            }
        }
        for deletion in plan.deletes {
            self.requests.delete(deletion);
        }
        let job = &self.state.job;
        let maker = Maker {
            job,
            finalizer: self.requests.cx.config.finalizer(),
            shard: self.requests.shard.0,
            pod_group: self.state.gang.group(),
        };
        for new in plan.creates {
            match PodManifest::new(maker, &new) {
                Ok(manifest) => self.requests.create(new.place, manifest),
                Err(error) => self.inbox.push(JobInput::Created {
                    place: new.place,
                    answer: crate::job::state::Created::Refused,
                    told: RequestEvent::Refused(error.to_string().into()),
                }),
            }
        }
        if let Some(request) = plan.gang {
            self.requests.see_to_gang(job, request);
        }
        if plan.delete_job {
            self.requests.delete_job();
        }
    }

    fn report(&self, event: &JobEvent) {
        let kind = if event.warning { EventType::Warning } else { EventType::Normal };
        self.record(kind, &event.reason, &event.message, event.terminal);
    }

    fn report_pod(&mut self, told: RequestEvent, done: PodAction, refused: (&str, &str)) {
        match told {
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
        let job = &self.state.job;
        self.requests.cx.recorder.record(Event {
            about: ObjectRef::job(&job.namespace, &job.name, &job.uid),
            kind,
            reason: reason.into(),
            message: message.into(),
            at: self.now(),
            must,
        });
    }
}

impl Actor for JobActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let address = ctx.address();
        self.inbox.connect(move || address.do_send(Wake));
    }
}

impl Handler<Wake> for JobActor {
    type Result = ();

    /// The first thing that happens is looked at at once, what follows in a stream together.
    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        let rested = self.worked.is_none_or(|worked| worked.elapsed() >= DEBOUNCE);
        if rested {
            self.work(ctx);
        } else {
            ctx.run_later(DEBOUNCE, |actor, ctx| actor.work(ctx));
        }
    }
}

impl Handler<DrainJob> for JobActor {
    type Result = ();

    fn handle(&mut self, _: DrainJob, _: &mut Self::Context) {
        self.lifecycle.drain();
    }
}

impl Handler<Halt> for JobActor {
    type Result = ();

    fn handle(&mut self, _: Halt, ctx: &mut Self::Context) {
        self.lifecycle.drain();
        self.work(ctx);
        self.report_pod_events();
        self.end(ExitReason::Over, ctx);
    }
}
