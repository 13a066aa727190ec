//! Words that end with a colon in a list or a map of flow style: `[echo, done:]`. kubectl reads them as
//! texts, but the scanner of libyaml refuses them. So the scanner gets another letter in place of the colon.

use crate::edits::original;

/// A text for the scanner.
pub(crate) struct Masked {
    /// The text. Its last line ends.
    pub(crate) text: String,
    /// The letter in place of the colons, none of which the text had before.
    letter: Option<char>,
    /// Where they were.
    colons: Vec<usize>,
}

impl Masked {
    /// The text as it is.
    pub(crate) fn plain(text: &str) -> Self {
        // The last line of a block scalar ends with the line, even if the file does not.
        let end = if text.ends_with('\n') { "" } else { "\n" };
        Self { text: format!("{text}{end}"), letter: None, colons: Vec::new() }
    }

    /// The text without colons at the end of words of flow style; `None` if nothing like that is at this byte.
    pub(crate) fn without_colons(text: &str, at: usize) -> Option<Self> {
        if !ends_a_word(text.as_bytes(), at) {
            return None;
        }
        let letter = ('\u{e000}'..='\u{f8ff}').find(|letter| !text.contains(*letter))?;
        let colons: Vec<usize> = text
            .match_indices(':')
            .map(|(at, _)| at)
            .filter(|at| ends_a_word(text.as_bytes(), *at))
            .collect();
        let mut masked = String::with_capacity(text.len() + colons.len() * letter.len_utf8());
        let mut copied = 0;
        for colon in &colons {
            masked.push_str(&text[copied..*colon]);
            masked.push(letter);
            copied = colon + 1;
        }
        let Self { text: rest, .. } = Self::plain(&text[copied..]);
        Some(Self { text: masked + &rest, letter: Some(letter), colons })
    }

    /// Where in the text itself a byte is.
    pub(crate) fn original(&self, at: usize) -> usize {
        original(&self.colons, self.letter.map_or(0, |letter| letter.len_utf8() - 1), at)
    }

    /// A word of the text as it was.
    pub(crate) fn restored(&self, word: String) -> String {
        match self.letter {
            Some(letter) if word.contains(letter) => word.replace(letter, ":"),
            _ => word,
        }
    }
}

/// Whether the colon at this byte follows a letter and comes before the end of a value of flow style.
fn ends_a_word(text: &[u8], at: usize) -> bool {
    let follows = at.checked_sub(1).and_then(|before| text.get(before));
    let is_letter = |byte: &u8| !byte.is_ascii_whitespace() && !b"\"'{}[],".contains(byte);
    text.get(at) == Some(&b':')
        && follows.is_some_and(is_letter)
        && text.get(at + 1).is_some_and(|next| b",]}".contains(next))
}
