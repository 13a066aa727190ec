//! Parsing of times like Go's `time.Parse`, with its error messages.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::time::{format_micro_time, format_time};

/// The precision of a time.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    /// `metav1.Time`: any fraction is accepted and truncated.
    Seconds,
    /// `metav1.MicroTime`: exactly six digits.
    Micros,
}

impl Precision {
    fn layout(self) -> &'static str {
        match self {
            Self::Seconds => "2006-01-02T15:04:05Z07:00",
            Self::Micros => "2006-01-02T15:04:05.000000Z07:00",
        }
    }
}

/// Parses a time and formats it in UTC.
pub(super) fn canonical(text: &str, precision: Precision) -> Result<String, String> {
    let time = parse(text, precision)?;
    Ok(match precision {
        Precision::Seconds => format_time(time),
        Precision::Micros => format_micro_time(time),
    })
}

/// A text and its unread remainder.
struct Reader<'a> {
    text: &'a str,
    unread: &'a str,
    layout: &'static str,
}

impl<'a> Reader<'a> {
    fn fail<T>(&self, wanted: &str) -> Result<T, String> {
        let Self { text, unread, layout } = self;
        Err(format!("parsing time {text:?} as {layout:?}: cannot parse {unread:?} as {wanted:?}"))
    }

    fn out_of_range(&self, what: &str) -> String {
        format!("parsing time {:?}: {what} out of range", self.text)
    }

    /// Reads `len` digits, which are `wanted` in the layout.
    fn digits(&mut self, len: usize, wanted: &str) -> Result<i32, String> {
        match self.unread.get(..len).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())) {
            Some(digits) => {
                self.unread = &self.unread[len..];
                digits.parse().or_else(|_| self.fail(wanted))
            }
            None => self.fail(wanted),
        }
    }

    fn literal(&mut self, wanted: &str) -> Result<(), String> {
        match self.unread.strip_prefix(wanted) {
            Some(unread) => {
                self.unread = unread;
                Ok(())
            }
            None => self.fail(wanted),
        }
    }

    /// Reads a fraction of a second; `Precision::Micros` requires exactly six digits.
    fn micros(&mut self, precision: Precision) -> Result<i32, String> {
        if precision == Precision::Micros {
            let digits = self.unread.strip_prefix('.').and_then(|unread| unread.get(..6));
            let Some(digits) = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())) else {
                return self.fail(".000000");
            };
            self.unread = &self.unread[7..];
            return digits.parse().or_else(|_| self.fail(".000000"));
        }
        if let Some(fraction) = self.unread.strip_prefix(['.', ',']) {
            let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            if end > 0 {
                self.unread = &fraction[end..];
            }
        }
        Ok(0)
    }

    fn offset(&mut self) -> Result<Offset, String> {
        let wanted = "Z07:00";
        if let Some(unread) = self.unread.strip_prefix('Z') {
            self.unread = unread;
            return Ok(Offset::UTC);
        }
        let sign = match self.unread.bytes().next() {
            Some(b'+') => 1,
            Some(b'-') => -1,
            _ => return self.fail(wanted),
        };
        let number = |range: std::ops::Range<usize>| -> Option<i32> { self.unread.get(range)?.parse().ok() };
        let (Some(hours), Some(":"), Some(minutes)) = (number(1..3), self.unread.get(3..4), number(4..6))
        else {
            return self.fail(wanted);
        };
        let Ok(offset) = Offset::from_seconds(sign * (hours * 3600 + minutes * 60)) else {
            return Err(self.out_of_range("time zone offset hour"));
        };
        self.unread = &self.unread[6..];
        Ok(offset)
    }
}

fn parse(text: &str, precision: Precision) -> Result<Timestamp, String> {
    let mut reader = Reader { text, unread: text, layout: precision.layout() };
    let year = reader.digits(4, "2006")?;
    reader.literal("-")?;
    let month = reader.digits(2, "01")?;
    reader.literal("-")?;
    let day = reader.digits(2, "02")?;
    reader.literal("T")?;
    let hour = reader.digits(2, "15")?;
    reader.literal(":")?;
    let minute = reader.digits(2, "04")?;
    reader.literal(":")?;
    let second = reader.digits(2, "05")?;
    let micros = reader.micros(precision)?;
    let offset = reader.offset()?;
    if !reader.unread.is_empty() {
        return Err(format!("parsing time {text:?}: extra text: {:?}", reader.unread));
    }
    for (value, limit, what) in [
        (month - 1, 12, "month"),
        (day - 1, 31, "day"),
        (hour, 24, "hour"),
        (minute, 60, "minute"),
        (second, 60, "second"),
    ] {
        if !(0..limit).contains(&value) {
            return Err(reader.out_of_range(what));
        }
    }
    let small = |value: i32| i8::try_from(value).unwrap_or(0);
    let civil = DateTime::new(
        i16::try_from(year).unwrap_or(0),
        small(month),
        small(day),
        small(hour),
        small(minute),
        small(second),
        micros * 1000,
    )
    .map_err(|_| reader.out_of_range("day"))?;
    let zoned = civil.to_zoned(TimeZone::fixed(offset)).map_err(|_| reader.out_of_range("year"))?;
    Ok(zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> Result<String, String> {
        canonical(text, Precision::Micros)
    }

    #[test]
    fn micro_times_have_six_digits() {
        assert_eq!(micros("2025-01-01T02:00:00.123456+02:00"), Ok("2025-01-01T00:00:00.123456Z".into()));
        let layout = "2006-01-02T15:04:05.000000Z07:00";
        for (text, unread, wanted) in [
            ("2025-01-01T00:00:00Z", "Z", ".000000"),
            ("2025-01-01T00:00:00.5Z", ".5Z", ".000000"),
            ("2025-01-01T00:00:00.123456789Z", "789Z", "Z07:00"),
            ("2025-01-01 00:00:00", " 00:00:00", "T"),
            ("", "", "2006"),
        ] {
            let wanted =
                format!("parsing time {text:?} as {layout:?}: cannot parse {unread:?} as {wanted:?}");
            assert_eq!(micros(text), Err(wanted));
        }
    }

    #[test]
    fn impossible_dates_are_refused() {
        let seconds = |text| canonical(text, Precision::Seconds);
        assert_eq!(
            seconds("2025-02-30T00:00:00Z"),
            Err("parsing time \"2025-02-30T00:00:00Z\": day out of range".into())
        );
        assert_eq!(
            seconds("2025-13-01T00:00:00Z"),
            Err("parsing time \"2025-13-01T00:00:00Z\": month out of range".into())
        );
        assert_eq!(seconds("2024-02-29T23:59:59,5Z"), Ok("2024-02-29T23:59:59Z".into()));
    }
}
