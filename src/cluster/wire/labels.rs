//! Labels of an object in one allocation.

use std::cmp::Ordering;
use std::fmt;
use std::string::FromUtf8Error;

use super::text::Pairs;

/// The labels of an object, sorted by key. They are stored as `key=value` lines in one string: neither keys
/// nor values can contain `=` or a line break, and a pod has only a few.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    lines: Box<str>,
}

impl Labels {
    /// The value of a label, found by bisection: an author may write thousands of labels.
    pub fn get(&self, key: &str) -> Option<&str> {
        // The label is in a line that begins at `from` or later, and before `to`.
        let (mut from, mut to) = (0, self.lines.len());
        while from < to {
            let middle = from + (to - from) / 2;
            let begin = self.lines.as_bytes()[..middle]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |at| at + 1);
            let line = self.lines.get(begin..)?.lines().next()?;
            let (known, value) = line.split_once('=')?;
            match known.cmp(key) {
                Ordering::Equal => return Some(value),
                Ordering::Less => from = begin + line.len() + 1,
                Ordering::Greater => to = begin,
            }
        }
        None
    }

    /// All labels, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.lines.lines().filter_map(|line| line.split_once('='))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut lines: Vec<String> =
            labels.into_iter().map(|(key, value)| format!("{}={}", key.as_ref(), value.as_ref())).collect();
        lines.sort_unstable_by(|a, b| key_of(a).cmp(key_of(b)));
        Self { lines: lines.join("\n").into() }
    }
}

impl From<Pairs<'_>> for Labels {
    fn from(pairs: Pairs<'_>) -> Self {
        let pairs = pairs.sorted();
        // The exact capacity, so that the conversion to a boxed str does not reallocate.
        let size = pairs.iter().map(|(key, value)| key.len() + value.len() + 2).sum::<usize>();
        let mut lines = Vec::with_capacity(size.saturating_sub(1));
        for (position, (key, value)) in pairs.iter().enumerate() {
            let separator: &[u8] = if position == 0 { b"" } else { b"\n" };
            [separator, key, b"=", value].into_iter().for_each(|part| lines.extend_from_slice(part));
        }
        let lossy = |e: FromUtf8Error| String::from_utf8_lossy(e.as_bytes()).into_owned();
        Self { lines: String::from_utf8(lines).unwrap_or_else(lossy).into() }
    }
}

fn key_of(line: &str) -> &str {
    line.split_once('=').map_or(line, |(key, _)| key)
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::collection::btree_map;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn labels_are_sorted_and_looked_up_by_key() {
        let labels: Labels = [("b", ""), ("a-b", "2"), ("a", "1")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "1"), ("a-b", "2"), ("b", "")]);
        assert_eq!((labels.get("b"), labels.get("c")), (Some(""), None));
        let decoded: Labels =
            serde_json::from_str::<Pairs<'_>>(r#"{"b":"","a":"1","a-b":"2"}"#).unwrap().into();
        assert_eq!(decoded, labels);
        assert_eq!(Labels::default().get("a"), None);
        assert!(Labels::default().is_empty() && Labels::default().iter().next().is_none());
    }

    proptest! {
        #[test]
        fn every_label_is_found_and_no_other(
            labels in btree_map("[a-c./-]{1,4}", "[a-c.]{0,3}", 0..40),
            other in "[a-c./-]{1,4}",
        ) {
            let found: Labels = labels.iter().collect();
            for (key, value) in &labels {
                prop_assert_eq!(found.get(key), Some(&**value));
            }
            prop_assert_eq!(found.get(&other), labels.get(&other).map(|value| &**value));
        }
    }
}
