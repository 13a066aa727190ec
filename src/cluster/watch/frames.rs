//! Splits the body of a protobuf watch into frames.

use bytes::Bytes;

use crate::cluster::byte_queue::{ByteQueue, TooLong, checked};

/// Size in bytes of the length prefix of a frame.
const HEAD: usize = 4;

/// Splits a stream of pieces into frames. A frame that arrives in one piece is not copied.
#[derive(Debug, Default)]
pub(super) struct Frames {
    bytes: ByteQueue,
    /// The length of an incomplete frame whose prefix has been read.
    length: Option<usize>,
}

impl Frames {
    /// Adds the next piece. The piece before must hold no complete frame any more.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.bytes.push(piece);
    }

    /// The next complete frame, without its length prefix.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        let length = match self.length {
            Some(length) => length,
            None => match self.bytes.take(HEAD) {
                Some(head) => checked(head.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)))?,
                None => return Ok(None),
            },
        };
        let frame = self.bytes.take(length);
        self.length = if frame.is_none() { Some(length) } else { None };
        Ok(frame)
    }

    /// Whether an incomplete frame is buffered.
    pub(super) fn is_cut(&self) -> bool {
        self.length.is_some() || !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_are_complete_however_the_stream_is_cut() {
        let bytes = b"\0\0\0\x03one\0\0\0\0\0\0\0\x05three\0\0\0\x04fo";
        for size in 1..=bytes.len() {
            let mut frames = Frames::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                frames.push(Bytes::copy_from_slice(piece));
                found.extend(std::iter::from_fn(|| frames.next().unwrap()));
            }
            assert_eq!(found, [&b"one"[..], b"", b"three"], "in pieces of {size}");
            assert!(frames.is_cut());
            frames.push(Bytes::from_static(b"ur"));
            assert_eq!(frames.next().unwrap().as_deref(), Some(&b"four"[..]));
            assert!(!frames.is_cut());
        }
    }

    #[test]
    fn text_is_not_a_frame() {
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(b"{\"type\":"));
        assert!(frames.next().is_err());
    }
}
