//! `yardmaster trace`: the trace of a Job as a waterfall, from the memory of controllers or from a file.

mod spans;
mod waterfall;

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use futures::future::join_all;

use self::spans::JobSpans;
use super::Failure;
use super::color;
use super::connection::ConnectionArgs;
use super::console::{note, unless_closed};
use super::file_problem::file_problem;
use super::job_name::JobName;
use super::namespace::parse_namespace;
use super::output::{self, Format};
use super::page_client::PageAddress;
use super::signals::Interrupts;
use crate::telemetry::traces::otlp::OtlpTraces;

/// Memory that `run` and the controllers of `cluster` have for the latest traces, in MiB.
pub(super) const OWN_TRACE_MEMORY: u32 = 8;
/// Width of a waterfall that goes to no terminal, in columns.
const WIDTH: usize = 100;
/// The longest file that is read, in bytes.
const LONGEST: u64 = 1 << 30;

/// The text below the help.
const EXAMPLES: &str = "\
Examples:
  yardmaster trace train                          on the cluster of `yardmaster cluster`
  yardmaster trace ml/train --file spans.json     from a file of the OpenTelemetry collector
  yardmaster trace train --page http://localhost:8080/,http://localhost:8081/
                                                  from two controllers behind `kubectl port-forward`";

/// Flags of `trace`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TraceArgs {
    /// The Job: NAME, NAMESPACE/NAME or job/NAME. Of several Jobs of this name, it is the latest.
    #[arg(value_name = "JOB")]
    job: JobName,
    /// Namespace of the Job [default: that of the kubeconfig context; with --file, any].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Read spans from a file that the OpenTelemetry collector's file exporter wrote (OTLP in JSON); `-` is standard
    /// input [default: ask the controllers].
    #[arg(short, long, value_name = "FILE", conflicts_with = "page")]
    file: Option<PathBuf>,
    /// Pages of all controllers, which keep traces if they have --trace-memory: http://HOST:PORT/, or with #token=TOKEN
    /// [default: the page of `yardmaster cluster`, which its kubeconfig names].
    #[arg(long, value_name = "URL,...", value_delimiter = ',')]
    page: Vec<PageAddress>,
    /// Show all reconciliations and requests to the API server [default: those that failed].
    #[arg(long)]
    all: bool,
    /// Print the spans as OTLP: json, yaml, name or jsonpath=TEMPLATE [default: a waterfall].
    #[arg(short, long, value_name = "FORMAT", value_parser = output::parse)]
    output: Option<Format>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Prints the trace of a Job.
pub(super) async fn run(args: TraceArgs) -> Result<ExitCode, Failure> {
    let mut interrupts = Interrupts::listen()?;
    let found = tokio::select! {
        found = args.find() => found?,
        () = interrupts.next() => return Err(Failure::Interrupted),
    };
    let text = match &args.output {
        Some(format) => format.text(&found.traces, std::iter::once(&*found.name), false)?,
        None => text(&found, args.all),
    };
    unless_closed(io::stdout().lock().write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// The waterfall of the latest Job of this name, as standard output takes it; `None` without spans of it.
#[cfg(feature = "embedded")]
pub(super) fn waterfall_of(traces: OtlpTraces, namespace: &str, name: &str) -> Option<String> {
    JobSpans::choose(traces, Some(namespace), name).map(|found| text(&found, false))
}

fn text(found: &JobSpans, all: bool) -> String {
    let width = io::stdout().is_terminal().then(|| crossterm::terminal::size().ok()).flatten();
    let lines = waterfall::lines(found, width.map_or(WIDTH, |(columns, _)| columns.into()), all);
    lines.iter().map(|line| line.for_terminal(color::on_stdout(), 0) + "\n").collect()
}

impl TraceArgs {
    async fn find(&self) -> Result<JobSpans, Failure> {
        let (flag, name) = (self.namespace.as_deref(), self.job.name());
        let (namespace, traces) = match &self.file {
            Some(file) => (self.job.namespace(flag, "")?, read(file)?),
            None => {
                let namespace = self.job.namespace(flag, &self.default_namespace().await?)?;
                let traces = ask(&self.pages()?, &namespace, name).await?;
                (namespace, traces)
            }
        };
        let named = Some(&*namespace).filter(|namespace| !namespace.is_empty());
        let job = named.map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"));
        let missing = match self.file {
            Some(_) => "no span in the file is of this Job",
            None => "no controller has a span of this Job in its memory, where newer Jobs replace older ones",
        };
        let found = JobSpans::choose(traces, named, name);
        found.ok_or_else(|| anyhow!("Job {job}: {missing}").into())
    }

    /// The namespace of the kubeconfig context. Controllers behind known pages need no kubeconfig.
    async fn default_namespace(&self) -> Result<String, Failure> {
        match self.connection.config().await {
            Ok(config) => Ok(config.default_namespace),
            Err(_) if !self.page.is_empty() && !self.connection.is_given() => Ok("default".to_owned()),
            Err(error) => Err(error),
        }
    }

    fn pages(&self) -> Result<Vec<PageAddress>, Failure> {
        let pages = match self.page.as_slice() {
            [] => self.connection.page().into_iter().collect(),
            given => given.to_vec(),
        };
        if pages.is_empty() {
            return Err(Failure::bad_input(
                "--page: which pages have the controllers? `kubectl port-forward` leads to that of a pod; or read a file \
                 with --file",
            ));
        }
        Ok(pages)
    }
}

/// The spans that these pages show. A page that does not answer is named, if another does.
async fn ask(pages: &[PageAddress], namespace: &str, name: &str) -> anyhow::Result<OtlpTraces> {
    let answers = join_all(pages.iter().map(|page| page.trace(namespace, name))).await;
    let (mut found, mut problem, mut keeps) = (OtlpTraces::default(), None, false);
    for answer in answers {
        match answer {
            Ok(Some(traces)) => {
                keeps = true;
                found.resource_spans.extend(traces.resource_spans);
            }
            Ok(None) => {}
            Err(error) => problem = problem.or(Some(error)),
        }
    }
    match (keeps, problem) {
        (true, Some(problem)) => note(format_args!("spans may be missing: {problem:#}")),
        (true, None) => {}
        (false, Some(problem)) => return Err(problem),
        (false, None) => {
            return Err(anyhow!("the controllers keep no traces: start them with --trace-memory 8"));
        }
    }
    Ok(found)
}

/// The spans of a file.
fn read(file: &Path) -> Result<OtlpTraces, Failure> {
    let bad = |problem: String| Failure::bad_input(format!("--file {}: {problem}", file.display()));
    let mut text = Vec::new();
    let read = match file.to_str() {
        Some("-") => io::stdin().lock().take(LONGEST).read_to_end(&mut text),
        _ => std::fs::File::open(file).and_then(|file| file.take(LONGEST).read_to_end(&mut text)),
    };
    read.map_err(|error| bad(file_problem(&error)))?;
    let mut found = OtlpTraces::default();
    for part in serde_json::Deserializer::from_slice(&text).into_iter::<OtlpTraces>() {
        let part = part.map_err(|error| bad(format!("not OTLP in JSON: {error}")))?;
        found.resource_spans.extend(part.resource_spans);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_file_has_an_object_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("spans.json");
        let line = r#"{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"job"}]}]}]}"#;
        std::fs::write(&file, format!("{line}\n{line}\n")).unwrap();
        assert_eq!(read(&file).unwrap().resource_spans.len(), 2);
        for (text, problem) in [("{", "line 1 column 1"), ("[1]\n", "line 1"), ("spans", "line 1 column 1")] {
            std::fs::write(&file, text).unwrap();
            let Err(Failure::BadInput(problems)) = read(&file) else { panic!("{text} is read") };
            assert!(problems[0].contains("spans.json: not OTLP in JSON: "), "{problems:?}");
            assert!(problems[0].contains(problem), "{problems:?}");
        }
        let Err(Failure::BadInput(problems)) = read(&folder.path().join("no")) else {
            panic!("there is none")
        };
        assert!(problems[0].contains("no such file"), "{problems:?}");
    }
}
