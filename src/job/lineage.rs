//! The lineage of a pod: what its predecessors have taught, for Jobs whose options ask for that.
//!
//! A pod carries it in an annotation. So it outlives the pods that it comes from, and the owner of the Job. Two lineages of
//! one place [join](Lineage::join): the order in which pods are seen does not matter, nor how often.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::second::Second;

/// The lessons of the predecessors of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// How often all pods of the Job were replaced together before this one.
    pub attempt: u32,
    /// Nodes on which predecessors have failed, each once, by name.
    pub nodes: Vec<FailedOn>,
    /// Containers whose memory was raised, each once, by name.
    pub raises: Vec<Raise>,
}

/// A node on which a pod has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedOn {
    /// Name of the node.
    pub node: Arc<str>,
    /// When a pod last failed there.
    pub at: Second,
}

/// A container that has run out of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// Name of the container.
    pub container: Box<str>,
    /// How often its memory is multiplied.
    pub times: u32,
}

/// The approximate memory of an allocation beside its bytes.
const ALLOCATION: usize = 16;
/// The longest annotation that is read or written, in bytes.
const LONGEST: usize = 16 << 10;
/// The most parts of an annotation that are read. A lineage has three.
const MOST_PARTS: usize = 8;
/// The most nodes that are remembered of a place.
pub const MOST_NODES: usize = 50;
/// The most containers that are remembered of a place.
const MOST_CONTAINERS: usize = 32;
/// The most raises: more exceed any memory.
const MOST_RAISES: u32 = 64;

impl Lineage {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.attempt == 0 && self.nodes.is_empty() && self.raises.is_empty()
    }

    /// The approximate memory of its entry in a table of lineages, in bytes; 0 if it says nothing. A list has room for twice
    /// as many entries at most.
    pub fn bytes(&self) -> usize {
        let of_node = |failed: &FailedOn| 2 * size_of::<FailedOn>() + failed.node.len() + 2 * ALLOCATION;
        let of_raise = |raise: &Raise| 2 * size_of::<Raise>() + raise.container.len() + ALLOCATION;
        let own = if self.is_empty() { 0 } else { size_of::<(u32, Self)>() + 2 * ALLOCATION };
        own + self.nodes.iter().map(of_node).sum::<usize>() + self.raises.iter().map(of_raise).sum::<usize>()
    }

    /// Reads the annotation of a pod, and of each list as many entries as a lineage has. Parts that cannot be read say nothing.
    pub fn read(text: &str) -> Self {
        let text = Self::kept(text);
        let value = |name: &str| {
            let mut parts = text.split(' ').take(MOST_PARTS).filter_map(|part| part.split_once('='));
            parts.find(|(part, _)| *part == name).map(|(_, value)| value)
        };
        let list = |name: &str| value(name).into_iter().flat_map(|value| value.split(','));
        let attempt = value("attempt").map_or(0, Self::read_attempt);
        let mut lineage = Self { attempt, ..Self::default() };
        let nodes = list("nodes").take(MOST_NODES).filter_map(FailedOn::read);
        nodes.for_each(|node| lineage.add_node(node));
        let raises = list("memory").take(MOST_CONTAINERS).filter_map(Raise::read);
        raises.for_each(|raise| lineage.add_raise(raise));
        lineage
    }

    /// The part of an annotation that may be kept, which is all of it or nothing.
    pub fn kept(text: &str) -> &str {
        if text.len() <= LONGEST { text } else { "" }
    }

    /// Reads only the attempt, which an annotation begins with if it has one.
    pub fn attempt_of(text: &str) -> u32 {
        let attempt = text.strip_prefix("attempt=").and_then(|rest| rest.split(' ').next());
        attempt.map_or(0, Self::read_attempt)
    }

    /// Reads the number of an attempt; 0 if it is none.
    pub fn read_attempt(text: &str) -> u32 {
        text.parse().ok().filter(|number| *number < u32::MAX).unwrap_or(0)
    }

    /// Adds what another lineage of the same place says.
    pub fn join(&mut self, other: &Self) {
        self.attempt = self.attempt.max(other.attempt);
        other.nodes.iter().cloned().for_each(|node| self.add_node(node));
        other.raises.iter().cloned().for_each(|raise| self.add_raise(raise));
    }

    /// Adds a node. Of too many, the oldest goes.
    pub fn add_node(&mut self, failed: FailedOn) {
        match self.nodes.binary_search_by(|known| known.node.cmp(&failed.node)) {
            Ok(known) => self.nodes[known].at = self.nodes[known].at.max(failed.at),
            Err(place) => self.nodes.insert(place, failed),
        }
        if self.nodes.len() > MOST_NODES {
            let oldest = (0..self.nodes.len()).min_by_key(|place| (self.nodes[*place].at, *place));
            oldest.into_iter().for_each(|oldest| _ = self.nodes.remove(oldest));
        }
    }

    /// Adds a raise.
    pub fn add_raise(&mut self, raise: Raise) {
        let times = raise.times.min(MOST_RAISES);
        match self.raises.binary_search_by(|known| known.container.cmp(&raise.container)) {
            Ok(known) => self.raises[known].times = self.raises[known].times.max(times),
            Err(place) if self.raises.len() < MOST_CONTAINERS => {
                self.raises.insert(place, Raise { times, ..raise });
            }
            Err(_) => {}
        }
    }

    /// How often the memory of a container is multiplied.
    pub fn raises_of(&self, container: &str) -> u32 {
        self.raises.iter().find(|raise| *raise.container == *container).map_or(0, |raise| raise.times)
    }

    /// The newest nodes of at most this number on which a pod has failed since a time.
    pub fn newest_nodes(&self, most: usize, since: Timestamp) -> Vec<FailedOn> {
        let mut nodes: Vec<_> =
            self.nodes.iter().filter(|failed| Timestamp::from(failed.at) >= since).cloned().collect();
        nodes.sort_by(|a, b| b.at.cmp(&a.at).then_with(|| a.node.cmp(&b.node)));
        nodes.truncate(most);
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        nodes
    }
}

/// The longest name that is remembered, in bytes: the longest value of a label.
const LONGEST_NAME: usize = 63;

/// Whether a text is a name that a container can have, or a node whose name is the value of its label
/// [`HOSTNAME_LABEL`](super::names::HOSTNAME_LABEL). Nothing in it needs escaping, and a full lineage is shorter than
/// [`LONGEST`].
fn is_name(text: &str) -> bool {
    let has_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= LONGEST_NAME
        && has_end(bytes.first())
        && has_end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(byte))
}

impl FailedOn {
    /// The record of a failure, if the node has a name that a node can have.
    pub fn new(node: Arc<str>, at: Second) -> Option<Self> {
        is_name(&node).then_some(Self { node, at })
    }

    fn read(text: &str) -> Option<Self> {
        let (node, at) = text.split_once('@')?;
        Self::new(node.into(), Timestamp::from_second(at.parse().ok()?).ok()?.into())
    }
}

impl Raise {
    /// The record of a raise, if the container has a name that a container can have.
    pub fn new(container: &str, times: u32) -> Option<Self> {
        (is_name(container) && times > 0).then(|| Self { container: container.into(), times })
    }

    fn read(text: &str) -> Option<Self> {
        let (container, times) = text.split_once(':')?;
        Self::new(container, times.parse().ok()?)
    }
}

/// The annotation.
impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if self.attempt > 0 {
            write!(f, "attempt={}", self.attempt)?;
            separator = " ";
        }
        let mut list = |name: &str, entries: &mut dyn Iterator<Item = String>| -> fmt::Result {
            for (number, entry) in entries.enumerate() {
                match number {
                    0 => write!(f, "{separator}{name}={entry}")?,
                    _ => write!(f, ",{entry}")?,
                }
                separator = " ";
            }
            Ok(())
        };
        let seconds = |at: Second| Timestamp::from(at).as_second();
        list(
            "nodes",
            &mut self.nodes.iter().map(|failed| format!("{}@{}", failed.node, seconds(failed.at))),
        )?;
        list("memory", &mut self.raises.iter().map(|raise| format!("{}:{}", raise.container, raise.times)))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::job::tests::fixture::{at, cases};

    fn failed(node: &str, second: i64) -> FailedOn {
        FailedOn::new(node.into(), at(second).into()).unwrap()
    }

    #[test]
    fn an_annotation_says_what_the_lineage_says() {
        let mut lineage = Lineage { attempt: 3, ..Lineage::default() };
        lineage.add_node(failed("node-b", 20));
        lineage.add_node(failed("node-a", 30));
        lineage.add_raise(Raise::new("main", 2).unwrap());
        lineage.add_raise(Raise::new("side", 1).unwrap());
        let text = "attempt=3 nodes=node-a@30,node-b@20 memory=main:2,side:1";
        assert_eq!((lineage.to_string().as_str(), Lineage::read(text)), (text, lineage));
        for (text, read) in [
            ("", ""),
            ("attempt=4294967295", ""),
            ("attempt=x nodes=a b@,@7,\"@1 memory=:1,c:0,d:-1", ""),
            ("new=thing memory=c:900", "memory=c:64"),
        ] {
            assert_eq!(Lineage::read(text).to_string(), read, "{text}");
        }
    }

    #[test]
    fn the_newest_nodes_are_avoided_until_they_are_forgotten() {
        let mut lineage = Lineage::default();
        for (node, second) in [("a", 10), ("b", 40), ("c", 30), ("a", 20), ("d", 5)] {
            lineage.add_node(failed(node, second));
        }
        let newest = |most, since| {
            let nodes = lineage.newest_nodes(most, at(since));
            nodes.iter().map(|failed| failed.node.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            [newest(2, 0), newest(9, 0), newest(9, 20), newest(9, 41)],
            ["b c", "a b c d", "a b c", ""]
        );
        (0..200).for_each(|second| lineage.add_node(failed(&format!("n{second}"), 100 + second)));
        assert_eq!(lineage.nodes.len(), MOST_NODES);
        assert!(lineage.nodes.iter().all(|failed| failed.at >= at(250).into()));
    }

    /// Any client that may change pods may write the annotation, which is read with each change.
    #[test]
    fn of_longer_lists_only_as_much_is_read_as_a_lineage_has() {
        let list = |number: usize, end: &str| {
            (0..number).map(|number| format!("n{number:04}{end}")).collect::<Vec<_>>().join(",")
        };
        let text =
            |nodes, containers| format!("nodes={} memory={}", list(nodes, "@1"), list(containers, ":1"));
        let longer = text(600, 600);
        assert!(longer.len() <= LONGEST);
        assert_eq!(Lineage::read(&longer), Lineage::read(&text(MOST_NODES, MOST_CONTAINERS)));
        let again = format!("nodes=a@1{}", " nodes=b@1".repeat(1_000));
        assert_eq!(Lineage::read(&again).to_string(), "nodes=a@1");
    }

    #[test]
    fn the_fullest_annotation_is_read() {
        let name = |number: i64| format!("{}{number:03}", "n".repeat(LONGEST_NAME - 3));
        let latest = Timestamp::MAX.as_second() - 100;
        let mut full = Lineage { attempt: u32::MAX - 1, ..Lineage::default() };
        (0..100).for_each(|number| full.add_node(failed(&name(number), latest + number)));
        (0..100).for_each(|number| full.add_raise(Raise::new(&name(number), MOST_RAISES).unwrap()));
        let text = full.to_string();
        assert!(text.len() <= LONGEST, "{}", text.len());
        assert_eq!(Lineage::read(&text), full);
    }

    /// An API server refuses a pod whose affinity names another.
    #[test]
    fn only_nodes_with_the_name_of_a_label_are_remembered() {
        for (node, remembered) in [
            (&*"n".repeat(63), true),
            (&*"n".repeat(64), false),
            ("ip-10-0-0-1.eu.internal", true),
            ("-a", false),
            ("a.", false),
            ("", false),
            ("a b", false),
        ] {
            assert_eq!(FailedOn::new(node.into(), at(1).into()).is_some(), remembered, "{node}");
        }
    }

    fn lineages() -> impl Strategy<Value = Lineage> {
        let nodes = prop::collection::vec((0_i64..4, 0_i64..50), 0..5);
        let raises = prop::collection::vec((0..3, 1_u32..5), 0..4);
        (0_u32..3, nodes, raises).prop_map(|(attempt, nodes, raises)| {
            let mut lineage = Lineage { attempt, ..Lineage::default() };
            nodes
                .into_iter()
                .for_each(|(node, second)| lineage.add_node(failed(&format!("n{node}"), second)));
            for (container, times) in raises {
                lineage.add_raise(Raise::new(&format!("c{container}"), times).unwrap());
            }
            lineage
        })
    }

    proptest! {
        #![proptest_config(cases(41))]

        #[test]
        fn lineages_join_in_any_order_and_survive_the_annotation(
            [a, b, c] in [lineages(), lineages(), lineages()],
        ) {
            let joined = |parts: [&Lineage; 3]| {
                let mut joined = Lineage::default();
                parts.into_iter().for_each(|part| joined.join(part));
                joined
            };
            let all = joined([&a, &b, &c]);
            prop_assert_eq!(&joined([&c, &a, &b]), &all);
            prop_assert_eq!(&joined([&all, &b, &a]), &all);
            prop_assert_eq!(&Lineage::read(&all.to_string()), &all);
        }
    }
}
