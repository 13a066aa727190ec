//! Logs on standard error.

use std::io::{IsTerminal, stderr};

use tracing::Subscriber;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, fmt};

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for people.
    #[default]
    Text,
    /// A JSON object a line.
    Json,
}

/// What kube's client logs of every failed request, which whoever made the request says better; and what every candidate of an
/// election logs every few seconds.
const QUIET: &str = "kube_client::client::builder=off,kube_leader_election=warn";

/// A layer that writes logs of at least the given level. `level` is a level (`info`) or a list of directives such as
/// `warn,yardmaster=debug`.
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
    // Colours are for a terminal; in a file they would be in the way.
    let layer = fmt::layer().with_writer(writer).with_ansi(stderr().is_terminal());
    Ok(match format {
        LogFormat::Text => layer.with_filter(filter).boxed(),
        LogFormat::Json => layer.json().with_filter(filter).boxed(),
    })
}
