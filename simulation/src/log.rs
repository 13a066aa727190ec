//! The log of a world: what happened, in order. The same seed gives the same log, byte for byte.

use std::fmt::{self, Write as _};

use crate::time::Time;

/// The log. It always has a digest; lines are kept on request.
#[derive(Clone, Debug)]
pub struct Log {
    keeps: bool,
    kept: Vec<Line>,
    scratch: String,
    digest: u64,
    lines: u64,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Time,
    /// Whether it belongs to the story. All other lines are messages.
    pub is_story: bool,
    /// The actor and the act.
    pub text: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A time is padded as text.
        write!(f, "{:>10} {}", format_args!("{}", self.at).to_string(), self.text)
    }
}

impl Log {
    pub(crate) fn new(keeps: bool) -> Self {
        Self { keeps, kept: Vec::new(), scratch: String::new(), digest: 0xcbf2_9ce4_8422_2325, lines: 0 }
    }

    /// Adds a line about a message.
    pub(crate) fn line(&mut self, now: Time, what: fmt::Arguments<'_>) {
        self.add(now, false, what);
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&mut self, now: Time, who: &str, what: fmt::Arguments<'_>) {
        self.add(now, true, format_args!("{who:<10} {what}"));
    }

    fn add(&mut self, at: Time, is_story: bool, text: fmt::Arguments<'_>) {
        self.scratch.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(self.scratch, "{at} {text}");
        for byte in self.scratch.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines += 1;
        if self.keeps {
            self.kept.push(Line { at, is_story, text: text.to_string() });
        }
    }

    /// The lines, if they were kept.
    pub fn kept(&self) -> &[Line] {
        &self.kept
    }

    /// FNV-1a of all lines.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Number of lines.
    pub fn lines(&self) -> u64 {
        self.lines
    }
}
