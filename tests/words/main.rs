//! The words of comments and pages, by the rules in `CONTRIBUTING.md`. The `*-most.txt` files have how often each folder
//! breaks them: sentences that begin with the wrong word, long ones, and ones with a phrase. These numbers only fall.
#![allow(clippy::unwrap_used, missing_docs)]

mod prose;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::LazyLock;

use regex::Regex;
use similar::TextDiff;
use walkdir::{DirEntry, WalkDir};

use crate::prose::{of_page, of_source, sentences};

/// Most words of a sentence.
const LONGEST: usize = 25;

/// A sentence has a noun of Kubernetes or of the glossary as its subject, and none of these.
static FIRST: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^(Else|None|One|Such|That|Those|What|Whatever|Who|Whoever)\b").unwrap());

/// Words for which a plainer one exists.
static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
    let phrases =
        "anew|but for|for good|ha(s|ve) yet to|nobody|of late|so many|somebody|taken? in|takes in|whoever";
    Regex::new(&format!(r"(?i)\b({phrases})\b")).unwrap()
});

static TYPE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^(?:pub(?:\([a-z]+\))? )?(?:struct|enum|trait) (\w+)").unwrap());

/// How often a folder breaks the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Breaches {
    /// Sentences that begin with one of [`FIRST`].
    first: usize,
    /// Sentences of more than [`LONGEST`] words.
    long: usize,
    /// Sentences with a [`PHRASE`].
    phrases: usize,
}

impl Breaches {
    fn count(&mut self, sentence: &str) {
        self.first += usize::from(FIRST.is_match(sentence));
        self.long += usize::from(sentence.split_whitespace().count() > LONGEST);
        self.phrases += usize::from(PHRASE.is_match(sentence));
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether an entry is ours to read: neither built, nor hidden, nor data.
fn is_read(entry: &DirEntry) -> bool {
    let name = entry.file_name().to_string_lossy();
    !["target", "data"].contains(&&*name) && !name.starts_with('.')
}

/// All sources and pages, by their path from the root.
fn files() -> impl Iterator<Item = (String, String)> {
    let entries = WalkDir::new(root()).sort_by_file_name().into_iter();
    let entries = entries.filter_entry(|entry| entry.depth() == 0 || is_read(entry)).map(Result::unwrap);
    entries.filter(|entry| entry.file_type().is_file()).filter_map(|entry| {
        let path = entry.path().strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let is_text = path.ends_with(".rs") || (path.ends_with(".md") && path != "CHANGELOG.md");
        is_text.then(|| (path, std::fs::read_to_string(entry.path()).unwrap()))
    })
}

/// The folder that a file counts for: the first two of its path.
fn folder(path: &str) -> String {
    let (parent, _) = path.rsplit_once('/').unwrap_or((".", path));
    parent.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// Compares counts with a file of this folder, or with `YARDMASTER_UPDATE=1` writes it.
fn compare(file: &str, found: &BTreeMap<String, String>) {
    let path = root().join("tests/words").join(file);
    let found: String = found.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
    if std::env::var_os("YARDMASTER_UPDATE").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let most = std::fs::read_to_string(&path).unwrap();
    let changes = TextDiff::from_lines(&most, &found).unified_diff().context_radius(0).to_string();
    assert!(
        changes.is_empty(),
        "if a number has risen, write the sentence in other words: see \"Words\" in CONTRIBUTING.md. If none has, write \
         tests/words/{file} with YARDMASTER_UPDATE=1.\n{changes}"
    );
}

#[test]
fn sentences_keep_the_rules() {
    let mut folders: BTreeMap<String, Breaches> = BTreeMap::new();
    for (path, text) in files() {
        let paragraphs = if path.ends_with(".md") { of_page(&text) } else { of_source(&text) };
        let breaches = folders.entry(folder(&path)).or_default();
        for sentence in paragraphs.iter().flat_map(|paragraph| sentences(paragraph)) {
            breaches.count(sentence);
        }
    }
    folders.retain(|_, breaches| *breaches != Breaches::default());
    let line = |Breaches { first, long, phrases }: &Breaches| format!("{first} {long} {phrases}");
    compare(
        "sentences-most.txt",
        &folders.iter().map(|(name, breaches)| (name.clone(), line(breaches))).collect(),
    );
}

/// A reader who searches for a type finds one.
#[test]
fn a_type_name_stands_once_in_a_crate() {
    let mut crates: BTreeMap<String, HashMap<String, usize>> = BTreeMap::new();
    for (path, text) in files().filter(|(path, _)| path.ends_with(".rs") && !path.contains("/tests")) {
        let Some((home, _)) = path.split_once("src/") else { continue };
        let production = text.split("#[cfg(test)]\nmod ").next().unwrap();
        let names = crates.entry(format!("{home}src")).or_default();
        for name in TYPE.captures_iter(production) {
            *names.entry(name[1].to_owned()).or_default() += 1;
        }
    }
    let twice =
        |names: &HashMap<String, usize>| names.values().filter(|times| **times > 1).count().to_string();
    compare("types-most.txt", &crates.iter().map(|(home, names)| (home.clone(), twice(names))).collect());
}

#[test]
fn breaches_are_seen() {
    for (sentence, expected) in [
        ("A pod that has ended is counted.", (0, 0, 0)),
        ("What has ended is counted.", (1, 0, 0)),
        ("Those of other owners are ignored, but for orphans.", (1, 0, 1)),
        ("It has yet to end.", (0, 0, 1)),
        ("Whose pod it is, the owner says.", (0, 0, 0)),
        (&"word ".repeat(26), (0, 1, 0)),
    ] {
        let mut breaches = Breaches::default();
        breaches.count(sentence);
        let Breaches { first, long, phrases } = breaches;
        assert_eq!((first, long, phrases), expected, "{sentence}");
    }
}
