#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use regex::Regex;

use super::trace_caller::{LONGEST, TRACEPARENT, TRACESTATE};
use super::*;
use crate::job::exponential::Exponential;
use crate::job::tests::fixture::cases;

fn read(annotations: &[(&str, &str)]) -> JobOptions {
    JobOptions::read(annotations.iter().copied())
}

#[test]
fn valid_values_are_read() {
    let (none, ms, s) = (Options::default(), Duration::from_millis, Duration::from_secs);
    let delays = |initial, max| Options { backoff_initial: initial, backoff_max: max, ..Options::default() };
    let limit = |pods| Options { failed_pods_limit: Some(pods), ..Options::default() };
    let after = |succeeded: &[&str], finished: &[&str]| {
        let names = |names: &[&str]| names.iter().map(|name| Box::from(*name)).collect();
        let after = Predecessors { succeeded: names(succeeded), finished: names(finished) };
        Options { after: Some(after.into()), ..Options::default() }
    };
    let propagate = Options { propagate_trace: true, ..Options::default() };
    let prune = Options { prune_succeeded: true, ..Options::default() };
    for (annotations, expected) in [
        (&[][..], none.clone()),
        (&[("yardmaster.dev/backoff-initial", "100ms")], delays(Some(ms(100)), None)),
        (&[("yardmaster.dev/backoff-initial", "0s")], delays(Some(s(0)), None)),
        (&[("yardmaster.dev/backoff-max", "1m 30s")], delays(None, Some(s(90)))),
        (&[("yardmaster.dev/backoff-max", "1m30s")], delays(None, Some(s(90)))),
        (&[("yardmaster.dev/backoff-max", "1h")], delays(None, Some(s(3600)))),
        (&[("yardmaster.dev/failed-pods-limit", "0")], limit(0)),
        (&[("yardmaster.dev/failed-pods-limit", "12")], limit(12)),
        (&[("yardmaster.dev/propagate-trace", "true")], propagate),
        (&[("yardmaster.dev/prune-succeeded", "true")], prune),
        (&[("yardmaster.dev/prune-succeeded", "false")], none.clone()),
        (&[("yardmaster.dev/after", "a, b.c")], after(&["a", "b.c"], &[])),
        (&[("yardmaster.dev/after-any", " a,b "), ("yardmaster.dev/after", "c")], after(&["c"], &["a", "b"])),
        (&[("backoff-initial", "100ms"), ("yardmaster.dev/shard", "5")], none.clone()),
        (&[("yardmaster.dev/backoff-initially", "100ms"), ("example.com/backoff-max", "x")], none),
    ] {
        assert_eq!(read(annotations), expected.into(), "{annotations:?}");
    }
}

#[test]
fn the_trace_that_a_job_was_created_in_is_read() {
    let (parent, state) = ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "vendor=1");
    let caller = |parent: &str, state: &str| {
        Some(TraceCaller { traceparent: parent.into(), tracestate: state.into() })
    };
    let long = "x".repeat(LONGEST + 1);
    for (annotations, expected) in [
        (&[(TRACEPARENT, parent)][..], caller(parent, "")),
        (&[(TRACESTATE, state), (TRACEPARENT, parent)], caller(parent, state)),
        (&[(TRACEPARENT, parent), (TRACESTATE, &*long)], caller(parent, "")),
        (&[(TRACEPARENT, &*long)], None),
        (&[(TRACEPARENT, &*parent.replace('f', "x"))], None),
        (&[(TRACEPARENT, &parent[1..])], None),
        (&[(TRACESTATE, state)], None),
    ] {
        assert_eq!(read(annotations).caller, expected, "{annotations:?}");
    }
}

#[test]
fn invalid_values_are_reported_and_ignored() {
    for (name, values) in [
        ("backoff-initial", &["", "10", "-5s", "ten seconds", "10parsecs", "99999999999999999999s"][..]),
        ("backoff-max", &["1m,", "s", "NaN"]),
        ("failed-pods-limit", &["", "-1", "1.5", "all", "4294967296"]),
        ("prune-succeeded", &["", "yes", "True", "1"]),
        ("propagate-trace", &["", "on"]),
        ("after", &["", ",", "a,", "A", "a b", "-a", "a.", ["a"; 21].join(",").as_str()]),
    ] {
        for value in values {
            let key = format!("{PREFIX}{name}");
            let options = read(&[(&key, value)]);
            let [rejected] = &options.rejected[..] else { panic!("{key} {value:?} passed: {options:?}") };
            assert_eq!((&*rejected.key, &*rejected.value), (&*key, *value));
            let others = Options { rejected: Vec::new(), ..(*options).clone() };
            assert_eq!(others, Options::default());
        }
    }
}

#[test]
fn an_invalid_value_does_not_affect_other_options() {
    let long = "x".repeat(5000);
    let options = read(&[
        ("yardmaster.dev/prune-succeeded", &long),
        ("yardmaster.dev/backoff-initial", "soon"),
        ("yardmaster.dev/backoff-max", "30s"),
    ]);
    assert_eq!(options.backoff_max, Some(Duration::from_secs(30)));
    let messages: Vec<String> = options.rejected.iter().map(ToString::to_string).collect();
    assert_eq!(
        messages[0],
        "annotation yardmaster.dev/backoff-initial: \"soon\" is ignored: \
         a duration such as 500ms, 10s or 1m 30s is expected"
    );
    assert_eq!((messages.len(), options.rejected[1].value.len()), (2, SHOWN));
}

/// The shard shows all counted pods again only where there are some that it has not kept.
#[test]
fn counted_pods_are_asked_for_once_they_are_wanted() {
    let needs = |options: &Options| JobOptions::from(options.clone()).needs();
    let options = |failed_pods_limit, prune_succeeded| Options {
        failed_pods_limit,
        prune_succeeded,
        ..Options::default()
    };
    let (none, failed, succeeded) = (options(None, false), options(Some(3), false), options(None, true));
    let both = options(Some(1), true);
    for (now, before, expected) in [
        (&none, &none, false),
        (&failed, &none, true),
        (&succeeded, &none, true),
        (&both, &none, true),
        (&both, &failed, true),
        (&both, &succeeded, true),
        (&failed, &both, false),
        (&succeeded, &both, false),
        (&succeeded, &succeeded, false),
        (&options(Some(0), false), &failed, false),
        (&none, &both, false),
    ] {
        assert_eq!(needs(now).exceeds(needs(before)), expected, "{now:?} {before:?}");
    }
}

#[test]
fn the_back_off_of_the_job_replaces_the_default() {
    let PodBackoff { default, .. } = PodBackoff::default();
    let own = Options { backoff_initial: Some(Duration::from_secs(1)), ..Options::default() };
    assert_eq!(Options::default().backoff(PodBackoff::default()), default);
    let expected = Exponential { initial: Duration::from_secs(1), max: default.max };
    assert_eq!(own.backoff(PodBackoff::default()), expected);
    let together = Options { restart_together: true, ..Options::default() };
    assert_eq!(together.backoff(PodBackoff::default()), expected, "the first restart is quick");
    let without_least = PodBackoff { least: Duration::ZERO, ..PodBackoff::default() };
    assert_eq!(together.backoff(without_least), expected, "it waits all the same");
}

/// Without a floor, an author of Jobs would get a crash loop at the speed of the API server.
#[test]
fn a_back_off_below_the_least_is_raised_to_it() {
    let ms = Duration::from_millis;
    let default = |initial| Exponential { initial: ms(initial), max: ms(600_000) };
    for (what, controller, least, asked, expected) in [
        ("no delay", 10_000, 1_000, (0, 0), (1_000, 1_000)),
        ("a short one", 10_000, 1_000, (999, 5_000), (1_000, 5_000)),
        ("enough", 10_000, 1_000, (1_000, 1_001), (1_000, 1_001)),
        ("without a least", 10_000, 0, (0, 1), (0, 1)),
        ("as short as the controller's own", 200, 1_000, (100, 300), (200, 300)),
    ] {
        let own = Options {
            backoff_initial: Some(ms(asked.0)),
            backoff_max: Some(ms(asked.1)),
            ..Options::default()
        };
        let backoff = own.backoff(PodBackoff { default: default(controller), least: ms(least) });
        assert_eq!((backoff.initial, backoff.max), (ms(expected.0), ms(expected.1)), "{what}");
    }
}

/// A Job has its options inline, and most have none.
#[test]
fn a_job_without_options_keeps_one_word_for_them() {
    let none = read(&[("example.com/a", "b"), ("yardmaster.dev/backoff-max-not", "1s")]);
    assert_eq!((size_of::<JobOptions>(), none.0.is_none()), (size_of::<usize>(), true));
    let caller = read(&[(TRACEPARENT, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")]);
    assert!(caller.0.is_some() && caller.without_caller().0.is_none());
}

#[test]
fn every_option_has_a_name_and_a_line_of_its_own() {
    let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for row in TABLE {
        assert!([row.expected, row.values, row.effect, row.without].iter().all(|text| !text.is_empty()));
        assert!(!row.pattern.contains('\'') && row.pattern.starts_with('^') && row.pattern.ends_with('$'));
    }
}

/// The table of the page and the rules of the chart's policy are made from [`TABLE`]. `YARDMASTER_UPDATE=1` writes them.
#[test]
fn the_page_and_the_chart_have_all_options() {
    let updates = std::env::var_os("YARDMASTER_UPDATE").is_some();
    let project = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_row = |line: &&str| line.starts_with("| `yardmaster.dev/");
    let lines = TABLE.iter().map(|Row { name, values, effect, without, .. }| {
        format!("| `{PREFIX}{name}` | {values} | {effect} | {without} |")
    });
    let page = std::fs::read_to_string(project.join("docs/options.md")).unwrap();
    let head = "| annotation of the Job | values | effect | without it |\n|---|---|---|---|\n";
    let (before, behind) = page.split_once(head).unwrap();
    let behind: String = behind.split_inclusive('\n').skip_while(is_row).collect();
    let table = lines.map(|line| line + "\n").collect::<String>();
    let pages = [
        ("docs/options.md", page.clone(), [before, head, &table, &behind].concat()),
        (
            "charts/yardmaster/files/options.yaml",
            std::fs::read_to_string(project.join("charts/yardmaster/files/options.yaml")).unwrap_or_default(),
            admission::validations(),
        ),
    ];
    for (file, now, expected) in pages {
        if updates {
            std::fs::write(project.join(file), &expected).unwrap();
        } else {
            assert_eq!(now, expected, "{file}: YARDMASTER_UPDATE=1 writes it");
        }
    }
}

/// Texts with the pieces that values are made of.
fn values() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "0",
        "1",
        "9",
        "12",
        "4294967296",
        ".",
        "-",
        " ",
        "s",
        "ms",
        "m",
        "h",
        "ns",
        "us",
        "min",
        "days",
        "M",
        "y",
        "true",
        "false",
        "True",
        ",",
        "a",
        "Mi",
        "Gi",
        "k",
        "e3",
        "preferred",
        "required",
        "=",
        "/",
        "\n",
        "é",
        ":",
    ];
    prop::collection::vec(prop::sample::select(PIECES), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..cases(17) })]

    /// The policy of the chart refuses what the controller would ignore, and nothing else.
    #[test]
    fn patterns_match_what_parsers_read(value in values()) {
        for row in TABLE {
            let matches = Regex::new(row.pattern).unwrap().is_match(&value);
            let fits = value.chars().count() <= row.longest && value.len() <= row.longest;
            prop_assert_eq!(row.accepts(&value), matches && fits, "{}: {:?}", row.name, value);
        }
    }
}

#[test]
fn a_default_applies_to_jobs_that_do_not_set_the_option() {
    let default = |text: &str| text.parse::<DefaultOption>();
    let deadline = default("start-deadline=10m").unwrap();
    let with = |own: &[(&str, &str)]| {
        let all = [(&*deadline.key, &*deadline.value)].into_iter().chain(own.iter().copied());
        let options = JobOptions::read(all);
        (options.start_deadline.map(|deadline| deadline.as_secs()), options.rejected.len())
    };
    const KEY: &str = "yardmaster.dev/start-deadline";
    assert_eq!(
        [with(&[]), with(&[(KEY, "5s")]), with(&[(KEY, "soon")])],
        [(Some(600), 0), (Some(5), 0), (Some(600), 1)]
    );
    for (text, error) in [
        ("start-deadline", "NAME=VALUE is expected"),
        ("start=10m", "no option is called \"start\""),
        ("start-deadline=soon", "start-deadline: a duration such as 500ms, 10s or 1m 30s is expected"),
    ] {
        assert_eq!(default(text).unwrap_err().to_string(), error);
    }
}
