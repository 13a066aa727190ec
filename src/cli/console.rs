//! What commands print. Text of others cannot control the terminal: characters that do not show are escaped. The reader may have closed the stream, as `| head` does: then a command goes on without it, and ends as
//! it would have ended.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write as _};

use crate::telemetry::printable::AllLines;

/// Prints a line on standard error.
pub(super) fn note(line: impl Display) {
    // Without a reader there is nobody to report it to.
    let _unread = writeln!(io::stderr().lock(), "{}", shown(&line));
}

/// Prints a line on standard output.
///
/// # Errors
/// When it cannot be written, for another reason than that nobody reads it.
pub(super) fn print(line: impl Display) -> io::Result<()> {
    unless_closed(writeln!(io::stdout().lock(), "{}", shown(&line)))
}

/// A line, or several, as they are printed.
pub(super) fn shown(lines: &impl Display) -> String {
    AllLines(&lines.to_string()).to_string()
}

/// What came of writing to standard output, if anybody reads it.
pub(super) fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
