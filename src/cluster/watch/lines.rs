//! The lines of a watch, out of the pieces in which they arrive.
//!
//! The codecs of `tokio_util` search byte by byte (`AnyDelimiterCodec`), which shows in a profile, or check and copy each line
//! as text (`LinesCodec`), which the JSON decoder need not have.

use bytes::{Buf, Bytes, BytesMut};

/// Cuts a stream of pieces into lines. An event may be as long as the API server makes it. A line that comes in one piece
/// is not copied.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The beginning of a line that has no end yet.
    begun: BytesMut,
    /// What has not been looked at.
    unread: Bytes,
}

impl Lines {
    /// Takes in the next piece, once there is no whole line left in the one before.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.begun.extend_from_slice(&self.unread);
        self.unread = piece;
    }

    /// The next whole line that is not empty, without its end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        while let Some(end) = memchr::memchr(b'\n', &self.unread) {
            let rest = self.unread.split_to(end);
            self.unread.advance(1);
            let line = if self.begun.is_empty() {
                rest
            } else {
                self.begun.extend_from_slice(&rest);
                self.begun.split().freeze()
            };
            if !line.is_empty() {
                return Some(line);
            }
        }
        self.begun.extend_from_slice(&self.unread);
        self.unread.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
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
