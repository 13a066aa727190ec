//! The actor's times of work: how many inputs it applies at once, when it decides, when it works again,
//! and when it ends.

use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use jiff::Timestamp;
use tokio::task::yield_now;
use tokio::time::Instant;

use super::JobActor;
use super::cause::Cause;
use super::lifecycle::Lifecycle;
use super::status_turn::StatusTurn;
use crate::actors::clock;
use crate::actors::messages::inbox::Taken;
use crate::actors::messages::job_input::JobInput;
use crate::actors::messages::protocol::ExitReason;
use crate::job::end;
use crate::job::passivation::can_passivate;
use crate::job::reconcile::reconcile;
use crate::mutants::{Mutant, is};
use crate::telemetry::metrics::workqueue::Work;
use crate::telemetry::traces::ReconcileSpan;

/// The most inputs that are taken at once. To judge one pod may take 0.2 ms, as its author may write its conditions.
const AT_ONCE: usize = 128;

impl JobActor {
    pub(super) fn work(&mut self, ctx: &mut Context<Self>) {
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

    /// Applies inputs, and reconciles. Returns how many inputs were left.
    fn take_in_some(&mut self, ctx: &mut Context<Self>) -> usize {
        self.caught_up |= self.requests.caught_up.get();
        // A draining actor decides nothing, so its inputs cost little.
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
        self.look_at_predecessors(now);
        let mut plan = reconcile(&self.state, now);
        if !plan.creates.is_empty() && !self.caught_up {
            // The status may be older than the last writes of the shard's last owner, and the pods that it
            // counted may be gone.
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

    /// Looks at the Jobs that this one waits for, and follows them.
    fn look_at_predecessors(&mut self, now: Timestamp) {
        let job = &self.state.job;
        let Some(after) = job.options.after.as_deref().filter(|_| self.state.awaits_order()) else {
            self.followed = None;
            return;
        };
        let index = &self.requests.cx.jobs_by_name;
        if !self.followed.as_ref().is_some_and(|followed| followed.is(after)) {
            // The old ones end first: some names may be the same.
            self.followed = None;
            self.followed = index.follow(job, &self.inbox);
            self.state.order_changed();
        }
        let searches = self.state.begins_cycle_search(now);
        let look = index.look(&self.state, searches);
        self.state.order_seen(look);
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
}
