//! Tags that stand right before a comma: `[!!str, a]`. The scanner of libyaml does not expect them, so they are found before it is
//! asked for values. kubectl 1.32 reads the list without them, which is not what its author means.

use libyaml_safer::{Encoding, Scanner, TokenData};

use crate::edits::original;
use crate::source::offset;
use crate::{SyntaxError, wording};

/// Refuses a tag right before a comma.
///
/// A text that has what looks like one is scanned with [space](spaced) before the comma, which changes no
/// other token. If the scanner fails, it has not returned all its tokens, so a tag may be missed. But its
/// error is true of the text itself.
///
/// # Errors
/// There is such a tag, or the text is not YAML.
pub(crate) fn check(text: &str) -> Result<(), SyntaxError> {
    let commas = candidates(text);
    if commas.is_empty() {
        return Ok(());
    }
    let spaced = spaced(text, &commas);
    let mut scanner = Scanner::new();
    scanner.set_encoding(Encoding::Utf8);
    scanner.set_input(spaced.as_bytes());
    for token in scanner {
        match token {
            Ok(token) if matches!(token.data, TokenData::Tag { .. }) => {
                // The letter after a colon belongs to the tag.
                let end = offset(token.end_mark.index);
                let is_before_comma = |end| commas.binary_search(&original(&commas, SPACE, end)).is_ok();
                if is_before_comma(end) || is_before_comma(end - 1) {
                    let at = original(&commas, SPACE, offset(token.start_mark.index));
                    return Err(SyntaxError::new(at, "a tag right before a comma: the value is missing"));
                }
            }
            Ok(_) => {}
            Err(error) => {
                let error = wording::of_yaml(&spaced, &error);
                return Err(SyntaxError { at: original(&commas, SPACE, error.at).min(text.len()), ..error });
            }
        }
    }
    Ok(())
}

/// All commas that follow what looks like a tag.
fn candidates(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut commas = Vec::new();
    // The end of the letters that a tag is made of, which is the same for all that begin among them.
    let mut letters = 0;
    for tag in (0..bytes.len()).filter(|at| bytes[*at] == b'!') {
        let length =
            |is_last: fn(&u8) -> bool| bytes[tag..].iter().position(is_last).unwrap_or(bytes.len() - tag);
        if letters <= tag {
            letters = tag + length(|byte| byte.is_ascii_whitespace() || b",[]{}".contains(byte));
        }
        let end = match bytes.get(tag + 1) {
            // A whole name, which may contain commas.
            Some(b'<') => tag + length(|byte| byte.is_ascii_whitespace() || *byte == b'>') + 1,
            _ => letters,
        };
        if bytes.get(end) == Some(&b',') {
            commas.push(end);
        }
    }
    commas.sort_unstable();
    commas.dedup();
    commas
}

/// Length of what is put before a comma, in bytes.
const SPACE: usize = 2;

/// The text with space before each of these commas, and with a last line that ends. A colon before it would end a key, so a letter
/// comes between.
fn spaced(text: &str, commas: &[usize]) -> String {
    let mut spaced = String::with_capacity(text.len() + SPACE * commas.len() + 1);
    let mut copied = 0;
    for comma in commas {
        let before = &text[copied..*comma];
        spaced.push_str(before);
        spaced.push_str(if before.ends_with(':') { "_ " } else { "  " });
        copied = *comma;
    }
    spaced + &text[copied..] + "\n"
}
