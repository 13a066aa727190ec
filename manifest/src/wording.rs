//! Messages about wrong texts, which say how to correct them.

use libyaml_safer::Error;

use crate::SyntaxError;
use crate::source::offset;

/// The error of a YAML text. The place is relative to the text.
pub(crate) fn of_yaml(text: &str, error: &Error) -> SyntaxError {
    let (problem, context) = (error.problem(), error.context().unwrap_or_default());
    let place =
        |mark: Option<libyaml_safer::Mark>| mark.map(|mark| text.floor_char_boundary(offset(mark.index)));
    let at = place(error.problem_mark()).unwrap_or_default();
    // The end of the text is no good place to look for what is not closed.
    let begin = place(error.context_mark()).unwrap_or(at);
    if matches!(problem, "found unexpected end of stream" | "found unexpected document indicator") {
        return SyntaxError::new(begin, "the quotes that begin here are not closed");
    }
    if problem == "could not find expected ':'" {
        return SyntaxError::new(
            begin,
            "neither a key, as there is no `:` with a space after it, nor a part of the line before",
        );
    }
    if let Some(message) = after_value(problem, text, at) {
        return SyntaxError::new(at, message);
    }
    SyntaxError::new(at, sentence(problem, context, text[at..].chars().next()))
}

/// The mistake, if a value has ended and its line or its document goes on.
fn after_value(problem: &str, text: &str, at: usize) -> Option<&'static str> {
    if problem.starts_with("did not find expected ','") {
        return text[..at].ends_with(['"', '\'']).then_some(GOES_ON);
    }
    let is_outside = problem == "did not find expected <document start>";
    if !is_outside && !matches!(problem, "did not find expected key" | "did not find expected '-' indicator")
    {
        return None;
    }
    let before = &text[..at];
    let (above, line) = before.rsplit_once('\n').unwrap_or(("", before));
    // A dash that begins an element is no value: `- - a`.
    let has_value = !line.trim_start_matches([' ', '\t', '-']).is_empty();
    if has_value {
        return Some(if text[at..].starts_with(':') { NO_SPACE } else { GOES_ON });
    }
    let mut lines = above.lines().rev().map(str::trim_end);
    let last = lines.find(|line| !line.is_empty() && !line.trim_start().starts_with('#'));
    (is_outside && last.is_some_and(ends_document)).then_some(AFTER_END)
}

/// Whether a line is the marker of the end of a document.
fn ends_document(line: &str) -> bool {
    line.strip_prefix("...").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

/// The error, or a better one where a template has not been rendered.
pub(crate) fn of_template(text: &str, error: SyntaxError) -> SyntaxError {
    let start = text[..error.at].rfind('\n').map_or(0, |end| end + 1);
    let line = text[start..].lines().next().unwrap_or_default();
    let before = text[..start].trim_end().rsplit('\n').next().unwrap_or_default();
    if ![line, before].iter().any(|line| line.contains("{{")) {
        return error;
    }
    let message =
        "a template, not YAML: render it first, as with `helm template`, or put `{{ }}` into quotes";
    SyntaxError::new(error.at, message)
}

const INDENTED: &str = "the indentation of this line fits no map or list around it";
const GOES_ON: &str = "text after the end of a value: close or double the quotes, or quote all of it";
const NO_SPACE: &str = "text after the end of a value: a space is missing after `:`";
const AFTER_END: &str = "text after `...`, which ends a document: `---` begins the next";
const TAB: &str = "a tab, where only spaces can indent";
const TAG: &str = "an unknown or malformed tag: a text that begins with `!` needs quotes";
const ESCAPE: &str = "`\\` and what follows is no character: write `\\\\`, or use single quotes";
const DIRECTIVE: &str = "not a directive of YAML: a text that begins with `%` needs quotes";

fn sentence(problem: &str, context: &str, letter: Option<char>) -> String {
    let known = match problem {
        "found character that cannot start any token" if letter == Some('\t') => TAB,
        "found a tab character that violates indentation"
        | "found a tab character where an indentation space is expected" => TAB,
        "found character that cannot start any token" => {
            return format!(
                "a text that begins with `{}` needs quotes",
                letter.unwrap_or_default().escape_debug()
            );
        }
        "mapping values are not allowed in this context" => {
            "a key cannot be here: a text with `: ` in it needs quotes, and each key a line of its own"
        }
        "block sequence entries are not allowed in this context" => {
            "a list cannot begin here: `- ` goes on a line of its own"
        }
        "mapping keys are not allowed in this context" => "a text that begins with `? ` needs quotes",
        "did not find expected key" => INDENTED,
        "did not find expected '-' indicator" => {
            "this line is indented like the elements of a list, which begin with `- `"
        }
        "did not find expected ',' or ']'" => "`,` or `]` is missing in a list that began with `[`",
        "did not find expected ',' or '}'" => "`,` or `}` is missing in a map that began with `{`",
        "found unknown escape character"
        | "did not find expected hexdecimal number"
        | "found invalid Unicode character escape code" => ESCAPE,
        "did not find expected alphabetic or numeric character" => {
            "a text that begins with `*` or `&` needs quotes"
        }
        "did not find expected node content" => "a value is missing",
        "did not find expected <document start>" => {
            "text after the end of the document: check the indentation, or begin the next with `---`"
        }
        "did not find expected comment or line break" => "text after `|` or `>`: it goes on the next line",
        "found an indentation indicator equal to 0" => "the number after `|` or `>` must be 1 to 9",
        "found unexpected ':'" => "a text with `:` in it needs quotes here",
        _ if context.contains("directive") || problem.contains("directive") => DIRECTIVE,
        _ if context.contains("tag") || problem.contains("tag") => TAG,
        _ => "not YAML",
    };
    known.to_owned()
}

/// The error of a JSON text at a place.
pub(crate) fn of_json(text: &str, at: usize) -> String {
    match text.get(at..).and_then(|rest| rest.trim_end().chars().next()) {
        Some(letter) => format!("not JSON: `{}` cannot be here", letter.escape_debug()),
        None => "the JSON ends too early: something that `{`, `[` or quotes begin is not closed".to_owned(),
    }
}
