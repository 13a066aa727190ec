//! Logs on standard error.

mod repeats;

use std::io::{IsTerminal, stderr};

use tracing::Subscriber;
use tracing_subscriber::filter::{FilterExt, ParseError};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, fmt};

pub(super) use self::repeats::Repeats;
use super::printable::Screened;

/// Format of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text for people.
    #[default]
    Text,
    /// A JSON object per line.
    Json,
}

/// Logs a line about a Job, with the attributes of its spans and the ids of its trace. Takes a level, the
/// [`JobName`](crate::telemetry::traces::JobName), further fields, and the message.
macro_rules! log_job {
    ($level:ident, $job:expr, $($line:tt)+) => {
        ::tracing::$level!(
            k8s.namespace.name = %$job.namespace,
            k8s.job.name = %$job.name,
            k8s.job.uid = %$job.uid,
            trace_id = %$crate::telemetry::traces::trace_id_of(&$job.uid.to_string()),
            span_id = %$crate::telemetry::traces::root_span_id_of(&$job.uid.to_string()),
            $($line)+
        )
    };
}

/// Directives that silence two sources. kube's client logs every failed request, although its caller logs a
/// better message; candidates of an election log every few seconds.
const QUIET: &str = "kube_client::client::builder=off,kube_leader_election=warn";

/// A layer that writes logs of at least the given level. `level` is a level (`info`) or a list of directives
/// such as `warn,yardmaster=debug`. Repeated warnings are counted instead of logged.
///
/// # Errors
/// When the level is malformed.
pub(super) fn layer<S, W>(
    format: LogFormat,
    level: &str,
    writer: W,
    repeats: Repeats,
) -> Result<Box<dyn Layer<S> + Send + Sync>, ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(format!("{level},{QUIET}"))?.and(repeats);
    // Colours are only for a terminal.
    let has_colours = stderr().is_terminal();
    let writer = Screened::new(writer, format == LogFormat::Json, has_colours);
    let layer = fmt::layer().with_writer(writer).with_ansi(has_colours);
    Ok(match format {
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).with_filter(filter).boxed(),
    })
}

#[cfg(test)]
mod tests;
