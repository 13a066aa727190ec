//! The parts of a Markdown page that the tests check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Where its links and images lead to, as they are written.
    pub(crate) links: Vec<String>,
    /// The anchors of its headings, as GitHub makes them.
    pub(crate) anchors: BTreeSet<String>,
    /// Its code blocks.
    pub(crate) blocks: Vec<Block>,
    /// Code within its text.
    pub(crate) inline: Vec<String>,
}

/// A code block.
#[derive(Debug)]
pub(crate) struct Block {
    /// The info string of the fence; empty for an indented block.
    pub(crate) info: String,
    /// Its content.
    pub(crate) text: String,
    /// The line that it begins in.
    pub(crate) line: usize,
}

impl Page {
    /// Reads a file.
    pub(crate) fn read(file: &Path) -> Self {
        let text =
            std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        Self::parse(&text)
    }

    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut in_block = false;
        let mut used = BTreeMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.insert(anchor(&heading.take().unwrap_or_default(), &mut used));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.to_string());
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    let info = match kind {
                        CodeBlockKind::Fenced(info) => info.to_string(),
                        CodeBlockKind::Indented => String::new(),
                    };
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.blocks.push(Block { info, text: String::new(), line });
                    in_block = true;
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Text(part) => match (&mut heading, page.blocks.last_mut()) {
                    (Some(heading), _) => heading.push_str(&part),
                    (None, Some(block)) if in_block => block.text.push_str(&part),
                    _ => {}
                },
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    page.inline.push(code.to_string());
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub gives to a heading: lower case, without punctuation, and numbered if there are
/// several of it.
fn anchor(heading: &str, used: &mut BTreeMap<String, usize>) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter));
    let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
    let count = used.entry(anchor.clone()).or_insert(0);
    *count += 1;
    match *count {
        1 => anchor,
        count => format!("{anchor}-{}", count - 1),
    }
}

#[test]
fn a_page_has_links_anchors_and_code() {
    let page = Page::parse(
        "# One `two`, three\n\n[a](b.md#c) ![d](e.svg) `f`\n\n## Same\n\n## Same\n\n```sh run\ng\nh\n```\n\n    i\n",
    );
    assert_eq!(page.links, ["b.md#c", "e.svg"]);
    assert_eq!(page.anchors, BTreeSet::from(["one-two-three", "same", "same-1"].map(str::to_owned)));
    let blocks: Vec<_> = page.blocks.iter().map(|block| (&*block.info, &*block.text, block.line)).collect();
    assert_eq!(blocks, [("sh run", "g\nh\n", 9), ("", "i\n", 14)]);
    assert_eq!(page.inline, ["two", "f"]);
}
