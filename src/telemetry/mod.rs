//! What Yardmaster tells about itself: metrics, traces, logs, and the HTTP pages of a replica. It knows names and
//! numbers, not what a Job means.

pub mod http;
pub mod logs;
pub mod metrics;
pub mod traces;

use std::io;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use self::logs::LogFormat;
use self::traces::JobTraces;

/// What a process logs and where it sends its traces.
#[derive(Clone, Debug)]
pub struct Config<'a> {
    /// How logs are written.
    pub log_format: LogFormat,
    /// A level, or directives such as `warn,yardmaster=debug`.
    pub log_level: &'a str,
    /// Collector for traces (OTLP/gRPC). Without it the standard `OTEL_*` variables decide.
    pub otlp_endpoint: Option<&'a str>,
    /// Which replica this is: `service.instance.id` in traces.
    pub identity: &'a str,
}

/// Why there can be no logs or traces.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log level is malformed.
    #[error("log level: {0}")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// The collector's address is malformed.
    #[error("OTLP endpoint: {0}")]
    Endpoint(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The process logs elsewhere already.
    #[error(transparent)]
    Taken(#[from] TryInitError),
}

/// Starts logs (on standard error) and traces of this process. Needs a tokio runtime if there are traces; call
/// [`JobTraces::shutdown`] at the end.
///
/// # Errors
/// See [`StartError`].
pub fn start(config: &Config<'_>) -> Result<JobTraces, StartError> {
    let traces = JobTraces::export(config.otlp_endpoint, config.identity)?;
    let logs = logs::layer(config.log_format, config.log_level, io::stderr)?;
    tracing_subscriber::registry().with(traces.layer()).with(logs).try_init()?;
    Ok(traces)
}
