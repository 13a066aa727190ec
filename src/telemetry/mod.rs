//! Observability: metrics, traces, logs, and the HTTP pages of a replica. This module knows names and
//! numbers, not the meaning of a Job.

pub mod http;
#[macro_use]
pub mod logs;
pub mod metrics;
pub(crate) mod printable;
pub mod traces;

use std::io;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use self::logs::{LogFormat, Repeats};
use self::traces::{ExportError, JobTraces};

/// Configuration of a process's logs and traces.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// Format of the logs.
    pub log_format: LogFormat,
    /// A level, or directives such as `warn,yardmaster=debug`.
    pub log_level: &'a str,
    /// Collector for traces (OTLP). If absent, the standard `OTEL_*` variables decide.
    pub otlp_endpoint: Option<&'a str>,
    /// Memory for the latest traces, in MiB, 1024 at most; 0 keeps none.
    pub trace_memory: u32,
    /// Identity of the replica: `service.instance.id` in traces.
    pub identity: &'a str,
}

/// Why logs or traces could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log level is malformed.
    #[error("log level: {0}")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// Traces cannot be exported as asked.
    #[error("traces: {0}")]
    Traces(#[from] ExportError),
    /// The process already has another subscriber.
    #[error(transparent)]
    Taken(#[from] TryInitError),
}

/// Starts logs (on standard error) and traces of this process. Needs a tokio runtime. Call
/// [`JobTraces::shutdown`] at the end.
///
/// # Errors
/// See [`StartError`].
pub fn start(config: &Config<'_>) -> Result<JobTraces, StartError> {
    let traces = JobTraces::start(config.otlp_endpoint, config.identity, config.trace_memory)?;
    let repeats = Repeats::default();
    let logs = logs::layer(config.log_format, config.log_level, io::stderr, repeats.clone())?;
    tracing_subscriber::registry().with(traces.layer()).with(logs).try_init()?;
    tokio::spawn(repeats.report());
    Ok(traces)
}
