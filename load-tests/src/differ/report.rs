//! The verdicts of many pairs, and the stories of what differs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::draft::draft;
use super::pair::{Outcome, Played};
use super::plan::Plan;
use super::rules::Known;
use crate::report::page::{STYLE, escape};
use crate::report::{Env, write_text};

/// The verdict on a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Equal,
    Known(Known),
    /// Different, and of this kind.
    Different(String),
    Unfinished(String),
}

impl Verdict {
    pub(super) fn of(played: &Played) -> Self {
        match &played.outcome {
            Outcome::Equal(_) => Self::Equal,
            Outcome::Unfinished(why) => Self::Unfinished(why.clone()),
            Outcome::Different(difference) => {
                Known::explaining(played).map_or_else(|| Self::Different(difference.kind()), Self::Known)
            }
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equal => write!(f, "equal"),
            Self::Known(rule) => write!(f, "known: {rule:?}"),
            Self::Different(kind) => write!(f, "DIFFERENT: {kind}"),
            Self::Unfinished(why) => write!(f, "unfinished: {why}"),
        }
    }
}

/// A pair that was not equal.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Story {
    pub(super) seed: u64,
    pub(super) verdict: String,
    /// Whether the same plan showed the same again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) repeats: Option<bool>,
    /// The plan as small as it was made.
    pub(super) plan: Plan,
    /// The plan and the difference, to read.
    pub(super) text: String,
}

impl Story {
    /// The story of a play, and whether it was seen again.
    fn of(played: &Played, repeats: Option<bool>) -> Self {
        let plan = played.plan.clone();
        let verdict = Verdict::of(played).to_string();
        Self { seed: plan.seed, verdict, repeats, text: text(played), plan }
    }
}

fn text(played: &Played) -> String {
    let plan = &played.plan;
    let mut text = String::new();
    for (number, spec) in plan.jobs.iter().enumerate() {
        let job = super::plan::job_name(number);
        if plan.acts().any(|what| *what == super::plan::What::Create { job: number }) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {job}: {spec}");
        }
    }
    for (number, step) in plan.steps.iter().enumerate() {
        let _ = writeln!(text, "  {}. {step}", number + 1);
    }
    match &played.outcome {
        Outcome::Different(difference) => text += &difference.to_string(),
        Outcome::Unfinished(why) => text += &format!("    {why}\n"),
        Outcome::Equal(_) => {}
    }
    text
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let again = match self.repeats {
            Some(true) => " (seen again)",
            Some(false) => " (not seen again)",
            None => "",
        };
        writeln!(f, "seed {}: {}{again}\n{}", self.seed, self.verdict, self.text)
    }
}

/// The report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) env: Env,
    /// Numbers of pairs.
    pub(super) pairs: usize,
    pub(super) equal: usize,
    pub(super) known: usize,
    pub(super) different: usize,
    pub(super) unfinished: usize,
    /// Numbers of pairs by the rule that explains them.
    pub(super) rules: BTreeMap<String, usize>,
    /// Numbers of pairs by the kind of their difference.
    pub(super) kinds: BTreeMap<String, usize>,
    /// All pairs that were not equal.
    pub(super) stories: Vec<Story>,
}

impl Report {
    pub(super) fn new(env: Env) -> Self {
        Self {
            env,
            pairs: 0,
            equal: 0,
            known: 0,
            different: 0,
            unfinished: 0,
            rules: BTreeMap::new(),
            kinds: BTreeMap::new(),
            stories: Vec::new(),
        }
    }

    /// Adds a pair, and whether its difference was seen again. Prints what nothing explains.
    pub(super) fn add(&mut self, played: &Played, repeats: Option<bool>) {
        let verdict = Verdict::of(played);
        self.count(&verdict);
        if verdict != Verdict::Equal {
            let story = Story::of(played, repeats);
            if matches!(verdict, Verdict::Different(_)) {
                print!("\n{story}");
            }
            self.stories.push(story);
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        self.pairs += 1;
        match verdict {
            Verdict::Equal => self.equal += 1,
            Verdict::Known(rule) => {
                self.known += 1;
                *self.rules.entry(format!("{rule:?}: {}", rule.why())).or_default() += 1;
            }
            Verdict::Different(kind) => {
                self.different += 1;
                *self.kinds.entry(kind.clone()).or_default() += 1;
            }
            Verdict::Unfinished(_) => self.unfinished += 1,
        }
    }

    /// Whether every pair was judged, and no difference is unexplained.
    pub(super) fn is_good(&self) -> bool {
        self.different == 0 && self.unfinished == 0
    }

    /// Writes FILE.json, and a page beside it.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        write_text(file, &(serde_json::to_string_pretty(self)? + "\n"))?;
        write_text(&file.with_extension("html"), &self.page()?)
    }

    fn page(&self) -> Result<String> {
        let mut page = format!(
            "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>differ</title><style>{STYLE}</style>\
             <h1>Two controllers</h1><pre>{}</pre>",
            escape(&self.to_string())
        );
        for story in &self.stories {
            write!(page, "<pre>{}</pre>", escape(&story.to_string()))?;
        }
        let env = serde_json::to_string_pretty(&self.env)?;
        writeln!(page, "<h2>Environment</h2><pre>{}</pre></html>", escape(&env))?;
        Ok(page)
    }

    /// Writes a draft of a scenario for each difference that the format can express.
    pub(super) fn write_scenarios(&self, directory: &Path) -> Result<()> {
        std::fs::create_dir_all(directory)?;
        for story in self.stories.iter().filter(|story| story.verdict.starts_with("DIFFERENT")) {
            match draft(&story.plan, &story.verdict) {
                Some(draft) => {
                    let file = directory.join(format!("differ-{}.json", story.seed));
                    write_text(&file, &(serde_json::to_string_pretty(&draft)? + "\n"))?;
                }
                None => eprintln!("seed {}: no scenario has such steps", story.seed),
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, counts) in [("known", &self.rules), ("different", &self.kinds)] {
            counts.iter().try_for_each(|(what, count)| writeln!(f, "{count:>5} {title}: {what}"))?;
        }
        let Self { pairs, equal, known, different, unfinished, .. } = self;
        write!(
            f,
            "pairs {pairs}: different {different}, known {known}, equal {equal}, unfinished {unfinished}"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_line_sums_up() {
        let mut report = Report::new(Env::here("none".into()));
        let verdicts =
            [Verdict::Equal, Verdict::Known(Known::EndsWhileSuspended), Verdict::Different("Active".into())];
        verdicts.iter().for_each(|verdict| report.count(verdict));
        let text = report.to_string();
        let last = "pairs 3: different 1, known 1, equal 1, unfinished 0";
        assert_eq!(text.lines().last(), Some(last), "{text}");
        assert!(!report.is_good());
    }

    #[test]
    fn a_pair_that_is_not_judged_is_not_good() {
        let mut report = Report::new(Env::here("none".into()));
        report.count(&Verdict::Known(Known::ActiveDuringBackoff));
        assert!(report.is_good());
        report.count(&Verdict::Unfinished("no time".into()));
        assert!(!report.is_good());
    }

    #[test]
    fn a_story_is_read_again_as_a_plan() {
        let played = Played::unfinished(Plan::of(3), "no time".into());
        let story = serde_json::to_value(Story::of(&played, None)).unwrap();
        assert_eq!(serde_json::from_value::<Plan>(story["plan"].clone()).unwrap(), Plan::of(3));
    }
}
