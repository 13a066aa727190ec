//! `status --watch` on a terminal: what keys do, and what is on the screen.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::cursor::Cursor;
use super::detail;
use super::feed::{JobKey, Latest};
use super::job::JobReport;
use super::report::Report;
use super::text::{FINISHED, Layout, listed};
use crate::cli::fit::printable;
use crate::cli::line::Line;

const HINTS: &str = "q quit  Enter open  / filter  s sort  u unfinished  a all  ? help";
const JOB_HINTS: &str = "Esc back  arrows scroll  q quit  ? help";
const HELP: [&str; 14] = [
    "q, Ctrl-C        leave",
    "Enter            open the marked Job: its indexes, pods, failures and logs",
    "Esc              back to the list; from there, leave",
    "/                filter by a part of NAMESPACE/NAME; Enter keeps it, Esc takes it away",
    "s                sort by: need of attention, name, age, failed pods",
    "u                hide finished Jobs, or show them",
    "a                show all finished Jobs, or only the newest",
    "w                show shards and trace ids of Jobs, where there is room",
    "S                show owner and epoch of each shard",
    "Up, Down, k, j   mark the Job above or below; scroll by a line",
    "PageUp, PageDown scroll by a page",
    "Home, End        to the top, to the end",
    "Ctrl-L           redraw",
    "?                this help",
];

/// The order of Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Interest,
    Name,
    Newest,
    Failed,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Interest => Self::Name,
            Self::Name => Self::Newest,
            Self::Newest => Self::Failed,
            Self::Failed => Self::Interest,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Interest => "attention",
            Self::Name => "name",
            Self::Newest => "newest",
            Self::Failed => "failed pods",
        }
    }

    fn sort(self, jobs: &mut [&JobReport]) {
        match self {
            // The order of the report.
            Self::Interest => {}
            Self::Name => jobs.sort_by(|a, b| a.by_name(b)),
            Self::Newest => jobs.sort_by_key(|job| std::cmp::Reverse(job.start_time)),
            Self::Failed => jobs.sort_by_key(|job| std::cmp::Reverse(job.failed)),
        }
    }
}

/// The mode of the view, which gives keys their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Browse,
    Filter,
    Help,
}

/// A Job that has been opened, and lines of it above the screen.
#[derive(Clone, Debug)]
struct Opened {
    job: JobKey,
    offset: usize,
}

/// Whether the view stays after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Stay,
    /// Everything is redrawn: another program may have written to the terminal.
    Redraw,
    Leave,
}

/// The state of the view.
#[derive(Clone, Debug)]
pub(super) struct View {
    mode: Mode,
    sort: Sort,
    filter: String,
    unfinished: bool,
    layout: Layout,
    cursor: Cursor,
    opened: Option<Opened>,
    /// Lines of the report on the screen, for scrolling by pages.
    page: usize,
}

impl View {
    /// A view that begins with this layout.
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            mode: Mode::Browse,
            sort: Sort::Interest,
            filter: String::new(),
            unfinished: false,
            layout,
            cursor: Cursor::new(),
            opened: None,
            page: 1,
        }
    }

    /// The Job that has been opened.
    pub(super) fn opened(&self) -> Option<&JobKey> {
        self.opened.as_ref().map(|opened| &opened.job)
    }

    /// Does what a key means.
    pub(super) fn key(&mut self, key: KeyEvent) -> Flow {
        if key.kind == KeyEventKind::Release {
            return Flow::Stay;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Flow::Leave,
                KeyCode::Char('l') => Flow::Redraw,
                _ => Flow::Stay,
            };
        }
        match self.mode {
            Mode::Help => self.mode = Mode::Browse,
            Mode::Filter => self.edit(key.code),
            Mode::Browse => return self.browse(key.code),
        }
        Flow::Stay
    }

    fn edit(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Browse;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.cursor.home();
    }

    fn browse(&mut self, key: KeyCode) -> Flow {
        match key {
            KeyCode::Char('q') => return Flow::Leave,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Esc if self.opened.is_none() => return Flow::Leave,
            KeyCode::Esc | KeyCode::Left | KeyCode::Backspace => self.opened = None,
            _ => match &mut self.opened {
                Some(opened) => opened.scroll(key, self.page),
                None => self.arrange(key),
            },
        }
        Flow::Stay
    }

    /// Changes what the list shows, moves in it, or opens a Job.
    fn arrange(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('u') => self.unfinished = !self.unfinished,
            KeyCode::Char('a') => {
                self.layout.finished = if self.layout.finished.is_some() { None } else { Some(FINISHED) };
            }
            KeyCode::Char('w') => self.layout.wide = !self.layout.wide,
            KeyCode::Char('S') => self.layout.shards = !self.layout.shards,
            KeyCode::Enter | KeyCode::Right => {
                self.opened = self.cursor.job().map(|job| Opened { job: job.clone(), offset: 0 });
            }
            KeyCode::Up | KeyCode::Char('k') => self.cursor.up(),
            KeyCode::Down | KeyCode::Char('j') => self.cursor.down(),
            KeyCode::PageUp => self.cursor.page_up(),
            KeyCode::PageDown => self.cursor.page_down(),
            KeyCode::Home => self.cursor.home(),
            KeyCode::End => self.cursor.end(),
            _ => {}
        }
    }

    /// The lines of the screen: a title, the part of the report that is scrolled to, and a line for messages.
    pub(super) fn frame(&mut self, latest: &Latest, (columns, rows): (u16, u16)) -> Vec<Line> {
        let (columns, rows) = (usize::from(columns), usize::from(rows));
        self.page = rows.saturating_sub(2).max(1);
        let (title, body) = match &latest.report {
            None => ("Reading Jobs and Leases ...".to_owned(), Vec::new()),
            Some(report) => self.report(report, columns),
        };
        let body = if self.mode == Mode::Help { HELP.map(Line::from).to_vec() } else { body };
        let offset = match (self.mode, &mut self.opened) {
            (Mode::Help, _) => 0,
            (_, Some(opened)) => opened.fit(self.page, body.len()),
            (_, None) => self.cursor.fit(self.page, body.len()),
        };
        let more = body.len().saturating_sub(offset + self.page);
        let hints = if self.opened.is_some() { JOB_HINTS } else { HINTS };
        let message = match (&self.mode, &latest.problem) {
            (Mode::Filter, _) => format!("/{}_", self.filter),
            (_, Some(problem)) => printable(problem),
            _ if more > 0 => format!("{more} more lines  {hints}"),
            _ => hints.to_owned(),
        };
        let mut lines = vec![Line::from(title)];
        lines.extend(body.into_iter().skip(offset).take(self.page));
        lines.resize(rows.saturating_sub(1), Line::default());
        lines.push(message.into());
        lines.truncate(rows);
        lines.into_iter().map(|line| line.shortened(columns)).collect()
    }

    fn report(&mut self, report: &Report, columns: usize) -> (String, Vec<Line>) {
        let time = report.time.strftime("%H:%M:%S UTC");
        if let Some(Opened { job: (namespace, name), .. }) = &self.opened {
            let job = report.jobs.iter().find(|job| job.namespace == *namespace && job.name == *name);
            let body = match job {
                Some(job) => detail::lines(job, report.time, Some(columns)),
                None => vec!["The Job is gone.".into()],
            };
            return (format!("{time}  {namespace}/{name}"), body);
        }
        let wanted =
            |job: &&JobReport| (!self.unfinished || !job.is_finished()) && job.key().contains(&self.filter);
        let mut jobs: Vec<&JobReport> = report.jobs.iter().filter(wanted).collect();
        self.sort.sort(&mut jobs);
        let unfinished = jobs.iter().filter(|job| !job.is_finished()).count();
        let filter =
            if self.filter.is_empty() { String::new() } else { format!("  filter: {}", self.filter) };
        let counts = format!("{unfinished} unfinished of {} Jobs", jobs.len());
        let title = format!("{time}  {counts}  sorted by {}{filter}", self.sort.name());
        let layout = Layout { width: Some(columns), ..self.layout };
        let mut body = detail::body(report, &jobs, &layout);
        if !layout.one_job {
            let listed = listed(&jobs, &layout).into_iter();
            self.cursor.follow(listed.map(|job| (job.namespace.clone(), job.name.clone())).collect());
            if let Some(line) = self.cursor.line().and_then(|line| body.get_mut(line)) {
                *line = std::mem::take(line).selected();
            }
        }
        (title, body)
    }
}

impl Opened {
    fn scroll(&mut self, key: KeyCode, page: usize) {
        self.offset = match key {
            KeyCode::Up | KeyCode::Char('k') => self.offset.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.offset + 1,
            KeyCode::PageUp => self.offset.saturating_sub(page),
            KeyCode::PageDown => self.offset + page,
            KeyCode::Home => 0,
            // The frame limits it to what there is.
            KeyCode::End => usize::MAX / 2,
            _ => self.offset,
        };
    }

    /// Limits the lines above the screen to what there is.
    fn fit(&mut self, page: usize, lines: usize) -> usize {
        self.offset = self.offset.min(lines.saturating_sub(page));
        self.offset
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use serde_json::json;
    use unicode_width::UnicodeWidthStr as _;

    use super::super::job::tests::{ended, job};
    use super::*;

    const SIZE: (u16, u16) = (80, 12);

    fn latest() -> Latest {
        let mut jobs: Vec<_> =
            (0..30).map(|n| job(&format!("run-{n:02}"), json!({}), json!({"failed": n}))).collect();
        jobs.extend((0..15).map(|n| job(&format!("done-{n:02}"), json!({}), ended("Complete", n))));
        let time = "2026-01-01T00:00:20Z".parse().unwrap();
        let report = Report { time, ownership: crate::cli::ownership::Ownership::default(), jobs };
        Latest { report: Some(Arc::new(report)), ..Latest::default() }
    }

    /// The lines of the screen.
    fn frame(view: &mut View, latest: &Latest, size: (u16, u16)) -> Vec<String> {
        view.frame(latest, size).iter().map(|line| line.text().to_owned()).collect()
    }

    fn view() -> View {
        View::new(Layout { finished: Some(FINISHED), ..Layout::default() })
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> Flow {
        let flows: Vec<_> =
            keys.iter().map(|key| view.key(KeyEvent::new(*key, KeyModifiers::NONE))).collect();
        flows.last().copied().unwrap_or(Flow::Stay)
    }

    fn text(keys: &str) -> Vec<KeyCode> {
        keys.chars().map(KeyCode::Char).collect()
    }

    #[test]
    fn a_frame_has_the_size_of_the_terminal() {
        for size in [(0, 0), (1, 1), (20, 2), (80, 24), (300, 100)] {
            for latest in [latest(), Latest::default()] {
                let lines = frame(&mut view(), &latest, size);
                assert_eq!(lines.len(), usize::from(size.1));
                assert!(lines.iter().all(|line| line.width() <= usize::from(size.0)), "{lines:#?}");
            }
        }
    }

    #[test]
    fn a_filter_is_typed_kept_and_taken_away() {
        let (mut view, latest) = (view(), latest());
        press(&mut view, &text("/run-07q"));
        assert_eq!(frame(&mut view, &latest, SIZE).last().unwrap(), "/run-07q_");
        press(&mut view, &[KeyCode::Backspace, KeyCode::Enter]);
        let lines = frame(&mut view, &latest, SIZE);
        assert!(
            lines[0].contains("1 unfinished of 1 Jobs") && lines[0].contains("filter: run-07"),
            "{lines:#?}"
        );
        press(&mut view, &text("/"));
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Flow::Stay);
        assert!(frame(&mut view, &latest, SIZE)[0].contains("of 45 Jobs"));
    }

    #[test]
    fn keys_sort_hide_and_scroll() {
        let (mut view, latest) = (view(), latest());
        let first =
            |view: &mut View| frame(view, &latest, SIZE)[2].split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(first(&mut view), "run-00");
        for (key, expected) in [('s', "done-00"), ('s', "run-00"), ('s', "run-29")] {
            press(&mut view, &[KeyCode::Char(key)]);
            assert_eq!(first(&mut view), expected, "sorted by {:?}", view.sort);
        }
        press(&mut view, &[KeyCode::PageDown]);
        assert_eq!(frame(&mut view, &latest, SIZE)[1].split_whitespace().nth(1), Some("run-20"));
        press(&mut view, &text("u"));
        press(&mut view, &[KeyCode::End]);
        let lines = frame(&mut view, &latest, SIZE);
        assert!(lines[0].contains("30 unfinished of 30") && lines[10].contains("run-00"), "{lines:#?}");
        press(&mut view, &[KeyCode::Home]);
        assert_eq!(first(&mut view), "run-29");
    }

    /// Name of the Job whose line is inverted, and its place on the screen.
    fn marked(view: &mut View, latest: &Latest) -> Option<(usize, String)> {
        let lines = view.frame(latest, SIZE);
        let place = lines.iter().position(|line| *line == line.clone().selected())?;
        Some((place, lines[place].text().split_whitespace().nth(1)?.to_owned()))
    }

    #[test]
    fn arrows_mark_a_job_and_enter_opens_it() {
        let (mut view, latest) = (view(), latest());
        let at = |place, name: &str| Some((place, name.to_owned()));
        assert_eq!(marked(&mut view, &latest), at(2, "run-00"));
        press(&mut view, &[KeyCode::Down; 20]);
        assert_eq!(marked(&mut view, &latest), at(10, "run-20"));
        press(&mut view, &[KeyCode::Enter]);
        assert_eq!(view.opened(), Some(&("n".to_owned(), "run-20".to_owned())));
        let lines = frame(&mut view, &latest, (80, 30));
        assert!(lines[0].ends_with("n/run-20") && lines[1].starts_with("Job:"), "{lines:#?}");
        press(&mut view, &[KeyCode::End]);
        assert!(!frame(&mut view, &latest, (80, 6))[1].starts_with("Job:"));
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Flow::Stay);
        assert_eq!(view.opened(), None);
        assert_eq!(marked(&mut view, &latest), at(10, "run-20"));
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Flow::Leave);
    }

    #[test]
    fn help_closes_with_any_key_and_the_view_with_three() {
        let (mut view, latest) = (view(), latest());
        press(&mut view, &text("?"));
        assert!(frame(&mut view, &latest, (80, 24)).iter().any(|line| line.contains("this help")));
        assert_eq!(press(&mut view, &text("q")), Flow::Stay);
        assert!(!frame(&mut view, &latest, (80, 24)).iter().any(|line| line.contains("this help")));
        assert_eq!(press(&mut view, &text("q")), Flow::Leave);
        assert_eq!(press(&mut view, &[KeyCode::Esc]), Flow::Leave);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        press(&mut view, &text("/"));
        assert_eq!(view.key(interrupt), Flow::Leave);
    }

    #[test]
    fn a_lost_connection_is_said_below_the_last_report() {
        let latest = Latest { problem: Some("connection lost, trying again".into()), ..latest() };
        let lines = frame(&mut view(), &latest, SIZE);
        assert!(lines[1].contains("SUCCEEDED") && lines[11].contains("connection lost, trying again"));
    }
}
