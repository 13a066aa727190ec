//! `after` and `after-any`: the Jobs that have to end before. The rule is in [`order`](crate::job::order).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::form::{Form, JOB_NAMES};
use super::{JobOption, JobOptions, Options};

/// The names of the Jobs of the namespace that a Job is after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Predecessors {
    /// The Jobs that have to succeed.
    pub succeeded: Box<[Box<str>]>,
    /// The Jobs that have to finish, with success or not.
    pub finished: Box<[Box<str>]>,
}

impl Predecessors {
    /// All names, and whether success is required.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        let succeeded = self.succeeded.iter().map(|name| (&**name, true));
        succeeded.chain(self.finished.iter().map(|name| (&**name, false)))
    }

    /// The Jobs that are left to wait for, if these have ended as wanted.
    pub fn without(self: &Arc<Self>, met: &BTreeSet<&str>) -> Arc<Self> {
        if met.is_empty() {
            return self.clone();
        }
        let left =
            |names: &[Box<str>]| names.iter().filter(|name| !met.contains(&***name)).cloned().collect();
        Arc::new(Self { succeeded: left(&self.succeeded), finished: left(&self.finished) })
    }

    /// The memory that they take, about, with that of the index of Jobs by name. In the index, the Job waits for each of
    /// them, and those that are [left](Self::without) are known.
    pub fn bytes(&self) -> usize {
        /// A name, a UID and an inbox in a map that is not full.
        const WAITING: usize = 100;
        let each = |name: &str| 2 * size_of::<Box<str>>() + WAITING + 3 * name.len();
        size_of::<Self>() + self.iter().map(|(name, _)| each(name)).sum::<usize>()
    }
}

fn predecessors(options: &mut Options) -> &mut Predecessors {
    Arc::make_mut(options.after.get_or_insert_default())
}

impl JobOptions {
    /// Drops the predecessors, of a Job that waits for none any more.
    pub fn drop_predecessors(&mut self) {
        if self.after.is_some() {
            self.after = None;
        }
    }
}

/// `yardmaster.dev/after`.
pub(super) struct After;

impl JobOption for After {
    const NAME: &'static str = "after";
    type Value = Box<[Box<str>]>;
    const FORM: Form<Self::Value> = JOB_NAMES;
    const EFFECT: &'static str =
        "the Job creates no pods until these Jobs of its namespace have succeeded. See [Order](#order)";
    const WITHOUT: &'static str = "it waits for no other Job";

    fn set(options: &mut Options, names: Self::Value) {
        predecessors(options).succeeded = names;
    }
}

/// `yardmaster.dev/after-any`.
pub(super) struct AfterAny;

impl JobOption for AfterAny {
    const NAME: &'static str = "after-any";
    type Value = Box<[Box<str>]>;
    const FORM: Form<Self::Value> = JOB_NAMES;
    const EFFECT: &'static str =
        "the Job creates no pods until these Jobs of its namespace have succeeded or failed";
    const WITHOUT: &'static str = "it waits for no other Job";

    fn set(options: &mut Options, names: Self::Value) {
        predecessors(options).finished = names;
    }
}
