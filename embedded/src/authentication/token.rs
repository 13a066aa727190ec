//! Bearer tokens.

use std::fmt;
use std::path::Path;

use rand::RngCore as _;
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;

use crate::secret_file::{self, SecretFileError};

/// A bearer token. It is wiped from memory when dropped, and `Debug` does not show it.
#[derive(Clone)]
pub struct Token(SecretString);

/// Why a text or file is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// There is nothing in it.
    #[error("contains no token")]
    Empty,
    /// It could not be sent in a header.
    #[error("the token must be one word of visible ASCII characters")]
    NotOneWord,
}

impl Token {
    /// A new token of 256 random bits.
    pub fn random() -> Self {
        let mut bytes = [0; 32];
        // A cryptographically secure generator, which the operating system seeds.
        rand::rng().fill_bytes(&mut bytes);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(text.into())
    }

    /// A token with this text; white space around it does not count.
    ///
    /// # Errors
    ///
    /// If the text is empty or not one word of visible ASCII characters.
    pub fn new(text: &str) -> Result<Self, TokenError> {
        match text.trim() {
            "" => Err(TokenError::Empty),
            text if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Self(text.to_owned().into())),
            _ => Err(TokenError::NotOneWord),
        }
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, if it belongs to another user, if others may read or change it, or if it
    /// holds no token.
    pub fn read(file: &Path) -> Result<Self, TokenError> {
        Self::new(&secret_file::read(file)?)
    }

    /// The text, which is a secret.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// The token as kube's configuration holds it.
    pub(crate) fn secret(&self) -> SecretString {
        self.0.clone()
    }

    /// Whether a client has sent this token. The time that this takes reveals nothing of the token but its
    /// length.
    pub(crate) fn is(&self, sent: &str) -> bool {
        self.expose().as_bytes().ct_eq(sent.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn random_tokens_have_256_bits_and_differ() {
        let (one, other) = (Token::random(), Token::random());
        assert_eq!(one.expose().len(), 64);
        assert!(one.expose().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert!(one.is(one.expose()) && !one.is(other.expose()));
        assert!(!one.is("") && !one.is(&one.expose()[..63]));
        assert!(!format!("{one:?}").contains(one.expose()));
    }

    #[test]
    fn a_token_is_one_word() {
        assert!(Token::new(" secret\n").unwrap().is("secret"));
        assert!(matches!(Token::new(" \n"), Err(TokenError::Empty)));
        for text in ["two words", "two\nlines", "naïve", "null\0"] {
            assert!(matches!(Token::new(text), Err(TokenError::NotOneWord)), "{text:?}");
        }
    }
}
