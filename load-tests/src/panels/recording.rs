//! The file of a recording: OpenMetrics with times, as `promtool tsdb create-blocks-from openmetrics` reads it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;

/// The last line.
pub(super) const END: &str = "# EOF\n";

/// Labels that Prometheus adds to the series of a target, beside `instance`.
const TARGET: &str = r#"namespace="recorded",job="yardmaster""#;

/// Adds a scrape of an instance in Prometheus' text format. Its comments are left out: all scrapes repeat them.
pub(super) fn append(text: &mut String, scrape: &str, instance: &str, time: Timestamp) {
    let seconds = time.as_millisecond() as f64 / 1000.0;
    for line in scrape.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let whole = series.strip_suffix('}').unwrap_or(series);
        let (name, labels) = whole.split_once('{').unwrap_or((whole, ""));
        let comma = if labels.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _written =
            writeln!(text, "{name}{{{labels}{comma}{TARGET},instance=\"{instance}\"}} {value} {seconds:.3}");
    }
}

/// The samples of all series.
#[derive(Debug)]
pub(super) struct Recording<'a> {
    /// Time of the first scrape.
    pub(super) begun: Timestamp,
    /// Time from a scrape to the next, in whole milliseconds.
    pub(super) every: Duration,
    /// Number of scrapes.
    pub(super) scrapes: usize,
    /// By series, the values by the number of their scrape.
    series: BTreeMap<&'a str, BTreeMap<usize, &'a str>>,
}

impl<'a> Recording<'a> {
    /// Reads a recording. If its times are not regular, each sample belongs to the nearest regular one.
    ///
    /// # Errors
    ///
    /// If a line is no sample with a time, or there are less than two scrapes.
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        let mut samples = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            samples.push(sample(line).with_context(|| format!("no sample with a time: {line}"))?);
        }
        let times: Vec<i64> =
            samples.iter().map(|(.., time)| *time).collect::<BTreeSet<_>>().into_iter().collect();
        let mut pauses: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        pauses.sort_unstable();
        ensure!(!pauses.is_empty(), "a recording needs two scrapes");
        let (begun, every) = (times[0], pauses[pauses.len() / 2]);
        let mut series: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        let mut last = 0;
        for (name, value, time) in samples {
            let number = ((time - begun + every / 2) / every) as usize;
            series.entry(name).or_default().insert(number, value);
            last = last.max(number);
        }
        Ok(Self {
            begun: Timestamp::from_millisecond(begun)?,
            every: Duration::from_millis(every.unsigned_abs()),
            scrapes: last + 1,
            series,
        })
    }

    /// Each series, with its values in promtool's notation.
    pub(super) fn series(&self) -> impl Iterator<Item = (&'a str, String)> {
        self.series.iter().map(|(series, values)| {
            // A series that a scrape lacks has ended for Prometheus, and is not carried on for five minutes.
            let value = |number: usize| values.get(&number).copied().unwrap_or("stale");
            (*series, (0..self.scrapes).map(value).collect::<Vec<_>>().join(" "))
        })
    }
}

/// Series, value, and time in milliseconds.
fn sample(line: &str) -> Option<(&str, &str, i64)> {
    let (rest, time) = line.rsplit_once(' ')?;
    let (series, value) = rest.rsplit_once(' ')?;
    let _number: f64 = value.parse().ok()?;
    let time: f64 = time.parse().ok()?;
    Some((series, value, (time * 1000.0).round() as i64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const SCRAPE: &str = "# HELP a_total Help.\n# TYPE a_total counter\na_total{x=\"b } c\"} 1\nb 2.5\n";

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_recording_reads_back_as_it_was_scraped() {
        let mut text = String::new();
        append(&mut text, SCRAPE, "h:1", at(100));
        append(&mut text, "b 3\n", "h:1", at(105));
        append(&mut text, SCRAPE, "h:1", at(110));
        append(&mut text, "b 7\n", "h:2", at(110));
        text.push_str(END);
        let recording = Recording::parse(&text).unwrap();
        assert_eq!(
            (recording.begun, recording.every, recording.scrapes),
            (at(100), Duration::from_secs(5), 3)
        );
        let series: Vec<_> = recording.series().collect();
        let target = |instance| format!("{TARGET},instance=\"{instance}\"}}");
        let expected = [
            (format!("a_total{{x=\"b }} c\",{}", target("h:1")), "1 stale 1"),
            (format!("b{{{}", target("h:1")), "2.5 3 2.5"),
            (format!("b{{{}", target("h:2")), "stale stale 7"),
        ];
        assert_eq!(series, expected.each_ref().map(|(name, values)| (&**name, (*values).to_owned())));
    }

    #[test]
    fn times_that_are_not_quite_regular_belong_to_the_nearest_scrape() {
        let recording = Recording::parse("a 1 10.02\na 2 15.01\na 3 20.03\na 5 30.0\n").unwrap();
        assert_eq!(recording.scrapes, 5);
        assert_eq!(recording.series().next().unwrap().1, "1 2 3 stale 5");
    }

    #[test]
    fn a_file_that_is_no_recording_is_refused_with_its_line() {
        for (text, named) in [
            ("a{x=\"1\"} 2\n", "no sample with a time: a{x=\"1\"} 2"),
            ("a b 3\n", "no sample with a time: a b 3"),
            ("a 1 2\n# EOF\n", "two scrapes"),
        ] {
            let error = format!("{:#}", Recording::parse(text).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
