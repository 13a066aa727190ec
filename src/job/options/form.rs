//! The forms of values: for each a parser and, for the admission policy, a pattern that matches the same texts.

use std::time::Duration;

use crate::job::duration_text::parse_duration;

/// A form of values of type `T`.
#[derive(Debug)]
pub struct Form<T> {
    /// What is expected of a value, as it stands before "is expected".
    pub expected: &'static str,
    /// The values, for tables in Markdown.
    pub values: &'static str,
    /// A regular expression for the whole value, as RE2 reads it.
    pub pattern: &'static str,
    /// Most bytes of a value.
    pub longest: usize,
    /// The value of a text of at most so many bytes.
    pub parse: fn(&str) -> Option<T>,
}

/// Longest value that is no list.
const SHORT: usize = 64;
/// Most digits of a number: with these, no calculation reaches the end of its type.
const MOST_DIGITS: usize = 9;
/// Most digits behind the point of a number with a unit.
const MOST_DECIMALS: usize = 3;

/// `true` or `false`.
pub const FLAG: Form<bool> = Form {
    expected: "true or false",
    values: "`true`, `false`",
    pattern: "^(true|false)$",
    longest: SHORT,
    parse: |text| text.parse().ok(),
};

/// A number of things, from 0 on.
pub const COUNT: Form<u32> = Form {
    expected: "a whole number from 0 to 999999999",
    values: "number",
    pattern: "^[0-9]{1,9}$",
    longest: SHORT,
    parse: count,
};

/// A time.
pub const DURATION: Form<Duration> = Form {
    expected: "a duration such as 500ms, 10s or 1m 30s",
    values: "duration",
    pattern: "^ *([0-9]{1,9} *(nanos|nsec|ns|usec|us) *\
              |[0-9]{1,9}([.][0-9]{1,3})? *(millis|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h\
              |days?|d|weeks?|wks?|w|months?|M|years?|yrs?|y) *)+$",
    longest: SHORT,
    parse: duration,
};

fn count(text: &str) -> Option<u32> {
    let is_number = text.len() <= MOST_DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// A sum of numbers with units. Stricter than the parser of flags: spaces stand between numbers and units only, so that a
/// pattern can say the same.
fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start_matches(' ');
    while !rest.is_empty() {
        let (number, behind) = split_at_end(rest, |c| c.is_ascii_digit() || c == '.');
        let (unit, behind) = split_at_end(behind.trim_start_matches(' '), |c| c.is_ascii_alphabetic());
        let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
        let is_whole = !number.contains('.');
        let has_length = |digits: &str, most| (1..=most).contains(&digits.len()) && !digits.contains('.');
        let may_have_decimals = !unit.starts_with(['n', 'u']);
        if unit.is_empty()
            || !has_length(whole, MOST_DIGITS)
            || !has_length(decimals, MOST_DECIMALS)
            || !(is_whole || may_have_decimals)
        {
            return None;
        }
        rest = behind.trim_start_matches(' ');
    }
    parse_duration(text).ok()
}

/// The beginning of a text as far as its characters satisfy a condition, and the rest.
fn split_at_end(text: &str, condition: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !condition(c)).unwrap_or(text.len()))
}
