//! Fences: how long writes for a shard may leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::time::Instant;

use crate::cluster::boot_clock::{AwakeClock, BootClock};
use crate::mutants::{Mutant, is};

/// The right to write for a shard, valid until an instant of this machine's boot clock (invariant 5: one
/// owner at a time). Clones share one right. Renewing the claim extends it, releasing the shard closes it,
/// and the gate checks it right before a write leaves.
#[derive(Clone, Debug)]
pub struct Fence {
    clock: Arc<dyn BootClock>,
    /// The origin of the nanoseconds.
    base: Instant,
    /// One more than the nanoseconds after `base` at which the right ends; or [`CLOSED`], or [`UNLIMITED`].
    end: Arc<AtomicU64>,
}

const CLOSED: u64 = 0;
const UNLIMITED: u64 = u64::MAX;

impl Fence {
    /// A fence that stays open until it is closed.
    pub fn unlimited() -> Self {
        Self { clock: Arc::new(AwakeClock), base: Instant::now(), end: Arc::new(AtomicU64::new(UNLIMITED)) }
    }

    /// A fence that is open until an instant of this clock.
    pub fn until(end: Instant, clock: Arc<dyn BootClock>) -> Self {
        let fence = Self { base: clock.now(), clock, end: Arc::new(AtomicU64::new(1)) };
        fence.extend(end);
        fence
    }

    /// Moves the end to a later instant. This has no effect once the fence is closed, or when it already ends
    /// later.
    pub fn extend(&self, end: Instant) {
        let end = self.mark(end);
        let later = |old: u64| (old != CLOSED && old < end).then_some(end);
        // An Err means that there was nothing to do.
        let _ = self.end.fetch_update(Ordering::AcqRel, Ordering::Acquire, later);
    }

    /// Closes the fence for good.
    pub fn close(&self) {
        self.end.store(CLOSED, Ordering::Release);
    }

    /// Whether writes may leave now.
    pub fn is_open(&self) -> bool {
        self.is_open_at(self.clock.now())
    }

    fn is_open_at(&self, now: Instant) -> bool {
        match self.end.load(Ordering::Acquire) {
            _ if is(Mutant::FenceOff) => true,
            CLOSED => false,
            UNLIMITED => true,
            end => self.mark(now) < end,
        }
    }

    /// Whether the fence is closed for good. One that is merely not open may be extended again.
    pub fn is_closed(&self) -> bool {
        self.end.load(Ordering::Acquire) == CLOSED
    }

    fn mark(&self, at: Instant) -> u64 {
        let nanoseconds = at.saturating_duration_since(self.base).as_nanos();
        u64::try_from(nanoseconds).map_or(UNLIMITED - 1, |n| n.saturating_add(1).min(UNLIMITED - 1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
        assert!(!shared.is_open_at(at(0)), "closed is for good");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_of_the_past_is_closed_and_an_unlimited_one_is_open_at() {
        let now = Instant::now();
        assert!(!Fence::until(now, Arc::new(AwakeClock)).is_open_at(now));
        let unlimited = Fence::unlimited();
        unlimited.extend(now);
        assert!(unlimited.is_open_at(now + Duration::from_secs(1 << 40)));
    }
}
