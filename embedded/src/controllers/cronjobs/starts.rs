//! Which Jobs of a CronJob are due: functions of times alone.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::rules::cron_schedule::CronSchedule;
use crate::time::seconds_after;

/// If more starts than this are without a Job, a clock is probably wrong.
const MISSED_MAX: usize = 100;

/// The starts of a CronJob around now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Starts {
    /// The last start that is due. Earlier ones are left out.
    pub(super) latest: Option<Timestamp>,
    /// The first start that is not due yet.
    pub(super) next: Option<Timestamp>,
    /// Whether too many are due.
    pub(super) many: bool,
}

impl Starts {
    /// The starts after `since`. Starts that missed their deadline, in seconds, do not count for `many`.
    pub(super) fn of(
        schedule: &CronSchedule,
        zone: &TimeZone,
        since: Timestamp,
        now: Timestamp,
        deadline: Option<i64>,
    ) -> Self {
        let latest = schedule.latest(since, now, zone);
        let next = |time: &Timestamp| schedule.next(*time, zone);
        let counted_from = deadline.map_or(since, |deadline| since.max(before(now, deadline)));
        let due = std::iter::successors(next(&counted_from), next).take_while(|start| *start <= now);
        Self {
            latest,
            next: next(&latest.unwrap_or(since)),
            many: due.take(MISSED_MAX + 1).count() > MISSED_MAX,
        }
    }
}

/// Whether it is too late for a start, with a deadline in seconds.
pub(super) fn is_too_late(start: Timestamp, now: Timestamp, deadline: Option<i64>) -> bool {
    deadline.is_some_and(|deadline| start < before(now, deadline))
}

fn before(time: Timestamp, seconds: i64) -> Timestamp {
    seconds_after(time, seconds.saturating_neg())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn time(text: &str) -> Timestamp {
        format!("2026-01-01T{text}Z").parse().unwrap()
    }

    #[test]
    fn only_the_latest_start_is_due() {
        // Schedule, since, now, deadline; latest, next, many.
        let cases = [
            ("0 * * * *", "10:00:00", "10:59:59", None, None, "11:00:00", false),
            ("0 * * * *", "10:00:00", "11:00:00", None, Some("11:00:00"), "12:00:00", false),
            ("0 * * * *", "10:00:00", "13:20:00", None, Some("13:00:00"), "14:00:00", false),
            ("* * * * *", "10:00:00", "11:40:30", None, Some("11:40:00"), "11:41:00", false),
            ("* * * * *", "10:00:00", "11:41:00", None, Some("11:41:00"), "11:42:00", true),
            ("* * * * *", "10:00:00", "11:41:00", Some(6000), Some("11:41:00"), "11:42:00", false),
            ("* * * * *", "10:00:00", "11:41:00", Some(6060), Some("11:41:00"), "11:42:00", true),
            ("@every 90s", "10:00:07", "10:04:40", None, Some("10:04:37"), "10:06:07", false),
            // The deadline does not move the periods.
            ("@every 90s", "10:00:07", "10:04:40", Some(10), Some("10:04:37"), "10:06:07", false),
        ];
        for (schedule, since, now, deadline, latest, next, many) in cases {
            let parsed = CronSchedule::parse(schedule).unwrap();
            let starts = Starts::of(&parsed, &TimeZone::UTC, time(since), time(now), deadline);
            let expected = Starts { latest: latest.map(time), next: Some(time(next)), many };
            assert_eq!(starts, expected, "{schedule} from {since} to {now}");
        }
    }

    #[test]
    fn a_start_is_too_late_after_its_deadline() {
        let (start, now) = (time("10:00:00"), time("10:01:40"));
        let cases = [
            (None, false),
            (Some(101), false),
            (Some(100), false),
            (Some(99), true),
            (Some(i64::MAX), false),
        ];
        for (deadline, expected) in cases {
            assert_eq!(is_too_late(start, now, deadline), expected, "{deadline:?}");
        }
    }
}
