//! Text that others have chosen, on its way to a terminal.
//!
//! Authors of Jobs and pods choose messages, reasons and names. A terminal obeys control characters: it moves its cursor, changes
//! its title, fills the clipboard. Format characters reverse or hide text. All of these are escaped here, and nowhere else.

use std::fmt::{self, Display, Write as _};
use std::io;

use tracing_subscriber::fmt::MakeWriter;

/// Whether a terminal shows a character, rather than obeys or hides it.
pub(crate) fn is_shown(letter: char) -> bool {
    !letter.is_control() && !is_format(letter)
}

/// The categories Cf, Zl and Zp of Unicode: marks of direction, joiners, separators of lines, tags.
fn is_format(letter: char) -> bool {
    matches!(u32::from(letter),
        0xad
        | 0x600..=0x605 | 0x61c | 0x6dd | 0x70f | 0x890..=0x891 | 0x8e2
        | 0x180e
        | 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x206f
        | 0xfeff | 0xfff9..=0xfffb
        | 0x110bd | 0x110cd | 0x13430..=0x1343f | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a
        | 0xe0000..=0xe007f)
}

/// The text on one line: a run of white space is one space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, word) in self.0.split_whitespace().enumerate() {
            if number > 0 {
                f.write_char(' ')?;
            }
            escape(word, f, |_| false)?;
        }
        Ok(())
    }
}

/// The text with its lines as they are: line feeds, tabs and spaces stay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllLines<'a>(pub(crate) &'a str);

impl Display for AllLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        escape(self.0, f, |letter| matches!(letter, '\n' | '\t'))
    }
}

fn escape(text: &str, to: &mut impl fmt::Write, stays: impl Fn(char) -> bool) -> fmt::Result {
    let mut rest = text;
    while let Some((at, letter)) = rest.char_indices().find(|(_, c)| !is_shown(*c) && !stays(*c)) {
        write!(to, "{}{}", &rest[..at], letter.escape_unicode())?;
        rest = &rest[at + letter.len_utf8()..];
    }
    to.write_str(rest)
}

/// JSON that means the same, in which every character shows. Only strings hold others than line feeds.
pub(crate) fn json(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_shown(letter) || letter == '\n' {
            shown.push(letter);
        } else {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

/// YAML that means the same, in which every character shows: JSON, where the YAML has others.
///
/// # Errors
/// When the object cannot be written as JSON.
pub(crate) fn yaml(text: String, object: &impl serde::Serialize) -> serde_json::Result<String> {
    if text.chars().all(|letter| is_shown(letter) || letter == '\n') {
        return Ok(text);
    }
    Ok(json(&serde_json::to_string_pretty(object)?) + "\n")
}

/// A writer of log lines that others have written a part of: each is one line, and shows all of its characters.
///
/// Escape sequences stay only if they set colours, and if the formatter writes colours, too.
#[derive(Clone, Debug)]
pub(super) struct Screened<W> {
    writer: W,
    /// Lines are JSON.
    json: bool,
    /// The formatter writes colours.
    has_colours: bool,
}

/// Length of the sequence at the beginning of a text that only sets colours of a terminal; 0 if there
/// is none.
fn colour(text: &str) -> usize {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return 0 };
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';');
    end.filter(|end| parameters[*end..].starts_with('m')).map_or(0, |end| "\x1b[".len() + end + 1)
}

impl<W> Screened<W> {
    pub(super) fn new(writer: W, json: bool, has_colours: bool) -> Self {
        Self { writer, json, has_colours }
    }
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Screened<W> {
    type Writer = Screened<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Screened::new(self.writer.make_writer(), self.json, self.has_colours)
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        Screened::new(self.writer.make_writer_for(meta), self.json, self.has_colours)
    }
}

impl<W: io::Write> io::Write for Screened<W> {
    /// Takes a whole line, as the formatter writes it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let mut shown = String::with_capacity(bytes.len());
        if self.json {
            shown = json(line);
        } else {
            let mut rest = line;
            while let Some(at) = rest.find('\x1b') {
                let (before, escape_on) = rest.split_at(at);
                let colour = if self.has_colours { colour(escape_on) } else { 0 };
                // Writing to a string never fails.
                let _written = escape(before, &mut shown, |letter| letter == '\t');
                shown.push_str(if colour == 0 { r"\u{1b}" } else { &escape_on[..colour] });
                rest = &escape_on[colour.max(1)..];
            }
            let _written = escape(rest, &mut shown, |letter| letter == '\t');
        }
        if line.len() < text.len() {
            shown.push('\n');
        }
        self.writer.write_all(shown.as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Write as _;

    use super::*;

    /// Characters that a terminal obeys, or that make a text look like another.
    const HOSTILE: &str =
        "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}gnp.exe\u{2066}\u{200b}\u{feff}\u{e0041}";

    #[test]
    fn only_characters_that_show_themselves_are_shown() {
        for (what, letters, shown) in [
            ("letters", "aé名\u{301}🎉 \u{a0}", true),
            ("C0", "\0\u{7}\u{8}\t\n\r\u{1b}\u{1f}", false),
            ("DEL and C1", "\u{7f}\u{80}\u{85}\u{90}\u{9b}\u{9d}\u{9f}", false),
            ("direction", "\u{200e}\u{200f}\u{61c}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}", false),
            ("isolation", "\u{2066}\u{2067}\u{2068}\u{2069}", false),
            ("no width", "\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}\u{180e}", false),
            ("separators", "\u{2028}\u{2029}", false),
            ("annotations and tags", "\u{fff9}\u{fffb}\u{e0001}\u{e0020}\u{e007f}", false),
        ] {
            for letter in letters.chars() {
                assert_eq!(is_shown(letter), shown, "{what}: {letter:?}");
            }
        }
    }

    #[test]
    fn one_line_stays_one() {
        for (text, shown) in [
            ("plain", "plain"),
            (" a\n\tb \u{2028} c\r\n", "a b c"),
            ("\u{1b}[2J", "\\u{1b}[2J"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("", ""),
        ] {
            assert_eq!(OneLine(text).to_string(), shown);
        }
        assert!(OneLine(HOSTILE).to_string().chars().all(is_shown));
    }

    #[test]
    fn lines_stay_lines() {
        assert_eq!(AllLines("a\n\tb  c\r\u{1b}c").to_string(), "a\n\tb  c\\u{d}\\u{1b}c");
    }

    #[test]
    fn documents_mean_the_same_and_show_all() {
        let object = serde_json::json!({"message": HOSTILE, "plain": "é\n"});
        let shown = json(&serde_json::to_string_pretty(&object).unwrap());
        assert!(shown.chars().all(|letter| is_shown(letter) || letter == '\n'), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), object);
        for object in [object, serde_json::json!({"message": "\u{1b}\u{7f}\u{9b}", "plain": "é\n"})] {
            let shown = yaml(serde_saphyr::to_string(&object).unwrap(), &object).unwrap();
            assert!(shown.chars().all(|letter| is_shown(letter) || letter == '\n'), "{shown}");
            assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&shown).unwrap(), object);
        }
    }

    #[test]
    fn a_log_line_is_one_line_and_keeps_its_colours() {
        for (is_json, line, shown) in [
            (false, "\x1b[2mWARN\x1b[0m a\nb\u{202e}\n", "\x1b[2mWARN\x1b[0m a\\u{a}b\\u{202e}\n"),
            (true, "{\"a\":\"\u{202e}\u{7f}\"}\n", "{\"a\":\"\\u202e\\u007f\"}\n"),
        ] {
            let mut written = Vec::new();
            Screened::new(&mut written, is_json, true).write_all(line.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(written).unwrap(), shown);
        }
    }
}
