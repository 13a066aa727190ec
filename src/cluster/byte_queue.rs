//! Bytes that arrive in pieces.

use std::cmp::Ordering;

use bytes::{Buf, Bytes, BytesMut};

/// The longest object or frame, in bytes: the limit of Kubernetes' own clients. No object is longer.
/// An API server sends 2 MiB at most to etcd, or to a stand-in for it. JSON writes a byte of a text as
/// six at most.
pub(super) const LONGEST: usize = 16 << 20;

/// A length in bytes above the limit.
#[derive(Debug, thiserror::Error)]
#[error("{0} bytes are too long for an object")]
pub(super) struct TooLong(u64);

/// An announced length, if an object can be that long.
pub(super) fn checked(length: u64) -> Result<usize, TooLong> {
    usize::try_from(length).ok().filter(|length| *length <= LONGEST).ok_or(TooLong(length))
}

/// A stream of pieces. A part that arrives in one piece is not copied.
#[derive(Debug, Default)]
pub(super) struct ByteQueue {
    /// The beginning of an incomplete part.
    partial: BytesMut,
    /// Bytes that have not been looked at.
    unread: Bytes,
}

impl ByteQueue {
    /// Adds the next piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        self.partial.extend_from_slice(&self.unread);
        self.unread = piece;
    }

    /// The next bytes, once this many have arrived. Until then the caller may ask for nothing more.
    pub(super) fn take(&mut self, length: usize) -> Option<Bytes> {
        if self.partial.is_empty() && self.unread.len() >= length {
            return Some(self.unread.split_to(length));
        }
        let missing = length.saturating_sub(self.partial.len()).min(self.unread.len());
        self.partial.extend_from_slice(&self.unread.split_to(missing));
        match self.partial.len().cmp(&length) {
            Ordering::Less => None,
            // The buffer goes with the object: a tenant's long one must not stay as long as the watch.
            Ordering::Equal => Some(std::mem::take(&mut self.partial).freeze()),
            Ordering::Greater => Some(self.partial.split_to(length).freeze()),
        }
    }

    /// The next byte.
    pub(super) fn byte(&mut self) -> Option<u8> {
        if !self.partial.is_empty() {
            return Some(self.partial.get_u8());
        }
        self.unread.has_remaining().then(|| self.unread.get_u8())
    }

    /// Skips this many bytes, or those that have arrived. Returns how many.
    pub(super) fn skip(&mut self, length: u64) -> u64 {
        let mut left = usize::try_from(length).unwrap_or(usize::MAX);
        let mut skipped = 0;
        for part in [&mut self.partial as &mut dyn Buf, &mut self.unread] {
            let count = left.min(part.remaining());
            part.advance(count);
            left -= count;
            skipped += count as u64;
        }
        skipped
    }

    /// Whether everything that has arrived is read.
    pub(super) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.unread.is_empty()
    }
}
