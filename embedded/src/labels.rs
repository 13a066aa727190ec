//! Labels of a stored object.

use std::ops::Range;

/// Labels, ordered by key, in one allocation of text: every version of an object has labels, and every label
/// selector reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// Keys and values, concatenated.
    text: Box<str>,
    /// The end of each key and each value in `text`.
    ends: Box<[u32]>,
}

impl Labels {
    /// The value of a label.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.iter().find(|(have, _)| *have == key).map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut start = 0;
        let mut next = move |end: u32| {
            let range: Range<usize> = start..end as usize;
            start = range.end;
            self.text.get(range).unwrap_or_default()
        };
        self.ends.chunks_exact(2).filter_map(move |ends| match *ends {
            [key, value] => Some((next(key), next(value))),
            _ => None,
        })
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Labels {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(labels: I) -> Self {
        let mut labels: Vec<(&str, &str)> = labels.into_iter().collect();
        labels.sort_unstable();
        let (mut text, mut ends) = (String::new(), Vec::with_capacity(2 * labels.len()));
        for part in labels.into_iter().flat_map(|(key, value)| [key, value]) {
            text.push_str(part);
            // Requests are shorter than 4 GiB.
            ends.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        }
        Self { text: text.into(), ends: ends.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn labels_are_a_map(map in proptest::collection::btree_map("[a-c]{0,2}", "[a-c]{0,2}", 0..6), key in "[a-c]{0,2}") {
            let map: BTreeMap<String, String> = map;
            let labels: Labels = map.iter().rev().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(labels.get(&key), map.get(&key).map(String::as_str));
            let pairs: Vec<(&str, &str)> = map.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            prop_assert_eq!(labels.iter().collect::<Vec<_>>(), pairs);
        }
    }
}
