//! The actor of one Job: it owns the Job's state, feeds it with inputs, and carries out its plans.

mod adoptions;
mod cause;
mod claims;
mod lifecycle;
mod pod_encoding;
mod rest;
mod status_turn;

use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle,
};
use jiff::Timestamp;
use tokio::task::yield_now;
use tokio::time::Instant;

use self::adoptions::Adoptions;
use self::cause::Cause;
use self::lifecycle::Lifecycle;
use self::pod_encoding::PodEncoding;
use self::rest::Rest;
use self::status_turn::StatusTurn;
use super::clock;
use super::inbox::{Inbox, Taken};
use super::job_input::{AdoptionAttempt, JobInput, ListOrigin, RequestEvent};
use super::job_metrics::JobMeter;
use super::job_trace::JobTracer;
use super::loads::Correction;
use super::pod_events::{PodAction, PodEvents};
use super::protocol::{ExitReason, JobReport};
use super::requests::Requests;
use crate::cluster::events::{Event, EventType, ObjectRef};
use crate::cluster::gate::Turn;
use crate::cluster::wire::ObservedJob;
use crate::job::end;
use crate::job::manifest::Extras;
use crate::job::options::Rejected;
use crate::job::passivation::can_passivate;
use crate::job::plan::{JobEvent, Plan, Wait};
use crate::job::pod::{NewPod, Pod};
use crate::job::reconcile::reconcile;
use crate::job::spec::Job;
use crate::job::state::{Created, JobState};
use crate::job::status::JobStatus;
use crate::mutants::{Mutant, is};
use crate::telemetry::metrics::workqueue::Work;
use crate::telemetry::traces::ReconcileSpan;

/// Pause after a reconciliation, so that inputs that come in a stream are taken in together.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// The most inputs that are taken at once. To judge one pod may take 0.2 ms, as its author may write its conditions.
const AT_ONCE: usize = 128;

/// The inbox is no longer empty.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Decide nothing more. Answers to requests in flight are still taken in.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DrainJob;

/// Take in the inputs that have come, and end.
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
    /// The newest version of the Job that the shard is known to have seen: the watch may be behind the
    /// answers to our writes.
    seen_by_shard: u64,
    rest: Rest,
    lifecycle: Lifecycle,
    /// The Job is known as it was when its shard was claimed, or later.
    caught_up: bool,
    adoptions: Adoptions,
    pod_encoding: PodEncoding,
    status_turn: StatusTurn,
    /// The last status that we sent.
    sent: Option<JobStatus>,
    /// The last status that metrics and traces know. The watch may show our status before its write is
    /// answered.
    reported_status: JobStatus,
    /// Events to record once the status in flight is written.
    pending_events: Vec<JobEvent>,
    pod_events: PodEvents,
    timer: Option<SpawnHandle>,
    /// Works again after a rest, or after others have had their turns.
    goes_on: Option<SpawnHandle>,
    /// When the inbox was last emptied.
    worked: Option<Instant>,
    /// Annotations with wrong values that already have an Event.
    reported_rejections: Vec<Rejected>,
    /// Why no pod is created, as last recorded, and why the API server last refused one.
    waiting: Option<Wait>,
    refusal: Option<Arc<str>>,
    load: Correction,
    meter: JobMeter,
    tracer: JobTracer,
    notice: EndNotice,
}

/// Notifies the shard when the actor is dropped, for whatever reason.
struct EndNotice {
    requests: Arc<Requests>,
    reason: ExitReason,
    shard: Recipient<JobReport>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        if self.reason != ExitReason::Passivated {
            // What still comes, such as the turn of a status, is for nobody.
            drop(self.requests.inbox.close());
            self.requests.creations.current().withdraw();
        }
        if self.reason == ExitReason::Panic {
            self.requests.withdraw();
        }
        self.shard.do_send(JobReport::Ended { job: self.requests.job.clone(), reason: self.reason });
    }
}

impl JobActor {
    /// An actor for this Job, last observed as `seen`, which reports to `shard`.
    pub fn new(
        job: Job,
        seen: Arc<ObservedJob>,
        requests: Arc<Requests>,
        shard: Recipient<JobReport>,
    ) -> Self {
        let notice = EndNotice { requests: requests.clone(), reason: ExitReason::Panic, shard };
        Self {
            load: requests.cx.loads.correction(requests.shard),
            tracer: JobTracer::new(&requests.trace, &job, requests.ownership()),
            inbox: requests.inbox.clone(),
            pod_events: PodEvents::new(requests.cx.config.replaces_built_in()),
            reported_status: job.status.clone(),
            state: JobState::new(job, requests.cx.config.limits()).into(),
            meter: JobMeter::new(requests.clone()),
            requests,
            seen_by_shard: seen.version.order(),
            seen,
            rest: Rest::default(),
            lifecycle: if is(Mutant::PlansBeforePodsAreListed) { Lifecycle::Ready } else { Lifecycle::NEW },
            caught_up: false,
            adoptions: Adoptions::default(),
            pod_encoding: PodEncoding::default(),
            status_turn: StatusTurn::None,
            sent: None,
            pending_events: Vec::new(),
            timer: None,
            goes_on: None,
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
        let may_rest = self.lifecycle != Lifecycle::Draining && !self.inbox.is_urgent();
        if let Some(rest) = self.rest.left().filter(|_| may_rest) {
            return self.go_on_after(rest, ctx);
        }
        let began = Instant::now();
        let left = self.take_in_some(ctx);
        let (works, namespace) = (&self.requests.cx.long_works, self.requests.job.namespace());
        self.rest.begin(began, Instant::now(), works, namespace);
        match self.rest.left().filter(|_| left == 0 || !self.inbox.is_urgent()) {
            Some(rest) => self.go_on_after(rest, ctx),
            None if left > 0 => self.go_on_after(Duration::ZERO, ctx),
            None => {}
        }
    }

    /// Works again once a rest is over, or once other actors of the thread have had their turns.
    fn go_on_after(&mut self, rest: Duration, ctx: &mut Context<Self>) {
        let go_on = |actor: &mut Self, ctx: &mut Context<Self>| {
            // A handle that has done its work must not be cancelled: the context would poll all others again at once.
            actor.goes_on = None;
            actor.work(ctx);
        };
        let goes_on = match rest {
            Duration::ZERO => {
                ctx.spawn(wrap_future::<_, Self>(yield_now()).map(move |(), actor, ctx| go_on(actor, ctx)))
            }
            rest => ctx.run_later(rest, go_on),
        };
        if let Some(before) = self.goes_on.replace(goes_on) {
            ctx.cancel_future(before);
        }
    }

    /// Takes in inputs, and reconciles. Returns how many inputs were left.
    fn take_in_some(&mut self, ctx: &mut Context<Self>) -> usize {
        self.caught_up |= self.requests.caught_up.get();
        // Who drains decides nothing, so its inputs cost little.
        let most = if self.lifecycle == Lifecycle::Draining { usize::MAX } else { AT_ONCE };
        let Taken { inputs, event, left } = self.inbox.take_some(most);
        let has_failed = inputs.iter().any(|input| matches!(input, JobInput::Failed));
        if has_failed && self.lifecycle != Lifecycle::Draining {
            self.end(ExitReason::Panic, ctx);
            return 0;
        }
        let work = self.meter.begin(event);
        self.worked = Some(Instant::now());
        let cause = Cause::of(&inputs);
        let trace = self.requests.trace.clone();
        let span = trace.reconcile();
        for input in inputs {
            self.meter.input(&input, &self.state);
            self.take_in(input);
            self.meter.follow(&self.state);
        }
        if self.lifecycle != Lifecycle::Ready {
            self.status_turn = StatusTurn::None;
            return left;
        }
        if self.state.doubts_status(self.seen.version.order()) {
            self.read_job();
        } else if end::doubts_success(&self.state) {
            self.relist();
            self.status_turn = StatusTurn::None;
        } else {
            self.reconcile(cause, span, &work, ctx);
        }
        left
    }

    /// Reads the Job live. Nothing is decided until the answer.
    fn read_job(&mut self) {
        self.lifecycle.read_job();
        self.state.reading_job();
        self.requests.read();
        self.status_turn = StatusTurn::None;
    }

    fn reconcile(&mut self, cause: Cause, span: ReconcileSpan<'_>, work: &Work, ctx: &mut Context<Self>) {
        #[cfg(feature = "test-hooks")]
        if let Some(hook) = &self.requests.cx.config.test_hooks.before_reconcile {
            hook.0(&self.state.job);
        }
        let now = self.now();
        self.state.keep_pace(self.requests.cx.gate.pace(self.requests.job.namespace()));
        self.tracer.planning(&self.state, now);
        let mut plan = reconcile(&self.state, now);
        if !plan.creates.is_empty() && !self.caught_up {
            // The status may be older than what the shard's last owner did, and the pods that it counted may be gone.
            return self.read_job();
        }
        let turn = self.status_turn.take(&mut plan, &self.requests);
        self.state.begin(&plan, now);
        self.load.follow(&self.state);
        self.meter.planned(&self.state, &plan, work);
        let plan_size = plan.size();
        log_job!(
            debug,
            self.requests.name(),
            cause = cause.name,
            inputs = cause.inputs,
            pods_changed = cause.pods_changed,
            plan_size,
            "reconciled"
        );
        let wake_at = plan.wake_at;
        let status_follows = plan.status.is_some() || plan.status_waits;
        self.carry_out(plan, turn);
        if plan_size > 0 {
            span.end(|| cause.attributes(plan_size));
        }
        self.set_timer(wake_at, now, ctx);
        if !status_follows && !self.state.pods.has_flights() {
            // No status write follows that these Events could join.
            self.report_pod_events();
        }
        if self.state.is_over() && !self.adoptions.are_pending() && self.inbox.is_empty() {
            self.end(ExitReason::Over, ctx);
        } else if self.can_passivate(now) {
            self.end(ExitReason::Passivated, ctx);
        }
    }

    /// Whether nothing remains to be done, nothing is in flight, and the shard has seen the Job as we know
    /// it.
    fn can_passivate(&self, now: Timestamp) -> bool {
        can_passivate(&self.state, now)
            && self.pending_events.is_empty()
            && self.seen_by_shard >= self.seen.version.order()
            && !self.adoptions.are_pending()
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
        let wake_at = wake_at.filter(|_| !is(Mutant::TimersForgotten));
        let ring = |actor: &mut Self, ctx: &mut Context<Self>| {
            actor.timer = None;
            actor.work(ctx);
        };
        self.timer = wake_at.map(|at| ctx.run_later(clock::until(at, now), ring));
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
                // What is no newer explains no conflict, and leads to the next: a restored etcd, or a webhook that
                // answers with 409. So does a Job of an unknown mode, which is not taken in.
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
                    // The watch has yet to show that it is gone. Until then it gets no more pods.
                    None => self.state.job_leaves(),
                }
            }
            // The shard is drained: the next owner rebuilds the Job.
            JobInput::Failed | JobInput::Unread => {}
            JobInput::PodSpec(read) => {
                self.pod_encoding.take_in(read, &self.state.job, self.seen.generation);
            }
            JobInput::DeletionRefused => self.state.deletion_refused(now),
            JobInput::DeletionNotDue(job) => {
                // What is no newer does not explain why we think otherwise, and would do so again.
                match job.version.order() > self.seen.version.order() {
                    true => self.state.deletion_not_due(),
                    false => self.state.deletion_refused(now),
                }
                self.observe_live(job);
            }
        }
    }

    /// Takes in a live reading. Whether the Job's namespace has room for a new template, the watch's reading tells.
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
            // The Job was read live. Nothing but the template is new in the spec.
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
            // What nobody will show again may be long.
            (self.sent, self.reported_status) = (None, job.status.clone());
        }
        if !is_known && !is(Mutant::PodsNeverDoubted) {
            // Pods that somebody else has counted must not be counted again from our older view of them.
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

    /// Records Events about what was done to pods since the last call.
    fn report_pod_events(&mut self) {
        for (action, message) in self.pod_events.take() {
            self.record(EventType::Normal, action.reason(), &message, false);
        }
    }

    fn report_events(&mut self) {
        for event in std::mem::take(&mut self.pending_events) {
            self.report(&event);
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

    /// Records why no pod is created, where that has changed.
    fn report_wait(&mut self, wait: Option<&Wait>) {
        self.tracer.waits(wait, self.refusal.as_deref(), self.requests.cx.clock.now());
        if self.waiting.as_ref() != wait {
            self.requests.waits.write(&self.state.job, wait, self.refusal.as_ref());
            self.waiting = wait.cloned();
        }
    }

    /// Records an Event about each annotation with a wrong value, once while the value stays.
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

    fn carry_out(&mut self, plan: Plan, status_turn: Option<Turn>) {
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
            self.requests.read_pod_spec(pod_encoding::is_indexed(job));
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
        let traceparent = job.options.propagate_trace.then(|| self.requests.trace.traceparent()).flatten();
        let extras = Extras { pod_group: self.state.gang.group().map(Box::from), traceparent };
        if !job.spec.template.is_kept() {
            let template = &job.spec.template;
            let create = |new| self.requests.create_from_live(template, new, extras.clone());
            return pods.into_iter().for_each(create);
        }
        let maker = self.requests.maker(job, extras);
        for new in pods {
            match &maker {
                Ok(maker) => self.requests.create(maker.manifest(new)),
                Err(error) => self.inbox.push(JobInput::Created {
                    place: new.place,
                    answer: Created::Refused,
                    event: RequestEvent::Refused(error.to_string().into()),
                }),
            }
        }
    }

    fn report(&self, event: &JobEvent) {
        let kind = if event.warning { EventType::Warning } else { EventType::Normal };
        self.record(kind, &event.reason, &event.message, event.terminal);
    }

    fn report_pod(&mut self, event: RequestEvent, done: PodAction, refused: (&str, &str)) {
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

    /// The first input is handled at once; inputs that follow in a stream are handled together.
    fn handle(&mut self, _: Wake, ctx: &mut Self::Context) {
        let is_due = self.worked.is_none_or(|worked| worked.elapsed() >= DEBOUNCE);
        if is_due {
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
        self.tracer.draining(self.now());
    }
}

impl Handler<Halt> for JobActor {
    type Result = ();

    fn handle(&mut self, _: Halt, ctx: &mut Self::Context) {
        self.lifecycle.drain();
        self.work(ctx);
        self.report_pod_events();
        self.tracer.left(self.now());
        self.requests.withdraw();
        self.end(ExitReason::Over, ctx);
    }
}
