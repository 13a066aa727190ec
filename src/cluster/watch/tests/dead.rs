//! Watches that are dead without a word, that are cut again and again, and that panic.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::cluster::wire::DecodeError;

fn hung() -> Scene {
    closed(HUNG, [])
}

/// The time until a change comes that contains this text.
async fn until_shown(
    changes: &mut (impl Stream<Item = Change<Box<ObservedPod>>> + Unpin),
    name: &str,
) -> u64 {
    let began = Instant::now();
    let shown = async {
        while let Some(change) = changes.next().await {
            match change {
                Change::Applied(pod) if &*pod.pod.name == name => return,
                Change::Synced { .. } if name == "synced" => return,
                _ => {}
            }
        }
    };
    timeout(Duration::from_secs(600), shown).await.unwrap();
    began.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn what_nobody_answers_is_asked_again_within_seconds() {
    let script = Script::of([
        hung(),
        closed(200, [bookmark(5, true)]),
        hung(),
        hung(),
        open([event("ADDED", &pod("a", 6))]),
    ]);
    let mut changes = watched(&script);
    let listed = until_shown(&mut changes, "synced").await;
    assert!((15..=16).contains(&listed), "a list after {listed} s");
    let resumed = until_shown(&mut changes, "a").await;
    assert!((15..=18).contains(&resumed), "a watch after 5 s, and again after 10 s: {resumed} s");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_dead_is_opened_again_and_an_idle_one_costs_little() {
    let dead = Script::of([open([bookmark(5, true)]), open([event("ADDED", &pod("a", 6))]), open([])]);
    let mut changes = watched(&dead);
    until_shown(&mut changes, "synced").await;
    let shown = until_shown(&mut changes, "a").await;
    assert!((20..=21).contains(&shown), "{shown} s");
    let requests = || dead.requests.lock().unwrap().len();
    let before = requests();
    sleep(Duration::from_secs(60)).await;
    assert!((1..=4).contains(&(requests() - before)), "{} requests in a minute", requests() - before);
}

/// The version of a watch that is opened again and again must not grow too old to resume from.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_briefly_for_a_bookmark() {
    let brief = Scene { lasts: Duration::from_secs(16), ..closed(200, [bookmark(90, false)]) };
    let scenes =
        [open([bookmark(5, true)]), brief, open([]), open([event("ADDED", &pod("a", 99))]), open([])];
    let script = Script::of(scenes);
    let mut changes = watched(&script);
    until_shown(&mut changes, "synced").await;
    until_shown(&mut changes, "a").await;
    let requests = script.requests.lock().unwrap().clone();
    let of = |name: &str| -> Vec<String> {
        let values =
            requests.iter().filter_map(|query| query.split('&').find_map(|pair| pair.strip_prefix(name)));
        values.map(str::to_owned).collect()
    };
    assert_eq!(of("timeoutSeconds="), ["247", "16", "247", "16"]);
    assert_eq!(of("resourceVersion="), ["5", "90", "90"]);
}

/// A proxy may begin with an error and send no more.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_never_ends_is_given_up() {
    let stalled = Scene { code: 503, ..open(["{".to_owned()]) };
    let script = Script::of([stalled, open([bookmark(5, true)])]);
    let listed = until_shown(&mut watched(&script), "synced").await;
    assert!((15..=16).contains(&listed), "{listed} s");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_silent_for_a_while_goes_on() {
    let script = Script::of([
        Scene {
            lasts: Duration::from_secs(12),
            pieces: vec![Ok(Bytes::from(event("ADDED", &pod("a", 3))))],
            ..closed(200, [])
        },
        open([bookmark(5, true)]),
    ]);
    let listed = until_shown(&mut watched(&script), "synced").await;
    assert!((12..=13).contains(&listed), "not before the list broke: {listed} s");
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_that_cuts_idle_connections_costs_no_growing_pauses() {
    let cut = || Scene { lasts: Duration::from_secs(15), ..closed(200, []) };
    let scenes =
        std::iter::once(Scene { lasts: Duration::from_secs(15), ..closed(200, [bookmark(5, true)]) });
    let script =
        Script::of(scenes.chain((0..20).map(|_| cut())).chain([open([event("ADDED", &pod("a", 6))])]));
    let mut changes = watched(&script);
    let shown = until_shown(&mut changes, "a").await;
    assert!((315..=327).contains(&shown), "21 cuts, and 500 ms at most after each: {shown} s");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_cannot_ask_for_hours_of_patience() {
    let busy = Scene { retry_after: 86_400, ..refused(429) };
    let script = Script::of([busy, open([bookmark(5, true)])]);
    let listed = until_shown(&mut watched(&script), "synced").await;
    assert!((30..=31).contains(&listed), "{listed} s");
}

/// A decoder that panics once, at the version of object `b`.
#[derive(Clone)]
struct Shaky;

impl Decoder for Shaky {
    type Wire<'a> = Value;
    type Object = String;

    fn observe(&self, object: Value) -> Result<String, DecodeError> {
        Ok(object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
    }

    fn version(name: &String) -> u64 {
        static HAS_PANICKED: AtomicBool = AtomicBool::new(false);
        assert!(name != "b" || HAS_PANICKED.swap(true, Ordering::Relaxed), "as planned");
        6
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_panics_begins_with_a_list() {
    let script = Script::of([
        open([event("ADDED", &pod("a", 3)), bookmark(5, true), event("ADDED", &pod("b", 6))]),
        open([event("ADDED", &pod("a", 3)), event("ADDED", &pod("b", 6)), bookmark(7, true)]),
    ]);
    let (selection, metrics) = (Selection::all(Resource::PODS), Arc::new(Metrics::new()));
    let changes = watch(Arc::new(script.clone()), selection, Shaky, metrics, 7);
    let seen: Vec<Change<String>> = changes.take(7).collect().await;
    let listed = |name: &str| Change::Listed(name.to_owned());
    let synced = |version| Change::Synced { version };
    let expected =
        [Change::Restarted, listed("a"), synced(5), Change::Restarted, listed("a"), listed("b"), synced(7)];
    assert_eq!(seen, expected);
}
