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
use crate::report::{Env, replace_text, write_text};

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
    /// Whether the verdict is the last one: nothing is played again for it.
    #[serde(skip)]
    is_decided: bool,
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
        Self { seed: plan.seed, verdict, is_decided: true, repeats, text: text(played), plan }
    }

    /// The story of a first play that must be played again.
    fn undecided(played: &Played) -> Self {
        let story = Self::of(played, None);
        Self { is_decided: false, verdict: format!("undecided: {}", story.verdict), ..story }
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
    /// Number of all pairs: the sum of the five numbers below.
    pub(super) pairs: usize,
    pub(super) equal: usize,
    /// Pairs with a difference that a rule explains.
    pub(super) known: usize,
    /// Pairs with a difference that no rule explains.
    pub(super) different: usize,
    /// Pairs that were played without a result.
    pub(super) unfinished: usize,
    /// Pairs that are not played yet, or whose difference must be played again.
    pub(super) undecided: usize,
    /// Numbers of pairs by the rule that explains them.
    pub(super) rules: BTreeMap<String, usize>,
    /// Numbers of pairs by the kind of their difference.
    pub(super) kinds: BTreeMap<String, usize>,
    /// All pairs that were not equal.
    pub(super) stories: Vec<Story>,
}

impl Report {
    /// The report on this number of pairs. All of them are undecided.
    pub(super) fn new(env: Env, pairs: usize) -> Self {
        Self {
            env,
            pairs,
            equal: 0,
            known: 0,
            different: 0,
            unfinished: 0,
            undecided: pairs,
            rules: BTreeMap::new(),
            kinds: BTreeMap::new(),
            stories: Vec::new(),
        }
    }

    /// Keeps the difference of a first play until it is decided.
    pub(super) fn keep(&mut self, first: &Played) {
        self.push(Story::undecided(first));
    }

    /// Adds a decided pair, and whether its difference was seen again. Prints a difference that no rule explains.
    pub(super) fn add(&mut self, first: &Played, decided: &Played, repeats: Option<bool>) {
        let is_kept = |story: &Story| !story.is_decided && story.plan == first.plan;
        if let Some(kept) = self.stories.iter().position(is_kept) {
            self.stories.remove(kept);
        }
        let verdict = Verdict::of(decided);
        self.count(&verdict);
        if verdict != Verdict::Equal {
            let story = Story::of(decided, repeats);
            if matches!(verdict, Verdict::Different(_)) {
                print!("\n{story}");
            }
            self.push(story);
        }
    }

    /// Adds a story in the order of seeds.
    fn push(&mut self, story: Story) {
        let at = self.stories.partition_point(|other| other.seed <= story.seed);
        self.stories.insert(at, story);
    }

    fn count(&mut self, verdict: &Verdict) {
        self.undecided = self.undecided.saturating_sub(1);
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
        self.different == 0 && self.unfinished == 0 && self.undecided == 0
    }

    /// Writes FILE.json, and a page beside it. Replaces both as a whole.
    pub(super) fn write(&self, file: &Path) -> Result<()> {
        replace_text(file, &(serde_json::to_string_pretty(self)? + "\n"))?;
        replace_text(&file.with_extension("html"), &self.page()?)
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
        let Self { pairs, equal, known, different, unfinished, undecided, .. } = self;
        let decided = pairs.saturating_sub(*undecided);
        writeln!(f, "decided {decided} of {pairs} pairs; {different} differ, and no rule explains it")?;
        write!(
            f,
            "pairs {pairs}: different {different}, known {known}, equal {equal}, unfinished {unfinished}, \
             undecided {undecided}"
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_last_line_sums_up() {
        let mut report = Report::new(Env::here("none".into()), 5);
        let verdicts =
            [Verdict::Equal, Verdict::Known(Known::EndsWhileSuspended), Verdict::Different("Active".into())];
        verdicts.iter().for_each(|verdict| report.count(verdict));
        let text = report.to_string();
        let last = "pairs 5: different 1, known 1, equal 1, unfinished 0, undecided 2";
        assert_eq!(text.lines().last(), Some(last), "{text}");
        assert!(text.contains("decided 3 of 5 pairs; 1 differ"), "{text}");
        assert!(!report.is_good());
    }

    #[test]
    fn a_pair_that_is_not_judged_is_not_good() {
        let mut report = Report::new(Env::here("none".into()), 2);
        report.count(&Verdict::Known(Known::ActiveDuringBackoff));
        assert!(!report.is_good(), "a pair is undecided");
        report.count(&Verdict::Equal);
        assert!(report.is_good());
        report.count(&Verdict::Unfinished("no rest".into()));
        assert!(!report.is_good());
    }

    #[test]
    fn a_difference_is_kept_until_it_is_decided() {
        let mut report = Report::new(Env::here("none".into()), 2);
        let verdicts = |report: &Report| -> Vec<String> {
            report.stories.iter().map(|story| story.verdict.clone()).collect()
        };
        let [first, second] = [5, 3].map(|seed| Played::unfinished(Plan::of(seed), "no rest".into()));
        report.keep(&first);
        report.add(&second, &second, None);
        assert_eq!(verdicts(&report), ["unfinished: no rest", "undecided: unfinished: no rest"], "by seed");
        assert_eq!((report.undecided, report.unfinished), (1, 1));
        let smaller = Played::unfinished(Plan { steps: Vec::new(), ..Plan::of(5) }, "no rest".into());
        report.add(&first, &smaller, None);
        assert_eq!(verdicts(&report), ["unfinished: no rest", "unfinished: no rest"]);
        assert_eq!((report.undecided, report.unfinished), (0, 2));
    }

    #[test]
    fn a_story_is_read_again_as_a_plan() {
        let played = Played::unfinished(Plan::of(3), "no time".into());
        let story = serde_json::to_value(Story::of(&played, None)).unwrap();
        assert_eq!(serde_json::from_value::<Plan>(story["plan"].clone()).unwrap(), Plan::of(3));
    }
}
