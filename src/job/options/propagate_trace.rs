//! `propagate-trace`: the containers learn the trace of their Job.

use super::form::{FLAG, Form};
use super::{JobOption, Options, PodFacts};
use crate::job::names::TRACEPARENT_ENV;
use crate::job::overlay::{Overlay, Variable, VariableValue};

/// `yardmaster.dev/propagate-trace`.
pub(super) struct PropagateTrace;

impl JobOption for PropagateTrace {
    const NAME: &'static str = "propagate-trace";
    type Value = bool;
    const FORM: Form<bool> = FLAG;
    const EFFECT: &'static str = "the containers have the variable `TRACEPARENT`, so that their spans join the \
                                  [trace of the Job](tracing.md#other-traces)";
    const WITHOUT: &'static str = "they do not";

    fn set(options: &mut Options, propagates: bool) {
        options.propagate_trace = propagates;
    }

    fn overlay(options: &Options, facts: &PodFacts<'_>, overlay: &mut Overlay) {
        let trace = facts.traceparent.filter(|_| options.propagate_trace);
        let variable =
            |trace: &str| Variable { name: TRACEPARENT_ENV, value: VariableValue::Text(trace.into()) };
        overlay.env.extend(trace.map(variable));
    }
}
