//! Resource quantities (`k8s.io/apimachinery/pkg/api/resource`): parsing and the canonical form.

use std::cmp::Ordering;
use std::fmt;
use std::ops::Add;

/// The three notations of a quantity. A quantity keeps the notation in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `1500m`, `2k`
    DecimalSi,
    /// `2Gi`
    BinarySi,
    /// `1e3`
    DecimalExponent,
}

/// An amount of a resource, exact to a billionth. As in Kubernetes, smaller parts are rounded up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    nanos: i128,
    format: Format,
}

/// The text is no quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuantityError {
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;
/// The billionths of a thousandth.
const MICRO: u128 = 1_000_000;

/// Decimal suffixes by power of ten.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
/// Binary suffixes by power of two.
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// Zero.
    pub(crate) const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// Parses any of the three notations.
    pub(crate) fn parse(text: &str) -> Result<Self, QuantityError> {
        let body = text.strip_prefix(['+', '-']).unwrap_or(text);
        let digits_end = body.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(body.len());
        let (number, suffix) = body.split_at(digits_end);
        if number.is_empty() || number.matches('.').count() > 1 || number == "." {
            return Err(QuantityError::Format);
        }
        let in_pattern = |c: char| "eEinumkKMGTP+-".contains(c) || c.is_ascii_digit();
        if !suffix.chars().all(in_pattern) {
            return Err(QuantityError::Format);
        }
        let (multiplier, exponent, format) = Self::suffix(suffix).ok_or(QuantityError::Suffix)?;
        let nanos = scaled(number, multiplier, exponent);
        Ok(Self { nanos: if text.starts_with('-') { -nanos } else { nanos }, format })
    }

    /// The factor of a suffix, as a number and a power of ten.
    fn suffix(suffix: &str) -> Option<(i128, i32, Format)> {
        if let Some((_, exponent)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
            return Some((1, *exponent, Format::DecimalSi));
        }
        if let Some((_, bits)) = BINARY.iter().find(|(name, _)| *name == suffix) {
            return Some((1 << bits, 0, Format::BinarySi));
        }
        let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
        Some((1, exponent, Format::DecimalExponent))
    }

    /// The amount in whole thousandths, rounded away from zero.
    pub(crate) fn in_milli(self) -> Self {
        let up = (self.nanos.unsigned_abs().div_ceil(MICRO) * MICRO).cast_signed();
        Self { nanos: if self.is_negative() { -up } else { up }, ..self }
    }

    /// The amount in thousandths, rounded up; 0 below zero.
    pub(crate) fn thousandths(&self) -> u64 {
        let nanos = self.nanos.max(0).unsigned_abs();
        u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// How often another amount fits, in thousandths of both: whole multiples are exact.
    #[expect(clippy::cast_precision_loss, reason = "thousandths of amounts that machines have are exact")]
    pub(crate) fn per(self, other: Self) -> f64 {
        self.in_milli().nanos as f64 / other.in_milli().nanos as f64
    }

    /// The amount, as nearly as a float can say it.
    #[expect(clippy::cast_precision_loss, reason = "as nearly as a float can say it")]
    pub(crate) fn to_f64(self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether the amount is above zero.
    pub(crate) fn is_positive(&self) -> bool {
        self.nanos > 0
    }

    /// Whether the amount is below zero.
    pub(crate) fn is_negative(&self) -> bool {
        self.nanos < 0
    }

    /// Whether the amount is a whole number.
    pub(crate) fn is_integer(&self) -> bool {
        self.nanos % NANO == 0
    }
}

/// `digits` (with an optional point) times `multiplier` times ten to the `exponent`, in billionths, rounded
/// up.
fn scaled(digits: &str, multiplier: i128, exponent: i32) -> i128 {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut mantissa: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        mantissa = mantissa.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
    }
    let mantissa = mantissa.saturating_mul(multiplier);
    let power = exponent.saturating_add(9).saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    let factor = 10_i128.checked_pow(power.unsigned_abs()).unwrap_or(i128::MAX);
    if power >= 0 {
        mantissa.saturating_mul(factor)
    } else {
        mantissa.div_euclid(factor) + i128::from(mantissa % factor != 0)
    }
}

/// The sum keeps the notation of the first that is not zero.
impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let format = if self.nanos == 0 { other.format } else { self.format };
        Self { nanos: self.nanos.saturating_add(other.nanos), format }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest suffix that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        // Kubernetes uses binary suffixes only for whole numbers of at least 1024, and decimal ones below.
        if self.format == Format::BinarySi && self.is_integer() {
            let whole = self.nanos / NANO;
            for (name, bits) in BINARY.iter().rev() {
                if whole % (1 << bits) == 0 {
                    return write!(f, "{}{name}", whole >> bits);
                }
            }
            return write!(f, "{whole}");
        }
        for (name, exponent) in DECIMAL.iter().rev() {
            let Some(unit) = 10_i128.checked_pow((exponent + 9).unsigned_abs()) else { continue };
            if self.nanos % unit == 0 {
                let count = self.nanos / unit;
                return match (self.format, exponent) {
                    (Format::DecimalExponent, 0) => write!(f, "{count}"),
                    (Format::DecimalExponent, exponent) => write!(f, "{count}e{exponent}"),
                    _ => write!(f, "{count}{name}"),
                };
            }
        }
        write!(f, "{}n", self.nanos)
    }
}

/// The canonical form of a quantity, if the text is one.
pub(crate) fn canonical(text: &str) -> Result<String, QuantityError> {
    Quantity::parse(text).map(|quantity| quantity.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quantities_have_a_canonical_form() {
        let cases = [
            ("0.5", "500m"),
            ("1024Mi", "1Gi"),
            ("1500m", "1500m"),
            ("1000m", "1"),
            ("2048Ki", "2Mi"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("1.5Gi", "1536Mi"),
            ("0", "0"),
            ("-5", "-5"),
            ("0.0000000001", "1n"),
            ("12E", "12E"),
            ("1E2", "100"),
        ];
        for (given, wanted) in cases {
            assert_eq!(canonical(given).unwrap(), wanted, "{given}");
        }
    }

    #[test]
    fn malformed_quantities_are_refused() {
        assert_eq!(canonical("x"), Err(QuantityError::Format));
        assert_eq!(canonical(""), Err(QuantityError::Format));
        assert_eq!(canonical("1.2.3"), Err(QuantityError::Format));
        assert_eq!(canonical("1Xi"), Err(QuantityError::Format));
        assert_eq!(canonical("1mm"), Err(QuantityError::Suffix));
    }

    #[test]
    fn amounts_compare_across_notations() {
        assert!(Quantity::parse("2").unwrap() > Quantity::parse("1500m").unwrap());
        assert_eq!(Quantity::parse("1Ki").unwrap(), Quantity::parse("1024").unwrap());
    }
}
