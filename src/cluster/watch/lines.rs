//! Splits the body of a JSON watch into lines.
//!
//! The codecs of `tokio_util` search byte by byte (`AnyDelimiterCodec`), which shows in a profile, or check
//! and copy each line as text (`LinesCodec`), which the JSON decoder does not need.

use bytes::{Buf, Bytes, BytesMut};

/// Splits a stream of pieces into lines of any length. A line that arrives in one piece is not copied.
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
    pub(super) fn next(&mut self) -> Option<Bytes> {
        while let Some(end) = memchr::memchr(b'\n', &self.unread) {
            let piece = self.unread.split_to(end);
            self.unread.advance(1);
            let line = if self.partial.is_empty() {
                piece
            } else {
                self.partial.extend_from_slice(&piece);
                self.partial.split().freeze()
            };
            if !line.is_empty() {
                return Some(line);
            }
        }
        self.partial.extend_from_slice(&self.unread);
        self.unread.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_complete_however_the_stream_is_cut() {
        let text = b"one\n\ntwo\nthree";
        for size in 1..=text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for piece in text.chunks(size) {
                lines.push(Bytes::copy_from_slice(piece));
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(found, [&b"one"[..], b"two"], "in pieces of {size}");
            lines.push(Bytes::from_static(b"\n"));
            assert_eq!(lines.next().as_deref(), Some(&b"three"[..]));
        }
    }
}
