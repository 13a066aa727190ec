//! Texts that others write, cut to a length that may be kept.

use std::borrow::Cow;

/// Most bytes of a text that is kept, such as an API server's refusal: its message may list each container of a pod.
pub const SHORT: usize = 1 << 10;
/// The same for a `reason`, as Kubernetes bounds those of Events.
const WORD: usize = 128;
const ELLIPSIS: &str = "…";

/// The text, cut to [`SHORT`] bytes with an ellipsis at its end.
pub fn short(text: &str) -> Cow<'_, str> {
    cut(text, SHORT)
}

/// The cause of something in one word, cut to [`WORD`] bytes in the same way.
pub fn short_word(text: &str) -> Cow<'_, str> {
    cut(text, WORD)
}

fn cut(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let kept = text.floor_char_boundary(most - ELLIPSIS.len());
    Cow::Owned(format!("{}{ELLIPSIS}", text.get(..kept).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_between_two_characters() {
        for (text, kept) in [
            ("a".repeat(SHORT), SHORT),
            ("a".repeat(SHORT + 1), SHORT - 3),
            (format!("a{}", "é".repeat(SHORT)), SHORT - 3),
            ("é".repeat(SHORT), SHORT - 4),
        ] {
            let cut = short(&text);
            assert!(cut.len() <= SHORT && text.starts_with(cut.trim_end_matches('…')));
            assert_eq!(cut.trim_end_matches('…').len(), kept);
        }
        assert_eq!(short("exceeded quota"), "exceeded quota");
        assert_eq!(short_word(&"A".repeat(SHORT)).trim_end_matches('…').len(), WORD - 3);
    }
}
