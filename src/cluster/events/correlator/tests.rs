#![allow(clippy::unwrap_used)]

use rand::SeedableRng as _;

use super::memory::MOST;
use super::*;
use crate::job::uid::Uid;

/// An Event of an object, at a second.
fn event(object: usize, second: i64) -> Event {
    Event {
        about: JobId::new("n".into(), "j".into(), format!("uid-{object}").into()),
        kind: EventType::Normal,
        reason: "Completed".into(),
        message: "Job completed".into(),
        at: Timestamp::from_second(second).unwrap(),
        must: false,
    }
}

fn correlator() -> EventCorrelator {
    EventCorrelator::new("test", SmallRng::seed_from_u64(1))
}

fn note(correlator: &mut EventCorrelator, event: Event) {
    assert!(correlator.note(event));
}

/// A Warning about an object of a namespace, with a long message.
fn long(namespace: &str, object: usize, second: i64) -> Event {
    let about = JobId::new(namespace.into(), "j".into(), format!("{namespace}-{object}").as_str().into());
    Event { about, kind: EventType::Warning, message: "m".repeat(1024).into(), ..event(object, second) }
}

#[test]
fn a_limited_memory_is_taken_from_the_namespace_with_most_but_never_from_a_write_that_waits_or_is_under_way()
{
    let mut correlator = correlator();
    let sent = |correlator: &mut EventCorrelator, event: Event| {
        note(correlator, event);
        let write = correlator.next_write().unwrap();
        correlator.delivered(write, Delivery::Sent);
    };
    sent(&mut correlator, long("good", 0, 0));
    note(&mut correlator, event(0, 0));
    let slow = correlator.next_write().unwrap();
    note(&mut correlator, event(1, 0));
    for object in 2..20_000 {
        sent(&mut correlator, long("bad", object, object as i64));
        assert!(correlator.memory.total() <= MOST + 4096);
    }
    assert!(correlator.memory.total() >= MOST / 3);
    let known: usize = correlator.objects.values().map(|object| object.bytes).sum();
    assert_eq!(correlator.memory.total(), known);
    assert!(correlator.objects.contains_key(&"good-0".into()), "its namespace has little");
    for object in [0, 1] {
        note(&mut correlator, event(object, 1));
    }
    correlator.delivered(slow, Delivery::Sent);
    for (object, covered) in [("uid-1", 2), ("uid-0", 1)] {
        let write = correlator.next_write().unwrap();
        assert_eq!((write.series.about.uid(), write.covered), (&object.into(), covered));
        correlator.delivered(write, Delivery::Sent);
    }
    assert!(correlator.next_write().is_none());
}

#[test]
fn the_memory_of_many_namespaces_is_limited_too() {
    let mut correlator = correlator();
    for number in 0..20_000 {
        note(&mut correlator, long(&format!("n{number}"), number, number as i64));
        let write = correlator.next_write().unwrap();
        correlator.delivered(write, Delivery::Sent);
        assert!(correlator.memory.total() <= MOST + 4096);
    }
}

/// The writes of all Events that wait, as (object, Events covered), the first of which is
/// in flight since before.
fn writes(correlator: &mut EventCorrelator, first: Option<EventWrite>) -> Vec<(Uid, usize)> {
    let (mut written, mut under_way) = (Vec::new(), first);
    while let Some(write) = under_way.take().or_else(|| correlator.next_write()) {
        written.push((write.series.about.uid().clone(), write.covered));
        correlator.delivered(write, Delivery::Sent);
    }
    written
}

#[test]
fn where_many_wait_an_object_costs_a_few_writes() {
    for (objects, is_slow) in [(5, false), (40, true)] {
        let mut correlator = correlator();
        note(&mut correlator, created(0, 0));
        let slow = correlator.next_write();
        for object in 0..objects {
            (1..25).for_each(|pod| note(&mut correlator, created(object, pod)));
        }
        let written = writes(&mut correlator, slow);
        assert_eq!(written.iter().map(|(_, covered)| covered).sum::<usize>(), 1 + 24 * objects);
        let [first, last] = if is_slow { [2, 1] } else { [SIMILAR; 2] };
        for (object, expected) in [(0, first), (objects - 1, last)] {
            let uid = format!("uid-{object}").as_str().into();
            let of_object = written.iter().filter(|(about, _)| *about == uid).count();
            assert_eq!(of_object, expected, "{object} of {objects}");
        }
    }
}

/// A correlator with a write in flight and a backlog of as many objects that similar
/// Events are combined.
fn backlog() -> (EventCorrelator, Option<EventWrite>) {
    let mut correlator = correlator();
    correlator.encoding = Encoding::Json;
    note(&mut correlator, created(0, 0));
    let slow = correlator.next_write();
    (1..=BACKLOG).for_each(|object| note(&mut correlator, created(object, 1)));
    (correlator, slow)
}

/// Pod `pod` of an object was created, at that second.
fn created(object: usize, pod: i64) -> Event {
    Event { message: format!("Created pod: {pod}").into(), ..event(object, pod) }
}

#[test]
fn where_many_wait_two_of_an_object_become_one_in_the_place_of_the_first() {
    let (mut correlator, slow) = backlog();
    for pod in [3, 2] {
        (1..=BACKLOG).rev().for_each(|object| note(&mut correlator, created(object, pod)));
    }
    correlator.delivered(slow.unwrap(), Delivery::Sent);
    for object in 1..=BACKLOG {
        let write = correlator.next_write().unwrap();
        let Write::CreateEvent { body, .. } = &write.write else { panic!("{write:?}") };
        let body: serde_json::Value = serde_json::from_slice(body).unwrap();
        assert_eq!((&*write.series.about.uid().to_string(), write.covered), (&*format!("uid-{object}"), 3));
        assert_eq!(body["message"], "(combined from similar events): Created pod: 3");
        assert_eq!(body["count"], 3);
        assert_eq!(body["firstTimestamp"], "1970-01-01T00:00:01Z");
        assert_eq!(body["lastTimestamp"], "1970-01-01T00:00:03Z");
        correlator.delivered(write, Delivery::Sent);
    }
    assert!(correlator.next_write().is_none());
}

#[test]
fn where_many_wait_an_equal_one_is_counted_alone_and_what_must_be_delivered_is_never_combined() {
    let (mut correlator, slow) = backlog();
    note(&mut correlator, created(1, 1));
    note(&mut correlator, Event { must: true, ..created(1, 5) });
    let written = writes(&mut correlator, slow);
    let of_first = written.iter().filter(|(about, _)| *about == "uid-1".into());
    assert_eq!(of_first.map(|(_, covered)| *covered).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_limited_number_of_series_of_an_object_is_remembered() {
    let mut correlator = correlator();
    for second in 0..1000 {
        let message = format!("after {second} tries").into();
        let must = Event { must: true, message, ..event(0, second) };
        note(&mut correlator, must);
        let write = correlator.next_write().unwrap();
        correlator.delivered(write, Delivery::Sent);
    }
    assert_eq!(correlator.objects.values().map(|object| object.series.len()).sum::<usize>(), SERIES);
    note(&mut correlator, Event { must: true, message: "after 999 tries".into(), ..event(0, 1000) });
    let Some(EventWrite { write: Write::PatchEvent { .. }, .. }) = correlator.next_write() else {
        panic!("the newest are remembered");
    };
}

#[test]
fn both_encodings_say_the_same() {
    for (kind, message) in [(EventType::Normal, "Job completed"), (EventType::Warning, "\"ö\"\n\u{1F980}")] {
        let Event { about, reason, .. } = event(0, 0);
        let key = SeriesKey { about, class: Class::Must, kind, reason, message: Some(message.into()) };
        let mut series = Series::new(Arc::new(key));
        for at in [1_700_000_000_250, 1_700_000_059_999] {
            (0..150).for_each(|_| series.record(Timestamp::from_millisecond(at).unwrap(), message.into()));
        }
        let body = EventBody { series: &series, name: "j.17a", message, component: "yardmaster" };
        let json: serde_json::Value = serde_json::from_slice(&body.encode(Encoding::Json)).unwrap();
        let protobuf = body.encode(Encoding::Protobuf);
        assert_eq!(json["count"], 300);
        assert_eq!(crate::cluster::events::tests::in_json(&protobuf), json);
        assert_eq!(yardmaster_embedded::decode_protobuf(&protobuf).unwrap(), json);
    }
}
