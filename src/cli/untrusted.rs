//! Text of objects, which others have written.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::telemetry::printable::{AllLines, OneLine};

/// A text that others have chosen. It is displayed on one line and cannot control a terminal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(transparent)]
pub(super) struct Untrusted(String);

impl Untrusted {
    /// The text as it is: to compare it, or to send it back.
    pub(super) fn raw(&self) -> &str {
        &self.0
    }

    /// The text with its lines, of which all but the first are indented: none can pass for a line of the program.
    pub(super) fn indented(&self) -> impl Display {
        Indented(&self.0)
    }
}

impl<T: Into<String>> From<T> for Untrusted {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl PartialEq<str> for Untrusted {
    fn eq(&self, text: &str) -> bool {
        self.0 == text
    }
}

impl PartialEq<&str> for Untrusted {
    fn eq(&self, text: &&str) -> bool {
        self.0 == *text
    }
}

impl Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&self.0).fmt(f)
    }
}

struct Indented<'a>(&'a str);

impl Display for Indented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, line) in self.0.trim_end().lines().enumerate() {
            if number > 0 {
                f.write_str("\n    ")?;
            }
            AllLines(line).fmt(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_form_of_a_text_controls_a_terminal_or_forges_a_line() {
        let text = Untrusted::from("boom\u{1b}[2J\ndefault/other: Complete\r\n");
        assert_eq!(text.to_string(), "boom\\u{1b}[2J default/other: Complete");
        assert_eq!(text.indented().to_string(), "boom\\u{1b}[2J\n    default/other: Complete");
        assert_eq!(format!("{text:?}"), r#"Untrusted("boom\u{1b}[2J\ndefault/other: Complete\r\n")"#);
    }
}
