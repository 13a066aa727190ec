//! Shows the progress of Jobs on standard error: a bar for each on a terminal, plain lines otherwise.

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::Instant;
#[cfg(feature = "embedded")]
use yardmaster_embedded::kubelet::{PullObserver, PullStage};

use super::view::{JobView, Outcome};
use crate::cli::console::{note, shown};

/// The shortest time between two plain lines of a Job.
const LINE_PERIOD: Duration = Duration::from_secs(1);
/// How often bars are drawn, so that their times go on.
const TICK: Duration = Duration::from_millis(200);

/// The progress display. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Mutex<Display>>);

#[derive(Debug)]
enum Display {
    Bars {
        all: MultiProgress,
        by_job: HashMap<String, ProgressBar>,
        #[cfg(feature = "embedded")]
        by_image: HashMap<String, ProgressBar>,
    },
    Lines {
        by_job: HashMap<String, Lines>,
    },
}

/// The last line printed for a Job.
#[derive(Debug, Default)]
struct Lines {
    last: String,
    at: Option<Instant>,
}

impl Progress {
    /// Bars if standard error is a terminal, else lines.
    pub(super) fn new() -> Self {
        let display = if std::io::stderr().is_terminal() {
            Display::Bars {
                all: MultiProgress::new(),
                by_job: HashMap::new(),
                #[cfg(feature = "embedded")]
                by_image: HashMap::new(),
            }
        } else {
            Display::Lines { by_job: HashMap::new() }
        };
        Self(Arc::new(Mutex::new(display)))
    }

    /// Shows the state of a Job.
    pub(super) fn update(&self, job: &str, view: &JobView) {
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *display {
            Display::Bars { all, by_job, .. } => {
                let bar = by_job.entry(job.to_owned()).or_insert_with(|| {
                    let bar = all.add(new_bar(view));
                    bar.set_prefix(shown(&job));
                    bar
                });
                bar.set_position(view.succeeded());
                bar.set_message(shown(&finish(view).unwrap_or_else(|| view.summary())));
                if view.outcome().is_some() && !bar.is_finished() {
                    bar.abandon();
                }
            }
            Display::Lines { by_job } => {
                let lines = by_job.entry(job.to_owned()).or_default();
                let end = finish(view);
                let line = end.clone().unwrap_or_else(|| view.summary());
                let due = lines.at.is_none_or(|at| at.elapsed() >= LINE_PERIOD) || end.is_some();
                if due && line != lines.last {
                    note(format_args!("{job}: {line}"));
                    *lines = Lines { last: line, at: Some(Instant::now()) };
                }
            }
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
            Display::Lines { .. } => write(),
        }
    }
}

/// A bar up to the completions, or a spinner for a Job without them.
fn new_bar(view: &JobView) -> ProgressBar {
    let (bar, template) = match view.completions() {
        Some(completions) => (ProgressBar::new(completions), "{prefix} [{bar:30}] {msg} ({elapsed})"),
        None => (ProgressBar::new_spinner(), "{prefix} {spinner} {msg} ({elapsed})"),
    };
    bar.enable_steady_tick(TICK);
    set_template(&bar, template);
    bar
}

fn set_template(bar: &ProgressBar, template: &str) {
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
}

#[cfg(feature = "embedded")]
impl PullObserver for Progress {
    fn on_pull(&self, image: &str, stage: PullStage) {
        let mut display = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *display, stage) {
            (Display::Lines { .. }, PullStage::Begun) => note(format_args!("pulling {image}")),
            (Display::Lines { .. }, _) => {}
            (Display::Bars { all, by_image, .. }, PullStage::Begun) => {
                by_image.entry(image.to_owned()).or_insert_with(|| pull_bar(all, image));
            }
            (Display::Bars { by_image, .. }, PullStage::Progressed(size)) => {
                if let Some(bar) = by_image.get(image) {
                    if bar.length().is_none() {
                        set_template(bar, "pulling {prefix} [{bar:30}] {bytes}/{total_bytes} ({elapsed})");
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
    set_template(&bar, "pulling {prefix} {spinner} ({elapsed})");
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
