//! Durations on the command line.

use std::time::Duration;

use jiff::Timestamp;

use crate::job::duration_text;

/// The longest duration. Sums of a few of these are far from the end of any clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Parses a duration such as `500ms` or `1m 30s`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration_text::parse_duration(text)? {
        time if time > LONGEST => Err("must be at most 36500 days".into()),
        time => Ok(time),
    }
}

/// A duration in its two largest units, in whole seconds: `42s`, `1m 40s`, `3h 12m`, `5d 4h`.
pub(super) fn whole(time: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m"), (1, "s")];
    let seconds = time.as_secs() + u64::from(time.subsec_millis() >= 500);
    let first = UNITS.iter().position(|(length, _)| seconds >= *length).unwrap_or(UNITS.len() - 1);
    let mut left = seconds;
    let parts = UNITS[first..].iter().take(2).map(|(length, unit)| {
        let count = left / length;
        left %= length;
        (count, unit)
    });
    let parts = parts.enumerate().filter(|(number, (count, _))| *number == 0 || *count > 0);
    parts.map(|(_, (count, unit))| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}

/// The same, with a decimal below ten seconds.
pub(super) fn precise(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95 { format!("{seconds:.1}s") } else { whole(time) }
}

/// The same as [`whole`], of seconds; nothing if they are no duration.
pub(super) fn seconds(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds.max(0.0)).map_or_else(|_| String::new(), whole)
}

/// How long ago a time was.
pub(super) fn ago(time: Timestamp, now: Timestamp) -> String {
    format!("{} ago", seconds(now.duration_since(time).as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_end_before_clocks_do() {
        assert_eq!(parse_duration("1m 30s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("36500days"), Ok(LONGEST));
        assert!(parse_duration("36501days").is_err());
        assert!(parse_duration("18446744073709551615s").is_err());
        assert!(parse_duration("soon").is_err());
    }

    #[test]
    fn durations_have_their_two_largest_units() {
        for (time, text) in [
            (0.0, "0s"),
            (0.5, "1s"),
            (42.4, "42s"),
            (60.0, "1m"),
            (100.4, "1m 40s"),
            (3_600.0, "1h"),
            (3_601.0, "1h"),
            (11_530.0, "3h 12m"),
            (446_400.0, "5d 4h"),
            (f64::NAN, "0s"),
            (f64::INFINITY, ""),
        ] {
            assert_eq!(seconds(time), text, "{time}");
        }
    }

    #[test]
    fn short_durations_have_a_decimal() {
        for (millis, text) in [(0, "0.0s"), (320, "0.3s"), (9_940, "9.9s"), (9_950, "10s"), (61_000, "1m 1s")]
        {
            assert_eq!(precise(Duration::from_millis(millis)), text);
        }
    }
}
