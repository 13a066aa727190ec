//! Durations as kubectl shows them: two units at most, the coarser the longer.

use jiff::Timestamp;

/// The time from `from` to `to`, such as `45s`, `3m20s`, `26h`, `4d5h` or `2y17d`.
pub(super) fn between(from: Timestamp, to: Timestamp) -> String {
    human(to.as_second() - from.as_second())
}

fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let with_two_units = |big: i64, big_name: &str, small: i64, small_name: &str| {
        let (whole, left) = (seconds / big, seconds % big / small);
        if left == 0 { format!("{whole}{big_name}") } else { format!("{whole}{big_name}{left}{small_name}") }
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        -1 => "0s".into(),
        0..=119 => format!("{seconds}s"),
        120..=599 => with_two_units(MINUTE, "m", 1, "s"),
        600..=10_799 => format!("{}m", seconds / MINUTE),
        10_800..=28_799 => with_two_units(HOUR, "h", MINUTE, "m"),
        28_800..=172_799 => format!("{}h", seconds / HOUR),
        172_800..=691_199 => with_two_units(DAY, "d", HOUR, "h"),
        691_200..=63_071_999 => format!("{}d", seconds / DAY),
        63_072_000..=252_287_999 => with_two_units(YEAR, "y", DAY, "d"),
        _ => format!("{}y", seconds / YEAR),
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn durations_lose_precision_as_they_grow() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (599, "9m59s"),
            (600, "10m"),
            (3600, "60m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (28_799, "7h59m"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (-5, "<invalid>"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human(seconds), text, "{seconds} seconds");
        }
    }
}
