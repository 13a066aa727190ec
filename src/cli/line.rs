//! Lines with colours. Their widths are those of the text alone.

use std::ops::Range;

use crossterm::style::{Attribute, Color, Stylize as _};
use unicode_width::UnicodeWidthStr as _;

use super::fit::{Shorten, shorten};

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Paint {
    /// It has succeeded.
    Good,
    /// It has failed.
    Bad,
    /// It needs a look.
    Warning,
    /// It goes on.
    Busy,
    /// It says little.
    Quiet,
}

impl Paint {
    fn color(self) -> Color {
        match self {
            Self::Good => Color::Green,
            Self::Bad => Color::Red,
            Self::Warning => Color::Yellow,
            Self::Busy => Color::Cyan,
            Self::Quiet => Color::DarkGrey,
        }
    }
}

/// A line without control characters, parts of which have colours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    text: String,
    /// Parts of the text, from left to right.
    painted: Vec<(Range<usize>, Paint)>,
    is_selected: bool,
}

impl<T: Into<String>> From<T> for Line {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Line {
    /// Adds a part.
    pub(super) fn push(&mut self, part: &str, paint: Option<Paint>) {
        let start = self.text.len();
        self.text.push_str(part);
        self.painted.extend(paint.map(|paint| (start..self.text.len(), paint)));
    }

    /// The text alone.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The same line as that of a selected entry.
    pub(super) fn selected(mut self) -> Self {
        self.is_selected = true;
        self
    }

    /// The line without spaces at its end.
    pub(super) fn trimmed(mut self) -> Self {
        let end = self.text.trim_end().len();
        self.text.truncate(end);
        self.painted.retain_mut(|(range, _)| {
            range.end = range.end.min(end);
            range.start < range.end
        });
        self
    }

    /// The line in at most `width` columns; what is cut loses its colours.
    pub(super) fn shortened(mut self, width: usize) -> Self {
        if self.text.width() > width {
            self.text = shorten(&self.text, width, Shorten::End);
            let kept = self.text.len().saturating_sub('…'.len_utf8());
            self.painted.retain(|(range, _)| range.end <= kept);
        }
        self
    }

    /// The line as a terminal takes it, with spaces up to `width` columns.
    pub(super) fn for_terminal(&self, has_colors: bool, width: usize) -> String {
        let rest = " ".repeat(width.saturating_sub(self.text.width()));
        if self.is_selected {
            return format!("{}{}{rest}{}", Attribute::Reverse, self.text, Attribute::Reset);
        }
        if !has_colors {
            return format!("{}{rest}", self.text);
        }
        let (mut out, mut place) = (String::new(), 0);
        for (range, paint) in &self.painted {
            let end = range.end.min(self.text.len());
            out.push_str(&self.text[place..range.start]);
            out.push_str(&self.text[range.start..end].with(paint.color()).to_string());
            place = end;
        }
        out + &self.text[place..] + &rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line {
        let mut line = Line::from("train ");
        line.push("Failed", Some(Paint::Bad));
        line.push(" 3  ", None);
        line
    }

    #[test]
    fn a_part_without_text_at_the_end_has_no_colour() {
        let mut line = Line::from("train  ");
        line.push("", Some(Paint::Warning));
        line.push("  ", Some(Paint::Bad));
        assert_eq!(line.trimmed().for_terminal(true, 6), "train ");
    }

    #[test]
    fn colours_stand_around_their_parts_alone() {
        let line = line().trimmed();
        assert_eq!(line.for_terminal(false, 0), "train Failed 3");
        let colored = line.for_terminal(true, 0);
        let (before, rest) = colored.split_once("Failed").unwrap_or_default();
        assert!(before.starts_with("train \u{1b}[") && rest.ends_with(" 3"), "{colored:?}");
    }

    #[test]
    fn a_cut_part_has_no_colour() {
        let cut = line().shortened(10);
        assert_eq!(cut.text(), "train Fai…");
        assert_eq!(cut.for_terminal(true, 11), "train Fai… ");
    }

    #[test]
    fn a_selected_line_is_inverted_as_wide_as_the_terminal() {
        let shown = line().trimmed().selected().for_terminal(false, 16);
        assert_eq!(shown, format!("{}train Failed 3  {}", Attribute::Reverse, Attribute::Reset));
    }
}
