//! The value of a word of YAML 1.1, as Go's `yaml.v2` understands it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Number, Value};

/// The value of a word.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Null,
    Bool(bool),
    /// A whole number that fits 64 bits, with or without sign.
    Int(i128),
    Float(f64),
    Text(String),
}

/// The names of YAML's own tags begin with this; in a file it is `!!`.
const CORE: &str = "tag:yaml.org,2002:";
pub(crate) const MERGE: &str = "tag:yaml.org,2002:merge";

/// The value of a word. Without a tag, a plain word is what it looks like; a quoted one has no value but its text.
///
/// # Errors
/// What is wrong if the word is not what its tag says.
pub(crate) fn resolve(tag: Option<&str>, is_plain: bool, text: String) -> Result<Scalar, String> {
    let Some(tag) = tag else {
        return Ok(if is_plain { plain(&text).unwrap_or(Scalar::Text(text)) } else { Scalar::Text(text) });
    };
    let wrong = |what: &str, text: &str| {
        let shown: String = text.chars().take(40).flat_map(char::escape_debug).collect();
        format!("`{shown}` is not {what}, as its tag !!{} says", tag.trim_start_matches(CORE))
    };
    let what = match tag.strip_prefix(CORE) {
        Some("bool") => "true or false",
        Some("int") => "a whole number",
        Some("float") => "a number",
        Some("null") => "null",
        Some("binary") => return binary(&text).map(Scalar::Text).ok_or_else(|| wrong("base64", &text)),
        _ => return Ok(Scalar::Text(text)),
    };
    match (what, plain(&text)) {
        ("true or false", Some(scalar @ Scalar::Bool(_)))
        | ("a whole number" | "a number", Some(scalar @ Scalar::Int(_)))
        | ("a number", Some(scalar @ Scalar::Float(_)))
        | ("null", Some(scalar @ Scalar::Null)) => Ok(scalar),
        _ => Err(wrong(what, &text)),
    }
}

/// The value of a plain word, unless it is a text.
fn plain(text: &str) -> Option<Scalar> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Scalar::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Scalar::Bool(false)
        }
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        _ if text.starts_with('.') => Scalar::Float(float(text)?),
        _ if text.starts_with(|first: char| first.is_ascii_digit() || "+-".contains(first)) => {
            let digits = text.replace('_', "");
            match integer(&digits) {
                Some(integer) => Scalar::Int(integer),
                None => Scalar::Float(float(&digits)?),
            }
        }
        _ => return None,
    })
}

/// A whole number as in Go: decimal, `0x1F`, `0b101`, `0o17`, and `017`, which is octal, too.
fn integer(text: &str) -> Option<i128> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let prefix = |lower: &str, upper: &str| digits.strip_prefix(lower).or(digits.strip_prefix(upper));
    let (radix, digits) = if let Some(digits) = prefix("0x", "0X") {
        (16, digits)
    } else if let Some(digits) = prefix("0o", "0O") {
        (8, digits)
    } else if let Some(digits) = prefix("0b", "0B") {
        (2, digits)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    // The standard library would take another sign.
    let digits = Some(digits).filter(|digits| !digits.starts_with(['+', '-']))?;
    let number = sign * i128::from(u64::from_str_radix(digits, radix).ok()?);
    // Go's numbers without sign are written without a sign.
    let is_small = i64::try_from(number).is_ok() || !text.starts_with(['+', '-']);
    is_small.then_some(number)
}

/// A decimal number, if it is not too large for a float.
fn float(text: &str) -> Option<f64> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    text.parse().ok().filter(|float: &f64| is_decimal && float.is_finite())
}

fn binary(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|letter| !matches!(letter, '\n' | '\r')).collect();
    Some(String::from_utf8_lossy(&STANDARD.decode(text).ok()?).into_owned())
}

impl Scalar {
    /// The value as kubectl sends it.
    ///
    /// # Errors
    /// What is wrong if JSON has no such number.
    pub(crate) fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Int(value) => whole(value).map_or(Value::Null, Value::Number),
            Self::Float(value) => number(value).ok_or("JSON has no such number")?.into(),
            Self::Text(text) => text.into(),
        })
    }

    /// The value as the key of a map.
    ///
    /// # Errors
    /// What is wrong if it cannot be a key.
    pub(crate) fn into_key(self) -> Result<String, String> {
        Ok(match self {
            Self::Null => return Err("a key is missing, or null: put it into quotes".into()),
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Float(value) => short(value),
            Self::Text(text) => text,
        })
    }
}

fn whole(value: i128) -> Option<Number> {
    i64::try_from(value).map(Number::from).or_else(|_| u64::try_from(value).map(Number::from)).ok()
}

/// Floats from which on Go writes an exponent.
const EXPONENT_FROM: f64 = 1e21;

/// A float as Go writes it into JSON: a whole number has no point, and so readers get an integer.
pub(crate) fn number(value: f64) -> Option<Number> {
    let is_whole = value.fract() == 0.0 && value.abs() < EXPONENT_FROM;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and smaller than 2^70")]
    is_whole.then(|| whole(value as i128)).flatten().or_else(|| Number::from_f64(value))
}

/// A float as Go's shortest text of 32 bits, which is how a key is written.
fn short(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "Go rounds it, too")]
    let value = value as f32;
    if !value.is_finite() {
        return if value.is_nan() {
            ".nan"
        } else if value > 0.0 {
            ".inf"
        } else {
            "-.inf"
        }
        .into();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => value.to_string(),
    }
}
