//! Amounts of memory, as containers ask for them.

use std::fmt;

/// An amount of memory in whole bytes, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryAmount {
    bytes: u128,
    /// With binary suffixes (`1Gi`), not decimal ones (`1G`).
    is_binary: bool,
}

/// Suffixes of quantities that stand for more than one byte: with their bytes, ascending.
const BINARY: [(&str, u128); 6] =
    [("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40), ("Pi", 1 << 50), ("Ei", 1 << 60)];
const DECIMAL: [(&str, u128); 6] = [
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
];
/// The most digits of a number that is read, and the largest power of ten. No API server stores a larger quantity.
const MOST_DIGITS: usize = 18;

impl MemoryAmount {
    /// The amount of a quantity. Parts of a byte are rounded up, as in Kubernetes.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, suffix) =
            text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
        let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + decimals.len() > MOST_DIGITS || decimals.contains('.') {
            return None;
        }
        let digits: u128 = [whole, decimals].concat().parse().ok()?;
        let tens = 10_u128.pow(decimals.len() as u32);
        let of =
            |table: &[(&str, u128)]| table.iter().find(|(name, _)| *name == suffix).map(|(_, bytes)| *bytes);
        let (multiple, divisor, is_binary) = match suffix {
            "" => (1, 1, false),
            "m" => (1, 1_000, false),
            _ => match (of(&BINARY), of(&DECIMAL), suffix.strip_prefix(['e', 'E'])) {
                (Some(bytes), ..) => (bytes, 1, true),
                (_, Some(bytes), _) => (bytes, 1, false),
                (.., Some(exponent)) => {
                    (10_u128.checked_pow(exponent.parse().ok().filter(|e| *e <= 18)?)?, 1, false)
                }
                (None, None, None) => return None,
            },
        };
        Some(Self { bytes: (digits * multiple).div_ceil(tens * divisor), is_binary })
    }

    /// The amount times a factor in hundredths, to a power. It is rounded up to a whole byte once, at the end, unless it
    /// exceeds `most` before.
    #[must_use]
    pub fn raised(self, hundredths: u32, power: u32, most: Self) -> Self {
        let (mut numerator, mut denominator) = (self.bytes, 1_u128);
        for _ in 0..power {
            let next = numerator.checked_mul(hundredths.into()).zip(denominator.checked_mul(100));
            match next {
                Some((above, below)) if above.div_ceil(below) < most.bytes => {
                    let common = greatest_common_divisor(above, below);
                    (numerator, denominator) = (above / common, below / common);
                }
                _ => return Self { bytes: most.bytes.max(self.bytes), ..self.written_as(most) },
            }
        }
        Self { bytes: numerator.div_ceil(denominator), ..self }
    }

    /// An amount that is `most` is written as that.
    fn written_as(self, most: Self) -> Self {
        Self { is_binary: if most.bytes > self.bytes { most.is_binary } else { self.is_binary }, ..self }
    }

    /// The smaller of both amounts.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other.bytes < self.bytes { other } else { self }
    }
}

fn greatest_common_divisor(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// The canonical form: with the largest suffix that leaves a whole number.
impl fmt::Display for MemoryAmount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = if self.is_binary { &BINARY } else { &DECIMAL };
        let fits = |(_, bytes): &&(&str, u128)| self.bytes > 0 && self.bytes.is_multiple_of(*bytes);
        match table.iter().rev().find(fits) {
            Some((suffix, bytes)) => write!(f, "{}{suffix}", self.bytes / bytes),
            None => write!(f, "{}", self.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn quantities_are_read_and_written_as_kubernetes_does() {
        for (text, written) in [
            ("512Mi", Some("512Mi")),
            ("1024Mi", Some("1Gi")),
            ("0.5Gi", Some("512Mi")),
            ("1.5G", Some("1500M")),
            ("128974848", Some("128974848")),
            ("1e3", Some("1k")),
            ("12E3", Some("12k")),
            ("1500m", Some("2")),
            ("0", Some("0")),
            ("16Ei", Some("16Ei")),
            ("", None),
            ("Mi", None),
            ("1..5", None),
            ("1.5.5", None),
            ("-1", None),
            ("1e99", None),
            ("12345678901234567890", None),
            ("1 Mi", None),
        ] {
            assert_eq!(
                MemoryAmount::parse(text).map(|memory| memory.to_string()).as_deref(),
                written,
                "{text}"
            );
        }
    }

    #[test]
    fn amounts_are_raised_exactly_and_no_further_than_the_most() {
        for (base, hundredths, power, most, raised) in [
            ("512Mi", 200, 0, "64Gi", "512Mi"),
            ("512Mi", 200, 1, "64Gi", "1Gi"),
            ("512Mi", 200, 3, "64Gi", "4Gi"),
            ("512Mi", 200, 30, "64Gi", "64Gi"),
            ("512Mi", 200, 255, "64G", "64G"),
            ("1G", 150, 2, "64Gi", "2250M"),
            ("100", 150, 1, "1Gi", "150"),
            ("100", 101, 1, "1Gi", "101"),
            ("10", 101, 1, "1Gi", "11"),
            // Rounded once: 10 * 1.01 * 1.01 is 10.201.
            ("10", 101, 2, "1Gi", "11"),
            ("3Gi", 200, 1, "4Gi", "4Gi"),
            // A template that asks for more than the most keeps what it asks for.
            ("8Gi", 200, 3, "4Gi", "8Gi"),
            ("0", 200, 9, "4Gi", "0"),
        ] {
            let [base, most] = [base, most].map(|text| MemoryAmount::parse(text).unwrap());
            assert_eq!(
                base.raised(hundredths, power, most).to_string(),
                raised,
                "{base} {hundredths} {power}"
            );
        }
    }
}
