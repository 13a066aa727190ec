//! The command line: the only module that combines all others.

mod check;
#[cfg(feature = "embedded")]
mod cluster;
mod color;
mod command_line;
mod completion;
mod connection;
mod console;
mod controller;
mod duration;
#[cfg(feature = "embedded")]
mod embedded;
mod event_view;
mod export;
mod failure;
mod failures;
mod file_problem;
mod fit;
mod http_args;
mod identity;
mod job_name;
mod job_page;
mod job_phase;
mod job_view;
mod line;
mod lists;
mod log_tail;
mod logs;
mod man;
mod namespace;
mod output;
mod ownership;
mod page_client;
mod pod_cause;
mod pod_runtime;
mod pod_view;
mod readable;
mod release;
mod reshard;
mod run;
mod running_replicas;
mod server_address;
mod signals;
mod status;
mod table;
mod temporary;
mod trace;
mod untrusted;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use tokio::runtime::Runtime;

use self::color::ColorChoice;
use self::command_line::{Invocation, map_subcommands};
pub use self::failure::Failure;
use self::identity::default_identity;
use crate::actors::threads;
use crate::cluster::answer_time::AnswerTime;
use crate::telemetry::logs::LogFormat;
use crate::telemetry::traces::{ExportError, JobTraces};
use crate::telemetry::{self, StartError};

/// Exit code after Ctrl-C or SIGTERM, as shells report it: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Widest line of the help, in columns.
const HELP_WIDTH: usize = 100;

/// The text below the help.
const VARIABLES: &str =
    "Every flag can also be set by an environment variable: --log-level by YARDMASTER_LOG_LEVEL.";

/// Kubernetes Jobs for large HPC and ML clusters.
#[derive(Debug, Parser)]
#[command(name = "yardmaster", version, about, after_help = VARIABLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    logging: LoggingArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run Jobs to completion, on an embedded cluster or on an existing one.
    Run(Box<run::RunArgs>),
    /// Run an embedded cluster in the foreground.
    #[cfg(feature = "embedded")]
    Cluster(cluster::ClusterArgs),
    /// Run one replica of the controller.
    Controller(Box<controller::ControllerArgs>),
    /// Show Jobs with their progress, why they create no pods, and the replicas.
    Status(status::StatusArgs),
    /// Show how fast pods are created and end, the slowest and the failing Jobs, and nodes with failed pods.
    Top(status::top::TopArgs),
    /// Print the logs of all pods of a Job.
    Logs(logs::LogsArgs),
    /// Show the trace of a Job as a waterfall: pods, waits, failures and requests with their times.
    Trace(trace::TraceArgs),
    /// Check a cluster before or after the installation, and say what to do about what is not well.
    Check(Box<check::CheckArgs>),
    /// Change the number of shards while no replica runs.
    Reshard(reshard::ReshardArgs),
    /// Take off the finalizers that an uninstalled controller has left, after counting what has ended.
    Release(release::ReleaseArgs),
    /// Print the script that lets a shell complete commands, and the names of Jobs and namespaces.
    Completion(completion::CompletionArgs),
    /// Write the manual pages.
    Man(man::ManArgs),
    /// Print the version.
    Version,
    /// Supervise the processes of an embedded cluster's pods, which starts this by itself.
    #[cfg(feature = "embedded")]
    #[command(name = yardmaster_embedded::kubelet::SUPERVISE, hide = true)]
    Supervise,
}

/// Flags for what all commands print.
#[derive(Debug, Args)]
#[command(next_display_order = 1000, next_help_heading = "Output")]
struct LoggingArgs {
    /// When output has colours: on a terminal unless the variable NO_COLOR is set (auto), always, or never.
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true, hide_possible_values = true)]
    color: ColorChoice,
    /// Log format [default: text].
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<LogForm>,
    /// Minimum log level: error, warn, info, debug, trace, or filters such as yardmaster=debug
    /// [default: warn; controller: info].
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogForm {
    Text,
    Json,
}

/// The identity of this process in logs, traces and Leases, and the exporter of its Jobs' traces.
#[derive(Debug)]
struct Telemetry {
    identity: String,
    traces: JobTraces,
}

/// Parses the command line, runs the command and returns its exit code.
///
/// 0: done; 1: some Job or check failed; 2: bad input, with one line per problem on standard error; 3: could not run;
/// 130: interrupted.
pub fn main() -> ExitCode {
    #[cfg(feature = "embedded")]
    if let Some(code) = embedded::start_mounted() {
        return code;
    }
    let call = Invocation::of_process();
    if call == Invocation::PluginCompletion {
        return completion::answer_kubectl(command());
    }
    if let Some(code) = completion::answer(command) {
        return code;
    }
    let parsed = command().bin_name(call.words()).try_get_matches();
    let cli = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    color::choose(cli.logging.color);
    #[cfg(feature = "embedded")]
    if matches!(cli.command, Command::Supervise) {
        // On the main thread, and without the threads of a runtime.
        return embedded::supervise();
    }
    match execute(cli) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

/// The command line with all its commands and flags.
fn command() -> clap::Command {
    let command = with_variables(Cli::command()).max_term_width(HELP_WIDTH);
    // Help is wrapped for people only.
    if std::io::stdout().is_terminal() { command } else { command.term_width(0) }
}

/// Gives every flag its environment variable.
fn with_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|flag| {
        let variable =
            flag.get_long().map(|name| format!("YARDMASTER_{}", name.to_uppercase().replace('-', "_")));
        match variable {
            Some(variable) => flag.env(variable).hide_env(true),
            None => flag,
        }
    });
    map_subcommands(command, with_variables)
}

fn execute(cli: Cli) -> Result<ExitCode, Failure> {
    let answer_time = AnswerTime::default();
    let runtime = match cli.command {
        Command::Controller(_) => threads::network(answer_time.clone())?,
        _ => Runtime::new()?,
    };
    let entered = runtime.enter();
    let telemetry = cli.start_telemetry()?;
    let traces = telemetry.traces.clone();
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Run(args) => run::run(*args, telemetry).await,
            #[cfg(feature = "embedded")]
            Command::Cluster(args) => cluster::run(args).await,
            Command::Controller(args) => controller::run(*args, telemetry, answer_time).await,
            Command::Status(args) => status::run(args).await,
            Command::Top(args) => status::top::run(args).await,
            Command::Logs(args) => logs::run(args).await,
            Command::Trace(args) => trace::run(args).await,
            Command::Check(args) => check::run(*args).await,
            Command::Reshard(args) => reshard::run(args).await,
            Command::Release(args) => release::run(args).await,
            Command::Completion(args) => completion::run(&args),
            Command::Man(args) => man::run(&args, with_variables(Cli::command())),
            Command::Version => {
                console::print(format_args!("yardmaster {}", env!("CARGO_PKG_VERSION")))?;
                Ok(ExitCode::SUCCESS)
            }
            #[cfg(feature = "embedded")]
            Command::Supervise => Ok(embedded::supervise()),
        }
    });
    // The exporter needs the runtime to send the remaining traces.
    traces.shutdown();
    drop(entered);
    // Tasks that still run are dropped, which kills their processes.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

impl Cli {
    /// Starts logs, and traces if this process runs controllers.
    fn start_telemetry(&self) -> Result<Telemetry, Failure> {
        let identity = self.command.identity().map_or_else(default_identity, str::to_owned);
        let log_level = self.logging.log_level.as_deref().unwrap_or(self.command.default_level());
        let endpoint = self.command.otlp_endpoint();
        let log_format = match self.logging.log_format {
            Some(LogForm::Json) => LogFormat::Json,
            Some(LogForm::Text) | None => LogFormat::Text,
        };
        let trace_memory = self.command.trace_memory();
        let config = telemetry::Config {
            log_format,
            log_level,
            otlp_endpoint: endpoint,
            trace_memory,
            identity: &identity,
        };
        let traces = telemetry::start(&config).map_err(|error| match error {
            StartError::Level(error) => Failure::bad_input(format!("--log-level {log_level:?}: {error}")),
            StartError::Traces(error @ ExportError::Endpoint(_)) => Failure::bad_input(match endpoint {
                Some(_) => format!("--otlp-endpoint {error}"),
                None => format!("the endpoint in the OTEL_ environment variables: {error}"),
            }),
            StartError::Traces(error) => Failure::bad_input(error.to_string()),
            StartError::Taken(error) => error.into(),
        })?;
        Ok(Telemetry { identity, traces })
    }
}

impl Command {
    /// The `--identity` flag.
    fn identity(&self) -> Option<&str> {
        match self {
            Self::Controller(args) => args.identity.as_deref(),
            _ => None,
        }
    }

    /// The `--otlp-endpoint` flag.
    fn otlp_endpoint(&self) -> Option<&str> {
        match self {
            Self::Controller(args) => args.otlp_endpoint.as_deref(),
            _ => None,
        }
    }

    /// Memory for the latest traces, in MiB.
    fn trace_memory(&self) -> u32 {
        match self {
            Self::Controller(args) => args.trace_memory,
            Self::Run(args) if args.needs_traces() => trace::OWN_TRACE_MEMORY,
            _ => 0,
        }
    }

    fn default_level(&self) -> &'static str {
        match self {
            Self::Controller(_) => "info",
            // Commands report their own failed requests, and watches reconnect by themselves.
            _ => "warn,kube_client=off,yardmaster::cluster::watch=error",
        }
    }
}

/// Reads `NAME=true` or `NAME=false`.
fn feature_gate(text: &str) -> Result<(String, bool), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=true or NAME=false")?;
    let value = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
    Ok((name.trim().to_owned(), value))
}

/// Prints help as it is, and a usage error as one line.
fn usage(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        // A closed standard output is not an error.
        let _printed = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _printed = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    let problem = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<_> = problem.split_whitespace().collect();
    console::note(words.join(" ") + &tip(error));
    ExitCode::from(2)
}

/// The flag or command that the user may have meant, as the end of a sentence.
fn tip(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let meant = kinds.into_iter().find_map(|kind| match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => several.first().cloned(),
        _ => None,
    });
    meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        with_variables(Cli::command()).debug_assert();
    }

    #[test]
    fn a_wrong_flag_or_command_gets_a_tip() {
        for (line, meant) in [
            (["yardmaster", "run", "--lgos"], "; did you mean --logs?"),
            (["yardmaster", "statsu", "train"], "; did you mean status?"),
            (["yardmaster", "status", "--zzzz"], ""),
        ] {
            let error = Cli::command().try_get_matches_from(line).unwrap_err();
            assert_eq!(tip(&error), meant, "{line:?}");
        }
    }

    #[test]
    fn every_flag_is_explained_and_has_its_variable() {
        let command = with_variables(Cli::command());
        let mut flags = 0;
        for command in command.get_subcommands() {
            for flag in command.get_arguments().filter(|flag| flag.get_long().is_some()) {
                flags += 1;
                let variable = flag.get_env().and_then(|name| name.to_str());
                assert!(variable.is_some_and(|name| name.starts_with("YARDMASTER_")), "{flag}");
                assert!(flag.get_help().is_some(), "{flag} of {} is not explained", command.get_name());
            }
        }
        assert!(flags > 30);
    }
}
