//! Text logs in which each line is one event: values that others write contain line breaks and other control characters.

use std::io::{self, Write};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// Writes each event as one line. The formatter of text writes an event with one call, which ends with a line break.
#[derive(Debug)]
pub(super) struct OneLine<W> {
    pub(super) inner: W,
    /// The formatter's own colours begin with ESC, which is left as it is then.
    pub(super) has_colours: bool,
}

/// Writes one event.
#[derive(Debug)]
pub(super) struct Escaping<W> {
    inner: W,
    has_colours: bool,
}

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for OneLine<W> {
    type Writer = Escaping<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Escaping { inner: self.inner.make_writer(), has_colours: self.has_colours }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Self::Writer {
        Escaping { inner: self.inner.make_writer_for(metadata), has_colours: self.has_colours }
    }
}

impl<W: Write> Write for Escaping<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let has_colours = self.has_colours;
        let is_kept = |byte: u8| byte == b'\t' || (byte == 0x1b && has_colours);
        let is_control = |byte: &u8| byte.is_ascii_control() && !is_kept(*byte);
        let (line, end) = match event.strip_suffix(b"\n") {
            Some(line) => (line, &b"\n"[..]),
            None => (event, &b""[..]),
        };
        if !line.iter().any(is_control) {
            self.inner.write_all(event)?;
            return Ok(event.len());
        }
        let mut escaped = Vec::with_capacity(event.len() + 64);
        for byte in line {
            match is_control(byte) {
                true => escaped.extend(byte.escape_ascii()),
                false => escaped.push(*byte),
            }
        }
        escaped.extend_from_slice(end);
        self.inner.write_all(&escaped)?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
