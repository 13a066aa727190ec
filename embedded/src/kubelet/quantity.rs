//! Kubernetes quantities (`250m`, `1.5Gi`, `3e6`) as numbers.

/// Suffixes and their factors.
const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
];

/// The value of a quantity; `None` if the text is no quantity.
pub(super) fn parse(quantity: &str) -> Option<f64> {
    let scaled = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((quantity.strip_suffix(suffix)?, *factor)))
        .unwrap_or((quantity, 1.0));
    let (number, factor) = scaled;
    let numeric = number.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    numeric.then(|| number.parse::<f64>().ok()).flatten().map(|number| number * factor)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn quantities_are_parsed_with_their_suffix() {
        for (text, expected) in [
            ("0", Some(0.0)),
            ("2", Some(2.0)),
            ("250m", Some(0.25)),
            ("1.5Gi", Some(1_610_612_736.0)),
            ("3e6", Some(3e6)),
            ("2E", Some(2e18)),
            ("1k", Some(1000.0)),
            ("", None),
            ("inf", None),
            ("1X", None),
            ("Gi", None),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
