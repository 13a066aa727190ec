//! The timers of a shard's Jobs. actix looks at each timer of an actor at every message
//! of the actor. A tenant can make thousands of waiting Jobs, such as finished ones with
//! a TTL. So all of them wait in one queue, and only the first has a timer of actix.

use std::collections::BTreeMap;
use std::time::Duration;

use actix::{AsyncContext, Context, SpawnHandle};
use tokio::time::Instant;

use super::ShardActor;

/// The shard's work when a timer rings.
type Work = Box<dyn FnOnce(&mut ShardActor, &mut Context<ShardActor>)>;

/// A timer that has been set: the time at which it rings, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timer(Instant, u64);

/// The timers that have been set and have not rung.
#[derive(Default)]
pub(super) struct Timers {
    waiting: BTreeMap<Timer, Work>,
    /// The number of the last timer.
    last: u64,
    /// Rings when the first timer does, or earlier if that was cancelled.
    alarm: Option<(Instant, SpawnHandle)>,
}

impl Timers {
    /// Sets a timer.
    pub(super) fn set(
        &mut self,
        pause: Duration,
        ctx: &mut Context<ShardActor>,
        work: impl FnOnce(&mut ShardActor, &mut Context<ShardActor>) + 'static,
    ) -> Timer {
        self.last += 1;
        let timer = Timer(Instant::now() + pause, self.last);
        self.waiting.insert(timer, Box::new(work));
        self.set_alarm(ctx);
        timer
    }

    /// Cancels a timer, if it has not rung.
    pub(super) fn cancel(&mut self, timer: Timer) {
        self.waiting.remove(&timer);
    }

    fn set_alarm(&mut self, ctx: &mut Context<ShardActor>) {
        let Some((Timer(first, _), _)) = self.waiting.first_key_value() else { return };
        if self.alarm.is_some_and(|(at, _)| at <= *first) {
            return;
        }
        let alarm = ctx.run_later(first.saturating_duration_since(Instant::now()), ShardActor::ring);
        if let Some((_, later)) = self.alarm.replace((*first, alarm)) {
            ctx.cancel_future(later);
        }
    }
}

impl ShardActor {
    /// Does all that is due. Timers that this work sets ring later.
    fn ring(&mut self, ctx: &mut Context<Self>) {
        let now = Instant::now();
        while let Some(first) = self.timers.waiting.first_entry().filter(|first| first.key().0 <= now) {
            first.remove()(self, ctx);
        }
        self.timers.alarm = None;
        self.timers.set_alarm(ctx);
    }
}
