//! How much work is left for shards, as reported in heartbeats.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::hash::ShardId;

/// The work that is left for each shard of a replica, in pods. A shard that is not listed has none.
///
/// Written as `3=1500,7=500`: less than 64 KiB for 4096 shards. All annotations together may have 256 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads(BTreeMap<ShardId, u32>);

/// A text that is not in the format of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("loads are written as SHARD=LOAD,SHARD=LOAD")]
pub struct LoadsError;

impl Loads {
    /// The work that is left for a shard.
    pub fn of(&self, shard: ShardId) -> u32 {
        self.0.get(&shard).copied().unwrap_or_default()
    }
}

impl FromIterator<(ShardId, u32)> for Loads {
    fn from_iter<I: IntoIterator<Item = (ShardId, u32)>>(loads: I) -> Self {
        Self(loads.into_iter().filter(|(_, load)| *load > 0).collect())
    }
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (shard, load)) in self.0.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{shard}={load}")?;
        }
        Ok(())
    }
}

impl FromStr for Loads {
    type Err = LoadsError;

    fn from_str(text: &str) -> Result<Self, LoadsError> {
        let load = |entry: &str| {
            let (shard, load) = entry.split_once('=')?;
            Some((ShardId(shard.parse().ok()?), load.parse().ok()?))
        };
        text.split_terminator(',').map(|entry| load(entry).ok_or(LoadsError)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_round_trip_and_zeros_are_left_out() {
        let loads: Loads = [(ShardId(7), 500), (ShardId(3), 1500), (ShardId(5), 0)].into_iter().collect();
        assert_eq!(loads.to_string(), "3=1500,7=500");
        assert_eq!(loads.to_string().parse(), Ok(loads.clone()));
        assert_eq!((loads.of(ShardId(3)), loads.of(ShardId(5))), (1500, 0));
        assert_eq!(Loads::default().to_string().parse(), Ok(Loads::default()));
        for text in ["3", "3=", "x=1", "3=-1", "3=1;4=2", "3=99999999999", ",3=1"] {
            assert_eq!(text.parse::<Loads>(), Err(LoadsError), "{text}");
        }
    }

    #[test]
    fn the_longest_loads_fit_into_an_annotation() {
        let loads: Loads = (0..4096).map(|shard| (ShardId(shard), u32::MAX)).collect();
        assert!(loads.to_string().len() < 64 << 10);
    }
}
