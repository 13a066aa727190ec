//! Splits the body of a protobuf watch into frames.

use bytes::{Buf, Bytes, BytesMut};

/// Size in bytes of the length prefix of a frame.
const HEAD: usize = 4;
/// The longest frame, in bytes: the limit of Kubernetes' own clients. A longer one is not a frame.
const LONGEST: usize = 16 << 20;

/// A length prefix, in bytes, above the limit.
#[derive(Debug, thiserror::Error)]
#[error("a frame of {0} bytes is too long")]
pub(super) struct TooLong(usize);

/// Splits a stream of pieces into frames. A frame that arrives in one piece is not copied.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The beginning of an incomplete frame, with its length prefix.
    partial: BytesMut,
    /// Bytes that have not been scanned.
    unread: Bytes,
}

impl Frames {
    /// Adds the next piece. The piece before must hold no complete frame any more.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.partial.extend_from_slice(&self.unread);
        self.unread = piece;
    }

    /// The next complete frame, without its length prefix.
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, TooLong> {
        if self.partial.is_empty()
            && let Some(length) = length(&self.unread)?
            && self.unread.len() >= HEAD + length
        {
            self.unread.advance(HEAD);
            return Ok(Some(self.unread.split_to(length)));
        }
        self.fill(HEAD);
        let Some(length) = length(&self.partial)? else { return Ok(None) };
        self.fill(HEAD + length);
        if self.partial.len() < HEAD + length {
            return Ok(None);
        }
        self.partial.advance(HEAD);
        Ok(Some(self.partial.split().freeze()))
    }

    /// Whether an incomplete frame is buffered.
    pub(super) fn is_cut(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Extends the incomplete frame to this size, as far as unread bytes allow.
    fn fill(&mut self, size: usize) {
        let missing = size.saturating_sub(self.partial.len()).min(self.unread.len());
        self.partial.extend_from_slice(&self.unread.split_to(missing));
    }
}

/// The length prefix at the start of `bytes`, if it is complete.
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
