//! Shows the progress of Jobs on standard error: a bar for each on a terminal, plain lines otherwise.

use std::collections::HashMap;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};
use tokio::time::Instant;
use unicode_width::UnicodeWidthStr as _;
#[cfg(feature = "embedded")]
use yardmaster_embedded::kubelet::{PullObserver, PullStage};

use super::pace::SuccessPace;
use super::view::{JobView, Outcome};
use crate::cli::color;
use crate::cli::console::{note, shown};
use crate::cli::duration::{precise, whole};
use crate::cli::fit::{Shorten, shorten};

/// The shortest time between two plain lines of a Job.
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// How often bars are drawn, so that their times go on.
const TICK: Duration = Duration::from_millis(200);
/// Columns of the longest name of a Job before its bar.
const NAME_MAX: usize = 32;

/// The progress display. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Display>>);

#[derive(Debug)]
enum Display {
    Bars {
        all: MultiProgress,
        by_job: HashMap<String, Bar>,
        /// Columns of the names of Jobs before their bars.
        width: usize,
        #[cfg(feature = "embedded")]
        by_image: HashMap<String, ProgressBar>,
    },
    Lines {
        by_job: HashMap<String, Lines>,
    },
    /// Notes alone.
    Quiet,
}

/// The bar of a Job, and what it shows.
#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
    view: JobView,
    pace: SuccessPace,
}

/// The last line printed for a Job.
#[derive(Debug, Default)]
struct Lines {
    last: String,
    at: Option<Instant>,
    pace: SuccessPace,
}

impl Progress {
    /// Bars if standard error is a terminal, else lines.
    pub(super) fn new() -> Self {
        let display = if std::io::stderr().is_terminal() {
            Display::Bars {
                all: MultiProgress::new(),
                by_job: HashMap::new(),
                width: 0,
                #[cfg(feature = "embedded")]
                by_image: HashMap::new(),
            }
        } else {
            Display::Lines { by_job: HashMap::new() }
        };
        Self(Arc::new(Mutex::new(display)))
    }

    /// No progress.
    pub(super) fn quiet() -> Self {
        Self(Arc::new(Mutex::new(Display::Quiet)))
    }

    /// Shows the state of a Job.
    pub(super) fn update(&self, job: &str, view: &JobView) {
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *display {
            Display::Bars { all, by_job, width, .. } => {
                let own_width = shown(&job).width().min(NAME_MAX);
                let bar = by_job.entry(job.to_owned()).or_insert_with(|| Bar::new(all, view));
                bar.view = view.clone();
                bar.set_name(job, (*width).max(own_width));
                bar.draw(Instant::now());
                if own_width > *width {
                    *width = own_width;
                    by_job.iter().for_each(|(name, bar)| bar.set_name(name, own_width));
                }
            }
            Display::Lines { by_job } => {
                let lines = by_job.entry(job.to_owned()).or_default();
                let (now, end) = (Instant::now(), finish(view));
                lines.pace.record(view.succeeded(), now);
                let state = end.clone().unwrap_or_else(|| view.summary());
                let due = lines.at.is_none_or(|at| at.elapsed() >= LINE_PERIOD) || end.is_some();
                if due && state != lines.last {
                    let pace = if end.is_some() { String::new() } else { pace(&lines.pace, view, now) };
                    note(format_args!("{job}: {state}{pace}"));
                    (lines.last, lines.at) = (state, Some(now));
                }
            }
            Display::Quiet => {}
        }
    }

    /// Shows how the paces of Jobs have changed although the Jobs have not.
    pub(super) fn refresh(&self) {
        let display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Display::Bars { by_job, .. } = &*display {
            let now = Instant::now();
            by_job.values().filter(|bar| !bar.bar.is_finished()).for_each(|bar| bar.show(now));
        }
    }

    /// Prints a message without disturbing the bars.
    pub(super) fn note(&self, text: &str) {
        self.beside(|| note(text));
    }

    /// Prints a final message below the progress, which is not updated any longer.
    pub(super) fn conclude(&self, text: &str) {
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*display, Display::Bars { .. }) {
            // The last bar ends without a line feed.
            note("");
        }
        note(text);
        *display = Display::Lines { by_job: HashMap::new() };
    }

    /// Writes to standard output without disturbing the bars.
    pub(super) fn print(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.beside(|| {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        })
    }

    fn beside<R>(&self, write: impl FnOnce() -> R) -> R {
        let display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*display {
            Display::Bars { all, .. } => all.suspend(write),
            Display::Lines { .. } | Display::Quiet => write(),
        }
    }
}

impl Bar {
    /// A bar up to the completions, or a spinner for a Job without them.
    fn new(all: &MultiProgress, view: &JobView) -> Self {
        let bar = view.completions().map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        // A bar that is drawn before it is one of all leaves a line behind.
        let bar = all.add(bar);
        bar.enable_steady_tick(TICK);
        Self { bar, view: view.clone(), pace: SuccessPace::default() }
    }

    fn draw(&mut self, now: Instant) {
        self.pace.record(self.view.succeeded(), now);
        self.bar.set_position(self.view.succeeded());
        self.show(now);
        if self.view.outcome().is_some() && !self.bar.is_finished() {
            self.bar.abandon();
        }
    }

    fn show(&self, now: Instant) {
        let state =
            finish(&self.view).unwrap_or_else(|| self.view.summary() + &pace(&self.pace, &self.view, now));
        self.bar.set_message(shown(&state));
    }

    /// Puts the name of the Job before the bar, as wide as the names of the others. The text behind the bar is cut
    /// to the width of the terminal.
    fn set_name(&self, name: &str, width: usize) {
        let name = shorten(&shown(&name), width, Shorten::Middle);
        let bar = if self.bar.length().is_some() { "[{bar:20}]" } else { "{spinner}" };
        let color = match (self.view.outcome(), color::on_stderr()) {
            (_, false) => "",
            (None, true) => "cyan",
            (Some(Outcome::Complete), true) => "green",
            (Some(Outcome::Failed { .. }), true) => "red",
        };
        let bar = if color.is_empty() { bar.to_owned() } else { bar.replace(":20", &format!(":20.{color}")) };
        set_template(&self.bar, &format!("{{prefix:{width}}} {bar} {{wide_msg}} {{time}}"));
        self.bar.set_prefix(name);
    }
}

/// The pace of a Job, and the time left, as the end of a line.
fn pace(pace: &SuccessPace, view: &JobView, now: Instant) -> String {
    let Some(rate) = pace.rate(now) else { return String::new() };
    let left = view.missing().and_then(|missing| pace.left(missing, now));
    let left = left.map(|left| format!(", {} left", whole(left))).unwrap_or_default();
    format!(", {rate:.1}/s{left}")
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        let style = style.with_key("time", |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A bar whose time cannot be written is drawn without it.
            let _written = write!(out, "{}", precise(state.elapsed()));
        });
        bar.set_style(style.progress_chars("=> "));
    }
}

#[cfg(feature = "embedded")]
impl PullObserver for Progress {
    fn on_pull(&self, image: &str, stage: PullStage) {
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *display, stage) {
            (Display::Lines { .. }, PullStage::Begun) => note(format_args!("pulling {image}")),
            (Display::Lines { .. } | Display::Quiet, _) => {}
            (Display::Bars { all, by_image, .. }, PullStage::Begun) => {
                by_image.entry(image.to_owned()).or_insert_with(|| pull_bar(all, image));
            }
            (Display::Bars { by_image, .. }, PullStage::Progressed(size)) => {
                if let Some(bar) = by_image.get(image) {
                    if bar.length().is_none() {
                        set_template(bar, "pulling {prefix} [{bar:30}] {bytes}/{total_bytes} ({time})");
                    }
                    bar.set_length(size.total);
                    bar.set_position(size.done);
                }
            }
            (Display::Bars { all, by_image, .. }, PullStage::Ended) => {
                if let Some(bar) = by_image.remove(image) {
                    bar.finish_and_clear();
                    all.remove(&bar);
                }
            }
        }
    }
}

/// A spinner for the pull of an image, above the Jobs, until its size is known.
#[cfg(feature = "embedded")]
fn pull_bar(all: &MultiProgress, image: &str) -> ProgressBar {
    // A bar that is drawn before it is one of all leaves a line behind.
    let bar = all.insert(0, ProgressBar::new_spinner());
    set_template(&bar, "pulling {prefix} {spinner} ({time})");
    bar.set_prefix(shown(&image));
    bar.enable_steady_tick(TICK);
    bar
}

/// The final line of a Job, once it has finished.
fn finish(view: &JobView) -> Option<String> {
    view.outcome().map(|outcome| match outcome {
        Outcome::Complete => format!("Complete, {}", view.summary()),
        Outcome::Failed { reason, .. } => format!("Failed ({reason}), {}", view.summary()),
    })
}
