//! Sets of completion indexes in the notation of scenarios: `0,2-4`, and `1x2` for index 1 twice.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// Reads indexes with their multiplicity.
pub(crate) fn parse(text: &str) -> Result<BTreeMap<u32, usize>> {
    let mut found = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (range, times) = part.split_once('x').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let bad = || format!("not indexes: {text}");
        let times: usize = times.parse().with_context(bad)?;
        for index in first.parse::<u32>().with_context(bad)?..=last.parse().with_context(bad)? {
            *found.entry(index).or_default() += times;
        }
    }
    Ok(found)
}

/// Writes indexes in a canonical form: equal sets are equal text.
pub(crate) fn render(indexes: &BTreeMap<u32, usize>) -> String {
    let mut parts: Vec<(u32, u32, usize)> = Vec::new();
    for (&index, &times) in indexes {
        match parts.last_mut() {
            Some((_, last, same)) if *same == times && *last + 1 == index => *last = index,
            _ => parts.push((index, index, times)),
        }
    }
    let part = |(first, last, times): (u32, u32, usize)| {
        let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
        if times == 1 { range } else { format!("{range}x{times}") }
    };
    parts.into_iter().map(part).collect::<Vec<_>>().join(",")
}
