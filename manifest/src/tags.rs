//! Tags that stand right before a comma: `[!!str, a]`. kubectl refuses them, and the scanner of libyaml does not expect them, so
//! they are found before it is asked for values.

use libyaml_safer::{Scanner, Token, TokenData};

use crate::yaml::offset;

/// Where a tag right before a comma is, if there is one.
///
/// A text that has what looks like one is scanned with a space before the comma. The space changes no other token.
pub(crate) fn before_comma(text: &str) -> Option<usize> {
    let commas = candidates(text);
    if commas.is_empty() {
        return None;
    }
    let mut spaced = String::with_capacity(text.len() + commas.len() + 1);
    let mut tags = Vec::with_capacity(commas.len());
    let mut copied = 0;
    for Candidate { tag, comma } in &commas {
        tags.push((spaced.len() + tag - copied, *tag));
        spaced.push_str(&text[copied..*comma]);
        spaced.push(' ');
        copied = *comma;
    }
    spaced.push_str(&text[copied..]);
    spaced.push('\n');
    let mut scanner = Scanner::new();
    scanner.set_input(spaced.as_bytes());
    // The scanner goes on after an error, with the same one.
    let mut tokens =
        scanner.map_while(Result::ok).filter(|token| matches!(token.data, TokenData::Tag { .. }));
    let tag =
        |token: Token| tags.binary_search_by_key(&offset(token.start_mark.index), |(spaced, _)| *spaced).ok();
    tokens.find_map(tag).map(|found| tags[found].1)
}

/// What looks like a tag, and the comma that follows it.
struct Candidate {
    tag: usize,
    comma: usize,
}

fn candidates(text: &str) -> Vec<Candidate> {
    let bytes = text.as_bytes();
    let begins = |at: &usize| {
        let before = at.checked_sub(1).map_or(b' ', |before| bytes[before]);
        bytes[*at] == b'!'
            && (before.is_ascii_whitespace() || b"[{,:?-\"'&*".contains(&before) || !before.is_ascii())
    };
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(tag) = (at..bytes.len()).find(begins) {
        let is_part = |byte: &u8| !byte.is_ascii_whitespace() && !b",[]{}".contains(byte);
        let end =
            bytes[tag..].iter().position(|byte| !is_part(byte)).map_or(bytes.len(), |length| tag + length);
        if bytes.get(end) == Some(&b',') {
            found.push(Candidate { tag, comma: end });
        }
        at = end.max(tag + 1);
    }
    found
}
