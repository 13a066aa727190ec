//! How quickly the API server answers at present.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which a quarter of recent writes were answered, other than creations, which webhooks of a tenant may hold
/// up. Clones are the same time.
#[derive(Clone, Debug, Default)]
pub struct AnswerTime(Arc<Mutex<Known>>);

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    time: Duration,
    /// When a write was last answered.
    answered: Option<Instant>,
}

/// A slower answer raises the time by one in so many parts, or by this long, if that is more.
const RISE: (u32, Duration) = (64, Duration::from_micros(10));
/// A quicker one lowers it by that times this: where both balance, a quarter is quicker.
const FALL: u32 = 3;
/// It is forgotten when nothing has been answered for this long.
const FORGOTTEN: Duration = Duration::from_secs(1);

impl AnswerTime {
    /// A write was answered after this time.
    pub(super) fn observe(&self, took: Duration) {
        let now = Instant::now();
        let known = self.at(now);
        let step = (known / RISE.0).max(RISE.1);
        let time =
            if took > known { took.min(known + step) } else { took.max(known.saturating_sub(FALL * step)) };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Known { time, answered: Some(now) };
    }

    /// The time; zero before the first answer, and when there has been none for a second.
    pub fn get(&self) -> Duration {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Duration {
        // What is known is replaced as a whole.
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_recent =
            known.answered.is_some_and(|answered| now.saturating_duration_since(answered) < FORGOTTEN);
        if is_recent { known.time } else { Duration::ZERO }
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
        assert!(observe(100, |_| 3) < ms(4));
        observe(600, |_| 400);
        assert_eq!(time.at(Instant::now() + FORGOTTEN), Duration::ZERO);
    }
}
