//! Standard output for the lines of many logs, and what stands before each line.

use std::io::{self, Write as _};

use crossterm::style::{Color, Stylize as _};

use super::container_run::LogSink;
use super::lines::Decoration;
use crate::cli::color;
use crate::cli::console::note;
use crate::telemetry::printable::OneLine;

/// Colours of prefixes, in turn.
const COLORS: [Color; 6] =
    [Color::Cyan, Color::Green, Color::Magenta, Color::Yellow, Color::Blue, Color::Red];

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    /// Prefixes have colours.
    color: bool,
}

impl Output {
    /// Prefixes have colours if standard output has.
    pub(super) fn new() -> Self {
        Self { color: color::on_stdout() }
    }

    /// Puts this before each line, in the colour of this number.
    pub(super) fn decoration(self, prefix: &str, number: usize, timestamps: bool) -> Decoration {
        let prefix = OneLine(prefix).to_string();
        let prefix = match self.color {
            true => format!("{} ", format!("{prefix}:").with(COLORS[number % COLORS.len()])),
            false => format!("{prefix}: "),
        };
        Decoration { prefix: Some(prefix), timestamps }
    }
}

impl LogSink for Output {
    fn write(&self, lines: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(lines)?;
        out.flush()
    }

    fn note(&self, text: &str) {
        note(text);
    }
}
