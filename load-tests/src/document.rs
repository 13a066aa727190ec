//! Tables in documentation that commands fill in.

use std::path::Path;

use anyhow::{Context, Result};

/// Replaces what is between the marks of this name in a Markdown page: `<!-- measured: NAME -->` and
/// `<!-- end of NAME -->`.
///
/// # Errors
///
/// If the page cannot be read or written, or lacks the marks.
pub(crate) fn fill(file: &Path, name: &str, content: &str) -> Result<()> {
    let context = || file.display().to_string();
    let page = std::fs::read_to_string(file).with_context(context)?;
    let filled = filled(&page, name, content).with_context(context)?;
    std::fs::write(file, filled).with_context(context)
}

fn filled(page: &str, name: &str, content: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- measured: {name} -->"), format!("<!-- end of {name} -->"));
    let (before, rest) = page.split_once(&begin).with_context(|| format!("no {begin}"))?;
    let (_, after) = rest.split_once(&end).with_context(|| format!("no {end} after {begin}"))?;
    Ok(format!("{before}{begin}\n\n{}\n\n{end}{after}", content.trim()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_of_a_name_changes() {
        let page =
            "a\n<!-- measured: x -->\nold\n<!-- end of x -->\nb\n<!-- measured: y -->\n<!-- end of y -->\n";
        let once = filled(page, "x", "new\n").unwrap();
        let marked = "a\n<!-- measured: x -->\n\nnew\n\n<!-- end of x -->\nb\n";
        assert_eq!(once, format!("{marked}<!-- measured: y -->\n<!-- end of y -->\n"));
        assert_eq!(filled(&once, "x", "new").unwrap(), once, "again changes nothing");
        assert!(filled(page, "z", "").is_err());
    }
}
