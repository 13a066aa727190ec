//! The prose of a file: paragraphs of pages and of comments, without code, headings and tables.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The paragraphs and list items of a page.
pub(crate) fn of_page(text: &str) -> Vec<String> {
    let (mut paragraphs, mut current, mut apart) = (Vec::new(), String::new(), 0);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Paragraph | Tag::Item) | Event::End(TagEnd::Paragraph | TagEnd::Item) => {
                paragraphs.push(std::mem::take(&mut current));
            }
            Event::Start(Tag::CodeBlock(_) | Tag::Heading { .. } | Tag::Table(_)) => apart += 1,
            Event::End(TagEnd::CodeBlock | TagEnd::Heading(_) | TagEnd::Table) => apart -= 1,
            Event::Text(text) | Event::Code(text) if apart == 0 => current.push_str(&text),
            Event::SoftBreak | Event::HardBreak => current.push(' '),
            _ => {}
        }
    }
    paragraphs
}

/// The paragraphs of a source file's comments.
pub(crate) fn of_source(text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in text.lines() {
        let comment =
            line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        match (comment, paragraphs.last_mut()) {
            (Some(words), Some(last)) if !words.is_empty() => {
                last.push_str(words);
                last.push(' ');
            }
            (_, Some(last)) if !last.is_empty() => paragraphs.push(String::new()),
            _ => {}
        }
    }
    paragraphs
}

/// The sentences of a paragraph, without what marks emphasis and code at their beginning.
pub(crate) fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let ends = paragraph.match_indices(['.', '!', '?']).map(|(at, _)| at + 1);
    let ends = ends.filter(|end| paragraph[*end..].starts_with(' ')).chain([paragraph.len()]);
    let mut start = 0;
    ends.map(move |end| {
        let sentence = &paragraph[start..end];
        start = end;
        sentence.trim().trim_start_matches(['*', '_', '`', '('])
    })
}

#[test]
fn prose_is_found_and_split() {
    let source =
        "//! A room.\n\nfn a() {\n    // First here. Then e.g.x\n    // there!\n    b(); // beside\n}\n";
    assert_eq!(of_source(source).concat(), "A room. First here. Then e.g.x there! ");
    let page = "# What\n\nA `pod` *ends*.\n- An item\n  of two lines. Another\n\n| What |\n|---|\n| is |\n\n    code\n";
    assert_eq!(of_page(page).join("|").replace("||", "|"), "|A pod ends.|An item of two lines. Another");
    let found: Vec<&str> = sentences("A b. `C` d? E.f").collect();
    assert_eq!(found, ["A b.", "C` d?", "E.f"]);
}
