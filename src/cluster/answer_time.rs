//! How quickly the API server answers at present.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The time in which a quarter of recent writes were answered: one tenant's slow webhook does not raise it while others'
/// writes are answered quickly. Clones are the same time.
#[derive(Clone, Debug, Default)]
pub struct AnswerTime(Arc<AtomicU64>);

/// A slower answer raises the time by one in so many parts, or by so many nanoseconds, if that is more.
const RISE: (u64, u64) = (64, 10_000);
/// A quicker one lowers it by that times this: where both balance, a quarter is quicker.
const FALL: u64 = 3;

impl AnswerTime {
    /// A write was answered after this time.
    pub(super) fn observe(&self, took: Duration) {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let known = self.0.load(Ordering::Relaxed);
        let step = (known / RISE.0).max(RISE.1);
        let next = if took > known {
            took.min(known.saturating_add(step))
        } else {
            took.max(known.saturating_sub(FALL * step))
        };
        // Two answers at the same time may count as one.
        self.0.store(next, Ordering::Relaxed);
    }

    /// The time; zero before the first answer.
    pub fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_that_of_the_quickest_quarter_of_recent_answers() {
        let ms = Duration::from_millis;
        let time = AnswerTime::default();
        let observe = |times: u64, took: fn(u64) -> u64| {
            (0..times).for_each(|number| time.observe(ms(took(number))));
            time.get()
        };
        assert!(observe(100, |_| 400) < ms(2), "it begins at zero");
        assert_eq!(observe(600, |_| 400), ms(400));
        let mixed = observe(2_000, |number| 100 + number * 7 % 100);
        assert!((ms(110)..ms(150)).contains(&mixed), "{mixed:?}");
        let beside_a_webhook = observe(2_000, |number| if number % 3 == 0 { 5 } else { 200 });
        assert!(beside_a_webhook < ms(15), "{beside_a_webhook:?}");
        assert!(observe(100, |_| 3) < ms(4));
    }
}
