//! The actor of one Job: it owns the Job's state, feeds it with inputs, and carries out its plans.

mod adoptions;
mod cause;
mod claims;
mod inputs;
mod lifecycle;
mod plans;
mod pod_encoding;
mod reports;
mod rest;
mod status_turn;
mod work;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, SpawnHandle};
use jiff::Timestamp;
use tokio::time::Instant;

use self::adoptions::Adoptions;
use self::lifecycle::Lifecycle;
use self::pod_encoding::PodEncoding;
use self::rest::Rest;
use self::status_turn::StatusTurn;
use super::job_metrics::JobMeter;
use super::job_trace::JobTracer;
use super::pod_events::PodEvents;
use super::requests::Requests;
use crate::actors::known_jobs::jobs_by_name::Followed;
use crate::actors::known_jobs::loads::Correction;
use crate::actors::messages::inbox::Inbox;
use crate::actors::messages::job_input::JobInput;
use crate::actors::messages::protocol::{ExitReason, JobReport};
use crate::cluster::wire::ObservedJob;
use crate::job::options::Rejected;
use crate::job::plan::{JobEvent, Wait};
use crate::job::spec::Job;
use crate::job::state::JobState;
use crate::job::status::JobStatus;
use crate::mutants::{Mutant, is};

/// Pause after a reconciliation, so that inputs that come in a stream are applied together.
const DEBOUNCE: Duration = Duration::from_millis(2);

/// The inbox is no longer empty.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Wake;

/// Decide nothing more. Answers to requests in flight are still applied.
#[derive(Message)]
#[rtype(result = "()")]
pub struct DrainJob;

/// Apply the inputs that have come, and end.
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
    /// The Jobs that this one waits for.
    followed: Option<Followed>,
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

/// Notifies the shard when the actor is dropped, for any reason.
struct EndNotice {
    requests: Arc<Requests>,
    reason: ExitReason,
    shard: Recipient<JobReport>,
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        if self.reason != ExitReason::Passivated {
            // Later inputs, such as the turn of a status, have no receiver.
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
            followed: None,
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

    fn end(&mut self, reason: ExitReason, ctx: &mut Context<Self>) {
        self.notice.reason = reason;
        ctx.stop();
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
