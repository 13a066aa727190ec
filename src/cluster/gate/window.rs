//! Congestion windows: how many writes may be in flight at once.

/// Bounds of a window of writes in flight, in requests.
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

/// A request in flight: its number in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place(u64);

/// Why a window shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shrink {
    /// Requests fail: by half.
    Failure,
    /// Requests of many namespaces fail: by half, but not below the initial size.
    Trouble,
    /// The API server has too much to do: by a tenth, but not below the initial size.
    Congestion,
}

/// A congestion window: additive increase, multiplicative decrease.
///
/// The window grows only by good answers to requests that were in flight while it was full. Until it first
/// shrinks, it grows by one for each. Then it grows by one for each round of them, or by a sixteenth if that
/// is more. It shrinks at most once for requests that were in flight together.
#[derive(Debug)]
pub(super) struct Window {
    limits: WindowLimits,
    size: f64,
    in_flight: usize,
    /// Number of the next request.
    next: u64,
    /// Requests with smaller numbers left before the last decrease and cause no further one.
    counted_to: u64,
    /// Requests with smaller numbers were in flight when the window was last full, if they have not ended
    /// since.
    full_to: u64,
}

/// Factor of decrease on failures.
const ON_FAILURE: f64 = 0.5;
/// Factor of decrease on congestion.
const ON_CONGESTION: f64 = 0.9;
/// Least growth in a round, as a part of the size: a window of slow calls would take minutes to recover otherwise.
const GROWTH: f64 = 1.0 / 16.0;

impl Window {
    pub(super) fn new(limits: WindowLimits) -> Self {
        let size = limits.initial.clamp(limits.min.max(1), limits.max.max(1)) as f64;
        Self { limits, size, in_flight: 0, next: 0, counted_to: 0, full_to: 0 }
    }

    /// Requests that may be in flight at once.
    pub(super) fn size(&self) -> usize {
        self.size as usize
    }

    pub(super) fn limits(&self) -> WindowLimits {
        self.limits
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn has_room(&self) -> bool {
        self.in_flight < self.size()
    }

    /// Whether it has shrunk below the size at which it was new: requests fail.
    pub(super) fn is_throttled(&self) -> bool {
        self.size() < self.limits.initial
    }

    /// A request leaves.
    pub(super) fn start(&mut self) -> Place {
        let place = Place(self.next);
        (self.in_flight, self.next) = (self.in_flight + 1, self.next + 1);
        if !self.has_room() {
            self.mark_full();
        }
        place
    }

    /// Records that there is no room for another request like the last one.
    pub(super) fn mark_full(&mut self) {
        self.full_to = self.next;
    }

    /// A request has ended, or has never left.
    pub(super) fn end(&mut self) {
        self.in_flight -= 1;
    }

    /// Grows after a good answer.
    pub(super) fn grow(&mut self, place: Place) {
        if place.0 < self.full_to {
            let by = if self.counted_to == 0 { 1.0 } else { self.size.recip().max(GROWTH) };
            self.resize(self.size + by);
        }
    }

    /// Whether a bad answer to this request shrinks the window.
    pub(super) fn counts(&self, place: Place) -> bool {
        place.0 >= self.counted_to
    }

    /// Shrinks after a bad answer.
    pub(super) fn shrink(&mut self, place: Place, how: Shrink) {
        if self.counts(place) {
            self.counted_to = self.next;
            let initial = self.size.min(self.limits.initial as f64);
            self.resize(match how {
                Shrink::Failure => self.size * ON_FAILURE,
                Shrink::Trouble => (self.size * ON_FAILURE).max(initial),
                Shrink::Congestion => (self.size * ON_CONGESTION).max(initial),
            });
        }
    }

    /// Shrinks by one for a further failure of requests that were in flight together. So a window of which
    /// all fail is small at once.
    pub(super) fn shrink_further(&mut self) {
        self.resize(self.size - 1.0);
    }

    fn resize(&mut self, size: f64) {
        self.size = size.clamp(self.limits.min.max(1) as f64, self.limits.max.max(1) as f64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: WindowLimits = WindowLimits { min: 2, initial: 8, max: 64 };

    /// Fills the window and ends all its requests in the same way.
    fn round(window: &mut Window, end: impl Fn(&mut Window, Place)) {
        let mut places = Vec::new();
        while window.has_room() {
            places.push(window.start());
        }
        for place in places {
            window.end();
            end(window, place);
        }
    }

    fn fail(window: &mut Window, place: Place) {
        window.shrink(place, Shrink::Failure);
    }

    #[test]
    fn grows_only_while_it_is_full() {
        let mut window = Window::new(LIMITS);
        for _ in 0..20 {
            let place = window.start();
            window.end();
            window.grow(place);
        }
        assert_eq!(window.size(), 8, "an unused window says nothing about the API server");
        round(&mut window, Window::grow);
        assert_eq!(window.size(), 16, "one for each answer");
        (0..3).for_each(|_| round(&mut window, Window::grow));
        assert_eq!(window.size(), LIMITS.max);
    }

    #[test]
    fn grows_slowly_once_it_has_shrunk() {
        let mut window = Window::new(LIMITS);
        round(&mut window, fail);
        for size in 4..16 {
            assert_eq!(window.size(), size);
            round(&mut window, Window::grow);
            round(&mut window, |_, _| ());
            // Sums of fractions stay a little below.
            window.resize(window.size.round());
        }
        (0..40).for_each(|_| round(&mut window, Window::grow));
        assert_eq!(window.size(), LIMITS.max, "a sixteenth in each round");
    }

    #[test]
    fn halves_once_for_requests_that_were_in_flight_together() {
        let mut window = Window::new(LIMITS);
        round(&mut window, fail);
        assert_eq!(window.size(), 4);
        round(&mut window, fail);
        round(&mut window, fail);
        assert_eq!(window.size(), LIMITS.min);
        assert!(window.is_throttled());
    }

    #[test]
    fn shrinks_by_congestion_no_further_than_it_was_at_first() {
        let mut window = Window::new(LIMITS);
        (0..100).for_each(|_| round(&mut window, Window::grow));
        round(&mut window, |window, place| window.shrink(place, Shrink::Congestion));
        assert_eq!(window.size(), 57);
        for _ in 0..40 {
            round(&mut window, |window, place| window.shrink(place, Shrink::Congestion));
        }
        assert_eq!(window.size(), LIMITS.initial, "this few do not congest an API server");
        assert!(!window.is_throttled());
    }

    proptest! {
        #[test]
        fn stays_within_its_limits(steps in prop::collection::vec(0..6u8, 0..300)) {
            let mut window = Window::new(LIMITS);
            let mut in_flight = Vec::new();
            for step in steps {
                match step {
                    0 if window.has_room() => in_flight.push(window.start()),
                    0 => {}
                    step => if let Some(place) = in_flight.pop() {
                        window.end();
                        match step {
                            1 => window.grow(place),
                            2 => window.shrink(place, Shrink::Failure),
                            3 => window.shrink(place, Shrink::Congestion),
                            4 => window.shrink_further(),
                            _ => {}
                        }
                    },
                }
                prop_assert!((LIMITS.min..=LIMITS.max).contains(&window.size()));
                prop_assert_eq!(window.in_flight(), in_flight.len());
            }
        }
    }
}
