//! Fences: how long writes for a shard may leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::boot_clock::{AwakeClock, BootClock};
use crate::mutants::{Mutant, is};

/// The right to write for a shard, valid until an instant of this machine's boot clock (invariant 5: one
/// owner at a time). Clones share one right. Renewing the claim extends it, and releasing the shard closes it. It
/// is checked right before the bytes of a write leave, and the answer is awaited no longer than the right lasts.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Arc<dyn BootClock>,
    /// The origin of the nanoseconds.
    base: Instant,
    right: Arc<Right>,
    /// The part of the right that this fence covers; it may end before the rest.
    part: Option<Arc<Part>>,
}

/// A part of a right that can be withdrawn without the rest.
#[derive(Debug, Default)]
struct Part {
    withdrawn: AtomicBool,
    withdrawing: Notify,
}

#[derive(Debug)]
struct Right {
    /// The nanoseconds after the base at which the right ends, or [`UNLIMITED`].
    end: AtomicU64,
    closed: AtomicBool,
    /// The shard is handed over in good order.
    handed_over: AtomicBool,
    /// The right ended while a request was in flight.
    overrun: AtomicBool,
    closing: Notify,
}

const UNLIMITED: u64 = u64::MAX;

impl Fence {
    /// A fence that stays open until it is closed.
    pub fn unlimited() -> Self {
        Self::ending(UNLIMITED, Arc::new(AwakeClock))
    }

    /// A fence that is open until an instant of this clock.
    pub fn until(end: Instant, clock: Arc<dyn BootClock>) -> Self {
        let fence = Self::ending(0, clock);
        fence.extend(end);
        fence
    }

    fn ending(end: u64, clock: Arc<dyn BootClock>) -> Self {
        let [closed, handed_over, overrun] = [false; 3].map(AtomicBool::new);
        let right = Right { end: AtomicU64::new(end), closed, handed_over, overrun, closing: Notify::new() };
        Self { base: clock.now(), clock, right: Arc::new(right), part: None }
    }

    /// A part of the whole right, also if this is a part itself: it ends with the whole, or when it is
    /// [withdrawn](Self::withdraw).
    #[must_use]
    pub fn part(&self) -> Self {
        Self { part: Some(Arc::default()), ..self.clone() }
    }

    /// The whole right, of which this may be a part.
    #[must_use]
    pub fn whole(&self) -> Self {
        Self { part: None, ..self.clone() }
    }

    /// Ends this part of the right: its waiting requests are no longer wanted. The rest of the right lasts,
    /// and requests in flight are answered.
    pub fn withdraw(&self) {
        if let Some(part) = &self.part {
            part.withdrawn.store(true, Ordering::Release);
            part.withdrawing.notify_waiters();
        }
    }

    /// Whether this part of the right was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        self.part.as_ref().is_some_and(|part| part.withdrawn.load(Ordering::Acquire))
    }

    /// Moves the end to a later instant. This has no effect when the fence already ends later, and does not
    /// open one that is closed.
    pub fn extend(&self, end: Instant) {
        self.right.end.fetch_max(self.mark(end), Ordering::AcqRel);
    }

    /// Closes the fence forever. Requests in flight may be answered until the right would have ended.
    pub fn close(&self) {
        self.right.closed.store(true, Ordering::Release);
        self.right.closing.notify_waiters();
    }

    /// Closes the fence since the shard is handed over: writes that it keeps from leaving are no sign of a
    /// lost claim.
    pub fn hand_over(&self) {
        self.right.handed_over.store(true, Ordering::Release);
        self.close();
    }

    /// Whether it was closed since the shard is handed over.
    pub fn is_handed_over(&self) -> bool {
        self.right.handed_over.load(Ordering::Acquire)
    }

    /// Records that the right has ended while a request was in flight, so its answer is no longer awaited.
    pub fn overrun(&self) {
        self.right.overrun.store(true, Ordering::Release);
    }

    /// Whether a request may still arrive whose answer is no longer awaited.
    pub fn is_overrun(&self) -> bool {
        self.right.overrun.load(Ordering::Acquire)
    }

    /// Returns once the fence is closed, or this part of the right is withdrawn.
    pub async fn closed(&self) {
        // Before the look: no end is missed.
        let closing = self.right.closing.notified();
        let withdrawing = self.part.as_ref().map(|part| part.withdrawing.notified());
        if is(Mutant::FenceOff) {
            return std::future::pending().await;
        }
        if self.is_closed() {
            return;
        }
        match withdrawing {
            None => closing.await,
            Some(withdrawing) => tokio::select! {
                () = closing => {}
                () = withdrawing => {}
            },
        }
    }

    /// Whether writes may leave now.
    pub fn is_open(&self) -> bool {
        self.is_open_at(self.clock.now())
    }

    fn is_open_at(&self, now: Instant) -> bool {
        is(Mutant::FenceOff) || (!self.is_closed() && self.lasts_from(now) != Some(Duration::ZERO))
    }

    /// Whether the fence is closed, or this part of the right is withdrawn. If the fence is merely not open,
    /// it may be extended again.
    pub fn is_closed(&self) -> bool {
        self.right.closed.load(Ordering::Acquire) || self.is_withdrawn()
    }

    /// How long the right lasts, unless it is renewed; `None` without end. Closing the fence does not shorten it.
    pub fn lasts(&self) -> Option<Duration> {
        self.lasts_from(self.clock.now())
    }

    fn lasts_from(&self, now: Instant) -> Option<Duration> {
        match self.right.end.load(Ordering::Acquire) {
            UNLIMITED => None,
            end => Some(Duration::from_nanos(end.saturating_sub(self.mark(now)))),
        }
    }

    fn mark(&self, at: Instant) -> u64 {
        let nanoseconds = at.saturating_duration_since(self.base).as_nanos();
        u64::try_from(nanoseconds).unwrap_or(u64::MAX).min(UNLIMITED - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_fence_can_be_extended_expires_and_closes_for_good() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let fence = Fence::until(at(10), Arc::new(AwakeClock));
        let shared = fence.clone();
        assert!(shared.is_open_at(at(9)) && !shared.is_open_at(at(10)));
        fence.extend(at(20));
        fence.extend(at(15));
        assert!(shared.is_open_at(at(19)) && !shared.is_open_at(at(20)), "an extension never shortens");
        fence.close();
        fence.extend(at(30));
        assert!(!shared.is_open_at(at(0)) && shared.is_closed(), "closed is for good");
        assert_eq!(shared.lasts(), Some(Duration::from_secs(30)), "what is under way may be answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_of_the_past_is_closed_and_an_unlimited_one_is_open_at() {
        let now = Instant::now();
        assert!(!Fence::until(now, Arc::new(AwakeClock)).is_open_at(now));
        let unlimited = Fence::unlimited();
        unlimited.extend(now);
        assert_eq!(unlimited.lasts(), None);
        assert!(unlimited.is_open_at(now + Duration::from_secs(1 << 40)));
    }
}
