//! Logs on standard error.

use std::io::{IsTerminal, stderr};

use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// Format of the logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Directives that silence two sources: kube's client, which logs every failed request although its caller
/// logs a better message, and candidates of an election, which log every few seconds.
const QUIET: &str = "kube_client::client::builder=off,kube_leader_election=warn";

/// A layer that writes logs of at least the given level. `level` is a level (`info`) or a list of directives
/// such as `warn,yardmaster=debug`.
///
/// # Errors
/// When the level is malformed.
pub(super) fn layer<S, W>(
    format: LogFormat,
    level: &str,
    writer: W,
) -> Result<Box<dyn Layer<S> + Send + Sync>, ParseError>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(format!("{level},{QUIET}"))?;
    // Colours are only for a terminal.
    let layer = fmt::layer().with_writer(writer).with_ansi(stderr().is_terminal());
    Ok(match format {
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().with_filter(filter).boxed(),
    })
}
