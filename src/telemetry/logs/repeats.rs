//! Warnings that repeat are counted instead of written.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Filter};

/// How long the same line is only counted.
const PERIOD: Duration = Duration::from_secs(10);
/// Most different lines that are remembered. Beyond them, lines from one place in the code count as one,
/// since others choose the reasons, such as the authors of webhooks.
const MOST_LINES: usize = 512;
/// Target of the lines that report the counts.
const TARGET: &str = "yardmaster::repeated";
/// Fields that say why something failed. Lines from one place in the code that differ only in other fields,
/// such as the name of an object, are the same.
const REASONS: [&str; 3] = ["error", "refusal", "failure"];

/// A filter that lets one warning of a kind pass each 10 s, and counts the others. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub(in crate::telemetry) struct Repeats(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    lines: Mutex<HashMap<Line, Count>>,
    /// The first line of some kind was held back.
    held_back: Notify,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Line {
    place: Identifier,
    /// Absent if the lines of this place are not told apart.
    reason: Option<String>,
}

#[derive(Debug)]
struct Count {
    message: String,
    until: Instant,
    held_back: u64,
}

impl Repeats {
    fn lines(&self) -> MutexGuard<'_, HashMap<Line, Count>> {
        // A panic while counting leaves the map whole.
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn passes(&self, event: &Event<'_>, now: Instant) -> bool {
        let mut text = Text::default();
        event.record(&mut text);
        let mut line = Line { place: event.metadata().callsite(), reason: Some(text.reason) };
        let mut lines = self.lines();
        if lines.len() >= MOST_LINES && !lines.contains_key(&line) {
            lines.retain(|_, count| now < count.until || count.held_back > 0);
            if lines.len() >= MOST_LINES {
                line.reason = None;
            }
        }
        match lines.get_mut(&line) {
            // The count of suppressed lines is reported before the line itself is logged again.
            Some(count) if now < count.until || count.held_back > 0 => {
                count.held_back += 1;
                if count.held_back == 1 {
                    self.0.held_back.notify_one();
                }
                return false;
            }
            Some(count) => count.until = now + PERIOD,
            None => {
                lines.insert(line, Count { message: text.message, until: now + PERIOD, held_back: 0 });
            }
        }
        true
    }

    /// The lines whose time is over and that were held back: how often, message and reason.
    fn take_due(&self, now: Instant) -> (Vec<(u64, String, String)>, bool) {
        let mut lines = self.lines();
        let mut due = Vec::new();
        lines.retain(|line, count| {
            let over = now >= count.until;
            if over && count.held_back > 0 {
                let reason = line.reason.clone().unwrap_or_else(|| "several".to_owned());
                due.push((count.held_back, count.message.clone(), reason));
            }
            !over
        });
        (due, lines.values().any(|count| count.held_back > 0))
    }

    /// Reports the counts when their time is over. Never ends.
    pub(in crate::telemetry) async fn report(self) {
        loop {
            self.0.held_back.notified().await;
            loop {
                sleep(PERIOD).await;
                let (due, more) = self.take_due(Instant::now());
                for (times, message, reason) in due {
                    tracing::warn!(target: TARGET, times, reason, "repeated: {message}");
                }
                if !more {
                    break;
                }
            }
        }
    }
}

impl<S> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        // No limit; without a hint, the one of another filter would not count either.
        Some(LevelFilter::TRACE)
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        *metadata.level() != Level::WARN || metadata.target() == TARGET || self.passes(event, Instant::now())
    }
}

/// The message of a line, and why something failed.
#[derive(Debug, Default)]
struct Text {
    message: String,
    reason: String,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = match field.name() {
            "message" => &mut self.message,
            name if REASONS.contains(&name) => &mut self.reason,
            _ => return,
        };
        // Writing to a string never fails.
        let _ = write!(text, "{value:?}");
    }
}
