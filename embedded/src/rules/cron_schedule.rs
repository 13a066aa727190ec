//! Schedules of CronJobs: the five fields of cron, and names such as `@daily`.
//!
//! Crates for cron expressions read another language. They accept `7`, `L`, `W` and `#`, which Kubernetes
//! refuses, and they lack `@every`. They have other rules for hours that a change of the clocks skips or
//! repeats. So schedules are read here, as Kubernetes reads them.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use super::go_value;

const FIELDS: usize = 5;
/// If a schedule has no time within this many years, it has none.
const YEARS_MAX: i16 = 5;
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];
const EVERY: &str = "@every ";

/// When a CronJob is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CronSchedule {
    /// At the minutes whose wall clock fits all fields.
    Fields(Fields),
    /// After each whole number of seconds.
    Every(SignedDuration),
}

/// The values that fit each field, a bit for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether a day fits by its number or by its weekday, as where neither field begins with a star.
    /// Otherwise it must fit by both.
    either_day: bool,
}

/// Why a text is no schedule, in Kubernetes' words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScheduleError {
    #[error("expected exactly {FIELDS} fields, found {found}: [{shown}]")]
    Count { found: usize, shown: String },
    #[error("failed to parse int from {text}: strconv.Atoi: parsing {}: {why}", go_value::quoted(.text))]
    Number { text: String, why: &'static str },
    #[error("negative number ({0}) not allowed: {1}")]
    Negative(i64, String),
    #[error("too many hyphens: {0}")]
    Hyphens(String),
    #[error("too many slashes: {0}")]
    Slashes(String),
    #[error("beginning of range ({start}) below minimum ({min}): {text}")]
    BelowMinimum { start: u64, min: u64, text: String },
    #[error("end of range ({end}) above maximum ({max}): {text}")]
    AboveMaximum { end: u64, max: u64, text: String },
    #[error("beginning of range ({start}) beyond end of range ({end}): {text}")]
    Backwards { start: u64, end: u64, text: String },
    #[error("step of range should be a positive number: {0}")]
    NoStep(String),
    #[error("unrecognized descriptor: {0}")]
    UnknownName(String),
    #[error("failed to parse duration {0}: time: {1}")]
    Duration(String, String),
}

/// The values that a field may contain.
struct Bounds {
    min: u64,
    max: u64,
    /// Names of its values, from the least on.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

impl CronSchedule {
    /// Reads a schedule.
    pub(crate) fn parse(text: &str) -> Result<Self, ScheduleError> {
        if !text.starts_with('@') {
            return Fields::parse(text).map(Self::Fields);
        }
        if let Some((_, fields)) = NAMED.iter().find(|(name, _)| *name == text) {
            return Self::parse(fields);
        }
        let Some(period) = text.strip_prefix(EVERY) else {
            return Err(ScheduleError::UnknownName(text.to_owned()));
        };
        let nanos = go_duration(period).map_err(|why| ScheduleError::Duration(period.to_owned(), why))?;
        Ok(Self::Every(SignedDuration::from_secs((nanos / NANOS_PER_SECOND).max(1))))
    }

    /// The first time after another. If the clocks of the zone skip a time, it does not come on that day; if
    /// they repeat it, it comes twice. Returns `None` if it does not come within five years.
    pub(crate) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let after = whole_second(after)?;
        match self {
            Self::Fields(fields) => fields.next(after, zone),
            Self::Every(period) => after.checked_add(*period).ok(),
        }
    }

    /// The last time after `since` and not after `now`. Periods are counted from `since`.
    pub(crate) fn latest(&self, since: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (since, now) = (whole_second(since)?, whole_second(now)?);
        let comes_after = |second: i64| {
            let next = self.next(Timestamp::from_second(second).ok()?, zone);
            next.filter(|next| *next <= now)
        };
        let (mut early, mut late) = (since.as_second(), now.as_second());
        comes_after(early)?;
        if let Self::Every(period) = self {
            let passed = late.saturating_sub(early);
            return Timestamp::from_second(late - passed.checked_rem(period.as_secs())?).ok();
        }
        // A time comes after `early`, and none after `late`.
        while late - early > 1 {
            let between = early.midpoint(late);
            match comes_after(between) {
                Some(_) => early = between,
                None => late = between,
            }
        }
        comes_after(early)
    }
}

/// The time without the fraction of its second.
fn whole_second(time: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(time.as_second()).ok()
}

impl Fields {
    fn parse(text: &str) -> Result<Self, ScheduleError> {
        let given: Vec<&str> = text.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = given[..] else {
            return Err(ScheduleError::Count { found: given.len(), shown: given.join(" ") });
        };
        let (minutes, _) = MINUTES.field(minute)?;
        let (hours, _) = HOURS.field(hour)?;
        let (days, any_day) = DAYS.field(day)?;
        let (months, _) = MONTHS.field(month)?;
        let (weekdays, any_weekday) = WEEKDAYS.field(weekday)?;
        Ok(Self { minutes, hours, days, months, weekdays, either_day: !any_day && !any_weekday })
    }

    /// The first time after a whole second.
    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut from = after.checked_add(1.second()).ok()?;
        let last_year = zone.to_datetime(from).year().saturating_add(YEARS_MAX);
        loop {
            // Until the clocks change, the wall clock keeps its offset.
            let offset = zone.to_offset(from);
            let change = zone.following(from).next().map(|change| change.timestamp());
            let found = self.next_on_clock(offset.to_datetime(from), last_year)?;
            let found = offset.to_timestamp(found).ok()?;
            match change {
                Some(change) if change <= found => from = change,
                _ => return Some(found),
            }
        }
    }

    /// The first minute of a wall clock that fits, not before `from`.
    fn next_on_clock(&self, from: DateTime, last_year: i16) -> Option<DateTime> {
        let minute = from.date().at(from.hour(), from.minute(), 0, 0);
        let minute = if minute < from { minute.checked_add(1.minute()).ok()? } else { minute };
        let (mut date, mut from) = (minute.date(), Some((minute.hour(), minute.minute())));
        while date.year() <= last_year {
            if !has(self.months, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                from = None;
                continue;
            }
            let (hour, minute) = from.take().unwrap_or_default();
            if self.fits_day(date)
                && let Some((hour, minute)) = self.next_of_day(hour, minute)
            {
                return Some(date.at(hour, minute, 0, 0));
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn fits_day(&self, date: Date) -> bool {
        let by_number = has(self.days, date.day());
        let by_weekday = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { by_number || by_weekday } else { by_number && by_weekday }
    }

    /// The first hour and minute that fit, not before the given ones.
    fn next_of_day(&self, hour: i8, minute: i8) -> Option<(i8, i8)> {
        let this_hour = has(self.hours, hour).then(|| first_from(self.minutes, minute)).flatten();
        match this_hour {
            Some(minute) => Some((hour, minute)),
            None => first_from(self.hours, hour + 1).zip(first_from(self.minutes, 0)),
        }
    }
}

/// Whether a set has a value.
fn has(set: u64, value: i8) -> bool {
    first_from(set, value) == Some(value)
}

/// The least value of a set from a small one on.
fn first_from(set: u64, value: i8) -> Option<i8> {
    let rest = set & (u64::MAX << value.unsigned_abs());
    if rest == 0 { None } else { i8::try_from(rest.trailing_zeros()).ok() }
}

impl Bounds {
    /// The set of values of a field: a list of ranges. The second is whether one of them is a star without a
    /// step.
    fn field(&self, text: &str) -> Result<(u64, bool), ScheduleError> {
        let (mut values, mut is_any) = (0, false);
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (more, star) = self.range(range)?;
            values |= more;
            is_any |= star;
        }
        Ok((values, is_any))
    }

    /// The values of `3`, `3-7`, `3-7/2`, `3/2` or `*/2`.
    fn range(&self, text: &str) -> Result<(u64, bool), ScheduleError> {
        let parts: Vec<&str> = text.split('/').collect();
        let ends: Vec<&str> = parts.first().copied().unwrap_or_default().split('-').collect();
        let (first, is_single) = (ends.first().copied().unwrap_or_default(), ends.len() == 1);
        let is_star = matches!(first, "*" | "?");
        let (start, mut end) = match ends[..] {
            _ if is_star => (self.min, self.max),
            [only] => {
                let value = self.value(only)?;
                (value, value)
            }
            [start, end] => (self.value(start)?, self.value(end)?),
            _ => {
                self.value(first)?;
                return Err(ScheduleError::Hyphens(text.to_owned()));
            }
        };
        let step = match parts[..] {
            [_] => 1,
            [_, step] => {
                if is_single {
                    end = self.max;
                }
                number(step)?
            }
            _ => return Err(ScheduleError::Slashes(text.to_owned())),
        };
        self.check(start, end, step, text)?;
        let values = (start..=end).filter(|value| (value - start).is_multiple_of(step));
        Ok((values.fold(0, |set, value| set | 1 << value), is_star && step == 1))
    }

    fn check(&self, start: u64, end: u64, step: u64, text: &str) -> Result<(), ScheduleError> {
        let text = text.to_owned();
        let &Self { min, max, .. } = self;
        if start < min {
            return Err(ScheduleError::BelowMinimum { start, min, text });
        }
        if end > max {
            return Err(ScheduleError::AboveMaximum { end, max, text });
        }
        if start > end {
            return Err(ScheduleError::Backwards { start, end, text });
        }
        if step == 0 { Err(ScheduleError::NoStep(text)) } else { Ok(()) }
    }

    /// A value by its name or number.
    fn value(&self, text: &str) -> Result<u64, ScheduleError> {
        let named = (self.min..).zip(self.names).find(|(_, name)| name.eq_ignore_ascii_case(text));
        named.map_or_else(|| number(text), |(value, _)| Ok(value))
    }
}

fn number(text: &str) -> Result<u64, ScheduleError> {
    use std::num::IntErrorKind;
    let parsed: i64 = text.parse().map_err(|error: std::num::ParseIntError| {
        let is_large = matches!(error.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let why = if is_large { "value out of range" } else { "invalid syntax" };
        ScheduleError::Number { text: text.to_owned(), why }
    })?;
    u64::try_from(parsed).map_err(|_| ScheduleError::Negative(parsed, text.to_owned()))
}

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// The units of a duration in Go, in nanoseconds.
const UNITS: [(&str, i64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
];

/// A duration as Go writes it, such as `1h30m` or `1.5h`, in nanoseconds. The error is Go's reason.
fn go_duration(text: &str) -> Result<i64, String> {
    let shown = go_value::quoted(text);
    let invalid = || format!("invalid duration {shown}");
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: i64 = 0;
    while !rest.is_empty() {
        let (whole, tail) = split_digits(rest);
        let (fraction, tail) = tail.strip_prefix('.').map_or(("", tail), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let (unit, tail) =
            tail.split_at(tail.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(tail.len()));
        if unit.is_empty() {
            return Err(format!("missing unit in duration {shown}"));
        }
        let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
        let factor =
            factor.ok_or_else(|| format!("unknown unit {} in duration {shown}", go_value::quoted(unit)))?;
        let amount = amount(whole, fraction, factor).and_then(|amount| nanos.checked_add(amount));
        nanos = amount.ok_or_else(invalid)?;
        rest = tail;
    }
    Ok(sign * nanos)
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// A decimal number of units, in nanoseconds, rounded down; `None` if it is too large.
fn amount(whole: &str, fraction: &str, factor: i64) -> Option<i64> {
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut part = 0;
    let mut unit = factor;
    // Each digit is worth a tenth of the one before it. Parts of a nanosecond are dropped.
    for digit in fraction.bytes().take(18) {
        part += i64::from(digit - b'0') * unit / 10;
        unit /= 10;
    }
    whole.checked_mul(factor)?.checked_add(part)
}

#[cfg(test)]
mod tests;
