//! The lines of a log: whole, with a prefix, and none twice when the log is read again from where it broke off.

use jiff::Timestamp;
use memchr::memchr;

/// A longer line is shown in pieces, so that a log without line feeds cannot take all memory.
const MAX_LINE: usize = 1 << 20;

/// How the lines of a log are shown.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Decoration {
    /// The prefix of each line. A log without a prefix is shown unchanged, also where its last line has no
    /// line feed.
    pub(in crate::cli) prefix: Option<String>,
    /// Whether the time of each line stands before it, behind the prefix.
    pub(in crate::cli) timestamps: bool,
}

/// The last line that was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Position {
    time: Timestamp,
    /// How many lines of this time have been shown.
    lines: usize,
}

impl Position {
    /// The place behind the first `lines` lines of this time.
    pub(in crate::cli) fn new(time: Timestamp, lines: usize) -> Self {
        Self { time, lines }
    }

    /// `sinceTime` of a request for all that follows. The API knows whole seconds only. kube would round up, which loses lines,
    /// and panics at the last second that a time can have.
    pub(in crate::cli) fn since(self) -> Timestamp {
        Timestamp::from_second(self.time.as_second()).unwrap_or(self.time)
    }
}

/// Splits a log with time stamps, which comes piece by piece.
#[derive(Debug)]
pub(in crate::cli) struct Lines {
    decoration: Decoration,
    position: Option<Position>,
    /// Lines up to here have been shown before the log was opened again.
    shown_before: Option<Position>,
    /// The beginning of a line.
    open: Vec<u8>,
    /// `open` continues a line of which a piece was shown (or, if false, left out) already.
    continues: Option<bool>,
}

impl Lines {
    /// Nothing has been shown yet.
    pub(super) fn new(decoration: Decoration) -> Self {
        Self::behind(None, decoration)
    }

    /// Lines up to this place have been shown.
    pub(in crate::cli) fn behind(position: Option<Position>, decoration: Decoration) -> Self {
        Self { decoration, position, shown_before: position, open: Vec::new(), continues: None }
    }

    /// The last line that was shown.
    pub(super) fn position(&self) -> Option<Position> {
        self.position
    }

    /// The log is opened again: a line that was not complete comes again, and so may lines that were shown.
    pub(super) fn reopen(&mut self) {
        self.shown_before = self.position;
        self.open.clear();
        self.continues = None;
    }

    /// Adds a piece of the log, and returns the lines to show.
    pub(in crate::cli) fn take(&mut self, mut piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(end) = memchr(b'\n', piece) {
            self.open.extend_from_slice(&piece[..end]);
            self.show(&mut out, true);
            piece = &piece[end + 1..];
        }
        self.open.extend_from_slice(piece);
        if self.open.len() > MAX_LINE {
            self.show(&mut out, false);
        }
        out
    }

    /// The log is complete: returns its last line if that has no line feed.
    pub(in crate::cli) fn finish(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        if !self.open.is_empty() {
            self.show(&mut out, true);
            if self.decoration.prefix.is_none() {
                out.pop();
            }
        }
        out
    }

    /// Shows the open line, or a piece of it unless `complete`.
    fn show(&mut self, out: &mut Vec<u8>, complete: bool) {
        let line = std::mem::take(&mut self.open);
        let (time, text) = if self.continues.is_some() { (None, &line[..]) } else { split(&line) };
        let shown = self.continues.unwrap_or_else(|| time.is_none_or(|(time, _)| self.is_new(time)));
        if shown {
            if let Some(prefix) = &self.decoration.prefix {
                out.extend_from_slice(prefix.as_bytes());
            }
            if let Some((_, time)) = time.filter(|_| self.decoration.timestamps) {
                out.extend_from_slice(time);
                out.push(b' ');
            }
            out.extend_from_slice(text);
            // Pieces with a prefix are lines of their own; without one the line stays as it is.
            if complete || self.decoration.prefix.is_some() {
                out.push(b'\n');
            }
        }
        self.continues = (!complete).then_some(shown);
        self.open = line;
        self.open.clear();
    }

    /// Whether a line of this time has not been shown; counts it.
    fn is_new(&mut self, time: Timestamp) -> bool {
        if let Some(before) = &mut self.shown_before {
            if time < before.time {
                return false;
            }
            if time == before.time && before.lines > 0 {
                before.lines -= 1;
                return false;
            }
        }
        match &mut self.position {
            Some(position) if position.time == time => position.lines += 1,
            position => *position = Some(Position { time, lines: 1 }),
        }
        true
    }
}

/// The time stamp of a line, as it is written and as a time, and the text behind it. A line of the kubelet itself
/// has no time stamp.
fn split(line: &[u8]) -> (Option<(Timestamp, &[u8])>, &[u8]) {
    let Some(end) = memchr(b' ', line) else { return (None, line) };
    let (time, text) = (&line[..end], &line[end + 1..]);
    let parsed = std::str::from_utf8(time).ok().and_then(|time| time.parse().ok());
    match parsed {
        Some(parsed) => (Some((parsed, time)), text),
        None => (None, line),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn raw() -> Lines {
        Lines::new(Decoration::default())
    }

    fn text(bytes: Vec<u8>) -> String {
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn lines_have_their_prefix_and_their_time_if_wanted() {
        for (prefix, timestamps, expected) in [
            (None, false, "a b\n"),
            (Some("p: ".to_owned()), false, "p: a b\n"),
            (Some("p: ".to_owned()), true, "p: 2026-01-01T00:00:00.5Z a b\n"),
        ] {
            let mut lines = Lines::new(Decoration { prefix, timestamps });
            assert_eq!(text(lines.take(b"2026-01-01T00:00:00.5Z a b\n")), expected);
        }
    }

    #[test]
    fn a_last_line_without_line_feed_is_complete_only_behind_a_prefix() {
        for (prefix, expected) in [(None, "end"), (Some("p: ".to_owned()), "p: end\n")] {
            let mut lines = Lines::new(Decoration { prefix, timestamps: false });
            assert_eq!(text(lines.take(b"2026-01-01T00:00:00Z end")), "");
            assert_eq!(text(lines.finish()), expected);
        }
    }

    #[test]
    fn lines_without_a_time_are_shown_as_they_are() {
        assert_eq!(
            text(raw().take(b"unable to retrieve container logs\n\n")),
            "unable to retrieve container logs\n\n"
        );
    }

    #[test]
    fn a_line_that_does_not_end_is_shown_in_pieces() {
        let mut lines = raw();
        let start = [b"2026-01-01T00:00:00Z ".to_vec(), vec![b'x'; MAX_LINE]].concat();
        assert_eq!(lines.take(&start), vec![b'x'; MAX_LINE]);
        assert_eq!(text(lines.take(b"2026-01-01T00:00:00Z y\n")), "2026-01-01T00:00:00Z y\n");
        // Read again, it was shown already, and is left out as a whole.
        lines.reopen();
        assert_eq!(text(lines.take(&start)), "");
        assert_eq!(text(lines.take(b"2026-01-01T00:00:00Z y\n2026-01-01T00:00:01Z z\n")), "z\n");
    }

    #[test]
    fn a_request_begins_with_the_second_of_the_last_line() {
        for (time, since) in [
            ("2026-01-01T00:00:26.7Z", "2026-01-01T00:00:26Z"),
            ("2026-01-01T00:00:26Z", "2026-01-01T00:00:26Z"),
            ("9999-12-30T22:00:00.999999999Z", "9999-12-30T22:00:00Z"),
        ] {
            let time: Timestamp = time.parse().unwrap();
            assert_eq!(Position::new(time, 1).since().to_string(), since);
        }
    }

    proptest! {
        /// Wherever a log breaks off, reading on from there shows each line once.
        #[test]
        fn no_line_is_lost_or_doubled_where_a_log_breaks_off(
            steps in prop::collection::vec(0_i64..3, 1..40),
            cuts in prop::collection::vec(0_usize..2000, 0..5),
            size in 1_usize..50,
        ) {
            let mut at = Timestamp::from_second(1_000_000).unwrap();
            let mut log: Vec<(Timestamp, String)> = Vec::new();
            for (n, step) in steps.iter().enumerate() {
                at += jiff::SignedDuration::from_millis(step * 400);
                log.push((at, format!("{at} line {n}\n")));
            }
            let mut lines = raw();
            let mut shown = Vec::new();
            for cut in cuts.into_iter().map(Some).chain([None]) {
                lines.reopen();
                let since = lines.position().map(Position::since);
                let sent: String = log.iter().filter(|(time, _)| since.is_none_or(|since| *time >= since))
                    .map(|(_, line)| line.as_str()).collect();
                let sent = &sent.as_bytes()[..cut.unwrap_or(usize::MAX).min(sent.len())];
                sent.chunks(size).for_each(|piece| shown.extend(lines.take(piece)));
            }
            let expected: String = (0..steps.len()).map(|n| format!("line {n}\n")).collect();
            prop_assert_eq!(text(shown), expected);
        }
    }
}
