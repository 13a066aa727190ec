//! How often a Job may write its status, as the rate and the API server allow.
//!
//! Where all Jobs share one congested API server, each status that only shows progress takes the place of a write that
//! makes progress. So progress is as old there as its readers accept: [`OLDEST_PROGRESS`].

use std::time::Duration;

/// The start of a Job waits for its end for as long as this many writes take, one after the other. A Job with a short pod
/// takes about six, and those of its kubelet are as slow.
const WRITES_OF_SHORT_JOB: u32 = 64;
/// Between two statuses of a Job it can send this many writes, one after the other, as
/// the rate and the API server allow ...
const WRITES_PER_STATUS: u32 = 100;
/// ... or for fewer, so that progress is not older than [`OLDEST_PROGRESS`], but never more often than this ...
const SHORTEST_STATUS_PERIOD: Duration = Duration::from_secs(5);
/// ... but never before this many turns at the rate.
const FEWEST_TURNS_PER_STATUS: u32 = 4;

/// `active` and `ready` of a status are at most this old. They may be older if a write takes more than 3 s to be answered. The
/// same is true if the rate or the API server is too slow for the statuses of all Jobs.
const OLDEST_PROGRESS: Duration = Duration::from_secs(10);
/// How long a status that only shows progress may wait for writes of higher priorities. After that it takes turns with
/// them.
pub(super) const PROGRESS_WAIT: Duration = Duration::from_secs(2);
/// How long such a turn and the answer take, if the API server is not slow.
const SENDING: Duration = Duration::from_secs(1);

/// How long a Job waits until its next write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnTime {
    /// The part for which the rate is to blame.
    rate: Duration,
    total: Duration,
    answer_time: Duration,
}

impl TurnTime {
    /// The time when this many Jobs share `qps` writes a second and a full window of
    /// writes, which is answered after `answer_time`.
    pub(super) fn of(qps: u32, jobs: usize, answer_time: Duration, window: usize) -> Self {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        let of_all = |one: Duration| one.saturating_mul(number(jobs));
        let rate = of_all(Duration::from_secs(1).checked_div(qps).unwrap_or_default());
        let window = of_all(answer_time / number(window).max(1));
        Self { rate, total: rate.max(window).saturating_add(answer_time), answer_time }
    }

    /// The time between two statuses of a Job that serve only its counts.
    pub(super) fn status_period(self) -> Duration {
        let period = self.total.saturating_mul(WRITES_PER_STATUS).min(self.longest_status_period());
        period.max(self.rate.saturating_mul(FEWEST_TURNS_PER_STATUS))
    }

    /// The time after which progress becomes too old, less what its write takes.
    fn longest_status_period(self) -> Duration {
        let sending = self.answer_time.max(SENDING);
        OLDEST_PROGRESS.saturating_sub(PROGRESS_WAIT).saturating_sub(sending).max(SHORTEST_STATUS_PERIOD)
    }

    /// How long the start of a Job waits for its end.
    pub(super) fn start_period(self) -> Duration {
        self.total.saturating_mul(WRITES_OF_SHORT_JOB)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_take_a_bounded_part_of_what_the_rate_and_the_api_server_allow() {
        for (qps, jobs, answer_ms, period_ms, start_ms) in [
            (0, 1000, 0, 0, 0),
            (1000, 1, 0, 100, 64),
            (100, 1, 0, 1000, 640),
            (5, 1, 0, 7000, 12_800),
            (20, 10, 0, 7000, 32_000),
            (20, 1000, 0, 200_000, 3_200_000),
            (0, 0, 4, 400, 256),
            (0, 100, 4, 900, 576),
            (0, 0, 40, 4000, 2560),
            (0, 1000, 2000, 6000, 1_728_000),
            (0, 1000, 4000, 5000, 3_456_000),
            (1000, 10, 5, 1500, 960),
        ] {
            let ms = Duration::from_millis;
            let turn = TurnTime::of(qps, jobs, ms(answer_ms), 80);
            let with = format!("{qps} writes a second for {jobs} Jobs, answered after {answer_ms} ms");
            assert_eq!((turn.status_period(), turn.start_period()), (ms(period_ms), ms(start_ms)), "{with}");
        }
    }

    proptest! {
        /// However slow the API server is, and however many Jobs share it. A Job alone on a quick one is not slowed down.
        #[test]
        fn progress_is_gathered_as_long_as_it_may_be_old(
            jobs in 0..1_000_000_usize, answer_ms in 0..100_000_u64, window in 0..512_usize,
        ) {
            let answer_time = Duration::from_millis(answer_ms);
            let period = TurnTime::of(0, jobs, answer_time, window).status_period();
            if answer_time <= Duration::from_secs(3) {
                prop_assert!(period + PROGRESS_WAIT + answer_time.max(SENDING) <= OLDEST_PROGRESS);
            }
            prop_assert!(period >= (answer_time * WRITES_PER_STATUS).min(SHORTEST_STATUS_PERIOD));
            let of_more = TurnTime::of(0, jobs + 1, answer_time, window).status_period();
            prop_assert!(period <= of_more);
        }
    }
}
