//! The text of a file, and the lines and columns of its bytes.

use std::fmt;

/// The text of a file.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    /// Where each line begins, in bytes.
    lines: Vec<usize>,
    /// How many characters come before each block of bytes: a line may be as long as the file, and have thousands of places.
    letters: Vec<usize>,
}

/// Length of a block, in bytes.
const BLOCK: usize = 1024;

/// A place that an editor can go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The mark that some editors write before a text to say how it is encoded.
pub(crate) const MARK: char = '\u{feff}';

impl Source {
    /// The text of these bytes: UTF-16 if they begin with its mark, otherwise UTF-8. As for kubectl, bytes that are no text
    /// become U+FFFD.
    pub fn new(bytes: &[u8]) -> Self {
        let wide = |of: fn([u8; 2]) -> u16| {
            let units = bytes.chunks(2).map(|unit| of([unit[0], unit.get(1).copied().unwrap_or(0)]));
            char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
        };
        let text: String = match bytes {
            [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
            [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let lines = std::iter::once(0).chain(breaks).collect();
        let letters = text.as_bytes().chunks(BLOCK).scan(0, |before, block| {
            let first = *before;
            *before += count(block);
            Some(first)
        });
        let letters = letters.collect();
        Self { text, lines, letters }
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of a byte.
    pub fn position(&self, at: usize) -> Position {
        let at = self.text.floor_char_boundary(at);
        let line = self.lines.partition_point(|start| *start <= at);
        let start = self.lines[line - 1];
        let written = &self.text[start..at];
        let marks = (written.len() - written.trim_start_matches(MARK).len()) / MARK.len_utf8();
        Position { line, column: self.letters_before(at) - self.letters_before(start) - marks + 1 }
    }

    /// How many characters come before a byte.
    fn letters_before(&self, at: usize) -> usize {
        let (known, rest) = self.counted(at);
        known + count(rest)
    }

    /// The characters that are counted already, and the rest of the text before a byte, which is shorter than a block.
    fn counted(&self, at: usize) -> (usize, &[u8]) {
        let block = (at / BLOCK).min(self.letters.len().saturating_sub(1));
        let known = self.letters.get(block).copied().unwrap_or_default();
        (known, &self.text.as_bytes()[block * BLOCK..at])
    }
}

/// The characters that begin in these bytes of a text.
fn count(bytes: &[u8]) -> usize {
    const REST_OF_LETTER: u8 = 0b1000_0000;
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != REST_OF_LETTER).count()
}

/// A place as scanners name it. The text is in memory, so it fits.
pub(crate) fn offset(index: u64) -> usize {
    usize::try_from(index).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_in_the_encoding_of_its_mark() {
        let text = "a: ä\n😀: b\n";
        let with_mark = format!("{MARK}{text}");
        let wide = |of: fn(u16) -> [u8; 2]| with_mark.encode_utf16().flat_map(of).collect::<Vec<u8>>();
        for bytes in [wide(u16::to_le_bytes), wide(u16::to_be_bytes), with_mark.clone().into_bytes()] {
            assert_eq!(Source::new(&bytes).text(), with_mark);
        }
        assert_eq!(Source::new(text.as_bytes()).text(), text);
        assert_eq!(Source::new(b"# Gr\xf6\xdfe\na: 1").text(), "# Gr\u{fffd}\u{fffd}e\na: 1");
        // A byte too many.
        assert_eq!(Source::new(b"\xff\xfea\0b").text(), format!("{MARK}ab"));
    }

    #[test]
    fn columns_are_counted_in_characters_and_without_the_mark() {
        let source = Source::new("\u{feff}äb: 1\nc: 2".as_bytes());
        let at = |what: &str| source.position(source.text().find(what).unwrap_or_default());
        assert_eq!(at("b"), Position { line: 1, column: 2 });
        assert_eq!(at("c"), Position { line: 2, column: 1 });
        assert_eq!(at("2"), Position { line: 2, column: 4 });
        assert_eq!(source.position(usize::MAX), Position { line: 2, column: 5 });
    }

    /// The places of a long line take time that grows with their number, and not with the square of it.
    #[test]
    fn a_place_in_a_long_line_takes_as_long_as_any() {
        let line = "{a: ä😀}, ".repeat(3000);
        let source = Source::new(format!("{MARK}b:\n{MARK}{line}").as_bytes());
        let start = source.text().find('{').unwrap_or_default();
        for (column, (at, _)) in source.text()[start..].char_indices().enumerate().step_by(97) {
            let (_, unread) = source.counted(start + at);
            assert!(unread.len() <= BLOCK, "{at}: {}", unread.len());
            assert_eq!(source.position(start + at), Position { line: 2, column: column + 1 });
        }
        assert_eq!(source.position(usize::MAX).column, line.chars().count() + 1);
    }
}
