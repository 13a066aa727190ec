//! UIDs, and collections keyed by them.
//!
//! A Job may hold 100,000 pods, each with a UID that is hashed and compared often: a UID must be small and
//! quick.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use uuid::Uuid;

/// Hashes UIDs. The author of an owner reference chooses its UID, so the seed is random: nobody can provoke collisions.
/// Simulations and tests need the same order of iteration in every process, so theirs is fixed.
#[cfg(not(any(test, feature = "test-hooks")))]
pub type UidHasher = foldhash::fast::RandomState;
/// Hashes UIDs in the same order in every process.
#[cfg(any(test, feature = "test-hooks"))]
pub type UidHasher = foldhash::fast::FixedState;

/// A map keyed by UID.
pub type UidMap<T> = HashMap<Uid, T, UidHasher>;
/// A set of UIDs.
pub type UidSet = HashSet<Uid, UidHasher>;

/// The UID of a Kubernetes object. API servers write RFC 9562 UUIDs; for clients it is opaque text.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    /// Canonical text only, so that equal UIDs have equal representations and the text is returned unchanged.
    Uuid(Uuid),
    Other(Arc<str>),
}

impl Uid {
    /// The lowest UID.
    pub const LOWEST: Self = Self(Repr::Uuid(Uuid::nil()));

    /// Its text, without memory of its own.
    pub fn with_text<T>(&self, read: impl FnOnce(&str) -> T) -> T {
        match &self.0 {
            Repr::Uuid(uuid) => read(uuid.as_hyphenated().encode_lower(&mut Uuid::encode_buffer())),
            Repr::Other(text) => read(text),
        }
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        let text = match &self.0 {
            Repr::Uuid(_) => 0,
            // The text has two counters of references.
            Repr::Other(text) => text.len() + 2 * size_of::<usize>(),
        };
        size_of::<Self>() + text
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let canonical = text.len() == uuid::fmt::Hyphenated::LENGTH
            && !text.bytes().any(|byte| byte.is_ascii_uppercase());
        match Uuid::try_parse(text) {
            Ok(uuid) if canonical => Self(Repr::Uuid(uuid)),
            _ => Self(Repr::Other(text.into())),
        }
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.with_text(|text| serializer.serialize_str(text))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_canonical_text_is_stored_as_a_uuid() {
        let canonical = "5f9c8a52-0c1e-4bb0-9f5a-3a6d1f7e2b90";
        let is_uuid = |text: &str| matches!(Uid::from(text).0, Repr::Uuid(_));
        assert!(is_uuid(canonical));
        for other in [
            "",
            "uid-1",
            &canonical.to_uppercase(),
            &canonical.replace('-', ""),
            &format!("{{{canonical}}}"),
            &format!("urn:uuid:{canonical}"),
        ] {
            assert!(!is_uuid(other), "{other}");
            assert_eq!(Uid::from(other).to_string(), other);
        }
        assert!(Uid::LOWEST <= Uid::from(""));
        assert!(size_of::<Uid>() <= 24);
    }

    proptest! {
        #[test]
        fn uids_compare_as_their_text_does(a in any::<u128>(), b in any::<u128>()) {
            let [a, b] = [a, b].map(|n| Uuid::from_u128(n).to_string());
            let [x, y] = [&a, &b].map(|text| Uid::from(text.as_str()));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x.to_string(), a);
        }
    }
}
