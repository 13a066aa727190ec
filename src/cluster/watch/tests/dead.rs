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
async fn one_watch_that_was_dead_makes_the_others_begin_anew() {
    let vigil = Vigil::default();
    let follow = |script: &Arc<Script>, seed| {
        let (selection, metrics) = (Selection::all(Resource::PODS), Arc::new(Metrics::new()));
        let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
        watch_together(vigil.clone(), Arc::new(script.clone()), selection, decoder, metrics, seed)
    };
    // Each has withheld an event since the beginning.
    let mut watches = Vec::new();
    for seed in 0..64 {
        let script =
            Script::of([open([bookmark(5, true)]), open([event("ADDED", &pod("a", 6))]), open([]), open([])]);
        watches.push((follow(&script, seed), script));
    }
    for (changes, _) in &mut watches {
        until_shown(changes, "synced").await;
    }
    // Another watch, as that of Leases, shows a newer version.
    vigil.saw(7);
    let began = Instant::now();
    for (changes, _) in &mut watches {
        until_shown(changes, "a").await;
    }
    let took = began.elapsed();
    assert!((20..=22).contains(&took.as_secs()), "all within {took:?}");
    // Idle watches that are well cost little, however many there are.
    let requests = |watches: &[(_, Arc<Script>)]| -> usize {
        watches.iter().map(|(_, script)| script.requests.lock().unwrap().len()).sum()
    };
    let before = requests(&watches);
    sleep(Duration::from_secs(60)).await;
    let more = requests(&watches) - before;
    assert!((20..=61).contains(&more), "{more} requests in a minute");
}

/// The version of a watch that is opened again and again must not grow too old to resume from.
#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_briefly_for_a_bookmark_and_what_is_new_is_no_sign_of_death() {
    let brief = Scene { lasts: Duration::from_secs(16), ..closed(200, [bookmark(90, false)]) };
    let scenes =
        [open([bookmark(5, true)]), brief, open([]), open([event("ADDED", &pod("a", 99))]), open([])];
    let script = Script::of(scenes);
    let vigil = Vigil::default();
    let (selection, metrics) = (Selection::all(Resource::PODS), Arc::new(Metrics::new()));
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let mut changes = watch_together(vigil.clone(), Arc::new(script.clone()), selection, decoder, metrics, 7);
    until_shown(&mut changes, "synced").await;
    vigil.saw(98);
    until_shown(&mut changes, "a").await;
    let requests = script.requests.lock().unwrap().clone();
    let of = |name: &str| -> Vec<String> {
        let values =
            requests.iter().filter_map(|query| query.split('&').find_map(|pair| pair.strip_prefix(name)));
        values.map(str::to_owned).collect()
    };
    assert_eq!(of("timeoutSeconds="), ["247", "16", "247", "16"]);
    assert_eq!(of("resourceVersion="), ["5", "90", "90"]);
    assert!(!vigil.has_suspected(), "what is new was not withheld");
}

/// A proxy may begin with an error and send no more.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_never_ends_is_given_up() {
    let stalled = Scene { code: 503, ..open(["{".to_owned()]) };
    let script = Script::of([stalled, open([bookmark(5, true)])]);
    let listed = until_shown(&mut watched(&script), "synced").await;
    assert!((15..=16).contains(&listed), "{listed} s");
}

/// Suspicion is about watches: a list may be slow.
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
    let vigil = Vigil::default();
    let (selection, metrics) = (Selection::all(Resource::PODS), Arc::new(Metrics::new()));
    let decoder = PodDecoder::new(EXTERNAL_FINALIZER);
    let mut changes = watch_together(vigil.clone(), Arc::new(script.clone()), selection, decoder, metrics, 7);
    let suspect = async {
        sleep(Duration::from_secs(5)).await;
        vigil.suspect();
    };
    let (listed, ()) = tokio::join!(until_shown(&mut changes, "synced"), suspect);
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
