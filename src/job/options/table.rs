//! The table of all options.

use super::form::Form;
use super::{
    Needs, Options, after, avoid_node, backoff, deadlines, failed_pods_limit, index_results, lost_node,
    max_finished_pods, out_of_memory, propagate_trace, prune_succeeded, restart, waiting_condition,
};
use crate::job::lineage::Lineage;
use crate::job::overlay::Overlay;
use crate::job::template::PodTemplate;

/// An option of Jobs: one annotation, and what it means for pods.
pub trait JobOption {
    /// The annotation, without [`PREFIX`](super::PREFIX).
    const NAME: &'static str;
    /// The type of its values.
    type Value: 'static;
    /// The form of its values.
    const FORM: Form<Self::Value>;
    /// Its effect, for tables in Markdown.
    const EFFECT: &'static str;
    /// How Jobs without it behave, for tables in Markdown.
    const WITHOUT: &'static str;

    /// Records a value.
    fn set(options: &mut Options, value: Self::Value);

    /// The facts about the Job's pods that it needs.
    fn needs(_: &Options) -> Needs {
        Needs::default()
    }

    /// Adds its part to the overlay of a pod that is created.
    fn overlay(_: &Options, _: &PodFacts<'_>, _: &mut Overlay) {}
}

/// Facts that overlays may depend on.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodFacts<'a> {
    /// The W3C `traceparent` of the Job's trace, if there is one.
    pub traceparent: Option<&'a str>,
    /// The template of the Job's pods.
    pub template: Option<&'a PodTemplate>,
    /// The lessons of the pods before it.
    pub lineage: Option<&'a Lineage>,
}

/// An option as a row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The annotation, without [`PREFIX`](super::PREFIX).
    pub name: &'static str,
    /// The expected form of a value.
    pub expected: &'static str,
    /// The values, for tables in Markdown.
    pub values: &'static str,
    /// A regular expression for the whole value, as RE2 reads it.
    pub pattern: &'static str,
    /// Most bytes of a value.
    pub longest: usize,
    /// Its effect, for tables in Markdown.
    pub effect: &'static str,
    /// How Jobs without it behave, for tables in Markdown.
    pub without: &'static str,
    /// Sets the option from a text; false if the text has another form.
    pub(super) set: fn(&mut Options, &str) -> bool,
    pub(super) needs: fn(&Options) -> Needs,
    pub(super) overlay: fn(&Options, &PodFacts<'_>, &mut Overlay),
}

/// All options, in the order of the documentation.
pub const TABLE: &[Row] = &[
    Row::of::<backoff::InitialBackoff>(),
    Row::of::<backoff::MaxBackoff>(),
    Row::of::<failed_pods_limit::FailedPodsLimit>(),
    Row::of::<prune_succeeded::PruneSucceeded>(),
    Row::of::<prune_succeeded::PruneAfter>(),
    Row::of::<max_finished_pods::FinishedPodsLimit>(),
    Row::of::<index_results::KeepResults>(),
    Row::of::<propagate_trace::PropagateTrace>(),
    Row::of::<deadlines::StartDeadline>(),
    Row::of::<deadlines::PodRunDeadline>(),
    Row::of::<deadlines::RunDeadline>(),
    Row::of::<deadlines::SignalBefore>(),
    Row::of::<lost_node::LostNodeTimeout>(),
    Row::of::<avoid_node::AvoidNode>(),
    Row::of::<avoid_node::NodesMax>(),
    Row::of::<avoid_node::AvoidFor>(),
    Row::of::<out_of_memory::MemoryFactor>(),
    Row::of::<out_of_memory::MaxMemory>(),
    Row::of::<out_of_memory::MemoryContainer>(),
    Row::of::<out_of_memory::MemoryExitCodes>(),
    Row::of::<restart::RestartTogether>(),
    Row::of::<restart::RestartLimit>(),
    Row::of::<restart::KeepSucceeded>(),
    Row::of::<after::After>(),
    Row::of::<after::AfterAny>(),
    Row::of::<waiting_condition::WaitingCondition>(),
];

impl Row {
    const fn of<O: JobOption>() -> Self {
        Self {
            name: O::NAME,
            expected: O::FORM.expected,
            values: O::FORM.values,
            pattern: O::FORM.pattern,
            longest: O::FORM.longest,
            effect: O::EFFECT,
            without: O::WITHOUT,
            set: |options, text| {
                let value = Some(text).filter(|text| text.len() <= O::FORM.longest).and_then(O::FORM.parse);
                value.map(|value| O::set(options, value)).is_some()
            },
            needs: O::needs,
            overlay: O::overlay,
        }
    }

    /// Whether a value has the form of this option.
    pub fn accepts(&self, value: &str) -> bool {
        (self.set)(&mut Options::default(), value)
    }
}
