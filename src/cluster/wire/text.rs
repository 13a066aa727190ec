//! Strings and string maps that borrow from the body, except where JSON has escapes.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

/// A string of JSON or protobuf.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(Cow::Borrowed(text))
    }
}

impl<'a> From<Cow<'a, str>> for Text<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self(text)
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A map of strings (labels, annotations), in the order of the body. Most entries are never read, so UTF-8 is
/// checked only for those that are.
#[derive(Debug, Default)]
pub(crate) struct Pairs<'a>(Vec<Pair<'a>>);

/// A key and its value.
type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

impl<'a> Pairs<'a> {
    /// Adds an entry. Pods have five to eight labels, and as many annotations, so room for eight is reserved
    /// at once.
    pub(crate) fn push(&mut self, key: impl Into<Cow<'a, [u8]>>, value: impl Into<Cow<'a, [u8]>>) {
        if self.0.is_empty() {
            self.0.reserve(8);
        }
        self.0.push((key.into(), value.into()));
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(known, _)| **known == *key.as_bytes())?;
        str::from_utf8(value).ok()
    }

    /// All entries that are text.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .filter_map(|(key, value)| Some((str::from_utf8(key).ok()?, str::from_utf8(value).ok()?)))
    }

    /// Bytes of all keys and values.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(key, value)| key.len() + value.len()).sum()
    }

    /// Only the entries with such keys.
    pub(crate) fn filtered(mut self, keep: impl Fn(&[u8]) -> bool) -> Self {
        self.0.retain(|(key, _)| keep(key));
        self
    }

    /// The entries, sorted by key.
    pub(crate) fn sorted(mut self) -> Vec<Pair<'a>> {
        self.0.sort_unstable();
        self.0
    }
}

impl<'a> From<Text<'a>> for Cow<'a, [u8]> {
    fn from(Text(text): Text<'a>) -> Self {
        match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'de>, A::Error> {
                let mut pairs = Pairs::default();
                while let Some((key, value)) = map.next_entry::<Text<'de>, Option<Text<'de>>>()? {
                    pairs.push(key, value.unwrap_or_default());
                }
                Ok(pairs)
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}
