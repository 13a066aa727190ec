//! Texts as kubectl reads and understands them. Every row is an answer of its own reader, unless it says
//! otherwise.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use yardmaster_manifest::{Node, Source};

fn read(text: &str) -> Result<Vec<Value>, String> {
    read_bytes(text.as_bytes())
}

fn read_bytes(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let source = Source::new(bytes);
    let told = |error: yardmaster_manifest::SyntaxError| format!("{}: {error}", source.position(error.at));
    source
        .documents()
        .into_iter()
        .map(|document| document.map(|node| node.to_value()).map_err(told))
        .collect()
}

fn check(rows: &[(&str, Value)]) {
    for (text, wanted) in rows {
        let wanted: Vec<Value> = wanted.as_array().unwrap().clone();
        assert_eq!(read(text), Ok(wanted.clone()), "{text:?}");
        assert_eq!(read(&text.replace('\n', "\r\n")), Ok(wanted.clone()), "{text:?} with CRLF");
        assert_eq!(read(&format!("\u{feff}{text}")), Ok(wanted), "{text:?} with a mark");
    }
}

#[test]
fn words_are_what_version_1_1_of_yaml_says() {
    check(&[
        (
            "[y, Yes, on, TRUE, n, no, Off, false]",
            json!([[true, true, true, true, false, false, false, false]]),
        ),
        ("[yEs, oN, tRUE, 'yes', \"on\"]", json!([["yEs", "oN", "tRUE", "yes", "on"]])),
        ("[~, null, Null, nULL, '', '~']", json!([[null, null, null, "nULL", "", "~"]])),
        ("a:\nb: ''\n", json!([{"a": null, "b": ""}])),
        ("[=, <<, .., -x, 12:30, 1.2.3]", json!([["=", "<<", "..", "-x", "12:30", "1.2.3"]])),
        ("[2001-01-01, 2001-01-01T01:02:03Z]", json!([["2001-01-01", "2001-01-01T01:02:03Z"]])),
    ]);
}

#[test]
fn numbers_are_those_of_go() {
    check(&[
        ("[1e+06, 1.2096e+06, 2.0, 08, -0.0]", json!([[1_000_000, 1_209_600, 2, 8, 0]])),
        ("[017, 0o17, 0x1F, 0b101, -017, 1_000, +12, 00]", json!([[15, 15, 31, 5, -15, 1000, 12, 0]])),
        ("[.5, 1., 1.5e+3, 1E-7, 1_0.5_0, 1e20]", json!([[0.5, 1, 1500, 1e-7, 10.5, 1e20]])),
        (
            "[1e, 0x, 0b2, 0o9, _1, 1e400, +, .e3]",
            json!([["1e", "0x", "0b2", "0o9", "_1", "1e400", "+", ".e3"]]),
        ),
        ("[9223372036854775807, 18446744073709551615]", json!([[i64::MAX, u64::MAX]])),
        (
            r#"{"a": 1e6, "b": 2.0, "c": 3.5e+30, "d": 0.1}"#,
            json!([{"a": 1_000_000, "b": 2, "c": 3.5e30, "d": 0.1}]),
        ),
        (r#"{"a": -0, "b": [-0, -0.0], "c": -1}"#, json!([{"a": 0, "b": [0, 0], "c": -1}])),
    ]);
}

#[test]
fn tags_of_the_core_decide_what_a_word_is() {
    check(&[
        (
            r#"[!!int "3", !!float 3, !!float "1e3", !!bool "yes", !!null "", !!str 12]"#,
            json!([[3, 3, 1000, true, null, "12"]]),
        ),
        (
            "[!!str yes, !custom 12, ! 12, !!timestamp 2001-01-01 ]",
            json!([["yes", "12", "12", "2001-01-01"]]),
        ),
        ("a: !!binary aGVsbG8=\nb: !!map {c: !!seq [1]}\n", json!([{"a": "hello", "b": {"c": [1]}}])),
        ("a: !!str |\n  3\n", json!([{"a": "3\n"}])),
        // Texts in which no tag is, though it looks like one.
        ("a: j!':,\nb: c !x:, y\n", json!([{"a": "j!':,", "b": "c !x:, y"}])),
        ("a: &x !!str y\nb: !!str &z y\nc: *z\n", json!([{"a": "y", "b": "y", "c": "y"}])),
    ]);
}

#[test]
fn keys_are_texts() {
    check(&[
        (
            "{1: a, yes: b, 1.10: c, 0x10: d, 1e6: e, '5': f}",
            json!([{"1": "a", "true": "b", "1.1": "c", "16": "d", "1e+06": "e", "5": "f"}]),
        ),
        (
            "{1e20: a, 0.00001: b, 0.0001: c, 16777217.0: d}",
            json!([{"1e+20": "a", "1e-05": "b", "0.0001": "c", "1.6777216e+07": "d"}]),
        ),
        ("? a\n: b\n? |\n  c\n: d\n? e\n", json!([{"a": "b", "c\n": "d", "e": null}])),
        ("a: &k b\n*k : c\n", json!([{"a": "b", "b": "c"}])),
    ]);
}

#[test]
fn aliases_and_merge_keys_repeat_what_they_name() {
    check(&[
        ("a: &a [1]\nb: *a\nc: [*a, *a]\n", json!([{"a": [1], "b": [1], "c": [[1], [1]]}])),
        (
            "x: &x {a: 1, b: 2}\nw: &w {a: 3, c: 4}\nz:\n  <<: [*x, *w]\n  b: 9\n",
            json!([{"x": {"a": 1, "b": 2}, "w": {"a": 3, "c": 4}, "z": {"a": 1, "b": 9, "c": 4}}]),
        ),
        ("a: 2\n<<: {a: 1, b: 3}\n", json!([{"a": 1, "b": 3}])),
        ("'<<': {a: 1}\n", json!([{"<<": {"a": 1}}])),
        ("!!merge <<: {a: 1}\n", json!([{"a": 1}])),
        ("a: &a 1\nb: &a 2\nc: *a\n", json!([{"a": 1, "b": 2, "c": 2}])),
    ]);
}

#[test]
fn a_key_that_comes_again_replaces_the_first() {
    for text in ["a: 1\nb: {a: 2,\n  a: 3}\na: 4\n", "{\"a\": 1, \"b\": {\"a\": 2,\n \"a\": 3}, \"a\": 4}"] {
        let source = Source::new(text.as_bytes());
        let node = source.documents().remove(0).unwrap();
        assert_eq!(node.to_value(), json!({"a": 4, "b": {"a": 3}}));
        let told: Vec<_> =
            node.repeated().into_iter().map(|it| (it.field, source.position(it.at).line)).collect();
        assert_eq!(
            told.iter().map(|(field, _)| field.as_str()).collect::<std::collections::BTreeSet<_>>(),
            ["a", "b.a"].into()
        );
    }
    // The map may set a merged key again.
    let source = Source::new(b"<<: {a: 1}\na: 2\n");
    assert!(source.documents().remove(0).unwrap().repeated().is_empty());
}

#[test]
fn white_space_is_where_people_leave_it() {
    check(&[
        ("a:\tb\t\nc: [1,\t2,\n\t3]\n", json!([{"a": "b", "c": [1, 2, 3]}])),
        ("{\ta:\t1,\n\tb: [\t1 ]\n}\n", json!([{"a": 1, "b": [1]}])),
        ("a:\n  b: c\t\n\n  # x\nd: e#f # g\n", json!([{"a": {"b": "c"}, "d": "e#f"}])),
        ("k: [\n1,\n2\n]\nz: \"x\ny\"\n", json!([{"k": [1, 2], "z": "x y"}])),
        ("a:\n- b\n-  - c\n   - d: e\n     f: g\n", json!([{"a": ["b", ["c", {"d": "e", "f": "g"}]]}])),
        (
            "a: http://x.y:80/z\nb: [http://x.y, a:b]\n",
            json!([{"a": "http://x.y:80/z", "b": ["http://x.y", "a:b"]}]),
        ),
    ]);
    // A word of flow style may end with a colon.
    check(&[
        (
            "a: [echo, done:]\nb: {c:, d: e:}\n",
            json!([{"a": ["echo", "done:"], "b": {"c:": null, "d": "e:"}}]),
        ),
        (
            "a: [b:,\n c: d]\ne: 'f:, g:]'\nh: |\n  i:}\n# j:]\n",
            json!([{"a": ["b:", {"c": "d"}], "e": "f:, g:]", "h": "i:}\n"}]),
        ),
    ]);
    // A block that the end of the file ends: its last line ends, too.
    check(&[("a: |\n  x", json!([{"a": "x\n"}])), ("a: >-\n  x\n  y", json!([{"a": "x y"}]))]);
}

#[test]
fn documents_are_cut_at_lines_that_begin_with_dashes() {
    check(&[
        ("", json!([])),
        ("# nothing\n", json!([])),
        ("---\n---\na: 1\n---\n\n---\nnull\n---", json!([{"a": 1}])),
        ("a: 1\n...\n---\nb: 2\n... # end\n", json!([{"a": 1}, {"b": 2}])),
        ("--- # first\na: |\n  x\n---\nb: 2", json!([{"a": "x\n"}, {"b": 2}])),
        ("a: 1\n---\n{\"b\": 2}\n---\n[c]\n", json!([{"a": 1}, {"b": 2}, ["c"]])),
        ("a: 1\n%YAML 1.1\n---\nb: 2\n%YAML 1.2\n\n---\nc: 3\n", json!([{"a": 1}, {"b": 2}, {"c": 3}])),
        // kubectl refuses these three.
        ("--- {a: 1}\n", json!([{"a": 1}])),
        ("%YAML 1.1\n---\na: 1\n", json!([{"a": 1}])),
        ("# x\n%YAML 1.2\n---\na: 1\n", json!([{"a": 1}])),
    ]);
    let mark = '\u{feff}';
    assert_eq!(
        read(&format!("{mark}a: 1\r\n---\r\n{mark}b: 2\r\n")),
        Ok(vec![json!({"a": 1}), json!({"b": 2})])
    );
    assert_eq!(read(&format!("{mark}---\n{mark}{{\"a\": 1}}\n")), Ok(vec![json!({"a": 1})]));
}

#[test]
fn json_is_read_as_json() {
    check(&[
        ("{\"a\":1}{\"b\":2}\n{\"c\":3}\n", json!([{"a": 1}, {"b": 2}, {"c": 3}])),
        ("{\"a\":1} {\"b\":2}\n---\n{\"c\":3}{\"d\":4}", json!([{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}])),
        (r#"{"a":"\ud83d\ude00 \/ \u00e9 \u2028"}"#, json!([{"a": "😀 / é \u{2028}"}])),
        (r#"{"a":"\ud83d", "b\udc00": "\\ud83d"}"#, json!([{"a": "\u{fffd}", "b\u{fffd}": "\\ud83d"}])),
        ("{\"a\":\"\u{7f}\u{85}\"}", json!([{"a": "\u{7f}\u{85}"}])),
        // YAML in the clothes of JSON.
        ("{a: yes, \"b\": 'c', }\n", json!([{"a": true, "b": "c"}])),
        ("{\"a\": 1 # one\n}\n", json!([{"a": 1}])),
        ("{\"a\":1}\n# a comment\n{\"b\":2}\n", json!([{"a": 1}, {"b": 2}])),
    ]);
    // Comments are no part of it.
    check(&[
        ("# licence\n{\"a\":1}\n{\"b\":2}", json!([{"a": 1}, {"b": 2}])),
        ("\n  # x {\n#\n{\"a\":1} # y\n{\"b\":2}{\"c\":3}\n# z\n", json!([{"a": 1}, {"b": 2}, {"c": 3}])),
        ("{\"a\":1}\n# x\nb: 2\n", json!([{"a": 1}, {"b": 2}])),
        ("# x\n{a: 1}\n# y\n", json!([{"a": 1}])),
        ("{\"a\":1}\n# x", json!([{"a": 1}])),
    ]);
    // Where a text has no lines.
    let key = "x".repeat(5000);
    assert_eq!(read(&format!("{{\"{key}\": 1}}")), Ok(vec![json!({key: 1})]));
}

#[test]
fn bytes_that_are_no_text_are_no_reason_to_refuse_a_file() {
    assert_eq!(read_bytes(b"# Gr\xf6\xdfe\na: 1\n"), Ok(vec![json!({"a": 1})]));
    let wide: Vec<u8> = "\u{feff}a: ä\n---\nb: 2\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read_bytes(&wide), Ok(vec![json!({"a": "ä"}), json!({"b": 2})]));
}

/// The words are ours, and say what to do.
#[test]
fn what_is_wrong_is_told_with_its_line_and_column() {
    for (text, wanted) in [
        ("a: 1\nb: [1, 2\nc: 3\n", "line 3, column 2: `,` or `]` is missing in a list that began with `[`"),
        ("a:\n\t- x\n", "line 2, column 1: a tab, where only spaces can indent"),
        ("a: b: c\n", "line 1, column 5: a key cannot be here"),
        ("a: 1\n b: 2\n", "line 2, column 3: a key cannot be here"),
        (
            "a:\n  b: 1\n c: 2\n",
            "line 3, column 2: the indentation of this line fits no map or list around it",
        ),
        ("a: \"x\nb: 1\n", "line 1, column 4: the quotes that begin here are not closed"),
        ("a: @x\n", "line 1, column 4: a text that begins with `@` needs quotes"),
        ("a: *x\n", "line 1, column 4: unknown alias *x"),
        ("a: &a [1, *a]\n", "line 1, column 11: the alias *a is a part of what it repeats"),
        ("a: \"\\q\"\n", "line 1, column 5: `\\` and what follows is no character"),
        ("a: 1\nb\n", "line 2, column 1: neither a key, as there is no `:` with a space after it"),
        ("a: !!int x\n", "line 1, column 4: `x` is not a whole number, as its tag !!int says"),
        ("a: .nan\n", "line 1, column 4: JSON has no such number"),
        ("a: [!!str, x]\n", "line 1, column 5: a tag right before a comma"),
        ("a: [!x:, y]\n", "line 1, column 5: a tag right before a comma"),
        ("a: [!x_, y]\n", "line 1, column 5: a tag right before a comma"),
        ("~: 1\n", "line 1, column 1: a key is missing, or null"),
        ("? [a]\n: 1\n", "line 1, column 3: a key must be a text"),
        ("<<: 1\n", "line 1, column 5: the value of `<<` must be a map"),
        (
            "ok: 1\n---\na: ä\u{1b}\n",
            "line 3, column 5: the control character \\u{1b} is not allowed in YAML",
        ),
        ("a: 1\n... # end\n\n# b\nb: 2\n", "line 5, column 1: text after `...`, which ends a document"),
        ("{a: 1}\nb: 2\n", "line 2, column 1: text after the end of the document: check the indentation"),
        // The commonest slips with quotes.
        (
            "a:\n- \"echo \"hi\"\"\nb: 1\n",
            "line 2, column 10: text after the end of a value: close or double",
        ),
        ("a:\n  - \"echo \"hi\"\"\n", "line 2, column 12: text after the end of a value"),
        ("k: ['sh', 'echo 'hi'']\n", "line 1, column 18: text after the end of a value"),
        ("k: {a: \"b\"c\"}\n", "line 1, column 11: text after the end of a value"),
        ("k: ['a' 'b']\n", "line 1, column 9: `,` or `]` is missing in a list that began with `[`"),
        ("k: 'it's'\nb: 1\n", "line 1, column 8: text after the end of a value"),
        ("k: \"a\" + \"b\"\n", "line 1, column 8: text after the end of a value"),
        ("k: [\"sh\"] x\n", "line 1, column 11: text after the end of a value"),
        ("a: &x 1\nk: *x y\n", "line 2, column 7: text after the end of a value"),
        ("\"a:b\":x\n", "line 1, column 6: text after the end of a value: a space is missing after `:`"),
        ("b: 1\n\"a:b\":x\n", "line 2, column 1: neither a key, as there is no `:` with a space after it"),
        ("\"a\" + \"b\"\n", "line 1, column 5: text after the end of a value: close or double"),
        ("a:\n  - - b\n    c: 1\n", "line 3, column 5: this line is indented like the elements of a list"),
        ("a: {{ .Values.x }}\n", "line 1, column 5: a template, not YAML: render it first"),
        ("{{- if .Values.x }}\na: 1\n{{- end }}\n", "line 1, column 2: a template, not YAML"),
        ("{\"a\": 1\n", "line 1, column 8: the JSON ends too early"),
        ("{\"a\": 1,\n \"b\": [1, 2}}", "line 2, column 12: "),
        ("{\"a\":1}{\"b\":2}{\"c\":3}\n]", "line 2, column 1: not JSON: `]` cannot be here"),
        ("a: [b:]\nc: [d:{}]\n", "line 2, column 6: a text with `:` in it needs quotes here"),
        ("a: [b:]\nc: !!int d\n", "line 2, column 4: `d` is not a whole number"),
        ("{\"a\": 1E400}", "line 1, column 7: a number that is too large"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(wanted), "{text:?}: {error}");
        assert!(!error.contains('\n'));
    }
}

/// A wrong document is reported, and the others are read.
#[test]
fn documents_fail_alone() {
    let source = Source::new(b"a: 1\n---\nb: [\n---\nc: 3\n");
    let documents: Vec<_> =
        source.documents().into_iter().map(|it| it.ok().map(|node| node.to_value())).collect();
    assert_eq!(documents, [Some(json!({"a": 1})), None, Some(json!({"c": 3}))]);
}

#[test]
fn every_field_has_its_place() {
    let yaml = "# x\nspec:\n  containers:\n  - name: a\n    env:\n    - {name: b, value: on}\n  labels:\n    app.kubernetes.io/name: c\n    app: d\n";
    let json = "{\"spec\": {\n \"containers\": [{\"name\": \"a\", \"env\": [\n {\"name\": \"b\",\n \"value\": true}]}],\n \"labels\": {\"app.kubernetes.io/name\": \"c\", \"app\": \"d\"}}}";
    for text in [yaml, json] {
        let source = Source::new(text.as_bytes());
        let node: std::rc::Rc<Node> = source.documents().remove(0).unwrap();
        let text_at = |field: &str| &text[node.place(field)..];
        for (field, written) in [
            ("spec", "spec"),
            ("spec.containers[0].env[0].value", "value"),
            ("spec.containers[0].env[0].valueFrom", "{"),
            ("spec.labels.app.kubernetes.io/name", "app.kubernetes.io/name"),
            ("spec.labels[app.kubernetes.io/name]", "app.kubernetes.io/name"),
            ("spec.labels.app", "app"),
            ("spec.containers[7].name", "containers"),
            // Without an index: the only one that it can be.
            ("spec.containers.env.value", "value"),
            ("spec.containers[0].env.valueFrom", "env"),
        ] {
            let found = text_at(field).trim_start_matches('"');
            assert!(found.starts_with(written), "{field}: {found}");
        }
    }
}

#[test]
fn no_file_is_too_long() {
    let job =
        |number: usize| format!("kind: Job\nmetadata: {{name: j{number}}}\nspec:\n  a: &a [1, 2]\n  b: *a\n");
    let documents: Vec<String> = (0..3000).map(job).collect();
    assert_eq!(read(&documents.join("---\n")).map(|read| read.len()), Ok(3000));
    let items: Vec<Value> =
        (0..3000).map(|number| json!({"kind": "Job", "metadata": {"name": format!("j{number}")}})).collect();
    let list = json!({"kind": "List", "items": items});
    assert_eq!(read(&list.to_string()), Ok(vec![list.clone()]));
    let aliases = format!("a: &a {{x: 1, z: [2, 3]}}\nb: [{}]\n", vec!["*a"; 20_000].join(", "));
    assert_eq!(read(&aliases).unwrap()[0]["b"].as_array().map(Vec::len), Some(20_000));
    let merges = format!("a: &a {{x: 1, w: 2}}\nb:\n{}", "- {<<: *a, z: 3}\n".repeat(10_000));
    assert_eq!(read(&merges).unwrap()[0]["b"][9_999], json!({"x": 1, "w": 2, "z": 3}));
}

/// Merges that leave a small document take time and memory nevertheless, and so do long keys.
#[test]
fn what_is_copied_again_and_again_is_refused() {
    let maps = vec!["*m"; 3_000].join(",");
    let merges = vec!["{<<: *l}"; 3_000].join(",");
    let key = "k".repeat(1_000_000);
    for text in [
        format!("m: &m {{k: 1}}\nl: &l [{maps}]\nx: [{merges}]\n"),
        format!("m: &m {{}}\nl: &l [{maps}]\nx: [{merges}]\n"),
        format!("m: &m\n  ? {key}\n  : 1\nx: [{}]\n", vec!["{<<: *m}"; 1_000].join(",")),
        format!("k: &k {key}\nx: [{}]\n", vec!["{*k : 1}"; 1_000].join(",")),
    ] {
        let error = read(&text).unwrap_err();
        assert!(error.contains("aliases and merge keys make more than"), "{error}");
    }
}

#[test]
fn the_first_hundred_repeated_keys_are_told() {
    let maps = vec![r#"{"a":1,"a":2}"#; 1_000].join(",");
    let source = Source::new(format!(r#"{{"k":[{maps}]}}"#).as_bytes());
    let repeated = source.documents().remove(0).unwrap().repeated();
    assert_eq!((repeated.len(), repeated[99].field.as_str()), (100, "k[99].a"));
}

/// Aliases of aliases make a small text too large for memory.
#[test]
fn what_grows_without_end_is_refused() {
    let doubled = |count: usize| -> String {
        let level = |number: usize| {
            format!("a{number}: &a{number} [{}]\n", vec![format!("*a{}", number - 1); 10].join(", "))
        };
        "a0: &a0 [x]\n".to_owned() + &(1..count).map(level).collect::<String>()
    };
    assert!(read(&doubled(5)).is_ok());
    let error = read(&doubled(30)).unwrap_err();
    assert!(error.contains("aliases and merge keys make more than"), "{error}");
    let keys: String = (0..2000).map(|key| format!("k{key}: 1, ")).collect();
    let error = read(&format!("- &a {{{keys}}}\n{}", "- <<: *a\n".repeat(5000))).unwrap_err();
    assert!(error.contains("aliases and merge keys make more than"), "{error}");
    for deep in [
        "[".repeat(100_000),
        "{\"a\":".repeat(100_000),
        format!("{}1{}", "{\"a\":".repeat(500), "}".repeat(500)),
        "- ".repeat(100_000),
    ] {
        assert!(
            read(&deep).unwrap_err().contains("within each other") || deep.len() == 500_000,
            "{}",
            &deep[..10]
        );
    }
}
