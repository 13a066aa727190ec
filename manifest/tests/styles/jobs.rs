//! Jobs with values of all kinds that the API has.

use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Texts that a careless printer or reader takes for something else.
const TRICKY: &[&str] = &[
    "",
    " ",
    "  ",
    "~",
    "null",
    "true",
    "False",
    "yes",
    "NO",
    "on",
    "Off",
    "y",
    "n",
    "=",
    "<<",
    "-",
    "--",
    "---",
    "...",
    "?",
    ":",
    "1",
    "-1",
    "0",
    "007",
    "0o17",
    "0x1F",
    "0b1",
    "1_000",
    "1e3",
    "1E400",
    "1.0",
    ".5",
    "5.",
    "+1",
    ".inf",
    "-.INF",
    ".nan",
    "12:30:45",
    "2001-01-01",
    "2001-12-14T21:59:43.10-05:00",
    "!",
    "!tag",
    "!!str x",
    "!!int,",
    "&a",
    "*a",
    "@x",
    "`x`",
    "%x",
    "|",
    ">",
    "|-",
    "#",
    "# x",
    "a # b",
    "a #b",
    "a#b",
    "a: b",
    "a : b",
    "a:",
    ":a",
    "a:b",
    "- a",
    "-a",
    "? a",
    "?a",
    "[a]",
    "{a: b}",
    "a, b",
    "],",
    "a]",
    "'",
    "''",
    "it's",
    "\"",
    "\"a\" 'b'",
    "\\",
    "\\n",
    "a\\",
    "{{ .Values.x }}",
    "$(VAR)",
    "%YAML 1.1",
    "http://x.y:80/z?q=1&r=2#f",
    "<a&b>",
    "a\tb",
    "\ta",
    "a\t",
    "a ",
    " a",
    "\n",
    "\n\n",
    "a\n",
    "a\n\n",
    "\na",
    "a\nb",
    "a\n\nb\n",
    "a\n b\n  c\n",
    " a\nb",
    "\n a\n",
    "a \nb\n",
    "a\n\tb",
    "# a\nb\n",
    "---\na\n",
    "a\n---\n",
    "set -e\nif [ 1 = 1 ]; then\n  echo 'it''s'\nfi\n",
    "a\r\nb\r\n",
    "\r",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{feff}",
    "\u{0}",
    "\u{1b}[2J",
    "\u{7f}",
    "\u{fffd}",
    "ä",
    "日本語",
    "😀",
    "e\u{301}",
    "\u{202e}x",
    "\u{10ffff}",
    "\u{ffff}",
];

fn text() -> impl Strategy<Value = String> {
    let word = "[a-zA-Z0-9,.:;#'\"!&*?{}\\[\\]|>%@`~=<+\\\\-]{1,9}";
    let sentence = vec(word, 1..40).prop_map(|words| words.join(" "));
    prop_oneof![
        4 => select(TRICKY).prop_map(str::to_owned),
        2 => sentence.clone(),
        1 => vec(sentence, 1..4).prop_map(|lines| lines.join("\n") + "\n"),
        1 => "[ -~äö😀\n\t]{0,20}",
        1 => (select(TRICKY), select(TRICKY)).prop_map(|(one, other)| format!("{one}{other}")),
        1 => "\\PC{0,12}",
    ]
}

fn texts(count: usize) -> impl Strategy<Value = Vec<String>> {
    vec(text(), 0..count)
}

fn map() -> impl Strategy<Value = Value> {
    let key = prop_oneof![3 => "[a-z]{1,8}(\\.[a-z]{1,8})?(/[a-z-]{1,8})?", 1 => text()];
    btree_map(key, text(), 0..4).prop_map(|map| json!(map))
}

/// Whole numbers as Go keeps them.
fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(0),
        -3..12_i64,
        1_000_000..2_000_000_i64,
        Just(1_000_000),
        Just(i64::from(i32::MAX)),
        any::<i32>().prop_map(i64::from)
    ]
}

/// Values of fields whose form is free.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number().prop_map(Value::from),
        select(&[0.5, -1.25, 1e-7, 3.5e30, 1e21][..]).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(text(), inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn container() -> impl Strategy<Value = Value> {
    let env = vec((text(), text()), 0..3);
    let limits = option::of(select(&["500m", "2Gi", "1"][..]));
    (text(), texts(4), texts(3), env, limits, option::of(any::<bool>())).prop_map(
        |(image, command, args, env, limit, tty)| {
            let env: Vec<Value> =
                env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
            let mut container =
                json!({"name": "main", "image": image, "command": command, "args": args, "env": env});
            if let Some(limit) = limit {
                container["resources"] = json!({"limits": {"cpu": limit}, "requests": {}});
            }
            if let Some(tty) = tty {
                container["tty"] = tty.into();
            }
            container
        },
    )
}

fn job() -> impl Strategy<Value = Value> {
    let spec = (option::of(number()), option::of(any::<bool>()), vec(container(), 1..3));
    (map(), map(), spec, any_value()).prop_map(|(labels, annotations, (number, suspend, containers), free)| {
        let mut spec = Map::new();
        if let Some(number) = number {
            spec.insert("activeDeadlineSeconds".into(), number.into());
        }
        if let Some(suspend) = suspend {
            spec.insert("suspend".into(), suspend.into());
        }
        spec.insert("template".into(), json!({"spec": {"restartPolicy": "Never", "containers": containers}}));
        json!({"apiVersion": "batch/v1", "kind": "Job", "spec": spec, "x-free": free,
            "metadata": {"name": "job", "labels": labels, "annotations": annotations, "creationTimestamp": null}})
    })
}

/// Lists of one to three Jobs.
pub fn several() -> impl Strategy<Value = Vec<Value>> {
    vec(job(), 1..4)
}
