//! Plots as SVG.

use anyhow::{Result, anyhow};
use indicatif::HumanCount;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::Report;

/// A y axis that reaches this is in thousands.
const THOUSANDS_FROM: f64 = 10_000.0;
/// Width of the plot with the names of the lines, by that without.
const SPACE: f64 = 1.28;
/// Height of the name of a line, in pixels.
const NAME_HEIGHT: i32 = 18;
/// Height of what is above the plot, in pixels.
const CAPTION_HEIGHT: u32 = 36;
/// Height of a label of the y axis with the space around it, in pixels.
const LABEL_HEIGHT: u32 = 20;
/// Height of what is below the plot, in pixels.
const AXIS_HEIGHT: i32 = 50;
/// Text and axes: readable on white and on dark pages. Plots have no background of their own.
pub(crate) const TEXT: RGBColor = RGBColor(118, 118, 118);
/// Colours of the first lines, by Okabe and Ito: distinct for people with any colour vision, on white and on
/// dark pages.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    TEXT,
];

/// A line of a plot.
pub(crate) struct Line {
    pub(crate) name: String,
    /// A point whose y is not a number interrupts the line.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Where a plot is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    /// Width and height in pixels.
    pub(crate) size: (u32, u32),
    /// Whether each line has its name at its end. If not, the names stand elsewhere.
    pub(crate) has_names: bool,
}

impl Canvas {
    /// Plots of reports.
    const REPORT: Self = Self { size: (860, 320), has_names: true };

    /// The most labels of the y axis that do not cover each other.
    fn y_labels(self) -> usize {
        let axis = self.size.1.saturating_sub(CAPTION_HEIGHT + AXIS_HEIGHT.unsigned_abs());
        (axis / LABEL_HEIGHT).clamp(2, 11) as usize
    }
}

/// The colour of the line with this number. The first seven are distinct for people with any colour vision.
pub(crate) fn colour(number: usize) -> RGBColor {
    /// A step around the circle of hues that never meets an earlier hue.
    const GOLDEN: f64 = 0.618_034;
    let further = || {
        let (red, green, blue) = HSLColor((number as f64 * GOLDEN).fract(), 0.6, 0.5).rgb();
        RGBColor(red, green, blue)
    };
    COLOURS.get(number).copied().unwrap_or_else(further)
}

/// How values are placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axes {
    Linear,
    /// The y axis is logarithmic.
    LogY,
    /// Both are.
    LogLog,
}

/// The content of a plot.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<Line>,
}

/// All plots of a report.
pub(super) fn all(report: &Report) -> Result<Vec<String>> {
    Ok(vec![
        pods(report)?,
        Plot { title: "CPU of each replica", x: "seconds", y: "cores", lines: cpu(report) }
            .draw(Axes::Linear)?,
        Plot { title: "Memory of each replica", x: "seconds", y: "MB", lines: memory(report) }
            .draw(Axes::Linear)?,
        Plot { title: "Latencies", x: "percentile", y: "ms", lines: latencies(report) }.draw(Axes::LogY)?,
    ])
}

/// Pods that have ended over time, a line for each report.
pub(crate) fn ended_pods(reports: &[(&str, &Report)]) -> Result<String> {
    let line = |(name, report): &(&str, &Report)| Line {
        name: (*name).to_owned(),
        points: report.series.iter().map(|point| (point.t, point.ended as f64)).collect(),
    };
    let lines = reports.iter().map(line).collect();
    Plot { title: "Pods that have ended", x: "seconds", y: "pods", lines }.draw(Axes::Linear)
}

/// Pods over time.
pub(super) fn pods(report: &Report) -> Result<String> {
    let over_time = |name: &str, value: fn(&super::Point) -> u64| Line {
        name: name.to_owned(),
        points: report.series.iter().map(|point| (point.t, value(point) as f64)).collect(),
    };
    let lines = vec![
        over_time("created", |point| point.pods),
        over_time("active", |point| point.active),
        over_time("ended", |point| point.ended),
    ];
    Plot { title: "Pods", x: "seconds", y: "pods", lines }.draw(Axes::Linear)
}

/// Names of all replicas in the report.
fn replicas(report: &Report) -> Vec<String> {
    let names: std::collections::BTreeSet<_> =
        report.series.iter().flat_map(|point| point.replicas.keys()).collect();
    names.into_iter().cloned().collect()
}

fn cpu(report: &Report) -> Vec<Line> {
    let cores = |name: &String| {
        let seen: Vec<(f64, f64)> =
            report.series.iter().filter_map(|point| Some((point.t, point.replicas.get(name)?.0))).collect();
        let steps = seen.windows(2).filter_map(|pair| match pair {
            [(t0, cpu0), (t1, cpu1)] if t1 > t0 => Some((*t1, ((cpu1 - cpu0) / (t1 - t0)).max(0.0))),
            _ => None,
        });
        Line { name: name.clone(), points: steps.collect() }
    };
    replicas(report).iter().map(cores).collect()
}

fn memory(report: &Report) -> Vec<Line> {
    let resident = |name: &String| Line {
        name: name.clone(),
        points: report
            .series
            .iter()
            .filter_map(|point| Some((point.t, point.replicas.get(name)?.1 as f64 / 1e6)))
            .collect(),
    };
    replicas(report).iter().map(resident).collect()
}

fn latencies(report: &Report) -> Vec<Line> {
    let curves = report.latency_ms.iter().filter(|(_, latency)| !latency.curve.is_empty());
    curves.map(|(name, latency)| Line { name: name.clone(), points: latency.curve.clone() }).collect()
}

impl Plot<'_> {
    /// The plot as SVG, in the size of reports.
    pub(crate) fn draw(&self, axes: Axes) -> Result<String> {
        self.draw_on(axes, Canvas::REPORT)
    }

    /// The plot as SVG.
    pub(crate) fn draw_on(&self, axes: Axes, canvas: Canvas) -> Result<String> {
        let space = if canvas.has_names { SPACE } else { 1.0 };
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let right = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let top = points().map(|(_, y)| *y).fold(0.1, f64::max) * 1.05;
        // Leaves space for the names of the lines on the right.
        let linear = || 0.0..right * space;
        if axes == Axes::Linear {
            let in_thousands = top >= THOUSANDS_FROM;
            let y = if in_thousands { format!("{}, thousands", self.y) } else { self.y.to_owned() };
            let thousands = |value: &f64| plain_number(&(value / 1000.0));
            let y_label: Label<'_> = if in_thousands { &thousands } else { &plain_number };
            return self.draw_in(canvas, linear(), 0.0..top, &y, [&plain_number, y_label]);
        }
        let bottom = points().map(|(_, y)| *y).fold(top, f64::min).max(0.01);
        let y = (bottom..top.max(bottom * 10.0)).log_scale();
        if axes == Axes::LogY {
            return self.draw_in(canvas, linear(), y, self.y, [&plain_number, &round_number]);
        }
        let left = points().map(|(x, _)| *x).fold(right, f64::min).max(1.0);
        let x = (left..left * (right / left).max(10.0).powf(space)).log_scale();
        self.draw_in(canvas, x, y, self.y, [&power_of_ten, &round_number])
    }

    /// Draws on axes with these ranges. `labels`: those of x and y.
    fn draw_in<X, Y>(
        &self,
        canvas: Canvas,
        x: X,
        y: Y,
        y_name: &str,
        labels: [Label<'_>; 2],
    ) -> Result<String>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let [x_label, y_label] = labels;
        let mut svg = String::new();
        let failed = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", self.title);
        {
            let root = SVGBackend::with_string(&mut svg, canvas.size).into_drawing_area();
            let mut chart = ChartBuilder::on(&root)
                .caption(self.title, ("sans-serif", 18).into_font().color(&TEXT))
                .margin(8)
                .x_label_area_size(42)
                .y_label_area_size(64)
                .build_cartesian_2d(x, y)
                .map_err(|error| failed(&error))?;
            let text = ("sans-serif", 15).into_font().color(&TEXT);
            let mut mesh = chart.configure_mesh();
            mesh.x_desc(self.x)
                .y_desc(y_name)
                .axis_style(TEXT)
                .bold_line_style(TEXT.mix(0.25))
                .light_line_style(TRANSPARENT)
                .label_style(text.clone())
                .x_label_formatter(x_label)
                .y_label_formatter(y_label)
                .y_labels(canvas.y_labels());
            mesh.draw().map_err(|error| failed(&error))?;
            let mut names = Vec::new();
            for (number, line) in self.lines.iter().enumerate() {
                let colour = colour(number);
                for run in line.points.split(|(_, y)| y.is_nan()) {
                    // A line of one point would be invisible.
                    let dot = (run.len() == 1).then(|| Circle::new(run[0], 2, colour.filled()));
                    chart.draw_series(dot).map_err(|error| failed(&error))?;
                    chart
                        .draw_series(LineSeries::new(run.iter().copied(), colour.stroke_width(2)))
                        .map_err(|error| failed(&error))?;
                }
                if !canvas.has_names {
                    continue;
                }
                let end = line.points.last().map(|end| chart.plotting_area().map_coordinate(end));
                names.extend(end.map(|(x, y)| Name { text: &line.name, colour, x, y }));
            }
            for Name { text, colour, x, y } in apart(names, canvas.size.1) {
                let style = ("sans-serif", 16).into_font().color(&colour);
                root.draw(&Text::new(text, (x + 6, y - 7), style)).map_err(|error| failed(&error))?;
            }
            root.present().map_err(|error| failed(&error))?;
        }
        Ok(svg)
    }
}

/// The label of a number; empty for none.
type Label<'a> = &'a dyn Fn(&f64) -> String;

/// A number without needless digits.
pub(crate) fn plain_number(value: &f64) -> String {
    ((value * 1e3).round() / 1e3).to_string()
}

/// Labels 1, 2 and 5 of each power of ten: others would cover each other.
fn round_number(value: &f64) -> String {
    let first = value / 10_f64.powf(value.log10().floor());
    let is_round = [1.0, 2.0, 5.0, 10.0].iter().any(|round| (first - round).abs() < 1e-6);
    if is_round { value.to_string() } else { String::new() }
}

fn power_of_ten(value: &f64) -> String {
    let is_power = (value.log10() - value.log10().round()).abs() < 1e-6;
    if is_power { HumanCount(value.round() as u64).to_string() } else { String::new() }
}

/// The name of a line, at its end.
struct Name<'a> {
    text: &'a str,
    colour: RGBColor,
    x: i32,
    y: i32,
}

/// Moves names down where they would cover each other, in a plot of this height in pixels.
fn apart(mut names: Vec<Name<'_>>, height: u32) -> Vec<Name<'_>> {
    names.sort_by_key(|name| name.y);
    let mut free = i32::MIN;
    for name in &mut names {
        name.y = name.y.max(free);
        free = name.y + NAME_HEIGHT;
    }
    // Moves names at the bottom up again, so that they stay in the plot.
    let mut free = height.cast_signed() - AXIS_HEIGHT;
    for name in names.iter_mut().rev() {
        name.y = name.y.min(free);
        free = name.y - NAME_HEIGHT;
    }
    names
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_of_lines_that_end_at_one_place_do_not_cover_each_other() {
        let height = Canvas::REPORT.size.1;
        let bottom = height.cast_signed() - AXIS_HEIGHT;
        for ends in [[50, 50, 50, 200], [bottom, bottom, bottom - 3, bottom]] {
            let names = ends.map(|y| Name { text: "line", colour: TEXT, x: 0, y });
            let placed: Vec<i32> = apart(names.into(), height).iter().map(|name| name.y).collect();
            assert!(placed.windows(2).all(|pair| pair[1] - pair[0] >= NAME_HEIGHT), "{placed:?}");
            assert!(placed.iter().all(|y| (0..=bottom).contains(y)), "{placed:?}");
        }
    }

    #[test]
    fn logarithmic_axes_have_few_labels() {
        let labels = |label: fn(&f64) -> String| {
            let all = [0.5, 1.0, 2.0, 3.0, 8.0, 10.0, 1e6].map(|value| label(&value));
            all.into_iter().filter(|label| !label.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(labels(round_number), ["0.5", "1", "2", "10", "1000000"]);
        assert_eq!(labels(power_of_ten), ["1", "10", "1,000,000"]);
    }

    #[test]
    fn large_numbers_are_in_thousands_and_lines_have_their_names() {
        let line = |name: &str, y| Line { name: name.to_owned(), points: vec![(0.0, 0.0), (10.0, y)] };
        let plot =
            |y| Plot { title: "t", x: "seconds", y: "pods", lines: vec![line("one", y), line("two", y)] };
        let large = plot(100_000.0).draw(Axes::Linear).unwrap();
        assert!(large.contains("pods, thousands") && !large.contains("00000"), "{large}");
        assert!(large.contains("one") && large.contains("two"));
        let small = plot(900.0).draw(Axes::Linear).unwrap();
        assert!(!small.contains("thousands") && !small.contains(".0\n"), "{small}");
    }
    #[test]
    fn a_point_that_is_no_number_interrupts_its_line() {
        let canvas = Canvas { size: (400, 200), has_names: false };
        let runs = |ys: [f64; 5]| {
            let points = ys.into_iter().enumerate().map(|(x, y)| (x as f64, y)).collect();
            let lines = vec![Line { name: "a-name".to_owned(), points }];
            let svg = Plot { title: "t", x: "seconds", y: "", lines }.draw_on(Axes::Linear, canvas).unwrap();
            assert!(!svg.contains("a-name"), "{svg}");
            (svg.matches("stroke-width=\"2\"").count(), svg.matches("<circle").count())
        };
        assert_eq!(runs([1.0, 2.0, 3.0, 4.0, 5.0]), (1, 0));
        assert_eq!(runs([1.0, 2.0, f64::NAN, 4.0, 5.0]), (2, 0));
        assert_eq!(runs([1.0, f64::NAN, f64::NAN, 4.0, 5.0]).1, 1, "a point alone is a dot");
    }

    #[test]
    fn low_plots_have_fewer_labels() {
        let labels = |height| Canvas { size: (400, height), has_names: false }.y_labels();
        assert_eq!([320, 290, 170, 20].map(labels), [11, 10, 4, 2]);
    }

    #[test]
    fn no_two_of_many_lines_have_the_same_colour() {
        let colours: std::collections::HashSet<_> =
            (0..40).map(colour).map(|RGBColor(r, g, b)| (r, g, b)).collect();
        assert_eq!(colours.len(), 40);
    }
}
