//! `yardmaster top`: how fast pods are created and end, the slowest and the failing Jobs, and nodes with failed pods.

mod nodes;
mod rates;
mod text;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyModifiers};
use futures::StreamExt as _;
use kube::Client;

use self::nodes::NodeFeed;
use self::rates::RateHistory;
use super::feed::Feed;
use super::report::Selection;
use super::screen::Screen;
use crate::cli::connection::ConnectionArgs;
use crate::cli::console::{self, unless_closed};
use crate::cli::line::Line;
use crate::cli::namespace::parse_namespace;
use crate::cli::signals::Interrupts;
use crate::cli::{Failure, color};
use crate::cluster::transport::client;

/// Flags of `top`.
#[derive(Debug, Args)]
pub(in crate::cli) struct TopArgs {
    /// Namespace of the Jobs [default: all].
    #[arg(short, long, value_name = "NAME", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Label selector of the Jobs, such as team=a [default: all].
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Follow on the terminal until q, or print a report every 2 s where there is none [default: off].
    #[arg(long)]
    watch: bool,
    /// Rows of each table at most.
    #[arg(long, value_name = "N", default_value = "10")]
    limit: usize,
    /// Namespace of the replicas' Leases [default: all namespaces].
    #[arg(long, value_name = "NAME", value_parser = parse_namespace)]
    lease_namespace: Option<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
}

/// Shows rates once, or repeatedly.
pub(in crate::cli) async fn run(args: TopArgs) -> Result<ExitCode, Failure> {
    let client = client(args.connection.config().await?, "top")?;
    let mut interrupts = Interrupts::listen()?;
    let mut top = Top::start(client, &args);
    if args.watch && Screen::is_possible() {
        return top.browse(&mut interrupts).await;
    }
    loop {
        let more = tokio::select! {
            more = top.next() => more?,
            () = interrupts.next() => return Ok(ExitCode::SUCCESS),
        };
        // The first report has no rates yet.
        if !more || top.history.rates().is_none() || !top.nodes.is_read() {
            continue;
        }
        let width = io::IsTerminal::is_terminal(&io::stdout()).then(Screen::size).transpose()?;
        let lines = top.lines(width.map(|(columns, _)| columns.into()));
        let text: String = lines.iter().map(|line| line.for_terminal(color::on_stdout(), 0) + "\n").collect();
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
            written => unless_closed(written)?,
        }
        if !args.watch {
            return Ok(ExitCode::SUCCESS);
        }
        console::print("")?;
    }
}

/// The sources of the report.
struct Top {
    feed: Feed,
    nodes: NodeFeed,
    history: RateHistory,
    problem: Option<String>,
    limit: usize,
}

impl Top {
    fn start(client: Client, args: &TopArgs) -> Self {
        let (namespace, selector) = (args.namespace.clone(), args.selector.clone());
        let selection = Selection::Many { namespace: namespace.clone(), selector, unfinished: false };
        Self {
            nodes: NodeFeed::start(client.clone(), namespace),
            feed: Feed::start(client, selection, args.lease_namespace.clone()),
            history: RateHistory::default(),
            problem: None,
            limit: args.limit,
        }
    }

    /// Waits for something newer. Returns whether it is a report, or the first list of failed pods.
    async fn next(&mut self) -> Result<bool, Failure> {
        let is_first = !self.nodes.is_read();
        tokio::select! {
            latest = self.feed.next() => {
                if let Some(end) = latest.end {
                    return Err(anyhow::anyhow!(end).into());
                }
                self.problem = latest.problem;
                Ok(latest.report.is_some_and(|report| self.history.record(report)))
            }
            () = self.nodes.changed() => Ok(is_first),
        }
    }

    fn lines(&self, width: Option<usize>) -> Vec<Line> {
        let problem = self.problem.as_deref().or(self.nodes.problem());
        text::lines(&self.history, &self.nodes.nodes(), problem, self.limit, width)
    }

    /// Shows the newest report on the terminal until a key ends it.
    async fn browse(&mut self, interrupts: &mut Interrupts) -> Result<ExitCode, Failure> {
        let mut screen = Screen::enter()?;
        let mut events = EventStream::new();
        loop {
            let size = Screen::size()?;
            screen.draw(&self.lines(Some(size.0.into())), size)?;
            tokio::select! {
                newer = self.next() => drop(newer?),
                event = events.next() => match event {
                    Some(Ok(Event::Key(key))) => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(ExitCode::SUCCESS),
                        KeyCode::Char(letter) if key.modifiers.contains(KeyModifiers::CONTROL) => match letter {
                            'c' => return Ok(ExitCode::SUCCESS),
                            'l' => screen.forget(),
                            _ => {}
                        },
                        _ => {}
                    },
                    Some(Ok(_)) => {}
                    // The terminal is gone.
                    Some(Err(_)) | None => return Ok(ExitCode::SUCCESS),
                },
                () = interrupts.next() => return Ok(ExitCode::SUCCESS),
            }
        }
    }
}
