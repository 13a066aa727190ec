//! The spans of a Job as lines: nested, each with its time and a bar.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use unicode_width::UnicodeWidthStr as _;

use super::spans::{JobSpans, is_work, label};
use crate::cli::duration::precise;
use crate::cli::fit::{Shorten, printable, shorten};
use crate::cli::line::{Line, Paint};
use crate::telemetry::traces::otlp::OtlpSpan;

/// Columns of a time.
const TIME: usize = 8;
/// Spaces between two columns.
const GAP: usize = 2;
/// Bars that would be shorter are left out, in columns.
const SHORTEST_BARS: usize = 10;
/// Spans are not indented further than this many levels.
const DEEPEST: usize = 8;
/// Stands before a span that failed.
const FAILED: &str = "✗ ";

/// A span in the waterfall.
struct SpanRow<'a> {
    span: &'a OtlpSpan,
    depth: usize,
}

impl SpanRow<'_> {
    fn label(&self) -> String {
        let mark = if self.span.failure().is_some() { FAILED } else { "" };
        format!("{}{mark}{}", "  ".repeat(self.depth.min(DEEPEST)), label(self.span))
    }

    fn paint(&self) -> Paint {
        match &*self.span.name {
            _ if self.span.failure().is_some() => Paint::Bad,
            "job" | "pod" | "pod.running" => Paint::Good,
            "job.start" | "pod.pending" => Paint::Busy,
            name if name.starts_with("wait.") || name.starts_with("handover.") => Paint::Warning,
            _ => Paint::Quiet,
        }
    }
}

/// The waterfall in at most `width` columns. Reconciliations and requests that succeeded are shown if `all` are.
pub(super) fn lines(trace: &JobSpans, width: usize, all: bool) -> Vec<Line> {
    let spans: Vec<_> = trace.spans().collect();
    let rows = rows(&spans, |span| all || !is_work(span) || span.failure().is_some());
    let hidden = spans.len() - rows.len();
    let start = spans.iter().map(|span| span.start_time_unix_nano).min().unwrap_or_default();
    let end = spans.iter().map(|span| span.end_time_unix_nano).max().unwrap_or_default();
    let total = end.saturating_sub(start);
    let mut lines = summary(trace, &spans, total);
    lines.push(Line::default());
    let labels: Vec<_> = rows.iter().map(SpanRow::label).collect();
    let times = 2 * (GAP + TIME);
    let widest = labels.iter().map(|label| label.width()).max().unwrap_or_default().max("SPAN".len());
    let room = width.saturating_sub(times);
    let labelled = widest.min(room * 3 / 5);
    let bars = room.saturating_sub(labelled + GAP);
    let bars = if bars >= SHORTEST_BARS { bars } else { 0 };
    let labelled = if bars == 0 { widest.min(room) } else { labelled };
    lines.push(line("SPAN", "START", "DURATION", labelled));
    for (row, label) in rows.iter().zip(&labels) {
        let offset = row.span.start_time_unix_nano.saturating_sub(start);
        let took = row.span.end_time_unix_nano.saturating_sub(row.span.start_time_unix_nano);
        let mut line = line(label, &time(offset), &time(took), labelled);
        let (before, length) = bar(offset, took, total, bars);
        line.push(&" ".repeat(GAP + before), None);
        line.push(&"█".repeat(length), Some(row.paint()));
        lines.push(line);
    }
    if hidden > 0 {
        let text = format!("{hidden} reconciliations and requests that succeeded are left out (--all)");
        let mut line = Line::default();
        line.push(&text, Some(Paint::Quiet));
        lines.extend([Line::default(), line]);
    }
    lines.into_iter().map(|line| line.trimmed().shortened(width)).collect()
}

/// The Job, how it ended, and where the spans come from.
fn summary(trace: &JobSpans, spans: &[&OtlpSpan], total: u64) -> Vec<Line> {
    let mut first = Line::from(printable(&format!("{}/{}", trace.namespace, trace.name)));
    first.push("  ", None);
    match spans.iter().find(|span| span.name == "job") {
        Some(root) => match root.failure() {
            Some(why) => first.push(&printable(&format!("Failed {why}")), Some(Paint::Bad)),
            None => first.push("Complete", Some(Paint::Good)),
        },
        None => first.push("has not ended: running pods and open waits are not shown", Some(Paint::Busy)),
    }
    let replicas: Vec<_> = trace.replicas.iter().map(|replica| printable(replica)).collect();
    let of = if replicas.is_empty() { String::new() } else { format!(" of {}", replicas.join(", ")) };
    let second = format!("{} in {} spans{of}", time(total), spans.len());
    vec![first, Line::from(printable(&format!("trace {}", trace.trace_id))), Line::from(second)]
}

/// The first columns of a line.
fn line(label: &str, start: &str, duration: &str, labelled: usize) -> Line {
    let label = shorten(label, labelled, Shorten::End);
    let rest = " ".repeat(labelled.saturating_sub(label.width()) + GAP);
    let mut line = Line::default();
    match label.find(FAILED.trim_end()) {
        Some(mark) => {
            let (indent, text) = label.split_at(mark);
            line.push(indent, None);
            line.push(text, Some(Paint::Bad));
        }
        None => line.push(&label, None),
    }
    line.push(&format!("{rest}{start:>TIME$}  {duration:>TIME$}"), None);
    line
}

/// Columns before the bar of a span, and those of the bar: at least one, so that short spans are seen.
fn bar(offset: u64, took: u64, total: u64, columns: usize) -> (usize, usize) {
    if columns == 0 {
        return (0, 0);
    }
    let total = u128::from(total.max(1));
    let column = |time: u128| usize::try_from(time * columns as u128 / total).unwrap_or(columns);
    let before = column(offset.into()).min(columns - 1);
    let end = column(u128::from(offset) + u128::from(took)).clamp(before + 1, columns);
    (before, end - before)
}

/// A time with its unit.
fn time(nanos: u64) -> String {
    match nanos {
        0 => "0s".to_owned(),
        1..1_000_000 => format!("{}µs", nanos / 1_000),
        1_000_000..1_000_000_000 => format!("{}ms", nanos / 1_000_000),
        _ => precise(Duration::from_nanos(nanos)),
    }
}

/// The spans that are shown, each below the nearest shown span above it, by their starts. Spans above which there is none,
/// or only themselves, come first.
fn rows<'a>(spans: &[&'a OtlpSpan], is_shown: impl Fn(&OtlpSpan) -> bool) -> Vec<SpanRow<'a>> {
    let by_id: HashMap<&str, usize> =
        spans.iter().enumerate().map(|(number, span)| (&*span.span_id, number)).collect();
    let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for (number, span) in spans.iter().enumerate() {
        let parent = by_id.get(&*span.parent_span_id).copied().filter(|parent| *parent != number);
        below.entry(parent).or_default().push(number);
    }
    for siblings in below.values_mut() {
        // A span that begins with another and ends after it comes first.
        siblings.sort_by_key(|number| {
            let span = spans[*number];
            (span.start_time_unix_nano, u64::MAX - span.end_time_unix_nano, *number)
        });
    }
    let top = below.get(&None).cloned().unwrap_or_default();
    let (mut rows, mut seen) = (Vec::new(), HashSet::new());
    // Spans in a circle, which no controller makes, follow the others.
    for first in top.into_iter().chain(0..spans.len()) {
        let mut next = vec![(first, 0)];
        while let Some((number, depth)) = next.pop() {
            if !seen.insert(number) {
                continue;
            }
            let span = spans[number];
            let shown = is_shown(span);
            if shown {
                rows.push(SpanRow { span, depth });
            }
            let children = below.get(&Some(number)).into_iter().flatten().rev();
            next.extend(children.map(|child| (*child, depth + usize::from(shown))));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::spans::tests::{failed, of, span, with};
    use super::*;
    use crate::telemetry::traces::names;

    fn trace(spans: Vec<OtlpSpan>) -> JobSpans {
        let found = JobSpans::choose(of("yardmaster-0", spans), None, "train");
        found.unwrap_or_else(|| panic!("no spans"))
    }

    fn texts(spans: Vec<OtlpSpan>, width: usize, all: bool) -> Vec<String> {
        lines(&trace(spans), width, all).iter().map(|line| line.text().to_owned()).collect()
    }

    fn story() -> Vec<OtlpSpan> {
        let pod =
            |id, from, to| with(span(id, "j", "pod", from, to), names::K8S_POD_NAME, &format!("train-{id}"));
        vec![
            span("r2", "p1", "pod.running", 1_000, 5_000),
            failed(pod("p1", 500, 5_000), "Error"),
            span("r1", "p1", "pod.pending", 500, 1_000),
            failed(span("j", "", "job", 0, 10_000), "BackoffLimitExceeded"),
            span("s", "j", "job.start", 0, 12),
            span("w", "j", "wait.PodBackoff", 5_000, 9_000),
            span("x", "j", "reconcile", 12, 400),
            span("c1", "x", "api.create_pod", 20, 40),
            failed(span("c2", "x", "api.create_pod", 40, 60), "409"),
        ]
    }

    #[test]
    fn spans_are_nested_with_their_times_and_bars() {
        let expected = [
            "ml/train  Failed BackoffLimitExceeded",
            "trace 1",
            "10s in 9 spans of yardmaster-0",
            "",
            "SPAN                           START  DURATION",
            "✗ job BackoffLimitExceeded        0s       10s  ████████████████████",
            "  job.start                       0s      12ms  █",
            "  ✗ api.create_pod 409          40ms      20ms  █",
            "  ✗ pod train-p1, Error        500ms      4.5s   █████████",
            "    pod.pending                500ms     500ms   █",
            "    pod.running                 1.0s      4.0s    ████████",
            "  wait.PodBackoff               5.0s      4.0s            ████████",
            "",
            "2 reconciliations and requests that succeeded are left out (--all)",
        ];
        assert_eq!(texts(story(), 68, false), expected);
    }

    #[test]
    fn all_spans_are_shown_on_request() {
        let all = texts(story(), 120, true);
        assert_eq!(all.len(), 5 + 9);
        assert!(all[7].starts_with("  reconcile") && all[8].starts_with("    api.create_pod"), "{all:#?}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_narrow_ones_have_no_bars() {
        let mut spans = story();
        spans.push(with(span("n", "j", "wait.Refused", 0, 1), "yardmaster.wait.message", &"名前".repeat(80)));
        for width in 0..140 {
            for line in texts(spans.clone(), width, true) {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
        assert!(texts(story(), 30, false).iter().all(|line| !line.contains('█')));
    }

    #[test]
    fn a_job_that_goes_on_has_no_root_yet() {
        let lines = texts(vec![span("s", "j", "job.start", 0, 12), span("t", "s", "pod", 12, 12)], 80, false);
        assert!(lines[0].contains("has not ended"), "{lines:?}");
        assert!(lines[5].starts_with("job.start") && lines[6].starts_with("  pod"), "{lines:?}");
    }

    /// The spans of a file may be anything.
    #[test]
    fn circles_and_ends_before_starts_are_shown_once() {
        let spans = vec![
            span("a", "b", "one", 5, 1),
            span("b", "a", "two", 0, 9),
            span("c", "c", "three", 0, 0),
            span("d", "c", "four", u64::MAX / 2_000_000, 3),
        ];
        let lines = texts(spans, 80, false);
        for name in ["one", "two", "three", "four"] {
            assert_eq!(lines.iter().filter(|line| line.contains(name)).count(), 1, "{name}: {lines:#?}");
        }
    }

    #[test]
    fn times_have_units_and_bars_at_least_one_column() {
        for (nanos, text) in [
            (0, "0s"),
            (999_999, "999µs"),
            (12_000_000, "12ms"),
            (4_500_000_000, "4.5s"),
            (92_000_000_000, "1m 32s"),
        ] {
            assert_eq!(time(nanos), text);
        }
        for (offset, took, total, expected) in [
            (0, 10, 10, (0, 20)),
            (5, 5, 10, (10, 10)),
            (10, 0, 10, (19, 1)),
            (0, 0, 0, (0, 1)),
            (3, 0, 10, (6, 1)),
            (u64::MAX, u64::MAX, 10, (19, 1)),
        ] {
            assert_eq!(bar(offset, took, total, 20), expected, "{offset} {took} {total}");
        }
        assert_eq!(bar(0, 1, 1, 0), (0, 0));
    }
}
