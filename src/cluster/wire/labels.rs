//! Labels of an object in one allocation.

use std::cmp::Ordering;
use std::fmt;

use memchr::memrchr;

use super::text::Pairs;
use crate::job::names::{COMPLETION_INDEX, CONTROLLER_UID_LABEL, JOB_NAME_LABEL, SHARD_LABEL};
use crate::job::selector::Selector;

/// Most bytes of labels that are kept. Pods have a few hundred; an API server allows 1.4 MB. The labels of
/// the longest selector ([`LONGEST_SELECTOR`](crate::job::selector::LONGEST_SELECTOR)) have room, and as
/// many others.
const KEPT_BYTES: usize = 8 << 10;

/// The labels of an object, sorted by key. The labels are `key=value` lines in one string. Neither keys nor
/// values can contain `=` or a line break, and a pod has only a few.
///
/// If an object has more than 8 KiB of labels, only those that Job controllers set are kept.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    lines: Box<str>,
    /// Some are not kept.
    are_cut: bool,
    /// Where the most requested values lie: each reading of a pod is asked for them several times.
    shard: Option<Span>,
    controller_uid: Option<Span>,
}

/// First byte, and the one behind the last.
type Span = (usize, usize);

impl Labels {
    /// Whether a selector selects the object. `unknown`: the answer if the selector asks for labels that
    /// may not have been kept.
    pub fn match_selector(&self, selector: &Selector, unknown: bool) -> bool {
        let asks_for_others =
            || selector.requirements.iter().any(|requirement| !is_of_jobs(&requirement.key));
        if self.are_cut && asks_for_others() {
            return unknown;
        }
        selector.matches(|key| self.get(key))
    }

    /// These labels, sorted by key.
    fn of(pairs: &[(impl AsRef<[u8]>, impl AsRef<[u8]>)], are_cut: bool) -> Self {
        // The exact capacity, so that the conversion to a boxed str does not reallocate.
        let size =
            pairs.iter().map(|(key, value)| key.as_ref().len() + value.as_ref().len() + 2).sum::<usize>();
        let mut lines = Vec::with_capacity(size.saturating_sub(1));
        let (mut shard, mut controller_uid) = (None, None);
        for (position, (key, value)) in pairs.iter().enumerate() {
            let (separator, key, value): (&[u8], _, _) =
                (if position == 0 { b"" } else { b"\n" }, key.as_ref(), value.as_ref());
            [separator, key, b"=", value].into_iter().for_each(|part| lines.extend_from_slice(part));
            let span = Some((lines.len() - value.len(), lines.len()));
            if key == SHARD_LABEL.as_bytes() {
                shard = span;
            } else if key == CONTROLLER_UID_LABEL.as_bytes() {
                controller_uid = span;
            }
        }
        match String::from_utf8(lines) {
            Ok(lines) => Self { lines: lines.into(), are_cut, shard, controller_uid },
            Err(_) => {
                let repaired = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                let pairs =
                    pairs.iter().map(|(key, value)| (repaired(key.as_ref()), repaired(value.as_ref())));
                Self { are_cut, ..pairs.collect() }
            }
        }
    }

    /// The value of a label.
    pub fn get(&self, key: &str) -> Option<&str> {
        let span = match key {
            SHARD_LABEL => self.shard,
            CONTROLLER_UID_LABEL => self.controller_uid,
            _ => return self.find(key),
        };
        span.and_then(|(begin, end)| self.lines.get(begin..end))
    }

    /// The value of a label, found by bisection: an author may write thousands of labels.
    fn find(&self, key: &str) -> Option<&str> {
        // The label is in a line that begins at `from` or later, and before `to`.
        let (mut from, mut to) = (0, self.lines.len());
        while from < to {
            let middle = from + (to - from) / 2;
            // A line may have 380 bytes, and is scanned at each step: many bytes at a time.
            let begin = memrchr(b'\n', &self.lines.as_bytes()[..middle]).map_or(0, |at| at + 1);
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

    /// The memory that they take.
    pub fn bytes(&self) -> usize {
        self.lines.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let pairs =
            labels.into_iter().map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned()));
        let mut pairs: Vec<(String, String)> = pairs.collect();
        pairs.sort_unstable();
        Self::of(&pairs, false)
    }
}

impl From<Pairs<'_>> for Labels {
    fn from(pairs: Pairs<'_>) -> Self {
        let are_cut = pairs.bytes() > KEPT_BYTES;
        let pairs =
            if are_cut { pairs.filtered(|key| str::from_utf8(key).is_ok_and(is_of_jobs)) } else { pairs };
        Self::of(&pairs.sorted(), are_cut)
    }
}

/// Whether Job controllers set this label on pods: this one, or that of Kubernetes.
fn is_of_jobs(key: &str) -> bool {
    [JOB_NAME_LABEL, CONTROLLER_UID_LABEL, SHARD_LABEL, COMPLETION_INDEX].contains(&key)
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

    #[test]
    fn of_too_many_labels_those_of_jobs_are_kept_and_nothing_is_known_of_others() {
        use crate::job::selector::{Operator, Requirement};
        let mut pairs = Pairs::default();
        for n in 0..10_000 {
            pairs.push(format!("label-{n:05}").into_bytes(), b"x".as_slice());
        }
        pairs.push(CONTROLLER_UID_LABEL.as_bytes(), b"u".as_slice());
        let labels = Labels::from(pairs);
        assert!(labels.lines.len() < KEPT_BYTES);
        assert_eq!((labels.get(CONTROLLER_UID_LABEL), labels.get("label-00001")), (Some("u"), None));
        let asks =
            |key: &str, operator| Selector { requirements: vec![Requirement { key: key.into(), operator }] };
        for unknown in [true, false] {
            let of_uid = |uid: &str| asks(CONTROLLER_UID_LABEL, Operator::In(vec![uid.into()]));
            assert!(labels.match_selector(&of_uid("u"), unknown));
            assert!(!labels.match_selector(&of_uid("other"), unknown));
            for operator in [Operator::Exists, Operator::DoesNotExist] {
                assert_eq!(labels.match_selector(&asks("label-00001", operator), unknown), unknown);
            }
        }
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
