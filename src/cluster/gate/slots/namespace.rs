//! The writes of one namespace, and the windows of its lanes.

use tokio::time::Instant;

use super::held::Held;
use super::{Signal, is_going_on};
use crate::cluster::gate::Priority;
use crate::cluster::gate::window::{Place, Shrink, Window, WindowLimits};

#[derive(Debug)]
pub(super) struct Namespace {
    lanes: [Lane; LANES],
    /// Writes in flight.
    pub(super) held: Held,
    /// When a write last failed, and when one was last answered well.
    pub(super) trouble: Option<Instant>,
    pub(super) good: Option<Instant>,
    /// When the API server last refused to read a write.
    pub(super) refused: Option<Instant>,
    pub(super) used: Instant,
}

/// The writes of a kind in one namespace, which share a window.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) window: Window,
    /// Writes in flight that are late.
    pub(super) late: usize,
    /// How often in a row the API server has refused to read the writes in flight.
    pub(super) refused: u32,
    /// Until when no write of the lane leaves.
    pub(super) paused_until: Option<Instant>,
}

/// Number of lanes of a namespace.
const LANES: usize = 5;

/// The lane of writes of this priority.
fn lane_of(priority: Priority) -> usize {
    match priority {
        Priority::Status | Priority::Progress => 0,
        Priority::Finalizer => 1,
        Priority::Delete => 2,
        Priority::Create => 3,
        Priority::Report | Priority::Event => 4,
    }
}

impl Namespace {
    pub(super) fn new(now: Instant, limits: WindowLimits) -> Self {
        Self {
            lanes: std::array::from_fn(|_| Lane::new(limits)),
            held: Held::default(),
            trouble: None,
            good: None,
            refused: None,
            used: now,
        }
    }

    pub(super) fn lane(&self, priority: Priority) -> &Lane {
        &self.lanes[lane_of(priority)]
    }

    pub(super) fn lane_mut(&mut self, priority: Priority) -> &mut Lane {
        &mut self.lanes[lane_of(priority)]
    }

    /// Whether no write of this priority may leave, as far as its lane decides.
    pub(super) fn holds_back(&self, priority: Priority) -> bool {
        let lane = self.lane(priority);
        // A place is left to Events that only inform: they shall not wait for reports that hang.
        let is_full_of_reports = self.held.of(Priority::Report) >= (lane.window.size() - 1).max(1);
        !lane.window.has_room()
            || priority == Priority::Report && is_full_of_reports
            || is_going_on(lane.paused_until)
    }

    pub(super) fn is_busy(&self) -> bool {
        self.lanes.iter().any(|lane| lane.window.in_flight() > 0)
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.lanes.iter().any(|lane| lane.window.is_throttled())
    }
}

impl Lane {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self { window: Window::new(limits), late: 0, refused: 0, paused_until: None }
    }

    /// Writes in flight that are not late.
    pub(super) fn on_time(&self) -> usize {
        self.window.in_flight() - self.late
    }

    /// Whether no further write may leave, though none has failed.
    pub(super) fn is_full(&self) -> bool {
        !self.window.has_room() && !self.window.is_throttled()
    }

    /// Applies the signal of an answer.
    pub(super) fn apply(&mut self, place: Place, signal: Signal) {
        if !matches!(signal, Signal::Busy | Signal::Failed) {
            self.refused = 0;
        }
        match signal {
            Signal::Congested => self.window.shrink(place, Shrink::Congestion),
            Signal::Answered(_) | Signal::Refused(_) => self.window.grow(place),
            Signal::Failed | Signal::Webhook | Signal::Busy => {
                let is_first = self.window.counts(place);
                match is_first {
                    true => self.window.shrink(place, Shrink::Failure),
                    false => self.window.shrink_further(),
                }
                self.refused = self.refused.saturating_add(u32::from(is_first && signal == Signal::Busy));
            }
        }
    }
}
