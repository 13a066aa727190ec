//! All panels as one SVG, at their places in Grafana's grid.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::style::RGBColor;

use super::dashboard::{Panel, PanelKind, SeriesLabels};
use super::recording::Recording;
use crate::report::page::escape;
use crate::report::plots::{Axes, Canvas, Line, Plot, TEXT, colour, plain_number};

/// Width of a column of the grid, and height of a row, in pixels.
const CELL: (u32, u32) = (60, 40);
/// Height of the title of the page, in pixels.
const HEADER: u32 = 40;
/// Space around a panel, in pixels.
const MARGIN: u32 = 4;
/// Height of a line of a legend, in pixels.
const LEGEND_LINE: u32 = 15;
/// Mean width of a character of a legend, in pixels.
const CHARACTER: u32 = 6;
/// Left, top and bottom of the cells of a heat map: space for labels, for the title and for the scale.
const HEATMAP_EDGES: (u32, u32, u32) = (64, 36, 40);

/// A series of a panel.
#[derive(Clone, Debug)]
pub(super) struct PanelLine {
    /// Its name in the legend.
    pub(super) name: String,
    pub(super) labels: SeriesLabels,
    /// Its value at each time; not a number if there is none.
    pub(super) values: Vec<f64>,
}

/// The picture.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) svg: String,
    /// Number of panels.
    pub(super) panels: usize,
    /// Titles of those without data.
    pub(super) empty: Vec<String>,
}

/// Draws all panels. `times` are those of the values, in seconds since the first scrape.
///
/// # Errors
///
/// If a plot cannot be drawn.
pub(super) fn draw(
    title: &str,
    recording: &Recording<'_>,
    times: &[f64],
    panels: &[(&Panel, Vec<PanelLine>)],
) -> Result<Drawn> {
    let grid = || panels.iter().map(|(panel, _)| panel.grid_pos);
    let width = grid().map(|place| place.x + place.w).max().unwrap_or_default() * CELL.0;
    let height = grid().map(|place| place.y + place.h).max().unwrap_or_default() * CELL.1 + HEADER;
    let (scrapes, every) = (recording.scrapes, humantime::format_duration(recording.every));
    let mut drawn = Drawn { svg: String::new(), panels: 0, empty: Vec::new() };
    write!(
        drawn.svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" fill=\"{text}\">\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"22\">{title}: {scrapes} scrapes since {begun:.0}, every \
         {every}</text>\n",
        text = hex(TEXT),
        title = escape(title),
        begun = recording.begun,
    )?;
    for (panel, lines) in panels {
        let place = panel.grid_pos;
        let size = (place.w * CELL.0 - 2 * MARGIN, place.h * CELL.1 - 2 * MARGIN);
        let content = match panel.kind {
            PanelKind::Row => Some(heading(panel)),
            PanelKind::Stat => latest(lines).map(|value| framed(panel, size) + &stat(panel, value, size)),
            _ if !lines.iter().any(PanelLine::has_data) => None,
            PanelKind::Timeseries => Some(frame(size) + &timeseries(panel, lines, times, size)?),
            PanelKind::Heatmap => Some(framed(panel, size) + &heatmap(lines, times, size)?),
        };
        let content = content.unwrap_or_else(|| {
            drawn.empty.push(panel.title.clone());
            framed(panel, size) + &centred(size, 16, "no data", &hex(TEXT))
        });
        drawn.panels += usize::from(panel.kind != PanelKind::Row);
        let (x, y) = (place.x * CELL.0 + MARGIN, place.y * CELL.1 + MARGIN + HEADER);
        writeln!(
            drawn.svg,
            "<g class=\"panel\" transform=\"translate({x} {y})\"><title>{}</title>{content}</g>",
            escape(&panel.title)
        )?;
    }
    drawn.svg.push_str("</svg>\n");
    Ok(drawn)
}

impl PanelLine {
    fn has_data(&self) -> bool {
        self.values.iter().any(|value| !value.is_nan())
    }

    /// The upper bound of a bucket.
    fn bound(&self) -> f64 {
        self.labels.get("le").and_then(|le| le.parse().ok()).unwrap_or(f64::INFINITY)
    }
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn heading(panel: &Panel) -> String {
    format!("<text y=\"24\" font-size=\"20\" font-weight=\"bold\">{}</text>", escape(&panel.title))
}

fn frame((width, height): (u32, u32)) -> String {
    let colour = hex(TEXT);
    format!(
        "<rect width=\"{width}\" height=\"{height}\" fill=\"none\" stroke=\"{colour}\" stroke-opacity=\"0.4\"/>"
    )
}

/// A frame with the title, for panels that are no plot.
fn framed(panel: &Panel, size: (u32, u32)) -> String {
    let (middle, title) = (size.0 / 2, escape(&panel.title));
    frame(size)
        + &format!("<text x=\"{middle}\" y=\"24\" font-size=\"17\" text-anchor=\"middle\">{title}</text>")
}

fn centred((width, height): (u32, u32), font: u32, text: &str, colour: &str) -> String {
    let (x, y) = (width / 2, height / 2 + font / 2);
    let (colour, text) = (escape(colour), escape(text));
    format!(
        "<text x=\"{x}\" y=\"{y}\" font-size=\"{font}\" text-anchor=\"middle\" fill=\"{colour}\">{text}</text>"
    )
}

/// The value of the first series at the last time.
fn latest(lines: &[PanelLine]) -> Option<f64> {
    lines.iter().filter_map(|line| line.values.last().copied()).find(|value| !value.is_nan())
}

/// A number in the colour of its threshold.
fn stat(panel: &Panel, value: f64, size: (u32, u32)) -> String {
    let (factor, unit) = panel.scale(value);
    let text = format!("{} {unit}", plain_number(&(value * factor)));
    centred(size, 36, text.trim_end(), panel.colour_of(value).unwrap_or(&hex(TEXT)))
}

/// The lines over time, with a legend below them. Lines of a panel that stacks them are drawn one by one.
fn timeseries(panel: &Panel, lines: &[PanelLine], times: &[f64], size: (u32, u32)) -> Result<String> {
    let lines: Vec<_> = lines.iter().filter(|line| line.has_data()).collect();
    let top = lines.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max);
    let (factor, unit) = panel.scale(top);
    let scaled = |line: &&PanelLine| Line {
        name: line.name.clone(),
        points: times.iter().zip(&line.values).map(|(time, value)| (*time, value * factor)).collect(),
    };
    let names: Vec<_> = lines.iter().map(|line| &*line.name).collect();
    let (legend, height) = legend(&names, size);
    let canvas = Canvas { size: (size.0, size.1 - height), has_names: false };
    let lines = lines.iter().map(scaled).collect();
    let plot = Plot { title: &panel.title, x: "seconds", y: unit, lines }.draw_on(Axes::Linear, canvas)?;
    Ok(plot + &legend)
}

/// The names of lines at the bottom of a panel, and the height of all of them in pixels. They have at most half of the
/// panel.
fn legend(names: &[&str], (width, height): (u32, u32)) -> (String, u32) {
    let most = (height / 2 / LEGEND_LINE).saturating_sub(1);
    let (mut x, mut line) = (0, 0);
    let places: Vec<_> = names
        .iter()
        .map(|name| {
            let needed = 24 + CHARACTER * name.chars().count() as u32;
            if x > 0 && x + needed > width - 2 * MARGIN {
                (x, line) = (0, line + 1);
            }
            x += needed;
            (x - needed, line)
        })
        .collect();
    let shown = places.iter().filter(|(_, line)| *line < most).count();
    let rest = names.len() - shown;
    let height_taken = LEGEND_LINE * (line.min(most) + 1) + MARGIN;
    let top = height - height_taken;
    let mut svg = String::new();
    let mut entry = |x: u32, line: u32, colour: &str, name: &str| {
        let (x, y) = (x + 2 * MARGIN, top + LEGEND_LINE * (line + 1) - MARGIN);
        let name = escape(name);
        // Writing to a string cannot fail.
        let _written = write!(
            svg,
            "<text x=\"{x}\" y=\"{y}\" font-size=\"11\"><tspan fill=\"{colour}\">&#9632;</tspan> {name}</text>"
        );
    };
    for (number, (name, (x, line))) in names.iter().zip(&places).take(shown).enumerate() {
        entry(*x, *line, &hex(colour(number)), name);
    }
    if rest > 0 {
        entry(0, most, "none", &format!("and {rest} more"));
    }
    (svg, height_taken)
}

/// Buckets of a histogram from below, each with its count at each time. The series are cumulative: each bucket also
/// counts everything below it.
fn buckets(lines: &[PanelLine]) -> Vec<(&str, Vec<f64>)> {
    let mut lines: Vec<_> = lines.iter().collect();
    lines.sort_by(|a, b| a.bound().total_cmp(&b.bound()));
    let below = std::iter::once(None).chain(lines.iter().map(Some));
    let counts = lines.iter().zip(below).map(|(line, below)| {
        let own = |(number, value): (usize, &f64)| {
            let below = below.map_or(0.0, |below| below.values[number]);
            (value - if below.is_nan() { 0.0 } else { below }).max(0.0)
        };
        (&*line.name, line.values.iter().enumerate().map(own).collect())
    });
    counts.collect()
}

/// A column for each time, a row for each bucket. The more there is in a bucket, the stronger its colour.
fn heatmap(lines: &[PanelLine], times: &[f64], size: (u32, u32)) -> Result<String> {
    let (left, top, bottom) = HEATMAP_EDGES;
    let buckets = buckets(lines);
    let most = buckets.iter().flat_map(|(_, counts)| counts).copied().fold(0.0, f64::max);
    let width = f64::from(size.0 - left - 2 * MARGIN) / times.len().max(1) as f64;
    let height = f64::from(size.1 - top - bottom) / buckets.len().max(1) as f64;
    let (fill, mut svg) = (hex(colour(0)), String::new());
    for (row, (name, counts)) in buckets.iter().rev().enumerate() {
        let y = f64::from(top) + row as f64 * height;
        let (x, middle) = (left - 2 * MARGIN, y + height / 2.0 + 4.0);
        write!(
            svg,
            "<text x=\"{x}\" y=\"{middle:.1}\" font-size=\"9\" text-anchor=\"end\">{}</text>",
            escape(name)
        )?;
        for (column, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
            let (x, opacity) = (f64::from(left) + column as f64 * width, count / most);
            write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\" \
                 fill-opacity=\"{opacity:.2}\"/>"
            )?;
        }
    }
    let (middle, y) = (size.0 / 2, size.1 - 3 * MARGIN);
    write!(
        svg,
        "<text x=\"{middle}\" y=\"{y}\" font-size=\"12\" text-anchor=\"middle\">{} seconds; strongest colour: {}</text>",
        times.last().map_or(0.0, |last| last.round()),
        plain_number(&most)
    )?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::dashboard::Dashboard;
    use super::*;

    fn line(name: &str, values: &[f64]) -> PanelLine {
        let labels = [("le".to_owned(), name.to_owned())].into();
        PanelLine { name: name.to_owned(), labels, values: values.to_vec() }
    }

    /// The pictures of panels by title, each with lines that it is given.
    fn drawn(given: &[(&str, Vec<PanelLine>)]) -> Drawn {
        let dashboard = Dashboard::parse(super::super::DASHBOARD).unwrap();
        let recording = Recording::parse("a 1 0\na 1 5\na 1 10\n").unwrap();
        let lines = |panel: &Panel| {
            let given = given.iter().find(|(title, _)| *title == panel.title);
            given.map(|(_, lines)| lines.clone()).unwrap_or_default()
        };
        let panels: Vec<_> = dashboard.panels.iter().map(|panel| (panel, lines(panel))).collect();
        draw(&dashboard.title, &recording, &[0.0, 5.0, 10.0], &panels).unwrap()
    }

    fn panel<'a>(drawn: &'a Drawn, title: &str) -> &'a str {
        let title = format!("<title>{}</title>", escape(title));
        drawn.svg.split("<g class=\"panel\"").find(|panel| panel.contains(&title)).unwrap()
    }

    #[test]
    fn panels_show_their_lines_or_say_that_there_is_no_data() {
        let drawn = drawn(&[
            ("Jobs held", vec![line("one & only", &[1.0, 2.0, 3.0]), line("nothing", &[f64::NAN; 3])]),
            ("Pods", vec![line("", &[1.0, 2.0, 42.0])]),
            ("Jobs", vec![line("", &[1.0, 2.0, f64::NAN])]),
        ]);
        let held = panel(&drawn, "Jobs held");
        assert!(held.contains("stroke-width=\"2\"") && held.contains("one &amp; only"), "{held}");
        assert!(!held.contains("nothing") && !held.contains("no data"), "{held}");
        assert!(panel(&drawn, "Oldest heartbeat").contains("no data"));
        assert!(
            drawn.empty.contains(&"Oldest heartbeat".to_owned())
                && !drawn.empty.contains(&"Jobs held".to_owned())
        );
        assert!(panel(&drawn, "Jobs").contains("no data"), "the latest value counts");
        assert!(panel(&drawn, "Pods").contains(">42</text>"));
        assert_eq!(drawn.empty.len(), drawn.panels - 2);
    }

    #[test]
    fn short_latencies_are_in_milliseconds() {
        let drawn = drawn(&[("Event to reaction", vec![line("median", &[0.001, 0.002, 0.003])])]);
        assert!(panel(&drawn, "Event to reaction").contains("\nms\n"));
    }

    #[test]
    fn cumulative_buckets_become_counts_of_their_own() {
        let lines = [
            line("+Inf", &[4.0, 9.0, f64::NAN]),
            line("0.5", &[1.0, 5.0, f64::NAN]),
            line("1", &[3.0, 5.0, f64::NAN]),
        ];
        let found: Vec<_> =
            buckets(&lines).into_iter().map(|(name, counts)| (name, counts[..2].to_vec())).collect();
        assert_eq!(found, [("0.5", vec![1.0, 5.0]), ("1", vec![2.0, 0.0]), ("+Inf", vec![1.0, 4.0])]);
        let drawn = drawn(&[("Creation to first pod, all Jobs", lines.to_vec())]);
        let cells = panel(&drawn, "Creation to first pod, all Jobs").matches("fill-opacity").count();
        assert_eq!(cells, 5, "no cell without a count");
    }

    #[test]
    fn a_long_legend_stays_below_its_plot() {
        let names: Vec<_> = (0..200).map(|number| format!("list resource-{number}")).collect();
        let (svg, height) = legend(&names.iter().map(|name| &**name).collect::<Vec<_>>(), (472, 312));
        assert!(height <= 312 / 2 + MARGIN, "{height}");
        assert!(
            svg.contains("list resource-0<") && svg.contains("more<") && !svg.contains("resource-199"),
            "{svg}"
        );
        let (svg, height) = legend(&["one"], (472, 312));
        assert!(height < 25 && !svg.contains("more"), "{height}: {svg}");
    }
}
