//! Sets of field paths: `FieldsV1`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A path element in the form of `FieldsV1`. Fields and map keys have the form `f:name`, elements of a keyed
/// list `k:{...}`, and elements of a set `v:...`.
pub(super) type Element<'a> = Cow<'a, str>;

/// A set of paths, as a tree. Nearly all elements are borrowed, from the table of types or from an object's
/// own `FieldsV1`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet<'a> {
    /// Whether the path to this node is in the set.
    pub(super) member: bool,
    pub(super) children: BTreeMap<Element<'a>, FieldSet<'a>>,
}

impl<'a> FieldSet<'a> {
    /// The set with only the path to this node.
    pub(super) fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Adds the subset below `element`, unless it is empty.
    pub(super) fn insert(&mut self, element: Element<'a>, below: Self) {
        if !below.is_empty() {
            self.children.insert(element, below);
        }
    }

    /// Removes the subset below `element`.
    pub(super) fn remove(&mut self, element: &str) {
        self.children.remove(element);
    }

    /// Adds the paths of `other`.
    pub(super) fn absorb(&mut self, other: Self) {
        self.member |= other.member;
        if self.children.is_empty() {
            self.children = other.children;
            return;
        }
        for (element, below) in other.children {
            self.children.entry(element).or_default().absorb(below);
        }
    }

    /// The paths of `self` that are not in `other`.
    pub(super) fn subtract(&mut self, other: &FieldSet<'_>) {
        self.member &= !other.member;
        for (element, below) in &other.children {
            if let Some(own) = self.children.get_mut(element.as_ref()) {
                own.subtract(below);
                if own.is_empty() {
                    self.children.remove(element.as_ref());
                }
            }
        }
    }

    /// The paths that are in both sets.
    pub(super) fn intersection(&self, other: &FieldSet<'_>) -> Self {
        let mut both = Self { member: self.member && other.member, children: BTreeMap::new() };
        for (element, below) in &self.children {
            if let Some(other) = other.children.get(element.as_ref()) {
                both.insert(element.clone(), below.intersection(other));
            }
        }
        both
    }

    /// The paths, in the form of messages: `.spec.containers[name="c"].image`. Many paths may share one long
    /// element, so paths beyond a size that no client reads are left out.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.collect_paths("", &mut paths, &mut 0);
        paths
    }

    fn collect_paths(&self, path: &str, paths: &mut Vec<String>, size: &mut usize) {
        if self.member {
            paths.push(path.to_owned());
        }
        for (element, below) in &self.children {
            if *size >= PATHS_SIZE_MAX {
                return;
            }
            let path = format!("{path}{}", shown(element));
            *size += path.len();
            below.collect_paths(&path, paths, size);
        }
    }

    pub(super) fn into_json(self) -> Value {
        let mut map: Map<String, Value> = self
            .children
            .into_iter()
            .map(|(element, below)| (element.into_owned(), below.into_json()))
            .collect();
        if self.member && !map.is_empty() {
            map.insert(SELF.into(), json!({}));
        }
        Value::Object(map)
    }

    /// Reads the form that [`into_json`](Self::into_json) writes.
    pub(super) fn from_json(value: &'a Value) -> Self {
        let mut set = Self::below(value);
        // The root is not a path.
        set.member = false;
        set
    }

    fn below(value: &'a Value) -> Self {
        let map = value.as_object();
        let children: BTreeMap<Element<'a>, Self> = map
            .into_iter()
            .flatten()
            .filter(|(element, _)| *element != SELF)
            .map(|(element, below)| (element.as_str().into(), Self::below(below)))
            .collect();
        let member = children.is_empty() || map.is_some_and(|map| map.contains_key(SELF));
        Self { member, children }
    }

    /// Whether this set has a path in common with a set in the form of [`into_json`](Self::into_json), which
    /// is read only as far as necessary.
    pub(super) fn meets(&self, json: &Value) -> bool {
        self.children.iter().any(|(element, own)| {
            json.get(element.as_ref()).is_some_and(|below| {
                let is_member = || match below.as_object() {
                    Some(map) => map.is_empty() || map.contains_key(SELF),
                    None => true,
                };
                (own.member && is_member()) || own.meets(below)
            })
        })
    }
}

/// Maximum size of all paths of a set, in bytes.
const PATHS_SIZE_MAX: usize = 4 << 20;

/// The element for the path itself, used if paths below it are also in the set.
const SELF: &str = ".";

/// A path element in the form of messages.
fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some(("v", value)) => format!("[={value}]"),
        _ => format!("[{element}]"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reading_and_writing_agree() {
        let value = json!({"f:spec": {"f:a": {}, "f:list": {".": {}, "k:{\"name\":\"c\"}": {".": {}, "f:image": {}}}}});
        assert_eq!(FieldSet::from_json(&value).into_json(), value);
        assert_eq!(
            FieldSet::from_json(&value).paths(),
            [".spec.a", ".spec.list", ".spec.list[name=\"c\"]", ".spec.list[name=\"c\"].image"]
        );
    }

    #[test]
    fn set_operations_work_on_paths() {
        let (a, b) =
            (json!({"f:spec": {"f:a": {}, "f:b": {".": {}, "f:c": {}}}}), json!({"f:spec": {"f:b": {}}}));
        let (mut a, b) = (FieldSet::from_json(&a), FieldSet::from_json(&b));
        assert_eq!(a.intersection(&b).paths(), [".spec.b"]);
        a.subtract(&b);
        assert_eq!(a.paths(), [".spec.a", ".spec.b.c"]);
        a.absorb(b);
        assert_eq!(a.paths(), [".spec.a", ".spec.b", ".spec.b.c"]);
    }

    fn sets() -> impl Strategy<Value = Value> {
        let leaf = Just(json!({}));
        let tree = leaf.prop_recursive(3, 12, 3, |below| {
            proptest::collection::btree_map("[.]|f:[abc]", below, 0..4)
                .prop_map(|map| map.into_iter().collect::<Value>())
        });
        // The canonical form: the element for the path itself has siblings and nothing below it.
        tree.prop_map(|tree| FieldSet::from_json(&tree).into_json())
    }

    proptest! {
        #[test]
        fn sets_meet_if_they_have_a_path_in_common(a in sets(), b in sets()) {
            let (left, right) = (FieldSet::from_json(&a), FieldSet::from_json(&b));
            prop_assert_eq!(left.meets(&b), !left.intersection(&right).paths().is_empty());
        }
    }
}
