//! Tables that fit the width of a terminal.

use unicode_width::UnicodeWidthStr as _;

use super::fit::{Shorten, printable, shorten};
use super::line::{Line, Paint};

/// Spaces between two columns.
const GAP: usize = 2;
/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// The text above its cells.
    pub(super) header: &'static str,
    /// How its cells are made shorter.
    pub(super) shorten: Shorten,
    /// Cells are not made shorter than this, in columns of the terminal.
    pub(super) min: usize,
    /// Of the columns that can be left out, the one with the highest number goes first; 0 always stays.
    pub(super) drop: u8,
    /// The colour of a cell, by its whole text.
    paint: Option<fn(&str) -> Option<Paint>>,
}

impl Column {
    /// A column whose cells stay whole.
    pub(super) const fn whole(header: &'static str, drop: u8) -> Self {
        Self { header, shorten: Shorten::Never, min: 0, drop, paint: None }
    }

    /// A column of names, which stay at least `min` wide.
    pub(super) const fn names(header: &'static str, min: usize, drop: u8) -> Self {
        Self { header, shorten: Shorten::Middle, min, drop, paint: None }
    }

    /// A column of sentences, which stay at least `min` wide.
    pub(super) const fn text(header: &'static str, min: usize, drop: u8) -> Self {
        Self { header, shorten: Shorten::End, min, drop, paint: None }
    }

    /// A column of lists, which stay at least `min` wide.
    pub(super) const fn lists(header: &'static str, min: usize, drop: u8) -> Self {
        Self { header, shorten: Shorten::List, min, drop, paint: None }
    }

    /// The same column, in which cells have colours.
    pub(super) const fn painted(mut self, paint: fn(&str) -> Option<Paint>) -> Self {
        self.paint = Some(paint);
        self
    }

    fn narrowest(&self, widest: usize) -> usize {
        match self.shorten {
            Shorten::Never => widest,
            Shorten::Middle | Shorten::End | Shorten::List => widest.min(self.min.max(self.header.width())),
        }
    }
}

/// Rows below headers, as kubectl prints them.
#[derive(Clone, Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub(super) fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    /// Adds a row with a cell for each column.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<_> = cells.into_iter().map(|cell| printable(&cell)).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Whether it has no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines of the table, header first, none wider than `width`; without a width nothing is made shorter.
    /// Columns without content are left out.
    pub(super) fn lines(&self, width: Option<usize>) -> Vec<String> {
        self.painted_lines(width).iter().map(|line| line.text().to_owned()).collect()
    }

    /// The same lines with their colours.
    pub(super) fn painted_lines(&self, width: Option<usize>) -> Vec<Line> {
        let widths = self.widths(width);
        let headers = self.columns.iter().map(|column| (column.header.to_owned(), None));
        let header = line(headers, &widths);
        let rows = self.rows.iter().map(|row| {
            let cells = row.iter().zip(&self.columns).zip(&widths).map(|((cell, column), width)| {
                let paint = column.paint.and_then(|paint| paint(cell));
                (shorten(cell, width.unwrap_or(0), column.shorten), paint)
            });
            line(cells, &widths)
        });
        let clip = |line: Line| match width {
            // Only where not even the columns that always stay fit.
            Some(width) => line.shortened(width),
            None => line,
        };
        std::iter::once(header).chain(rows).map(clip).collect()
    }

    /// The width of each column; `None` for those that are left out.
    fn widths(&self, available: Option<usize>) -> Vec<Option<usize>> {
        let mut widths: Vec<_> =
            self.columns.iter().enumerate().map(|(n, column)| self.widest(n, column)).collect();
        let Some(available) = available else { return widths };
        let narrowest = |widths: &[Option<usize>]| {
            let columns = self.columns.iter().zip(widths);
            let shown = columns.filter_map(|(column, width)| Some(column.narrowest((*width)?) + GAP));
            shown.sum::<usize>().saturating_sub(GAP)
        };
        while narrowest(&widths) > available {
            let shown = (0..widths.len()).filter(|n| widths[*n].is_some() && self.columns[*n].drop > 0);
            let Some(first) = shown.max_by_key(|n| self.columns[*n].drop) else { break };
            widths[first] = None;
        }
        let used = |widths: &[Option<usize>]| {
            widths.iter().flatten().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        while used(&widths) > available {
            // The widest of those that can be made shorter.
            let shrinks =
                |n: &usize| widths[*n].is_some_and(|width| width > self.columns[*n].narrowest(width));
            let Some(widest) = (0..widths.len()).filter(shrinks).max_by_key(|n| widths[*n]) else { break };
            widths[widest] = widths[widest].map(|width| width - 1);
        }
        widths
    }

    /// The width of a column's widest cell; `None` if all are empty and the column can be left out.
    fn widest(&self, n: usize, column: &Column) -> Option<usize> {
        let widest = self.rows.iter().map(|row| row[n].width()).max().unwrap_or(0);
        (widest > 0 || column.drop == 0).then(|| widest.max(column.header.width()))
    }
}

/// The cells of shown columns, padded; no spaces at the end.
fn line(cells: impl Iterator<Item = (String, Option<Paint>)>, widths: &[Option<usize>]) -> Line {
    let mut line = Line::default();
    for ((cell, paint), width) in cells.zip(widths).filter_map(|(cell, width)| Some((cell, (*width)?))) {
        line.push(&cell, paint);
        line.push(&" ".repeat(width.saturating_sub(cell.width()) + GAP), None);
    }
    line.trimmed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> Table {
        let mut table = Table::new([
            Column::names("NAME", 8, 0),
            Column::whole("COUNT", 1),
            Column::whole("NOTHING", 1),
            Column::text("WHY", 6, 2),
        ]);
        for name in names {
            table.row([
                (*name).to_owned(),
                "12345".to_owned(),
                String::new(),
                "a rather long reason".to_owned(),
            ]);
        }
        table
    }

    #[test]
    fn a_table_without_a_limit_shows_everything_that_has_content() {
        let lines = table(&["a-rather-long-name"]).lines(None);
        assert_eq!(lines[0], "NAME                COUNT  WHY");
        assert_eq!(lines[1], "a-rather-long-name  12345  a rather long reason");
    }

    #[test]
    fn names_are_cut_in_the_middle_and_sentences_at_the_end() {
        assert_eq!(table(&["a-rather-long-name"]).lines(Some(30))[1], "a-rat…-name  12345  a rather …");
    }

    #[test]
    fn the_least_important_columns_go_first() {
        assert_eq!(table(&["a-rather-long-name"]).lines(Some(16)), ["NAME       COUNT", "a-ra…name  12345"]);
        assert_eq!(table(&["a-rather-long-name"]).lines(Some(10)), ["NAME", "a-rat…name"]);
    }

    #[test]
    fn no_line_is_wider_than_the_limit() {
        let table = table(&["x", "a-rather-long-name", "名前が長いジョブの名前", "e\u{301}e\u{301}e\u{301}"]);
        for width in 0..80 {
            for line in table.lines(Some(width)) {
                assert!(line.width() <= width, "{width}: {line:?}");
            }
        }
    }

    #[test]
    fn cells_cannot_control_the_terminal() {
        let mut table = Table::new([Column::whole("NAME", 0)]);
        table.row(["\u{9b}31m".to_owned()]);
        assert_eq!(table.lines(None)[1], "\\u{9b}31m");
    }
}
