//! Durations on the command line.

use std::time::Duration;

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
}
