//! Options beyond Kubernetes, which a Job sets by annotation.
//!
//! Each option is a type with the trait [`JobOption`], in the file of its group, and a row of [`TABLE`]. The parser, the
//! table of `docs/options.md` and the admission policy of the chart ([`admission`]) are made from these rows.
//!
//! The rules that follow an option are where the other rules are: they read [`Options`].

pub mod admission;
mod backoff;
mod failed_pods_limit;
pub mod form;
mod needs;
mod propagate_trace;
mod prune_succeeded;
mod table;
mod trace_caller;

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::overlay::Overlay;
pub use backoff::PodBackoff;
pub use needs::Needs;
pub use table::{JobOption, PodFacts, Row, TABLE};
pub use trace_caller::TraceCaller;

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
    /// The containers learn the trace of the Job.
    pub propagate_trace: bool,
    /// The trace that the Job was created in.
    pub caller: Option<TraceCaller>,
    /// Annotations with invalid values, in the order of [`TABLE`].
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
        let mut caller = trace_caller::Reader::default();
        for (key, value) in annotations {
            caller.read(key, value);
            let name = key.strip_prefix(PREFIX);
            let row = name.and_then(|name| TABLE.iter().position(|row| row.name == name));
            found.extend(row.map(|row| (row, key, value)));
        }
        found.sort_unstable_by_key(|(row, ..)| *row);
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
        options
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
        (!overlay.is_empty()).then(|| overlay.into())
    }
}

impl Options {
    /// Whether pods may have to be deleted after they have been counted.
    pub fn deletes_counted_pods(&self) -> bool {
        self.failed_pods_limit.is_some() || self.prune_succeeded
    }

    /// What must be known of the Job's pods because of its options.
    pub fn needs(&self) -> Needs {
        TABLE.iter().fold(Needs::default(), |needs, row| needs.and((row.needs)(self)))
    }
}

#[cfg(test)]
mod tests;
