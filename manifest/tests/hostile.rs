//! No text stops the reader, and every error has a place in the text.
#![allow(clippy::unwrap_used, missing_docs)]

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use yardmaster_manifest::Source;

/// Pieces of text with a meaning in YAML or JSON.
const PIECES: &[&str] = &[
    "\n",
    "\n",
    "\n ",
    "\n  ",
    "\n    ",
    " ",
    "  ",
    "\t",
    "\r",
    "\r\n",
    "a",
    "b: ",
    "c:",
    ": ",
    ":",
    "- ",
    "-",
    "? ",
    "?",
    "---\n",
    "--- ",
    "...\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    ", ",
    "#",
    " # x",
    "'",
    "\"",
    "\\",
    "\\\n",
    "\\u",
    "\\ud83d",
    "\\x4",
    "\\N",
    "&",
    "&a ",
    "*",
    "*a",
    "*a ",
    "!",
    "!!",
    "!!str",
    "!!int ",
    "!!str,",
    "!<",
    "!x!y ",
    "!%C3%A4 ",
    "%",
    "%YAML 1.1\n",
    "%TAG ! a\n",
    "|",
    "|\n",
    "|2-\n",
    ">",
    ">+\n",
    ">-",
    "0",
    "1e400",
    "-1",
    "0x",
    ".5",
    ".nan",
    "<<: ",
    "<<",
    "true",
    "null",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "\u{0}",
    "ä",
    "😀",
    "{\"a\":",
    "{\"a\":1}",
    "[1,2]",
    "\"a\"",
    "{{ .x }}",
    "@",
    "`",
    "=",
];

fn check(bytes: &[u8]) {
    let source = Source::new(bytes);
    for document in source.documents() {
        match document {
            Ok(node) => {
                node.to_value();
                node.repeated();
                node.place("a.b[0].c");
                assert!(node.at <= source.text().len());
            }
            Err(error) => {
                assert!(error.at <= source.text().len(), "{error:?}");
                assert!(!error.message.contains('\n'), "{error:?}");
                source.position(error.at);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 16))]

    #[test]
    fn every_text_is_read_or_refused(pieces in vec(select(PIECES), 0..40)) {
        check(pieces.concat().as_bytes());
    }

    #[test]
    fn all_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..60)) {
        check(&bytes);
    }
}
