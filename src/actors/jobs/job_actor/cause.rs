//! Why a Job is reconciled, for its trace.

use crate::actors::messages::job_input::JobInput;
use crate::telemetry::traces::Attribute;

/// Why a reconciliation takes place.
#[derive(Clone, Copy)]
pub(super) struct Cause {
    pub(super) name: &'static str,
    pub(super) inputs: usize,
    pub(super) pods_changed: usize,
}

impl Cause {
    pub(super) fn of(inputs: &[JobInput]) -> Self {
        Self {
            name: inputs.first().map_or("timer", JobInput::name),
            inputs: inputs.len(),
            pods_changed: inputs.iter().filter(|input| input.is_about_a_pod()).count(),
        }
    }

    pub(super) fn attributes(self, plan_size: usize) -> Vec<Attribute> {
        vec![
            Attribute::new("yardmaster.cause", self.name),
            Attribute::new("yardmaster.inputs", self.inputs as i64),
            Attribute::new("yardmaster.pods_changed", self.pods_changed as i64),
            Attribute::new("yardmaster.plan_size", plan_size as i64),
        ]
    }
}
