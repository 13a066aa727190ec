//! The output of commands. Text of others cannot control the terminal: characters that do not show are escaped.
//! The reader may have closed the stream, as `| head` does. Then a command goes on without it, and ends as it
//! would have ended.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use crate::telemetry::printable::AllLines;

/// Prints a line on standard error.
pub(super) fn note(line: impl Display) {
    // If there is no reader, the error has none either.
    let _unread = writeln!(io::stderr().lock(), "{}", shown(&line));
}

/// Prints a line on standard output.
///
/// # Errors
/// If it cannot be written, unless the reader has closed the stream.
pub(super) fn print(line: impl Display) -> io::Result<()> {
    unless_closed(writeln!(io::stdout().lock(), "{}", shown(&line)))
}

/// A line, or several, as they are printed.
pub(super) fn shown(lines: &impl Display) -> String {
    AllLines(&lines.to_string()).to_string()
}

/// The result of a write to standard output. A closed stream is no error.
pub(super) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
