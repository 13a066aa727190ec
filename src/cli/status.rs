//! `yardmaster status`: the progress of Jobs, why Jobs create no pods, and who owns which shard.

mod cursor;
mod detail;
pub(super) mod explained;
mod feed;
mod index_map;
mod job;
mod report;
mod results;
mod screen;
mod text;
pub(super) mod top;
mod view;
mod wait_reasons;

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
use super::color;
use super::connection::ConnectionArgs;
use super::console::{self, unless_closed};
use super::job_name::JobName;
use super::namespace::parse_namespace;
use super::output::{Format, TableFormat, parse_table};
use super::page_client::PageAddress;
use super::signals::Interrupts;
use crate::cluster::transport::client;

/// The text below the help.
const EXAMPLES: &str = "\
Examples:
  yardmaster status                          all Jobs, those that need a look first
  yardmaster status team-a/train             why a Job waits or failed
  yardmaster status team-a/train --indexes   exit codes, times and tries of its indexes
  yardmaster status --unfinished --watch     follow; Enter opens a Job
  yardmaster status -o jsonpath='{.jobs[*].name}'";

/// Flags of `status`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct StatusArgs {
    /// Show everything about this Job alone: NAME, NAMESPACE/NAME or job/NAME [default: all Jobs].
    #[arg(value_name = "JOB", conflicts_with_all = ["selector", "unfinished", "all", "shards"])]
    job: Option<JobName>,
    /// Namespace of the Jobs [default: all; of JOB: that of the kubeconfig context].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Show the Jobs of all namespaces, which is the default [default: off].
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "job"])]
    all_namespaces: bool,
    /// Label selector of the Jobs, such as team=a [default: all].
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Show how each index of JOB has ended, if it has the annotation yardmaster.dev/index-results [default: off].
    #[arg(long, requires = "job", conflicts_with = "watch")]
    indexes: bool,
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
    /// Output format: wide (with shards and trace ids of Jobs), json, yaml, name or jsonpath=TEMPLATE [default: a table].
    #[arg(short, long, value_name = "FORMAT", value_parser = parse_table)]
    output: Option<TableFormat>,
    /// Page of a controller, which knows failed pods of JOB that are gone: http://HOST:PORT/, or with #token=TOKEN
    /// [default: show the pods that are left].
    #[arg(long, value_name = "URL", requires = "job", conflicts_with = "watch")]
    page: Option<PageAddress>,
    /// Namespace of the replicas' Leases [default: all namespaces, which shows what anybody has written into a Lease].
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How reports are printed.
#[derive(Clone, Debug)]
enum Style {
    Text(Layout),
    Object(Format),
}

impl StatusArgs {
    fn selection(&self, default_namespace: &str) -> Result<Selection, Failure> {
        Ok(match &self.job {
            Some(job) => Selection::One {
                namespace: job.namespace(self.namespace.as_deref(), default_namespace)?,
                name: job.name().to_owned(),
            },
            None => Selection::Many {
                namespace: self.namespace.clone().filter(|_| !self.all_namespaces),
                selector: self.selector.clone(),
                unfinished: self.unfinished,
            },
        })
    }

    fn style(&self, selection: &Selection) -> Style {
        match &self.output {
            Some(TableFormat::Object(format)) => Style::Object(format.clone()),
            Some(TableFormat::Wide) | None => Style::Text(Layout {
                width: None,
                wide: self.output.is_some(),
                shards: self.shards,
                finished: (!self.all).then_some(FINISHED),
                one_namespace: selection.is_one_namespace(),
                one_job: self.job.is_some(),
                indexes: self.indexes,
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
        let read = async {
            let mut report = report::read(&client, &selection, args.lease_namespace.as_deref()).await?;
            if let (Some(page), Some(job)) = (&args.page, report.jobs.first_mut()) {
                let remembered = page.job(&job.namespace, &job.name).await?;
                let gone = remembered.map(|job| job.last_failures).unwrap_or_default();
                job.failures.get_or_insert_default().remember(&gone);
            }
            anyhow::Ok(report)
        };
        let report = tokio::select! {
            report = read => report?,
            () = interrupts.next() => return Err(Failure::Interrupted),
        };
        unless_closed(print(&report, &style))?;
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
            if let (Some(_), Style::Text(_)) = (printed.replace(report.time), &style) {
                console::print("")?;
            }
            match print(&report, &style) {
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
                    Flow::Stay => feed.open(view.opened()),
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
fn print(report: &Report, style: &Style) -> io::Result<()> {
    let text = match style {
        Style::Object(format) => {
            let names = report.jobs.iter().map(|job| job.name.as_str());
            // Several reports are told apart by a line each, or by a mark.
            let mark = if matches!(format, Format::Yaml) { "---\n" } else { "" };
            mark.to_owned() + &format.text(report, names, true).map_err(io::Error::other)?
        }
        Style::Text(layout) => {
            let width = io::stdout().is_terminal().then(Screen::size).transpose()?;
            let layout = Layout { width: width.map(|(columns, _)| columns.into()), ..*layout };
            let jobs: Vec<_> = report.jobs.iter().collect();
            let lines = detail::body(report, &jobs, &layout);
            lines.iter().map(|line| line.for_terminal(color::on_stdout(), 0) + "\n").collect()
        }
    };
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
