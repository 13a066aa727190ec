//! Lists of UIDs in a status.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};

use super::text::Text;
use crate::job::uid::Uid;

/// Most UIDs of a status that are kept. A controller lists 500 at most, and a decoded UID takes many times the text of a short
/// one.
pub const MOST_UIDS: usize = 5_000;

/// A list of UIDs. UIDs beyond [`MOST_UIDS`] are counted only, as they are read.
#[derive(Debug, Default)]
pub(super) struct Uids {
    kept: Vec<Uid>,
    listed: usize,
}

impl Uids {
    /// How many there are.
    pub(super) fn listed(&self) -> usize {
        self.listed
    }

    /// The UIDs that are kept.
    pub(super) fn into_kept(self) -> Vec<Uid> {
        self.kept
    }
}

impl<'de> Deserialize<'de> for Uids {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct UidsVisitor;

        impl<'de> Visitor<'de> for UidsVisitor {
            type Value = Uids;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of strings")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Uids, A::Error> {
                let mut uids = Uids::default();
                while let Some(uid) = list.next_element::<Text<'de>>()? {
                    uids.listed += 1;
                    if uids.listed <= MOST_UIDS {
                        uids.kept.push((*uid).into());
                    }
                }
                Ok(uids)
            }
        }

        deserializer.deserialize_seq(UidsVisitor)
    }
}
