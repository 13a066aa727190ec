//! `Warning` headers: each text once, and all of them bounded, as kube-apiserver does.

use std::collections::HashSet;

use http::HeaderValue;

/// Maximum length of all texts together, in characters. If they are longer, each text is cut.
const MAX_TOTAL: usize = 4 * 1024;
/// Maximum length of a cut text, in characters.
const MAX_CUT: usize = 256;
/// Maximum number of headers. Clients in Rust refuse an answer with more than 100 headers of all kinds.
const MAX_HEADERS: usize = 64;

/// The headers for these texts.
pub(super) fn headers(texts: &[String]) -> Vec<HeaderValue> {
    let mut seen = HashSet::new();
    let texts = texts.iter().filter(|text| !text.is_empty() && seen.insert(text.as_str()));
    let fitting: Vec<&str> = texts
        .map(String::as_str)
        // A header cannot hold control characters.
        .filter(|text| !text.chars().any(char::is_control))
        .take(MAX_HEADERS)
        .collect();
    let length = |text: &str| text.chars().count();
    if fitting.iter().map(|text| length(text)).sum::<usize>() <= MAX_TOTAL {
        return fitting.into_iter().filter_map(header).collect();
    }
    let mut total = 0;
    let cut = fitting
        .into_iter()
        .map(|text| text.char_indices().nth(MAX_CUT).and_then(|(end, _)| text.get(..end)).unwrap_or(text));
    cut.take_while(|text| {
        let room = total < MAX_TOTAL;
        total += length(text);
        room
    })
    .filter_map(header)
    .collect()
}

fn header(text: &str) -> Option<HeaderValue> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_bytes(format!("299 - \"{quoted}\"").as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(texts: &[String]) -> Vec<String> {
        headers(texts).iter().map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn each_text_is_sent_once_and_quoted() {
        let texts = ["unknown field \"a\"", "b\\c", "unknown field \"a\"", "", "two\nlines", "é"];
        let expected = [r#"299 - "unknown field \"a\"""#, r#"299 - "b\\c""#, "299 - \"é\""];
        assert_eq!(sent(&texts.map(str::to_owned)), expected);
    }

    #[test]
    fn a_long_text_stays_whole_as_long_as_all_fit() {
        let whole = "x".repeat(MAX_TOTAL);
        assert_eq!(sent(std::slice::from_ref(&whole)), [format!("299 - \"{whole}\"")]);
        let cut = sent(&[format!("{whole}é"), "short".into()]);
        assert_eq!(cut, [format!("299 - \"{}\"", "x".repeat(MAX_CUT)), "299 - \"short\"".to_owned()]);
    }

    #[test]
    fn many_texts_are_bounded() {
        let long: Vec<String> = (0..10_000).map(|number| format!("{number}{}", "é".repeat(1000))).collect();
        let sent_long = sent(&long);
        assert_eq!(sent_long.len(), MAX_TOTAL / MAX_CUT);
        assert!(sent_long.iter().all(|header| header.chars().count() <= MAX_CUT + 8));
        let short: Vec<String> = (0..10_000).map(|number| number.to_string()).collect();
        assert_eq!(sent(&short).len(), MAX_HEADERS);
    }
}
