//! `yardmaster status`: the progress of Jobs, why Jobs create no pods, and who owns which shard.

mod detail;
mod feed;
mod job;
mod report;
mod screen;
mod text;
mod view;
mod waits;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Args;
use crossterm::event::{Event, EventStream};
use futures::StreamExt as _;

use self::feed::{Feed, Latest};
use self::report::{Report, Selection};
use self::screen::Screen;
use self::text::{FINISHED, Layout};
use self::view::{Flow, View};
use super::Failure;
use super::connection::ConnectionArgs;
use super::console::{self, unless_closed};
use super::job_name::JobName;
use super::namespace::parse_namespace;
use super::signals::Interrupts;
use crate::cluster::transport::client;
use crate::telemetry::printable;

/// Flags of `status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Show everything about this Job alone: NAME, NAMESPACE/NAME or job/NAME [default: all Jobs].
    #[arg(value_name = "JOB", conflicts_with_all = ["selector", "unfinished", "all", "shards"])]
    job: Option<JobName>,
    /// Namespace of the Jobs [default: all; of JOB: that of the kubeconfig context].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Label selector of the Jobs, such as team=a [default: all].
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Leave finished Jobs out [default: off].
    #[arg(long)]
    unfinished: bool,
    /// Show all finished Jobs [default: the 10 that finished last].
    #[arg(long, conflicts_with = "unfinished")]
    all: bool,
    /// Show the owner and the epoch of every shard [default: off].
    #[arg(long)]
    shards: bool,
    /// Follow on the terminal until q, or print a report every 2 s where there is none [default: off].
    #[arg(long)]
    watch: bool,
    /// Output format: wide (with shards and trace ids of Jobs), json, yaml [default: a table].
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<Format>,
    /// Namespace of the replicas' Leases [default: all namespaces, which shows what anybody has written into a Lease].
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Wide,
    Json,
    Yaml,
}

/// How reports are printed.
#[derive(Clone, Copy, Debug)]
enum Style {
    Text(Layout),
    Json,
    Yaml,
}

impl StatusArgs {
    fn selection(&self, default_namespace: &str) -> Result<Selection, Failure> {
        Ok(match &self.job {
            Some(job) => Selection::One {
                namespace: job.namespace(self.namespace.as_deref(), default_namespace)?,
                name: job.name().to_owned(),
            },
            None => Selection::Many {
                namespace: self.namespace.clone(),
                selector: self.selector.clone(),
                unfinished: self.unfinished,
            },
        })
    }

    fn style(&self, selection: &Selection) -> Style {
        match self.output {
            Some(Format::Json) => Style::Json,
            Some(Format::Yaml) => Style::Yaml,
            Some(Format::Wide) | None => Style::Text(Layout {
                width: None,
                wide: self.output.is_some(),
                shards: self.shards,
                finished: (!self.all).then_some(FINISHED),
                one_namespace: selection.is_one_namespace(),
                one_job: self.job.is_some(),
            }),
        }
    }
}

/// Prints the state of the cluster, once or repeatedly.
pub(super) async fn run(args: StatusArgs) -> Result<ExitCode, Failure> {
    let config = args.connection.config().await?;
    let selection = args.selection(&config.default_namespace)?;
    let style = args.style(&selection);
    let client = client(config, "status")?;
    let mut interrupts = Interrupts::listen()?;
    if !args.watch {
        let report = tokio::select! {
            report = report::read(&client, &selection, args.lease_namespace.as_deref()) => report?,
            () = interrupts.next() => return Err(Failure::Interrupted),
        };
        unless_closed(print(&report, style))?;
        return Ok(ExitCode::SUCCESS);
    }
    let feed = Feed::start(client, selection, args.lease_namespace);
    match style {
        Style::Text(layout) if Screen::is_possible() => browse(feed, layout, interrupts).await,
        _ => repeat(feed, style, interrupts).await,
    }
}

/// Prints each report below the last.
async fn repeat(mut feed: Feed, style: Style, mut interrupts: Interrupts) -> Result<ExitCode, Failure> {
    let mut printed = None;
    loop {
        let latest = tokio::select! {
            latest = feed.next() => latest,
            () = interrupts.next() => return Ok(ExitCode::SUCCESS),
        };
        if let Some(end) = latest.end {
            return Err(anyhow::anyhow!(end).into());
        }
        if let Some(problem) = latest.problem {
            tracing::warn!("{problem}");
        }
        if let Some(report) = latest.report.filter(|report| printed != Some(report.time)) {
            if let (Some(_), Style::Text(_)) = (printed.replace(report.time), style) {
                console::print("")?;
            }
            match print(&report, style) {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
                result => result?,
            }
        }
    }
}

/// Shows the newest report on the terminal, and does what keys say.
async fn browse(mut feed: Feed, layout: Layout, mut interrupts: Interrupts) -> Result<ExitCode, Failure> {
    let mut view = View::new(layout);
    let mut latest = Latest::default();
    let mut screen = Screen::enter()?;
    let mut events = EventStream::new();
    loop {
        let size = Screen::size()?;
        screen.draw(&view.frame(&latest, size), size)?;
        tokio::select! {
            newer = feed.next() => match newer.end {
                Some(end) => return Err(anyhow::anyhow!(end).into()),
                None => latest = newer,
            },
            event = events.next() => match event {
                Some(Ok(Event::Key(key))) => match view.key(key) {
                    Flow::Leave => return Ok(ExitCode::SUCCESS),
                    Flow::Redraw => screen.forget(),
                    Flow::Stay => {}
                },
                Some(Ok(_)) => {}
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(ExitCode::SUCCESS),
            },
            () = interrupts.next() => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Prints a report; on a terminal it fits its width.
fn print(report: &Report, style: Style) -> io::Result<()> {
    let text = match style {
        Style::Json => printable::json(&serde_json::to_string(report).map_err(io::Error::other)?) + "\n",
        Style::Yaml => {
            let text = serde_saphyr::to_string(report).map_err(io::Error::other)?;
            "---\n".to_owned() + &printable::yaml(text, report).map_err(io::Error::other)?
        }
        Style::Text(layout) => {
            let width = io::stdout().is_terminal().then(Screen::size).transpose()?;
            let layout = Layout { width: width.map(|(columns, _)| columns.into()), ..layout };
            let jobs: Vec<_> = report.jobs.iter().collect();
            detail::body(report, &jobs, &layout).join("\n") + "\n"
        }
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
