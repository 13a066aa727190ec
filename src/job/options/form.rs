//! The forms of values: for each a parser and, for the admission policy, a pattern that matches the same texts.

use std::time::Duration;

use super::avoid_node::Avoidance;
use crate::job::duration_text::parse_duration;
use crate::job::memory::MemoryAmount;

/// A form of values of type `T`.
#[derive(Debug)]
pub struct Form<T> {
    /// The expected form, as it stands before "is expected".
    pub expected: &'static str,
    /// The values, for tables in Markdown.
    pub values: &'static str,
    /// A regular expression for the whole value, as RE2 reads it.
    pub pattern: &'static str,
    /// Most bytes of a value.
    pub longest: usize,
    /// The value of a text, which is no longer than that.
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
    pattern: "^ *([0-9]{1,9} *(nanos|nsec|ns|usec|us|months?|M|years?|yrs?|y) *\
              |[0-9]{1,9}([.][0-9]{1,2})? *(millis|msec|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h\
              |days?|d|weeks?|wks?|w) *)+$",
    longest: SHORT,
    parse: duration,
};

/// A number of nodes, from 1 to 50.
pub const NODES: Form<u32> = Form {
    expected: "a number from 1 to 50",
    values: "number from 1 to 50",
    pattern: "^([1-9]|[1-4][0-9]|50)$",
    longest: SHORT,
    parse: |text| count(text).filter(|nodes| (1..=50).contains(nodes) && !text.starts_with('0')),
};

/// How strictly nodes are avoided.
pub const AVOIDANCE: Form<Avoidance> = Form {
    expected: "preferred or required",
    values: "`preferred`, `required`",
    pattern: "^(preferred|required)$",
    longest: SHORT,
    parse: |text| match text {
        "preferred" => Some(Avoidance::Preferred),
        "required" => Some(Avoidance::Required),
        _ => None,
    },
};

/// A factor from 1.01 to 10, in hundredths.
pub const FACTOR: Form<u32> = Form {
    expected: "a factor above 1, up to 10, such as 2 or 1.5",
    values: "factor above 1, up to 10",
    pattern: "^(1[.](0[1-9]|[1-9][0-9]?)|[2-9]([.][0-9]{1,2})?|10)$",
    longest: SHORT,
    parse: factor,
};

/// An amount of memory.
pub const MEMORY: Form<MemoryAmount> = Form {
    expected: "an amount of memory such as 64Gi",
    values: "amount of memory",
    pattern: "^[0-9]{1,9}([.][0-9]{1,3})?(k|M|G|T|Ki|Mi|Gi|Ti)?$",
    longest: SHORT,
    parse: memory,
};

/// The name of a container.
pub const CONTAINER: Form<Box<str>> = Form {
    expected: "the name of a container",
    values: "name",
    pattern: "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
    longest: SHORT,
    parse: |text| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_name = (1..=63).contains(&text.len()) && text.bytes().all(is_inner);
        (is_name && !text.starts_with('-') && !text.ends_with('-')).then(|| text.into())
    },
};

/// The most names of [`JOB_NAMES`].
pub const MOST_JOB_NAMES: usize = 20;

/// The names of up to 20 Jobs. Longer names than those that Kubernetes allows name no Job.
pub const JOB_NAMES: Form<Box<[Box<str>]>> = Form {
    expected: "the names of 1 to 20 Jobs, separated by commas",
    values: "names of 1 to 20 Jobs, `a, b`",
    pattern: "^ *[a-z0-9]([-a-z0-9.]*[a-z0-9])? *(, *[a-z0-9]([-a-z0-9.]*[a-z0-9])? *){0,19}$",
    longest: 1_280,
    parse: |text| {
        let names: Option<Box<[_]>> = text.split(',').map(|name| job_name(name.trim_matches(' '))).collect();
        names.filter(|names| names.len() <= MOST_JOB_NAMES)
    },
};

fn job_name(text: &str) -> Option<Box<str>> {
    let is_end =
        |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = text.as_bytes();
    let is_inner = |byte: &u8| is_end(Some(byte)) || matches!(byte, b'-' | b'.');
    (is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inner)).then(|| text.into())
}

/// Exit codes of failures.
pub const EXIT_CODES: Form<Box<[i32]>> = Form {
    expected: "exit codes from 1 to 255, separated by commas",
    values: "exit codes, `137, 9`",
    pattern: "^ *([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]) *\
              (, *([1-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5]) *)*$",
    longest: SHORT,
    parse: |text| text.split(',').map(|code| exit_code(code.trim_matches(' '))).collect(),
};

fn exit_code(text: &str) -> Option<i32> {
    let code = count(text).filter(|_| !text.starts_with('0'))?;
    i32::try_from(code).ok().filter(|code| (1..=255).contains(code))
}

fn factor(text: &str) -> Option<u32> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
    let has_point = text.contains('.');
    let whole = count(whole).filter(|_| !whole.starts_with('0'))?;
    let hundredths = match decimals.len() {
        0 if !has_point => 0,
        1 => count(decimals)? * 10,
        2 => count(decimals)?,
        _ => return None,
    };
    let factor = whole.checked_mul(100)?.checked_add(hundredths)?;
    ((101..1_000).contains(&factor) || text == "10").then_some(factor)
}

fn memory(text: &str) -> Option<MemoryAmount> {
    let (number, suffix) = split_at_end(text, |c| c.is_ascii_digit() || c == '.');
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let has_length = |digits: &str, most| (1..=most).contains(&digits.len()) && !digits.contains('.');
    let is_known = ["", "k", "M", "G", "T", "Ki", "Mi", "Gi", "Ti"].contains(&suffix);
    let fits = has_length(whole, MOST_DIGITS) && has_length(decimals, MOST_DECIMALS) && is_known;
    MemoryAmount::parse(text).filter(|_| fits)
}

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
        // With two decimals, all of these are whole nanoseconds or whole seconds, as the library wants them.
        let may_have_decimals = !unit.starts_with(['n', 'u', 'M', 'y']) && !unit.starts_with("mo");
        if unit.is_empty()
            || !has_length(whole, MOST_DIGITS)
            || !has_length(decimals, 2)
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
