//! The shard of a Job: the top bits of the 64-bit FNV-1a hash of its UID.
//!
//! Kubernetes' `shardSelector` (alpha in 1.36) hashes the same way, so a shard is one range of its hash space.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

/// Number of a shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How many shards there are: a power of two from 1 to 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardCount {
    bits: u32,
}

/// A number that cannot be a number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the number of shards must be a power of two from 1 to 4096")]
pub struct ShardCountError;

impl ShardCount {
    /// Largest number of shards.
    pub const MAX: u32 = 4096;

    /// Takes a power of two from 1 to [`MAX`](Self::MAX).
    ///
    /// # Errors
    /// For any other number.
    pub fn new(count: u32) -> Result<Self, ShardCountError> {
        let valid = count.is_power_of_two() && count <= Self::MAX;
        valid.then(|| Self { bits: count.trailing_zeros() }).ok_or(ShardCountError)
    }

    /// The number.
    pub fn get(self) -> u32 {
        1 << self.bits
    }

    /// All shards, ascending.
    pub fn shards(self) -> impl Iterator<Item = ShardId> {
        (0..self.get()).map(ShardId)
    }

    /// The shard with this number, as the label of a pod has it; `None` if there is none.
    pub fn shard_numbered(self, number: &str) -> Option<ShardId> {
        // Selectors compare text.
        let is_canonical = number == "0" || number.starts_with(|first: char| matches!(first, '1'..='9'));
        let shard = number.parse().ok().filter(|number| is_canonical && *number < self.get())?;
        Some(ShardId(shard))
    }

    /// The shard of the object with this UID.
    pub fn shard_of(self, uid: &str) -> ShardId {
        let mut hasher = fnv::FnvHasher::default();
        hasher.write(uid.as_bytes());
        // A single shard shifts by all 64 bits, for which `checked_shr` returns `None`.
        ShardId(hasher.finish().checked_shr(64 - self.bits).map_or(0, |top| top as u32))
    }
}

impl Default for ShardCount {
    /// 64 shards.
    fn default() -> Self {
        Self { bits: 6 }
    }
}

impl FromStr for ShardCount {
    type Err = ShardCountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map_err(|_| ShardCountError).and_then(Self::new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // FNV-1a of "" and "a", from its definition: 0xcbf29ce484222325 and 0xaf63dc4c8601ec8c.
        let top_byte = ShardCount::new(256).unwrap();
        assert_eq!(top_byte.shard_of(""), ShardId(0xcb));
        assert_eq!(top_byte.shard_of("a"), ShardId(0xaf));
        assert_eq!(ShardCount::new(1).unwrap().shard_of("a"), ShardId(0));
    }

    #[test]
    fn a_label_names_a_shard_that_exists() {
        let four = ShardCount::new(4).unwrap();
        for (label, shard) in
            [("0", Some(0)), ("3", Some(3)), ("4", None), ("-1", None), ("", None), ("x", None)]
        {
            assert_eq!(four.shard_numbered(label), shard.map(ShardId), "{label:?}");
        }
    }

    #[test]
    fn only_powers_of_two_up_to_4096_are_shard_counts() {
        for (text, count) in [
            ("1", Some(1)),
            ("64", Some(64)),
            ("4096", Some(4096)),
            ("0", None),
            ("3", None),
            ("8192", None),
            ("x", None),
        ] {
            assert_eq!(text.parse::<ShardCount>().ok().map(ShardCount::get), count, "{text}");
        }
    }
}
