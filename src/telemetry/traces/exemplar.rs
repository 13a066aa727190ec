//! The way from a metric to a trace.

use std::fmt::Display;

use opentelemetry::trace::{TraceContextExt, TraceId};

use super::JobTraces;

impl JobTraces {
    /// The trace of a Job, if it is exported: an exemplar for metrics.
    pub fn exemplar(&self, job_uid: &(impl Display + ?Sized)) -> Option<TraceId> {
        let root = self.exporting.as_ref()?.root_of(&job_uid.to_string());
        let root = root.span().span_context().clone();
        root.is_sampled().then(|| root.trace_id())
    }
}
