//! The ways to write a text in YAML, each of which fits some texts only.

/// Letters that YAML has no place for but in escapes.
fn is_printable(letter: char) -> bool {
    !letter.is_control() && !matches!(letter, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Whether a text may be written without quotes, as Go's printer decides: it looks like nothing else, and contains no
/// indicator.
pub fn is_plain(text: &str, in_flow: bool) -> bool {
    const WORDS: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"];
    let lower = text.to_ascii_lowercase();
    let first = text.chars().next().unwrap_or(' ');
    let looks_like_a_number = first.is_ascii_digit() || "+-.".contains(first);
    !WORDS.contains(&&*lower)
        && !looks_like_a_number
        && !first.is_whitespace()
        && !"-?:,[]{}#&*!|>'\"%@`~=<".contains(first)
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !(in_flow && text.contains([',', '[', ']', '{', '}', ':', '?']))
        && text.chars().all(|letter| is_printable(letter) && (letter == ' ' || !letter.is_whitespace()))
}

/// Whether a text fits single quotes, on one line.
pub fn is_single(text: &str) -> bool {
    text.chars().all(is_printable)
}

pub fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Single quotes over several lines: a line end stands for the space between two words.
pub fn single_wrapped(text: &str, indent: usize) -> String {
    wrap(&single(text), &format!("\n{}", " ".repeat(indent)))
}

/// Writes a line end where one space is between two words, if the line is long.
fn wrap(text: &str, line_end: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut column = 0;
    for (at, letter) in letters.iter().enumerate() {
        let is_inner = at > 1 && at + 2 < letters.len();
        let between = is_inner
            && *letter == ' '
            && !letters[at - 1].is_whitespace()
            && !letters[at + 1].is_whitespace();
        if between && column > 20 {
            out.push_str(line_end);
            column = 0;
        } else {
            out.push(*letter);
            column += 1;
        }
    }
    out
}

/// How double quotes are written.
#[derive(Clone, Copy, Debug)]
pub struct Double {
    pub only_ascii: bool,
    /// Long lines end in a backslash, as PyYAML's do.
    pub wrapped: Option<usize>,
}

pub fn double(text: &str, how: Double) -> String {
    let mut out = String::from("\"");
    let letters: Vec<char> = text.chars().collect();
    let mut column = 0;
    for (at, letter) in letters.iter().enumerate() {
        column += 1;
        match (letter, how.wrapped) {
            (' ', Some(indent)) if column > 20 && at > 0 && at + 1 < letters.len() => {
                out.push_str(&format!("\\\n{}\\ ", " ".repeat(indent)));
                column = 0;
            }
            _ => out.push_str(&escaped(*letter, how.only_ascii)),
        }
    }
    out + "\""
}

fn escaped(letter: char, only_ascii: bool) -> String {
    match letter {
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\0' => "\\0".into(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\r' => "\\r".into(),
        '\u{1b}' => "\\e".into(),
        '\u{85}' => "\\N".into(),
        '\u{a0}' => "\\_".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        _ if is_printable(letter) && (!only_ascii || letter.is_ascii()) => letter.into(),
        _ => match u32::from(letter) {
            code @ ..=0xff => format!("\\x{code:02X}"),
            code @ ..=0xffff => format!("\\u{code:04X}"),
            code => format!("\\U{code:08X}"),
        },
    }
}

/// Whether a text fits a block: it has lines to show, and nothing that needs an escape.
pub fn is_block(text: &str) -> bool {
    !text.trim_matches('\n').is_empty()
        && text.chars().all(|letter| matches!(letter, '\n' | '\t') || is_printable(letter))
}

/// A block after `|`: every line as it is.
pub fn literal(text: &str, indent: usize) -> String {
    let lines = text.trim_end_matches('\n').split('\n');
    block('|', text, lines.map(str::to_owned), indent)
}

/// Whether a text fits a block after `>`: lines with space before them are kept as they are, which is a rule of its own.
pub fn is_folded(text: &str) -> bool {
    is_block(text) && !text.starts_with('\n') && !text.split('\n').any(|line| line.starts_with([' ', '\t']))
}

/// A block after `>`: long lines are broken between words, and line ends are written once more.
pub fn folded(text: &str, indent: usize) -> String {
    let mut lines = String::new();
    for (number, line) in text.trim_end_matches('\n').split('\n').enumerate() {
        // An empty line stands for a line end itself.
        lines.push_str(if number > 0 { "\n" } else { "" });
        lines.push_str(if number > 0 && !line.is_empty() { "\n" } else { "" });
        lines.push_str(&wrap(line, "\n"));
    }
    block('>', text, lines.split('\n').map(str::to_owned), indent)
}

fn block(indicator: char, text: &str, lines: impl Iterator<Item = String>, indent: usize) -> String {
    let content = text.trim_end_matches('\n');
    let ends = text.len() - content.len();
    let chomping = match ends {
        0 => "-",
        1 => "",
        _ => "+",
    };
    // If a text begins with space, a hint says how much of it is indentation.
    let hint = if text.trim_start_matches('\n').starts_with([' ', '\t']) || text.starts_with('\n') {
        "2"
    } else {
        ""
    };
    let mut out = format!("{indicator}{hint}{chomping}");
    for line in lines {
        out.push('\n');
        if !line.is_empty() {
            out.push_str(&" ".repeat(indent));
            out.push_str(&line);
        }
    }
    if ends > 1 {
        out.push_str(&"\n".repeat(ends));
    }
    out
}
