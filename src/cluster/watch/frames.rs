//! The frames of a watch in protobuf, out of the pieces in which they arrive.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes of the length that stands before each frame.
const HEAD: usize = 4;
/// The longest frame, in bytes: what Kubernetes' own clients take. A longer one is no frame.
const LONGEST: usize = 16 << 20;

/// A frame is said to be longer than any can be, in bytes.
#[derive(Debug, thiserror::Error)]
#[error("a frame of {0} bytes is none")]
pub(super) struct TooLong(usize);

/// Cuts a stream of pieces into frames. A frame that comes in one piece is not copied.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of a frame that is not whole, with its length.
    begun: BytesMut,
    /// What has not been looked at.
    unread: Bytes,
}

impl Frames {
    /// Takes in the next piece, once there is no whole frame left in the one before.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.begun.extend_from_slice(&self.unread);
        self.unread = piece;
    }

    /// The next whole frame, without its length.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        if self.begun.is_empty()
            && let Some(length) = length(&self.unread)?
            && self.unread.len() >= HEAD + length
        {
            self.unread.advance(HEAD);
            return Ok(Some(self.unread.split_to(length)));
        }
        self.fill(HEAD);
        let Some(length) = length(&self.begun)? else { return Ok(None) };
        self.fill(HEAD + length);
        if self.begun.len() < HEAD + length {
            return Ok(None);
        }
        self.begun.advance(HEAD);
        Ok(Some(self.begun.split().freeze()))
    }

    /// Whether a frame has begun that is not whole.
    pub(super) fn is_cut(&self) -> bool {
        !self.begun.is_empty()
    }

    /// Lets the begun frame grow to this size, as far as there is anything.
    fn fill(&mut self, size: usize) {
        let missing = size.saturating_sub(self.begun.len()).min(self.unread.len());
        self.begun.extend_from_slice(&self.unread.split_to(missing));
    }
}

/// The length of the frame that begins here, if it is there.
fn length(bytes: &[u8]) -> Result<Option<usize>, TooLong> {
    let Some(head) = bytes.first_chunk::<HEAD>() else { return Ok(None) };
    let length = u32::from_be_bytes(*head) as usize;
    if length > LONGEST { Err(TooLong(length)) } else { Ok(Some(length)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn frames_come_whole_however_they_are_cut() {
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
    fn text_is_no_frame() {
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(b"{\"type\":"));
        assert!(frames.next().is_err());
    }
}
