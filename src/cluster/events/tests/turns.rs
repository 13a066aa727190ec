//! Which Events wait for which.

use tokio::time::Instant;

use super::*;
use crate::cluster::events::turns::{Class, Turns};

/// The length of client-go's queue.
const NORMAL: usize = 1000;
const WARNINGS: usize = 4096;
const ENDS: usize = 1000;

/// An Event of a Job of its own, in a namespace.
fn in_namespace(namespace: &str, job: usize, reason: &str, kind: EventType) -> Event {
    let uid = format!("{namespace}{job}");
    let about = JobId::new(namespace.into(), "j".into(), uid.as_str().into());
    Event { about, ..event_of(job, reason, kind) }
}

#[tokio::test(start_paused = true)]
async fn normal_events_are_sent_one_at_a_time_and_hold_up_no_warnings_and_no_ends() {
    let answer = Duration::from_secs(1);
    let (bench, began) = (bench_with(answer), Instant::now());
    for job in 0..5000 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
    }
    bench.recorder.record(event_of(5000, "Failed", EventType::Warning));
    bench.recorder.record(Event { must: true, ..event_of(5001, "Completed", EventType::Normal) });
    sleep(answer + Duration::from_millis(1)).await;
    let stored = bench.store.stored();
    for reason in ["Failed", "Completed"] {
        assert!(stored.iter().any(|event| event.0 == reason), "{reason}: {stored:?}");
    }
    bench.recorder.flush().await;
    assert_eq!(bench.store.most_under_way("Created"), 1);
    assert!(began.elapsed() >= answer * NORMAL as u32, "{:?}", began.elapsed());
    assert_eq!(bench.store.stored().len(), NORMAL + 2);
    assert_eq!(bench.lost(LostEvent::QueueFull), 5000 - NORMAL as u64);
    bench.recorder.record(event_of(5002, "Created", EventType::Normal));
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), NORMAL + 3, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn warnings_are_sent_together_and_have_a_queue_of_their_own() {
    let answer = Duration::from_millis(20);
    let (bench, began) = (bench_with(answer), Instant::now());
    for job in 0..WARNINGS + 10 {
        bench.recorder.record(event_of(job, "Failed", EventType::Warning));
    }
    for job in 0..10 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
        bench.recorder.record(Event { must: true, ..event_of(job, "Completed", EventType::Normal) });
    }
    bench.recorder.flush().await;
    assert_eq!(bench.lost(LostEvent::QueueFull), 10);
    assert_eq!(bench.store.stored().len(), WARNINGS + 20);
    assert!(bench.store.most_under_way("Failed") > 1);
    assert!(began.elapsed() < answer * WARNINGS as u32 / 4, "{:?}", began.elapsed());
}

/// In one namespace, all writes hang while Jobs finish there; Events of others are sent.
#[tokio::test(start_paused = true)]
async fn events_that_hang_in_a_namespace_are_bounded_and_cost_no_other_its_own() {
    let bench = bench_in(GateConfig::default(), Duration::from_millis(20), None);
    *bench.store.hangs.lock().unwrap() = Some("bad");
    for job in 0..20_000 {
        bench.recorder.record(in_namespace("bad", job, "Failed", EventType::Warning));
        let end = in_namespace("bad", job, "Completed", EventType::Normal);
        bench.recorder.record(Event { must: true, ..end });
        if job % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sleep(Duration::from_millis(100)).await;
    assert!(bench.recorder.unsent() <= WARNINGS + ENDS, "{}", bench.recorder.unsent());
    let lost = 40_000 - (WARNINGS + ENDS) as u64;
    assert!(bench.lost(LostEvent::QueueFull) >= lost, "{}", bench.lost(LostEvent::QueueFull));
    for job in 0..50 {
        bench.recorder.record(in_namespace("good", job, "Failed", EventType::Warning));
        let end = in_namespace("good", job, "Completed", EventType::Normal);
        bench.recorder.record(Event { must: true, ..end });
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(bench.store.stored().len(), 100);
}

/// Ends that wait behind others of their namespace: the newest are kept.
#[tokio::test(start_paused = true)]
async fn of_too_many_ends_in_a_namespace_the_oldest_are_lost() {
    let bench = bench();
    for job in 0..ENDS + 10 {
        bench.recorder.record(Event { must: true, ..event_of(job, &job.to_string(), EventType::Normal) });
    }
    bench.recorder.flush().await;
    let stored = bench.store.stored();
    assert_eq!((stored.len(), bench.lost(LostEvent::QueueFull)), (ENDS, 10));
    let has = |job: usize| stored.iter().any(|event| event.0 == job.to_string());
    assert!(has(ENDS + 9) && !has(70), "the first are under way before there are too many");
}

/// A namespace may have all the room until others need it.
#[tokio::test(start_paused = true)]
async fn where_there_are_too_many_the_namespace_with_most_loses_some() {
    let bench = bench();
    let mut recorded = 0;
    for (namespace, events) in [("a", 1000), ("b", 250), ("c", 20)] {
        for job in 0..events {
            bench.recorder.record(in_namespace(namespace, job, namespace, EventType::Normal));
            recorded += 1;
        }
    }
    bench.recorder.flush().await;
    let stored = bench.store.stored();
    let of = |namespace: &str| stored.iter().filter(|event| event.0 == namespace).count();
    assert_eq!((stored.len(), bench.lost(LostEvent::QueueFull)), (1000, recorded - 1000));
    assert_eq!((of("a"), of("b"), of("c")), (730, 250, 20));
}

#[tokio::test(start_paused = true)]
async fn equal_events_share_a_write_while_they_wait() {
    let bench = bench();
    bench.recorder.record(event_of(0, "Created", EventType::Normal));
    for _ in 0..5 {
        bench.recorder.record(event_of(1, "Suspended", EventType::Normal));
    }
    bench.recorder.flush().await;
    let [first, second] = ["Created", "Suspended"].map(String::from);
    assert_eq!(bench.store.stored(), [(first, "m".into(), 1), (second, "m".into(), 5)]);
    assert_eq!(*bench.store.writes.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_turn_passes_on_after_failures_expiry_and_lost_answers() {
    let bench = bench();
    for job in 0..3 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
    }
    bench.recorder.flush().await;
    // The Event of the first Job has expired, that of the second is refused, the answer for the third is lost.
    bench.store.events.lock().unwrap().clear();
    bench.store.refusals.lock().unwrap().extend([404, 422, 503, 429]);
    for job in 0..6 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
    }
    bench.recorder.flush().await;
    assert_eq!(bench.store.most_under_way("Created"), 1);
    let counts: Vec<u64> = bench.store.stored().into_iter().map(|event| event.2).collect();
    assert_eq!(counts, [1, 1, 2], "of Jobs 4 and 5, and at last of Job 0, created again");
    assert_eq!((bench.lost(LostEvent::Refused), bench.lost(LostEvent::QueueFull)), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_never_answered_gives_its_turn_back() {
    let timeout = GateConfig::default().timeout;
    let (bench, began) = (bench_with(2 * timeout), Instant::now());
    for job in 0..3 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
    }
    bench.recorder.flush().await;
    assert_eq!(bench.lost(LostEvent::Refused), 3);
    assert!((3 * timeout..4 * timeout).contains(&began.elapsed()), "{:?}", began.elapsed());
}

/// With the window that a gate begins with.
#[tokio::test(start_paused = true)]
async fn a_webhook_that_hangs_holds_up_no_events_of_other_namespaces() {
    let in_namespace =
        |namespace: &str, job, kind: EventType| in_namespace(namespace, job, kind.as_str(), kind);
    let bench = bench_in(GateConfig::default(), Duration::from_millis(20), None);
    *bench.store.hangs.lock().unwrap() = Some("bad");
    for job in 0..10 {
        bench.recorder.record(in_namespace("bad", job, EventType::Normal));
    }
    sleep(Duration::from_millis(100)).await;
    for job in 0..10 {
        bench.recorder.record(in_namespace("n", job, EventType::Normal));
        bench.recorder.record(in_namespace("n", job + 10, EventType::Warning));
    }
    sleep(Duration::from_millis(300)).await;
    assert_eq!(bench.store.stored().len(), 20);
    assert_eq!(bench.store.most_under_way("Normal"), 2, "one of each namespace");
    // Its reports hang, too, and there are more Normal Events than have room.
    for job in 100..2000 {
        let event = in_namespace("bad", job, EventType::Normal);
        bench.recorder.record(if job < 120 { Event { must: true, ..event } } else { event });
    }
    sleep(Duration::from_secs(60)).await;
    for job in 100..110 {
        bench.recorder.record(in_namespace("n", job, EventType::Normal));
    }
    sleep(Duration::from_secs(3)).await;
    assert_eq!(bench.store.stored().len(), 30);
}

/// However many namespaces have Events, and however slow their writes are.
#[test]
fn a_namespace_has_a_turn_whatever_others_have_in_flight() {
    let mut turns = Turns::default();
    let namespaces: [Arc<str>; 3] = ["a", "b", "c"].map(Arc::from);
    for namespace in &namespaces {
        for item in 0..100 {
            turns.push(Class::Normal, namespace, &"o".into(), (namespace.clone(), item));
            turns.push(Class::Warning, namespace, &"o".into(), (namespace.clone(), 1000 + item));
        }
    }
    let taken: Vec<(Arc<str>, usize)> = std::iter::from_fn(|| turns.next()).collect();
    for namespace in &namespaces {
        let own = || taken.iter().filter(|(of, _)| of == namespace);
        assert_eq!((own().count(), own().filter(|(_, item)| *item < 1000).count()), (65, 1));
    }
    turns.end(Class::Normal, &namespaces[1]);
    assert_eq!(turns.next(), Some((namespaces[1].clone(), 1)));
    assert_eq!(turns.next(), None);
}

/// A stop waits for reports of failures and ends, and not for long for Events that only inform.
#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_reports() {
    let (bench, began) = (bench_with(Duration::from_millis(900)), Instant::now());
    for job in 0..100 {
        bench.recorder.record(event_of(job, "Created", EventType::Normal));
        bench.recorder.record(event_of(job, "Failed", EventType::Warning));
    }
    bench.recorder.flush_reports(Duration::from_secs(2)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    let stored = bench.store.stored();
    assert_eq!(stored.iter().filter(|event| event.0 == "Failed").count(), 100);
    assert_eq!(bench.recorder.unsent(), 200 - stored.len());
    bench.recorder.flush_reports(Duration::from_secs(1000)).await;
    assert_eq!((bench.store.stored().len(), bench.recorder.unsent()), (200, 0));
}

/// Nothing is sent to a busy API server before it wants to be asked again.
#[tokio::test(start_paused = true)]
async fn events_wait_as_long_as_a_busy_api_server_asks() {
    for (kind, stored) in [(EventType::Normal, 2), (EventType::Warning, 3)] {
        let bench = bench();
        *bench.store.retry_after.lock().unwrap() = Some(20);
        bench.store.refusals.lock().unwrap().extend([429]);
        bench.recorder.record(event_of(0, "First", kind));
        sleep(Duration::from_secs(1)).await;
        bench.recorder.record(event_of(1, "Second", EventType::Normal));
        bench.recorder.record(event_of(2, "Third", EventType::Warning));
        sleep(Duration::from_millis(18_900)).await;
        assert_eq!(*bench.store.writes.lock().unwrap(), 1);
        bench.recorder.flush().await;
        assert_eq!(bench.store.stored().len(), stored, "{kind:?}");
    }
    // Seven had left or had their turn before the first was refused.
    let bench = bench();
    *bench.store.retry_after.lock().unwrap() = Some(20);
    bench.store.refusals.lock().unwrap().extend(vec![429; 7]);
    for job in 0..50 {
        bench.recorder.record(event_of(job, "Failed", EventType::Warning));
    }
    sleep(Duration::from_millis(19_900)).await;
    assert_eq!(*bench.store.writes.lock().unwrap(), 7);
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), 50);
}

/// If priority and fairness queues requests by namespace, one is refused while others are served.
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_refused_holds_up_no_events_of_others() {
    let bench = bench();
    *bench.store.retry_after.lock().unwrap() = Some(20);
    bench.store.refusals.lock().unwrap().extend([429]);
    bench.recorder.record(in_namespace("busy", 0, "First", EventType::Warning));
    sleep(Duration::from_millis(100)).await;
    for namespace in ["busy", "n"] {
        bench.recorder.record(in_namespace(namespace, 1, namespace, EventType::Normal));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.store.stored(), [("n".into(), "m".into(), 1)]);
    bench.recorder.flush().await;
    assert_eq!(bench.store.stored().len(), 3);
}

/// A network that panics once.
struct Panicking {
    panics: Mutex<bool>,
    store: Arc<Store>,
}

impl Transport for Panicking {
    fn open(
        &self,
        request: Request<Bytes>,
    ) -> BoxFuture<'static, Result<Response<ByteStream>, TransportError>> {
        let panics = std::mem::take(&mut *self.panics.lock().unwrap());
        assert!(!panics, "for a test");
        self.store.open(request)
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_panic_what_was_taken_is_lost_and_equal_events_are_sent_again() {
    let Bench { store, metrics, .. } = bench();
    let network = Panicking { panics: Mutex::new(true), store: store.clone() };
    let gate = WriteGate::open(Arc::new(network), wide(), "f", metrics.clone());
    let bench = Bench { store, recorder: Recorder::start(gate, "yardmaster", metrics.clone(), 1), metrics };
    let record = |jobs| {
        for job in 0..jobs {
            bench.recorder.record(event_of(job, "Created", EventType::Normal));
            bench.recorder.record(event_of(job, "Failed", EventType::Warning));
        }
    };
    record(5);
    bench.recorder.flush().await;
    let first = bench.lost(LostEvent::Refused);
    assert!(first > 0);
    assert_eq!(first + bench.store.stored().len() as u64, 10);
    record(5);
    bench.recorder.flush().await;
    let count: u64 = bench.store.stored().iter().map(|event| event.2).sum();
    assert_eq!((count, bench.lost(LostEvent::Refused)), (20 - first, first));
}
