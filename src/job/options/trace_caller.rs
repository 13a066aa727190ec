//! The trace that a Job was created in, an annotation by its creator (KEP-5915).

/// The trace that a Job was created in, as W3C Trace Context writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceCaller {
    /// `traceparent`.
    pub traceparent: Box<str>,
    /// `tracestate`; empty where there is none.
    pub tracestate: Box<str>,
}

/// The annotations.
pub(super) const TRACEPARENT: &str = "tracing.k8s.io/traceparent";
pub(super) const TRACESTATE: &str = "tracing.k8s.io/tracestate";
/// Longest `tracestate` that is read, in bytes: W3C asks for no more.
pub(super) const LONGEST: usize = 512;

/// Reads the trace from annotations.
#[derive(Default)]
pub(super) struct CallerReader<'a> {
    traceparent: Option<&'a str>,
    tracestate: Option<&'a str>,
}

impl<'a> CallerReader<'a> {
    /// Reads an annotation.
    pub(super) fn read(&mut self, key: &str, value: &'a str) {
        match key {
            TRACEPARENT => self.traceparent = Some(value),
            TRACESTATE => self.tracestate = Some(value),
            _ => {}
        }
    }

    /// The trace, if the annotations name one.
    pub(super) fn found(self) -> Option<TraceCaller> {
        let traceparent = self.traceparent.filter(is_traceparent)?;
        let tracestate = self.tracestate.filter(|state| state.len() <= LONGEST).unwrap_or_default();
        Some(TraceCaller { traceparent: traceparent.into(), tracestate: tracestate.into() })
    }
}

/// Whether a text has the form of a W3C `traceparent` of version 00.
fn is_traceparent(text: &&str) -> bool {
    let widths = text.split('-').map(str::len);
    widths.eq([2, 32, 16, 2]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}
