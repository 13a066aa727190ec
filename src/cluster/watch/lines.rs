//! Splits the body of a JSON watch into lines.
//!
//! The codecs of `tokio_util` cost more. `AnyDelimiterCodec` searches byte by byte, which shows in a
//! profile; `LinesCodec` checks and copies each line as text, which the JSON decoder does not need.

use bytes::{Buf, Bytes, BytesMut};

use crate::cluster::byte_queue::{TooLong, checked};

/// Splits a stream of pieces into lines. A line that arrives in one piece is not copied.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of an incomplete line.
    partial: BytesMut,
    /// Bytes that have not been scanned.
    unread: Bytes,
}

impl Lines {
    /// Adds the next piece. The piece before must hold no complete line any more.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.partial.extend_from_slice(&self.unread);
        self.unread = piece;
    }

    /// The next complete line that is not empty, without its newline.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        while let Some(end) = memchr::memchr(b'\n', &self.unread) {
            let piece = self.unread.split_to(end);
            self.unread.advance(1);
            let line = if self.partial.is_empty() {
                piece
            } else {
                self.partial.extend_from_slice(&piece);
                // The buffer goes with the line: a tenant's long one must not stay as long as the watch.
                std::mem::take(&mut self.partial).freeze()
            };
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.partial.extend_from_slice(&self.unread);
        self.unread.clear();
        checked(self.partial.len() as u64).map(|_| None)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::cluster::byte_queue::LONGEST;

    #[test]
    fn lines_are_complete_however_the_stream_is_cut() {
        let text = b"one\n\ntwo\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                lines.push(Bytes::copy_from_slice(piece));
                found.extend(std::iter::from_fn(|| lines.next().unwrap()));
            }
            assert_eq!(found, [&b"one"[..], b"two"], "in pieces of {size}");
            lines.push(Bytes::from_static(b"\n"));
            assert_eq!(lines.next().unwrap().as_deref(), Some(&b"three"[..]));
        }
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let mut lines = Lines::default();
        lines.push(vec![b' '; LONGEST].into());
        assert!(lines.next().unwrap().is_none());
        lines.push(Bytes::from_static(b" "));
        assert!(lines.next().is_err());
    }
}
