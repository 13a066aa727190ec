//! The writes of one namespace, and the windows of its lanes.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use super::held::Held;
use super::{Lane, Signal};
use crate::cluster::gate::window::{Place, Shrink, Window, WindowLimits};
use crate::telemetry::metrics::labels::ApiCallLabels;

#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) lanes: HashMap<ApiCallLabels, LaneState, RandomState>,
    /// Writes in flight.
    pub(super) held: Held,
    /// When a write last failed, and when one was last answered well.
    pub(super) trouble: Option<Instant>,
    pub(super) good: Option<Instant>,
    /// When the API server last refused to read a write.
    pub(super) refused: Option<Instant>,
    pub(super) used: Instant,
}

#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) window: Window,
    /// Writes in flight that are late.
    pub(super) late: usize,
    /// How often in a row the API server has refused to read the writes in flight.
    pub(super) refused: u32,
    /// Until when no write of the lane leaves.
    pub(super) paused_until: Option<Instant>,
}

impl Namespace {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            lanes: HashMap::default(),
            held: Held::default(),
            trouble: None,
            good: None,
            refused: None,
            used: now,
        }
    }

    pub(super) fn lane_mut(&mut self, call: &ApiCallLabels, limits: WindowLimits) -> &mut LaneState {
        self.lanes.entry(call.clone()).or_insert_with(|| LaneState::new(limits))
    }

    pub(super) fn creations(&self) -> Option<&LaneState> {
        self.lanes.get(&Lane::of_creations())
    }

    pub(super) fn is_busy(&self) -> bool {
        self.lanes.values().any(|lane| lane.window.in_flight() > 0)
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.lanes.values().any(|lane| lane.window.is_throttled())
    }
}

impl LaneState {
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
            Signal::Failed | Signal::WebhookFailed | Signal::HeldUp | Signal::Busy => {
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
