//! Secrets that are compared and never kept.

use std::fmt;

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// A secret of which only the hash is kept. The time of a comparison says nothing about it.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// Keeps the hash of a text.
    pub fn new(text: &str) -> Self {
        Self(hash(text))
    }

    pub(super) fn is(&self, text: &str) -> bool {
        self.0.ct_eq(&hash(text)).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// SHA-256 of a text.
pub(super) fn hash(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn only_the_same_text_is_it_and_nothing_shows_it() {
        let secret = Secret::new("s3cret");
        assert!(secret.is("s3cret"));
        assert!(!["", "s3cre", "s3cret ", "S3cret"].iter().any(|other| secret.is(other)));
        assert_eq!(format!("{secret:?}"), "Secret");
    }
}
