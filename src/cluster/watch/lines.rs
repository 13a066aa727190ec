//! The lines of a watch, out of the pieces in which they arrive.
//!
//! The codecs of `tokio_util` search byte by byte (`AnyDelimiterCodec`), which shows in a profile, or check and copy each line
//! as text (`LinesCodec`), which the JSON decoder need not have.

use bytes::{Bytes, BytesMut};

/// Cuts a stream of pieces into lines. An event may be as long as the API server makes it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    unread: BytesMut,
    /// So much of it has no line break.
    searched: usize,
}

impl Lines {
    /// Takes in the next piece.
    pub(super) fn push(&mut self, piece: &[u8]) {
        self.unread.extend_from_slice(piece);
    }

    /// The next whole line that is not empty, without its end.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        loop {
            let Some(found) = memchr::memchr(b'\n', &self.unread[self.searched..]) else {
                self.searched = self.unread.len();
                return None;
            };
            let mut line = self.unread.split_to(self.searched + found + 1);
            self.searched = 0;
            line.truncate(line.len() - 1);
            if !line.is_empty() {
                return Some(line.freeze());
            }
        }
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
                lines.push(piece);
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(found, [&b"one"[..], b"two"], "in pieces of {size}");
            lines.push(b"\n");
            assert_eq!(lines.next().as_deref(), Some(&b"three"[..]));
        }
    }
}
