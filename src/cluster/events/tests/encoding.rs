//! Protobuf, and JSON where protobuf is refused.

use super::*;

impl Store {
    /// The content types of creations since the last call.
    fn formats(&self) -> Vec<String> {
        std::mem::take(&mut *self.formats.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn where_protobuf_is_refused_events_are_created_in_json() {
    for code in [400, 406, 415] {
        let bench = bench_of(Duration::from_millis(20), Some(code));
        bench.recorder.record(event("Created", "m", 0));
        bench.recorder.flush().await;
        assert_eq!(bench.store.formats(), [PROTOBUF, JSON], "{code}");
        for kind in [EventType::Normal, EventType::Warning] {
            for job in 1..20 {
                bench.recorder.record(event_of(job, "Next", kind));
            }
        }
        bench.recorder.record(Event { must: true, ..event("Completed", "m", 0) });
        bench.recorder.record(event("Created", "m", 9));
        bench.recorder.flush().await;
        assert_eq!(bench.store.formats(), vec![JSON; 2 * 19 + 1], "{code}");
        let stored = bench.store.stored();
        assert_eq!(stored.len(), 2 + 2 * 19, "{code}");
        assert_eq!(stored[0], ("Created".into(), "m".into(), 2), "{code}");
        assert_eq!(bench.lost(LostEvent::Refused), 0, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_that_were_under_way_in_protobuf_are_repeated_once_each() {
    let bench = bench_of(Duration::from_millis(20), Some(415));
    for job in 0..10 {
        bench.recorder.record(event_of(job, "Failed", EventType::Warning));
        bench.recorder.record(Event { must: true, ..event_of(job, "Completed", EventType::Normal) });
    }
    bench.recorder.flush().await;
    let formats = bench.store.formats();
    assert!(formats.iter().filter(|format| **format == *PROTOBUF).count() <= 20, "{formats:?}");
    assert_eq!(formats.iter().filter(|format| **format == *JSON).count(), 20, "{formats:?}");
    assert_eq!(bench.store.stored().len(), 20);
}

/// Content that was read would be refused in any encoding.
#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_content_is_not_repeated() {
    let bench = bench();
    bench.store.refusals.lock().unwrap().extend([422]);
    bench.recorder.record(Event { must: true, ..event("Completed", "m", 0) });
    bench.recorder.flush().await;
    assert_eq!((*bench.store.writes.lock().unwrap(), bench.lost(LostEvent::Refused)), (1, 1));
    bench.recorder.record(event("Created", "m", 0));
    bench.recorder.flush().await;
    assert_eq!(bench.store.formats(), [PROTOBUF]);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_refused_in_both_encodings_is_lost() {
    let bench = bench();
    bench.store.refusals.lock().unwrap().extend([400, 400]);
    bench.recorder.record(Event { must: true, ..event("Completed", "m", 0) });
    bench.recorder.flush().await;
    assert_eq!((*bench.store.writes.lock().unwrap(), bench.lost(LostEvent::Refused)), (2, 1));
}
