//! Which Events become which writes: the pure part of the recorder.
//!
//! The rules are client-go's: equal Events are counted in one; from the tenth different message on, Events of one
//! object, type and reason are combined into one; and an object has 25 writes at once, then one each five minutes.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use rand::rngs::SmallRng;
use serde::Serialize;
use serde_json::json;

use super::{Event, EventType, ObjectRef};
use crate::cluster::gate::Write;
use crate::cluster::rate::Rate;
use crate::job::json::json_text;
use crate::job::uid::UidMap;

/// Different messages of one object, type and reason from which on they are combined ...
const SIMILAR: usize = 10;
/// ... unless none came for so long.
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Writes about one object at once ...
const BURST: NonZeroU32 = NonZeroU32::new(25).unwrap();
/// ... and the time in which one more becomes free.
const REFILL: Duration = Duration::from_secs(300);
/// Objects that are remembered. When there are more, the half of which nothing was heard for longest is forgotten.
const OBJECTS: usize = 4096;
/// Length of the dot and random digits at the end of an Event name.
const SUFFIX: usize = 17;
/// Longest name of an object.
const NAME: usize = 253;

/// What becomes of a recorded Event.
#[derive(Debug)]
pub(super) enum Noted {
    /// It is to be written.
    Write(EventWrite),
    /// It goes with a later write of its series.
    Merged,
    /// There were too many about this object.
    Spam,
}

/// How a write went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// It is there.
    Sent,
    /// The Event that was to be changed has expired: it has to be made anew.
    Expired,
    /// It was given up.
    Failed,
}

/// A write of one series.
#[derive(Clone, Debug)]
pub(super) struct EventWrite {
    pub(super) series: Arc<SeriesKey>,
    pub(super) write: Write,
    /// Recorded Events that it tells.
    pub(super) covered: usize,
    pub(super) must: bool,
}

/// What Events have in common that are told by one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) about: ObjectRef,
    kind: EventType,
    reason: Box<str>,
    /// `None` in a combined series.
    message: Option<Box<str>>,
}

/// Events told by one.
#[derive(Debug)]
struct Series {
    key: Arc<SeriesKey>,
    message: Box<str>,
    count: u32,
    first: Timestamp,
    last: Timestamp,
    must: bool,
    /// The Event in the API server, once it is there.
    name: Option<Box<str>>,
    /// A write is under way; until it ends no other leaves.
    sending: bool,
    /// Recorded Events that no write has covered yet.
    unsent: usize,
}

/// All about one object.
#[derive(Debug)]
struct Page {
    writes: Option<Rate>,
    similar: HashMap<(EventType, Box<str>), Similar>,
    series: HashMap<Arc<SeriesKey>, Series>,
    last: Timestamp,
}

/// Different messages of one type and reason.
#[derive(Debug)]
struct Similar {
    messages: HashSet<Box<str>>,
    last: Timestamp,
}

/// All objects that Events were recorded about lately.
#[derive(Debug)]
pub(super) struct EventCorrelator {
    component: Box<str>,
    random: SmallRng,
    pages: UidMap<Page>,
    /// Number of pages from which on half of them are forgotten.
    sweep_at: usize,
}

impl EventCorrelator {
    pub(super) fn new(component: &str, random: SmallRng) -> Self {
        Self { component: component.into(), random, pages: UidMap::default(), sweep_at: OBJECTS }
    }

    /// Takes in an Event.
    pub(super) fn note(&mut self, event: Event) -> Noted {
        self.sweep();
        let page = self.pages.entry(event.about.uid.clone()).or_insert_with(|| Page {
            writes: Rate::per_period(REFILL, BURST),
            similar: HashMap::new(),
            series: HashMap::new(),
            last: event.at,
        });
        page.last = page.last.max(event.at);
        let combined = !event.must && page.is_one_of_many(&event);
        let key = SeriesKey {
            about: event.about,
            kind: event.kind,
            reason: event.reason,
            message: (!combined).then(|| event.message.clone()),
        };
        let allowed = event.must || page.writes.as_ref().is_none_or(Rate::try_take);
        if !allowed {
            return Noted::Spam;
        }
        let key = Arc::new(key);
        let series = page.series.entry(key.clone()).or_insert_with(|| Series {
            key,
            message: "".into(),
            count: 0,
            first: event.at,
            last: event.at,
            must: event.must,
            name: None,
            sending: false,
            unsent: 0,
        });
        series.count += 1;
        series.unsent += 1;
        series.last = series.last.max(event.at);
        series.must |= event.must;
        series.message = if combined {
            format!("(combined from similar events): {}", event.message).into()
        } else {
            event.message
        };
        if series.sending {
            Noted::Merged
        } else {
            Noted::Write(series.write(&self.component, &mut self.random))
        }
    }

    /// Takes in how a letter went; the next letter of its series, if something was recorded meanwhile.
    pub(super) fn delivered(&mut self, write: EventWrite, delivery: Delivery) -> Option<EventWrite> {
        let series = self.pages.get_mut(&write.series.about.uid)?.series.get_mut(&write.series)?;
        series.sending = false;
        match delivery {
            Delivery::Sent => {}
            Delivery::Expired => {
                series.name = None;
                series.unsent += write.covered;
            }
            // Nothing was made under this name, if it is a creation.
            Delivery::Failed if matches!(write.write, Write::CreateEvent { .. }) => series.name = None,
            Delivery::Failed => {}
        }
        (series.unsent > 0).then(|| series.write(&self.component, &mut self.random))
    }

    /// Forgets the older half of the objects when there are too many; not those of which something is being sent.
    fn sweep(&mut self) {
        if self.pages.len() < self.sweep_at {
            return;
        }
        let mut heard: Vec<Timestamp> = self.pages.values().map(|page| page.last).collect();
        let middle = heard.len() / 2;
        let (_, middle, _) = heard.select_nth_unstable(middle);
        self.pages.retain(|_, page| page.last > *middle || page.series.values().any(|series| series.sending));
        self.sweep_at = (2 * self.pages.len()).max(OBJECTS);
    }
}

impl Page {
    /// Whether the Event goes into a combined series, since so many similar ones came.
    fn is_one_of_many(&mut self, event: &Event) -> bool {
        let similar = self
            .similar
            .entry((event.kind, event.reason.clone()))
            .or_insert_with(|| Similar { messages: HashSet::new(), last: event.at });
        if event.at.duration_since(similar.last) > SIMILAR_WINDOW {
            similar.messages.clear();
        }
        similar.last = event.at;
        if similar.messages.len() < SIMILAR {
            similar.messages.insert(event.message.clone());
        }
        similar.messages.len() >= SIMILAR
    }
}

impl Series {
    /// A write of all that is unsent: a new Event, or a change of the one that is there.
    fn write(&mut self, component: &str, random: &mut SmallRng) -> EventWrite {
        let namespace = self.key.about.namespace.clone();
        let write = match &self.name {
            Some(name) => {
                let patch = json!({"count": self.count, "lastTimestamp": seconds(self.last), "message": self.message});
                Write::PatchEvent { namespace, name: name.clone(), body: patch.to_string().into() }
            }
            None => {
                let about = &*self.key.about.name;
                let stem = about.get(..NAME - SUFFIX).unwrap_or(about).trim_end_matches('.');
                // The time sets a process apart from the one before it, which may have had the same seed.
                let mark = (self.last.as_nanosecond() as u64) ^ u64::from(random.random::<u16>());
                let name: Box<str> = format!("{stem}.{mark:016x}").into();
                let body = json_text(&self.body(&name, component)).into();
                self.name = Some(name);
                Write::CreateEvent { namespace, body }
            }
        };
        self.sending = true;
        EventWrite {
            series: self.key.clone(),
            write,
            covered: std::mem::take(&mut self.unsent),
            must: self.must,
        }
    }

    fn body<'a>(&'a self, name: &'a str, component: &'a str) -> EventBody<'a> {
        let SeriesKey { about, kind, reason, .. } = &*self.key;
        EventBody {
            api_version: "v1",
            kind: "Event",
            metadata: EventMeta { name, namespace: &about.namespace },
            involved_object: about,
            r#type: kind.as_str(),
            reason,
            message: &self.message,
            count: self.count,
            first_timestamp: seconds(self.first),
            last_timestamp: seconds(self.last),
            source: EventSource { component },
            reporting_component: component,
            reporting_instance: "",
        }
    }
}

/// An Event as the API has it (`v1`).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EventBody<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: EventMeta<'a>,
    involved_object: &'a ObjectRef,
    r#type: &'a str,
    reason: &'a str,
    message: &'a str,
    count: u32,
    first_timestamp: String,
    last_timestamp: String,
    source: EventSource<'a>,
    reporting_component: &'a str,
    reporting_instance: &'a str,
}

#[derive(Serialize)]
struct EventMeta<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Serialize)]
struct EventSource<'a> {
    component: &'a str,
}

fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rand::SeedableRng as _;

    use super::*;

    /// Some object's event at a second.
    fn event(object: usize, second: i64) -> Event {
        Event {
            about: ObjectRef::job(&"n".into(), &"j".into(), &format!("uid-{object}").into()),
            kind: EventType::Normal,
            reason: "Completed".into(),
            message: "Job completed".into(),
            at: Timestamp::from_second(second).unwrap(),
            must: false,
        }
    }

    fn noted(correlator: &mut EventCorrelator, object: usize, second: i64) -> EventWrite {
        match correlator.note(event(object, second)) {
            Noted::Write(write) => write,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn so_many_objects_are_remembered_and_those_of_which_something_is_being_sent() {
        let mut correlator = EventCorrelator::new("test", SmallRng::seed_from_u64(1));
        let slow = noted(&mut correlator, 0, 0);
        for object in 1..3 * OBJECTS {
            let write = noted(&mut correlator, object, object as i64);
            assert!(correlator.delivered(write, Delivery::Sent).is_none());
            assert!(correlator.pages.len() <= OBJECTS);
        }
        assert!(correlator.pages.len() >= OBJECTS / 2);
        assert!(matches!(correlator.note(event(0, 1)), Noted::Merged));
        assert_eq!(correlator.delivered(slow, Delivery::Sent).unwrap().covered, 1);
    }
}
