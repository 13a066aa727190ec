//! Durations as their author writes them, such as `500ms` or `1m 30s`.

use std::time::Duration;

/// The longest text. With short numbers, no sum of so few parts is near the end of a `Duration`, where the library panics.
const LONGEST: usize = 64;
/// The most digits of a number.
const MOST_DIGITS: usize = 9;

/// The duration that a text names: numbers of up to nine digits, each with a unit, 64 bytes in all.
///
/// # Errors The reason why the text is invalid.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    // The library reads on over spaces inside a number.
    let text: String = text.split_whitespace().collect();
    let has_short_numbers =
        text.split(|c: char| !c.is_ascii_digit()).all(|number| number.len() <= MOST_DIGITS);
    if text.len() > LONGEST || !has_short_numbers {
        return Err(format!(
            "a number has more than {MOST_DIGITS} digits, or the text more than {LONGEST} bytes"
        ));
    }
    humantime::parse_duration(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leads_beyond_the_longest_duration() {
        for (text, read) in [
            ("500ms", Some(Duration::from_millis(500))),
            ("1m 30s", Some(Duration::from_secs(90))),
            ("36500days", Some(Duration::from_secs(36_500 * 86_400))),
            ("18446744073709551615s 1000ms", None),
            ("184467440 737095516 15s 1000ms", None),
            ("18446744073709551615s", None),
            ("1000000000ns", None),
            ("", None),
            ("soon", None),
        ] {
            assert_eq!(parse_duration(text).ok(), read, "{text}");
        }
        let longest = ["999999999y"; 5].join(" ");
        assert!(parse_duration(&longest).is_ok());
        assert!(parse_duration(&format!("{longest} {longest}")).is_err());
    }
}
