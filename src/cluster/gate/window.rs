//! The congestion window: how many writes may be in flight at once.

use std::time::Duration;

/// Bounds of the window of writes in flight, in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimits {
    /// Smallest size.
    pub min: usize,
    /// Size at the start.
    pub initial: usize,
    /// Largest size: each request in flight holds a connection.
    pub max: usize,
}

impl Default for WindowLimits {
    fn default() -> Self {
        Self { min: 2, initial: 16, max: 256 }
    }
}

/// The outcome of a request, as far as the window depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Answered after this time.
    Answered(Duration),
    /// 429, 5xx or no answer.
    Overloaded,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket {
    number: u64,
    /// The window was full when the request left.
    full: bool,
}

/// A congestion window: additive increase, multiplicative decrease.
///
/// The window grows by one request per window of good answers, and only while it is full. It halves when the
/// API server is overloaded. It shrinks by a tenth, but not below its initial size, when answers take much
/// longer than they did recently. It shrinks at most once for requests that were in flight together.
#[derive(Debug)]
pub(crate) struct Window {
    limits: WindowLimits,
    size: f64,
    in_flight: usize,
    /// Number of the next request.
    next: u64,
    /// Requests with smaller numbers left before the last decrease and cause no further one.
    counted_to: u64,
    /// The shortest recent latency, and a moving average, in seconds.
    latency: Option<(f64, f64)>,
}

/// Factor of decrease on overload.
const ON_OVERLOAD: f64 = 0.5;
/// Factor of decrease on high latency.
const ON_LATENCY: f64 = 0.9;
/// Latency is high above this many times the shortest recent one ...
const HIGH_LATENCY_FACTOR: f64 = 5.0;
/// ... but not below this many seconds.
const HIGH_LATENCY_FLOOR: f64 = 0.01;
/// Weight of a new latency in the moving average.
const AVERAGE_WEIGHT: f64 = 0.05;
/// The fraction by which the shortest latency rises with each answer, so that it follows lasting changes.
const SHORTEST_DRIFT: f64 = 1.0 / 2048.0;

impl Window {
    pub(crate) fn new(limits: WindowLimits) -> Self {
        let size = limits.initial.clamp(limits.min.max(1), limits.max.max(1)) as f64;
        Self { limits, size, in_flight: 0, next: 0, counted_to: 0, latency: None }
    }

    /// Requests that may be in flight at once.
    pub(crate) fn size(&self) -> usize {
        self.size as usize
    }

    pub(crate) fn limits(&self) -> WindowLimits {
        self.limits
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn has_room(&self) -> bool {
        self.in_flight < self.size()
    }

    /// A request leaves.
    pub(crate) fn start(&mut self) -> Ticket {
        self.in_flight += 1;
        let ticket = Ticket { number: self.next, full: !self.has_room() };
        self.next += 1;
        ticket
    }

    /// A request has ended; there is no signal if it never left.
    pub(crate) fn end(&mut self, ticket: Ticket, signal: Option<Signal>) {
        self.in_flight -= 1;
        match signal {
            Some(Signal::Overloaded) => self.decrease(ticket, self.size * ON_OVERLOAD),
            Some(Signal::Answered(latency)) if self.is_high(latency.as_secs_f64()) => {
                // Answers that are slow with this few requests in flight are slow for other reasons.
                let floor = self.size.min(self.limits.initial as f64);
                self.decrease(ticket, (self.size * ON_LATENCY).max(floor));
            }
            Some(Signal::Answered(_)) if ticket.full => self.resize(self.size + 1.0 / self.size),
            Some(Signal::Answered(_)) | None => {}
        }
    }

    fn decrease(&mut self, ticket: Ticket, size: f64) {
        if ticket.number >= self.counted_to {
            self.counted_to = self.next;
            self.resize(size);
        }
    }

    fn resize(&mut self, size: f64) {
        self.size = size.clamp(self.limits.min.max(1) as f64, self.limits.max.max(1) as f64);
    }

    fn is_high(&mut self, latency: f64) -> bool {
        let (shortest, average) = self.latency.unwrap_or((latency, latency));
        let shortest = latency.min(shortest * (1.0 + SHORTEST_DRIFT));
        let high = (shortest * HIGH_LATENCY_FACTOR).max(HIGH_LATENCY_FLOOR);
        // A single slow answer says little, so its weight is bounded.
        let average = average + AVERAGE_WEIGHT * (latency.min(2.0 * high) - average);
        self.latency = Some((shortest, average));
        average > high
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FAST: Signal = Signal::Answered(Duration::from_millis(5));
    const SLOW: Signal = Signal::Answered(Duration::from_millis(900));
    const LIMITS: WindowLimits = WindowLimits { min: 2, initial: 8, max: 16 };

    /// Fills the window and ends all its requests with the same signal.
    fn round(window: &mut Window, signal: Signal) {
        let mut tickets = Vec::new();
        while window.has_room() {
            tickets.push(window.start());
        }
        for ticket in tickets {
            window.end(ticket, Some(signal));
        }
    }

    #[test]
    fn grows_slowly_while_it_is_full() {
        let mut window = Window::new(LIMITS);
        for _ in 0..20 {
            let ticket = window.start();
            window.end(ticket, Some(FAST));
        }
        assert_eq!(window.size(), 8, "an unused window says nothing about the API server");
        for _ in 0..8 {
            round(&mut window, FAST);
        }
        assert_eq!(
            window.size(),
            8,
            "one of eight requests found the window full: growth takes eight rounds and more"
        );
        for _ in 0..1000 {
            round(&mut window, FAST);
        }
        assert_eq!(window.size(), LIMITS.max);
    }

    #[test]
    fn halves_once_for_requests_that_were_in_flight_together() {
        let mut window = Window::new(LIMITS);
        round(&mut window, Signal::Overloaded);
        assert_eq!(window.size(), 4);
        round(&mut window, Signal::Overloaded);
        round(&mut window, Signal::Overloaded);
        assert_eq!(window.size(), LIMITS.min);
    }

    #[test]
    fn shrinks_on_lasting_latency_but_not_on_a_single_slow_answer() {
        let mut window = Window::new(LIMITS);
        for _ in 0..50 {
            round(&mut window, FAST);
        }
        let before = window.size();
        let ticket = window.start();
        window.end(ticket, Some(SLOW));
        assert_eq!(window.size(), before);
        for _ in 0..20 {
            round(&mut window, SLOW);
        }
        assert_eq!(window.size(), LIMITS.initial, "with this few in flight, latency has other causes");
    }

    proptest! {
        #[test]
        fn stays_within_its_limits(steps in prop::collection::vec(0..5u8, 0..300)) {
            let mut window = Window::new(LIMITS);
            let mut in_flight = Vec::new();
            for step in steps {
                match step {
                    0 if window.has_room() => in_flight.push(window.start()),
                    0 => {}
                    step => if let Some(ticket) = in_flight.pop() {
                        window.end(ticket, [Some(FAST), Some(SLOW), Some(Signal::Overloaded), None][usize::from(step) - 1]);
                    },
                }
                prop_assert!((LIMITS.min..=LIMITS.max).contains(&window.size()));
                prop_assert_eq!(window.in_flight(), in_flight.len());
            }
        }
    }
}
