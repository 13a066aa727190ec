//! The log of a world: what happened, in order. The same seed gives the same log, byte for byte.

use std::fmt::{self, Write as _};

use crate::time::Time;

/// The log. It always has a digest; lines are kept on request.
#[derive(Clone, Debug)]
pub struct Log {
    keeps: bool,
    text: String,
    scratch: String,
    digest: u64,
    lines: u64,
}

impl Log {
    pub(crate) fn new(keeps: bool) -> Self {
        Self { keeps, text: String::new(), scratch: String::new(), digest: 0xcbf2_9ce4_8422_2325, lines: 0 }
    }

    /// Adds a line.
    pub(crate) fn line(&mut self, now: Time, what: fmt::Arguments<'_>) {
        self.scratch.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(self.scratch, "{:>10} {what}", format_args!("{now}"));
        for byte in self.scratch.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        self.lines += 1;
        if self.keeps {
            self.text.push_str(&self.scratch);
        }
    }

    /// The lines, if they were kept.
    pub fn text(&self) -> &str {
        &self.text
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
