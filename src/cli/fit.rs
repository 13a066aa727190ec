//! Text of others on one line that fits.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::telemetry::printable::OneLine;

/// Marks where a text was shortened.
const CUT: char = '…';

/// How a text is made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shorten {
    /// Not at all: half a number is a wrong number.
    Never,
    /// In the middle: names differ at their ends.
    Middle,
    /// At the end, as a sentence.
    End,
    /// Behind a comma, as a list.
    List,
}

/// The text on one line, without characters that control a terminal.
pub(super) fn printable(text: &str) -> String {
    OneLine(text).to_string()
}

/// The text on one line that fits, if there is a width.
pub(super) fn clip(text: &str, width: Option<usize>, how: Shorten) -> String {
    let text = printable(text);
    width.map_or(text.clone(), |width| shorten(&text, width, how))
}

/// The text in at most `width` columns of a terminal.
pub(super) fn shorten(text: &str, width: usize, how: Shorten) -> String {
    if text.width() <= width || how == Shorten::Never {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let tail = if how == Shorten::Middle { room / 2 } else { 0 };
    let mut start = fitting(text.chars(), room - tail);
    if how == Shorten::List {
        start.truncate(start.rfind(',').map_or(0, |comma| comma + 1));
    }
    let end: String = fitting(text.chars().rev(), tail).chars().rev().collect();
    if width == 0 { String::new() } else { format!("{start}{CUT}{end}") }
}

/// The first letters that fit.
fn fitting(letters: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    letters
        .take_while(|letter| {
            let fits = letter.width().unwrap_or(0) <= left;
            left = left.saturating_sub(letter.width().unwrap_or(0));
            fits
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_cut_behind_a_comma() {
        for (width, text) in
            [(12, "0-3,8-15,17"), (11, "0-3,8-15,17"), (10, "0-3,8-15,…"), (9, "0-3,…"), (3, "…")]
        {
            assert_eq!(shorten("0-3,8-15,17", width, Shorten::List), text, "{width}");
        }
    }

    #[test]
    fn a_text_cannot_control_the_terminal() {
        assert_eq!(printable("a\n  b\u{1b}[2Jc\t\u{202e}d"), "a b\\u{1b}[2Jc \\u{202e}d");
    }
}
