//! The page at `/` in a real browser: what it shows, how fast it follows, and that it never runs a text as
//! code.
//!
//! `YARDMASTER_UPDATE=1` takes the pictures of the documentation.

mod cluster;
mod job;
mod live;
mod model;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::model::{Model, SHARDS};
use crate::browser::Browser;

/// Colours of text against what is behind it, as WCAG 2.2 computes them: the smallest contrast on the page.
const CONTRAST: &str = r"(() => {
    const numbers = (color) => color.match(/[\d.]+/g).map(Number);
    const light = (color) => {
        const part = (value) => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
        const [r, g, b] = numbers(color).map(part);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (; element; element = element.parentElement) {
            const color = getComputedStyle(element).backgroundColor;
            if (numbers(color)[3] !== 0) return color;
        }
        return 'rgb(255, 255, 255)';
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    let worst = { contrast: 21 };
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        const element = text.parentElement;
        if (!text.data.trim() || !element.checkVisibility() || element.closest('.hidden, .none, :disabled, footer, script')) continue;
        const [one, other] = [light(getComputedStyle(element).color), light(ground(element))].sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        if (contrast < worst.contrast) worst = { contrast, text: text.data, ground: ground(element), color: getComputedStyle(element).color };
    }
    return worst;
})()";

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_and_three_replicas_are_shown_without_pauses() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(1_000).await;
    browser.open(&model.url).await;
    browser.until("document.querySelectorAll('#job-rows tr').length === 50").await;
    assert_eq!(browser.value("document.querySelectorAll('#shard-map li').length").await, SHARDS);
    let letters = "[...new Set([...document.querySelectorAll('#shard-map li')].map((cell) => cell.textContent))].sort().join('')";
    assert_eq!(browser.value(letters).await, "ABC");
    browser.until("document.querySelector('#range').textContent === '1–50 of 1,000 Jobs'").await;

    browser.call("Performance.enable", json!({"timeDomain": "threadTicks"})).await;
    let mut rounds = Vec::new();
    for _ in 0..3 {
        rounds.push(longest_work(&mut browser, &model).await);
    }
    println!("longest work of the page within 100 ms, in ms: {rounds:?}");
    assert!(rounds.iter().any(|longest| *longest < 100.0), "{rounds:?}");
    assert_eq!(browser.complaints, Vec::<Value>::new());
}

/// The most processor time that the page needs within 100 ms, while all owners and all rows change with every
/// answer, in milliseconds. Time itself says nothing on a machine that is busy with other things, and of several
/// rounds the best says most.
async fn longest_work(browser: &mut Browser, model: &Model) -> f64 {
    let (mut before, mut longest, first) = (browser.processor_ms().await, 0.0_f64, model.answers());
    let (mut turned, mut asked) = (first, Instant::now());
    while model.answers() < first + 8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let now = browser.processor_ms().await;
        // A machine that is busy sleeps longer.
        let windows = (asked.elapsed().as_secs_f64() * 10.0).max(1.0);
        longest = longest.max((now - before) / windows);
        (before, asked) = (now, Instant::now());
        if model.answers() > turned {
            turned = model.answers();
            model.turn();
        }
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_messages_are_never_code() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::hostile().await;
    browser.open(&model.url).await;
    browser.until("document.querySelectorAll('#job-rows tr').length > 0").await;
    // The planted code is shown as text.
    for place in ["#job-rows", "#replica-rows"] {
        browser.until(&format!("document.querySelector('{place}').textContent.includes('<img src=x')")).await;
    }
    model.turn();
    browser.until("document.querySelector('#announcements').textContent.includes('<img src=x')").await;
    for expression in [
        "document.images.length",
        "document.scripts.length - 1",
        "document.querySelectorAll('[onerror], iframe, object, b > b').length",
        "Number(window.planted === true)",
    ] {
        assert_eq!(browser.value(expression).await, 0, "{expression}");
    }
    // Even if something were parsed one day, the policy would not let it run.
    let planted = r#"(async () => {
        const element = document.createElement("div");
        element.innerHTML = "<img src=x onerror='window.planted = true'>";
        document.body.append(element);
        const script = document.createElement("script");
        script.textContent = "window.planted = true";
        document.body.append(script);
        await new Promise((resolve) => setTimeout(resolve, 200));
        return window.planted === true;
    })()"#;
    assert_eq!(browser.value(planted).await, false);
    assert!(!browser.complaints.is_empty(), "the browser says what the policy forbids");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_themes_are_legible() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(1_000).await;
    model.turn();
    for theme in ["light", "dark"] {
        browser.theme(theme).await;
        browser.open(&model.url).await;
        browser.until("document.querySelectorAll('#job-rows tr').length === 50").await;
        let worst = browser.value(CONTRAST).await;
        println!("{theme}: {worst}");
        assert!(worst["contrast"].as_f64().unwrap() >= 4.5, "{theme}: {worst}");
        let ground = browser.value("getComputedStyle(document.body).backgroundColor").await;
        assert_eq!(ground == "rgb(17, 21, 27)", theme == "dark", "{ground}");

        // Pictures of the documentation are of this page, and small.
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/img/page-{theme}.webp"));
        if std::env::var_os("YARDMASTER_UPDATE").is_some() {
            // The curve needs some time to be one.
            tokio::time::sleep(Duration::from_secs(60)).await;
            std::fs::write(&file, browser.picture().await).unwrap();
        }
        let size = std::fs::metadata(&file).unwrap().len();
        assert!((10_000..150_000).contains(&size), "{}: {size} bytes", file.display());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keyboard_and_screen_reader_reach_everything() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(120).await;
    browser.open(&model.url).await;
    browser.until("document.querySelectorAll('#job-rows tr').length === 50").await;

    let tree = browser.call("Accessibility.getFullAXTree", json!({})).await;
    let named: Vec<(String, String)> = tree["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["ignored"] == false)
        .map(|node| {
            let text = |field: &str| node[field]["value"].as_str().unwrap_or_default().to_owned();
            (text("role"), text("name"))
        })
        .collect();
    let with =
        |role: &str| named.iter().filter(|(one, _)| one == role).map(|(_, name)| &**name).collect::<Vec<_>>();
    for landmark in ["banner", "main", "complementary", "contentinfo"] {
        assert_eq!(with(landmark).len(), 1, "{landmark}");
    }
    for (role, count) in [("progressbar", 50), ("meter", 3)] {
        let names = with(role);
        assert_eq!(names.len(), count, "{role}");
        assert!(names.iter().all(|name| !name.is_empty()), "{role}: {names:?}");
    }
    assert!(with("rowheader").len() >= 50 && with("columnheader").len() >= 6);
    assert!(named.iter().any(|(_, name)| name.starts_with("Shard 63: yardmaster-")), "shards have names");
    for role in ["button", "searchbox", "textbox"] {
        assert!(with(role).iter().all(|name| !name.is_empty()), "{role}");
    }

    // By keyboard alone: to the second page, and what has the focus can be seen.
    let mut visited = Vec::new();
    for _ in 0..20 {
        browser.press("Tab").await;
        let focus =
            "document.activeElement.id || document.activeElement.value || document.activeElement.className";
        visited.push(browser.value(focus).await);
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle").await;
        assert_eq!(outline, "solid", "{visited:?}");
        if visited.last().is_some_and(|last| last == "next") {
            break;
        }
    }
    assert!(visited.contains(&"search".into()), "{visited:?}");
    browser.press("Enter").await;
    browser.until("document.querySelector('#range').textContent === '51–100 of 120 Jobs'").await;

    // Hand-overs are said politely.
    assert_eq!(browser.value("document.querySelector('#announcements').ariaLive").await, "polite");
    model.turn();
    browser.until("/shards? went from yardmaster-. to yardmaster-./.test(document.querySelector('#announcements').textContent)").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_without_answers_says_so_and_recovers() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(10).await;
    browser.open(&model.url).await;
    browser.until("document.querySelector('#live-text').textContent === 'live'").await;
    model.pause(true);
    browser
        .until("document.querySelector('#live-text').textContent.startsWith('no answer, shown is ')")
        .await;
    model.pause(false);
    browser.until("document.querySelector('#live-text').textContent === 'live'").await;
}
