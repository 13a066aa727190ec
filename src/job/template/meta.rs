//! The labels, annotations and finalizers that pods get from the metadata of a template.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::job::names;
use crate::job::overlay::Overlay;

/// Labels and annotations that we set on each pod. Labels and annotations of the template with these keys
/// are ignored.
const OWN: [&str; 4] =
    [names::SHARD_LABEL, names::PLACE_ANNOTATION, names::BACKOFF_ANNOTATION, names::LINEAGE_ANNOTATION];
/// The additional ones in Indexed Jobs.
const OWN_AT_INDEX: [&str; 3] =
    [names::COMPLETION_INDEX, names::INDEX_FAILURE_COUNT, names::INDEX_IGNORED_FAILURE_COUNT];

/// The metadata of a template that its pods get.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    pub(super) finalizers: Option<Vec<String>>,
}

/// The template's own failure counts of an index, for pods of Indexed Jobs that get none from us: each empty where the
/// template has none.
#[derive(Debug)]
pub(in crate::job) struct FailureCounts<T> {
    pub(in crate::job) counted: T,
    pub(in crate::job) ignored: T,
}

/// Texts by key.
pub(super) type Texts<'a> = Box<dyn Iterator<Item = (&'a String, &'a String)> + 'a>;

impl TemplateMeta {
    /// Labels except those that we set.
    pub(super) fn labels<'a>(&'a self, indexed: bool, overlay: &'a Overlay) -> Texts<'a> {
        Self::given(&self.labels, move |key| !is_own(key, indexed) && !overlay.sets_label(key))
    }

    /// Annotations except those that we set.
    pub(super) fn annotations<'a>(&'a self, indexed: bool, overlay: &'a Overlay) -> Texts<'a> {
        Self::given(&self.annotations, move |key| !is_own(key, indexed) && !overlay.sets_annotation(key))
    }

    /// Annotations that we set where an index has failures to count.
    pub(super) fn failure_counts<T>(
        &self,
        indexed: bool,
        written: impl Fn(Texts<'_>) -> T,
    ) -> FailureCounts<T> {
        let of =
            |name: &'static str| written(Self::given(&self.annotations, move |key| indexed && key == name));
        FailureCounts {
            counted: of(names::INDEX_FAILURE_COUNT),
            ignored: of(names::INDEX_IGNORED_FAILURE_COUNT),
        }
    }

    fn given<'a>(
        texts: &'a Option<BTreeMap<String, String>>,
        wanted: impl Fn(&str) -> bool + 'a,
    ) -> Texts<'a> {
        Box::new(texts.iter().flatten().filter(move |(key, _)| wanted(key)))
    }
}

/// Whether we set this label or annotation on each pod.
fn is_own(key: &str, indexed: bool) -> bool {
    OWN.contains(&key) || (indexed && OWN_AT_INDEX.contains(&key))
}
