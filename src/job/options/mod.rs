//! Options beyond Kubernetes, which a Job sets by annotation.
//!
//! Each option is a type with the trait [`JobOption`], in the file of its group, and a row of [`TABLE`]. The parser, the
//! table of `docs/options.md` and the admission policy of the chart ([`admission`]) are made from these rows.
//!
//! The rules that follow an option are where the other rules are: they read [`Options`].

pub mod admission;
mod after;
mod avoid_node;
mod backoff;
mod deadlines;
mod defaults;
mod failed_pods_limit;
pub mod form;
mod index_results;
mod lost_node;
mod max_finished_pods;
mod needs;
mod out_of_memory;
mod propagate_trace;
mod prune_succeeded;
mod restart;
mod table;
mod trace_caller;
mod waiting_condition;

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::lineage::Lineage;
use super::memory::MemoryAmount;
use super::names;
use super::overlay::Overlay;
pub use after::Predecessors;
pub use avoid_node::Avoidance;
pub use backoff::PodBackoff;
pub use defaults::{DefaultError, DefaultOption};
pub use needs::Needs;
pub use table::{JobOption, PodFacts, Row, TABLE};
pub use trace_caller::TraceCaller;

use crate::mutants::{Mutant, is};

/// Prefix of Yardmaster's annotations on Jobs.
pub const PREFIX: &str = "yardmaster.dev/";

/// The options of a Job. An annotation with an invalid value sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Delay after the first failed pod.
    pub backoff_initial: Option<Duration>,
    /// Longest delay after failed pods.
    pub backoff_max: Option<Duration>,
    /// How many failed pods are kept; older ones are deleted once counted.
    pub failed_pods_limit: Option<u32>,
    /// Succeeded pods of a running Indexed Job are deleted once they are counted.
    pub prune_succeeded: bool,
    /// How long after their end they are.
    pub prune_after: Option<Duration>,
    /// How many ended pods are kept; older ones are deleted once counted.
    pub max_finished_pods: Option<u32>,
    /// The Job says how each index has ended.
    pub index_results: bool,
    /// The containers learn the trace of the Job.
    pub propagate_trace: bool,
    /// How long a pod may wait to start.
    pub start_deadline: Option<Duration>,
    /// How long a pod may run.
    pub pod_run_deadline: Option<Duration>,
    /// How long the pods of the Job may run, since the first of them began.
    pub run_deadline: Option<Duration>,
    /// How long before the end of a run its pods get a signal.
    pub signal_before: Option<Duration>,
    /// How long the node of a pod may be silent.
    pub lost_node_timeout: Option<Duration>,
    /// Whether a retry avoids the nodes of failures, how many, and for how long.
    pub avoid_node: Option<Avoidance>,
    /// How many nodes are avoided at once.
    pub avoid_nodes_max: Option<u32>,
    /// How long a node is avoided.
    pub avoid_for: Option<Duration>,
    /// By how much memory is multiplied after `OOMKilled`, in hundredths.
    pub memory_factor: Option<u32>,
    /// The most memory that is asked for.
    pub memory_max: Option<MemoryAmount>,
    /// The only container whose memory is raised.
    pub memory_container: Option<Box<str>>,
    /// Exit codes that mean the same as `OOMKilled`.
    pub memory_exit_codes: Box<[i32]>,
    /// All pods are replaced together.
    pub restart_together: bool,
    /// How often they are.
    pub max_restarts: Option<u32>,
    /// Pods that have succeeded before count.
    pub restart_keep_succeeded: bool,
    /// A condition says why the Job does not go on.
    pub waiting_condition: bool,
    /// The Jobs that have to end before this one begins.
    pub after: Option<Arc<Predecessors>>,
    /// The trace that the Job was created in.
    pub caller: Option<TraceCaller>,
    /// Annotations with invalid values, in the order of [`TABLE`], and then those that the Job may not have.
    pub rejected: Vec<Rejected>,
}

/// The options of a Job, which nearly all Jobs have none of: these take one word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOptions(Option<Box<Options>>);

static NONE: LazyLock<Options> = LazyLock::new(Options::default);

impl Deref for JobOptions {
    type Target = Options;

    fn deref(&self) -> &Options {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for JobOptions {
    fn deref_mut(&mut self) -> &mut Options {
        self.0.get_or_insert_default()
    }
}

impl From<Options> for JobOptions {
    fn from(options: Options) -> Self {
        Self((options != Options::default()).then(|| options.into()))
    }
}

/// An annotation with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("annotation {key}: {value:?} is ignored: {expected} is expected")]
pub struct Rejected {
    /// The whole key.
    pub key: Box<str>,
    /// The value, truncated if it is long.
    pub value: Box<str>,
    /// The expected form.
    pub expected: &'static str,
}

/// Longest part of an invalid value that is shown to the user, in characters.
const SHOWN: usize = 64;

impl JobOptions {
    /// Reads a Job's annotations. Unknown ones are ignored.
    pub fn read<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut found = Vec::new();
        let mut caller = trace_caller::CallerReader::default();
        for (key, value) in annotations {
            caller.read(key, value);
            let name = key.strip_prefix(PREFIX);
            let row = name.and_then(|name| TABLE.iter().position(|row| row.name == name));
            found.extend(row.map(|row| (row, key, value)));
        }
        // Of a name that comes twice, the last value counts.
        found.sort_by_key(|(row, ..)| *row);
        let mut options = Self::default();
        if let Some(caller) = caller.found() {
            options.caller = Some(caller);
        }
        for (row, key, value) in found {
            let Row { expected, set, .. } = TABLE[row];
            if !set(&mut options, value) {
                let value = value.chars().take(SHOWN).collect::<String>().into();
                options.rejected.push(Rejected { key: key.into(), value, expected });
            }
        }
        // An option that is set to what it is without an annotation needs no memory.
        options.0.map_or_else(Self::default, |options| (*options).into())
    }

    /// The facts about the Job's pods that its options need.
    pub fn needs(&self) -> Needs {
        let options = self.0.as_deref();
        options.map_or(Needs::default(), |options| {
            TABLE.iter().fold(Needs::default(), |needs, row| needs.and((row.needs)(options)))
        })
    }

    /// Drops the trace that the Job was created in.
    #[must_use]
    pub fn without_caller(self) -> Self {
        match self.0 {
            Some(options) if options.caller.is_some() => Options { caller: None, ..*options }.into(),
            other => Self(other),
        }
    }

    /// The overlay of a pod that is created; `None` if it would be empty.
    pub fn overlay(&self, facts: &PodFacts<'_>) -> Option<Arc<Overlay>> {
        let options = self.0.as_deref()?;
        let mut overlay = Overlay::default();
        TABLE.iter().for_each(|row| (row.overlay)(options, facts, &mut overlay));
        let lineage = facts.lineage.filter(|lineage| !lineage.is_empty() && !is(Mutant::LineageNotWritten));
        let lineage = lineage.map(Lineage::to_string);
        overlay.annotations.extend(lineage.map(|lineage| (names::LINEAGE_ANNOTATION, lineage.into())));
        (!overlay.is_empty()).then(|| overlay.into())
    }
}

impl Options {
    /// Whether pods may have to be deleted after they have been counted.
    pub fn deletes_counted_pods(&self) -> bool {
        self.failed_pods_limit.is_some() || self.prune_succeeded || self.max_finished_pods.is_some()
    }
}

#[cfg(test)]
mod tests;
