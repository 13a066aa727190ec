//! The correlator turns Events into writes. It is the pure part of the recorder.
//!
//! The rules are client-go's, except for the last one. Equal Events are counted in one. From the tenth
//! different message on, Events of one object, type and reason are combined into one. If the API server
//! is slow, a write covers all of them that wait. An object has a burst of 25 Events of each
//! type, then one every five minutes. With client-go both types share one burst, and an object that has
//! created many pods has none left for its failures.
//!
//! A write is composed when its turn comes ([`Turns`]), so it covers all Events that were recorded while
//! its series waited.

mod body;
mod memory;

use std::hash::BuildHasher as _;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use rand::rngs::SmallRng;
use serde_json::json;

use self::body::{EventBody, seconds};
use self::memory::Memory;
use super::turns::{Class, Turns};
use super::{Event, EventType};
use crate::cluster::gate::Write;
use crate::cluster::rate::Rate;
use crate::job::job_id::JobId;
use crate::job::manifest::Encoding;
use crate::job::uid::UidMap;

/// Number of different messages of one object, type and reason from which on they are combined ...
const SIMILAR: usize = 10;
/// ... and the silence after which they are counted from zero again.
const SIMILAR_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// Burst of recorded Events of one type about one object ...
const BURST: NonZeroU32 = NonZeroU32::new(25).unwrap();
/// ... and the time after which one more is allowed.
const REFILL: Duration = Duration::from_secs(300);
/// Bytes that an object takes without its series, and a series without its message.
const OBJECT: usize = 1024;
const ONE_SERIES: usize = 256;
/// Number of series of one object that are remembered. When there are more, the one with the oldest Event is forgotten.
const SERIES: usize = 32;
/// Length of the dot and random digits at the end of an Event name.
const SUFFIX: usize = 17;
/// Longest name of an object.
const NAME: usize = 253;

/// If this many writes of Normal Events wait, the API server is slow. Then the next write combines the
/// waiting Events of one object, type and reason, however few they are. So an object costs the API server a
/// few writes instead of [`SIMILAR`].
const BACKLOG: usize = 100;

/// The outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The API server has the Event.
    Sent,
    /// The Event to patch has expired and must be created again.
    Expired,
    /// The Event was refused in protobuf, and may be created in JSON.
    RefusedInProtobuf,
    /// The write failed, and will not be retried.
    Failed,
}

/// A write of one series.
#[derive(Clone, Debug)]
pub(super) struct EventWrite {
    pub(super) series: Arc<SeriesKey>,
    pub(super) write: Write,
    /// Number of recorded Events that it covers.
    pub(super) covered: usize,
}

/// The common properties of recorded Events that become one Event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) about: JobId,
    pub(super) class: Class,
    kind: EventType,
    reason: Box<str>,
    /// Absent in a combined series.
    message: Option<Box<str>>,
}

/// Recorded Events that become one Event.
#[derive(Debug)]
struct Series {
    key: Arc<SeriesKey>,
    message: Box<str>,
    count: u32,
    first: Timestamp,
    last: Timestamp,
    /// Name of the Event in the API server, once it has been sent.
    name: Option<Box<str>>,
    /// The series waits for its turn, or a write is in flight. There is no other until it ends.
    busy: bool,
    /// Number of recorded Events that no write has covered yet.
    unsent: usize,
}

/// The Events of one object.
#[derive(Debug)]
struct ObjectEvents {
    namespace: Arc<str>,
    /// Bytes that are remembered of it.
    bytes: usize,
    normal: Option<Rate>,
    warnings: Option<Rate>,
    similar: HashMap<(EventType, Box<str>), Similar>,
    series: HashMap<Arc<SeriesKey>, Series>,
}

/// Different messages of one type and reason.
#[derive(Debug)]
struct Similar {
    /// Their hashes.
    messages: HashSet<u64>,
    last: Timestamp,
}

/// Correlates the Events of all objects with recent Events.
#[derive(Debug)]
pub(super) struct EventCorrelator {
    component: Box<str>,
    random: SmallRng,
    objects: UidMap<ObjectEvents>,
    memory: Memory,
    turns: Turns<Arc<SeriesKey>>,
    /// The encoding of Events that are created.
    encoding: Encoding,
}

impl EventCorrelator {
    pub(super) fn new(component: &str, random: SmallRng) -> Self {
        Self {
            component: component.into(),
            random,
            objects: UidMap::default(),
            memory: Memory::default(),
            turns: Turns::default(),
            encoding: Encoding::Protobuf,
        }
    }

    /// Forgets all Events and writes, but not their encoding.
    pub(super) fn clear(&mut self) {
        self.objects = UidMap::default();
        self.memory = Memory::default();
        self.turns = Turns::default();
    }

    /// Records an Event, which a write will cover. Returns false if it was dropped, since there were too many
    /// about this object.
    pub(super) fn note(&mut self, event: Event) -> bool {
        self.sweep();
        let object = self.objects.entry(event.about.uid().clone()).or_insert_with(|| ObjectEvents {
            namespace: event.about.namespace().clone(),
            bytes: 0,
            normal: Rate::per_period(REFILL, BURST),
            warnings: Rate::per_period(REFILL, BURST),
            similar: HashMap::new(),
            series: HashMap::new(),
        });
        let combined = !event.must && object.joins_many(&event);
        let key = SeriesKey {
            class: Class::of(&event),
            about: event.about,
            kind: event.kind,
            reason: event.reason,
            message: (!combined).then(|| event.message.clone()),
        };
        let rate = match event.kind {
            EventType::Normal => &object.normal,
            EventType::Warning => &object.warnings,
        };
        let allowed = event.must || rate.as_ref().is_none_or(Rate::try_take);
        if !allowed {
            return false;
        }
        let key = Arc::new(key);
        object.make_room_for(&key);
        let series = object.series.entry(key.clone()).or_insert_with(|| Series::new(key));
        series.record(event.at, event.message);
        let (key, was_busy) = (series.key.clone(), std::mem::replace(&mut series.busy, true));
        let (namespace, uid) = (key.about.namespace(), key.about.uid());
        let bytes = object.weigh();
        let before = std::mem::replace(&mut object.bytes, bytes);
        self.memory.change(&object.namespace, before, object.bytes);
        if !was_busy {
            self.turns.push(key.class, namespace, uid, key.clone());
        }
        true
    }

    /// Takes the next write to send, if there is one whose turn has come.
    pub(super) fn next_write(&mut self) -> Option<EventWrite> {
        while let Some(key) = self.turns.next() {
            let is_slow = key.class == Class::Normal && self.turns.waiting() >= BACKLOG;
            let object = self.objects.get_mut(key.about.uid());
            match object.and_then(|object| object.next(&key, is_slow)) {
                Some(series) if series.unsent > 0 => {
                    return Some(series.write(&self.component, self.encoding, &mut self.random));
                }
                // Its Events were merged into another series.
                _ => self.turns.end(key.class, key.about.namespace()),
            }
        }
        None
    }

    /// Drops the Events of this class and namespace that have waited longest. Returns how many recorded ones are lost with
    /// that; `None` if none wait.
    pub(super) fn drop_oldest(&mut self, class: Class, namespace: &Arc<str>) -> Option<usize> {
        let key = self.turns.take_oldest(class, namespace)?;
        let series = self.objects.get_mut(key.about.uid()).and_then(|object| object.series.get_mut(&key));
        Some(series.map_or(0, |series| {
            series.busy = false;
            std::mem::take(&mut series.unsent)
        }))
    }

    /// Takes the outcome of a write. If there is more to write of its series, it waits for another turn.
    pub(super) fn delivered(&mut self, write: EventWrite, delivery: Delivery) {
        self.turns.end(write.series.class, write.series.about.namespace());
        if delivery == Delivery::RefusedInProtobuf {
            self.encoding = Encoding::Json;
        }
        let object = self.objects.get_mut(write.series.about.uid());
        let Some(series) = object.and_then(|object| object.series.get_mut(&write.series)) else { return };
        match delivery {
            Delivery::Sent => {}
            Delivery::Expired | Delivery::RefusedInProtobuf => {
                series.name = None;
                series.unsent += write.covered;
            }
            // A failed creation has created nothing under this name.
            Delivery::Failed if matches!(write.write, Write::CreateEvent { .. }) => series.name = None,
            Delivery::Failed => {}
        }
        series.busy = series.unsent > 0;
        if series.busy {
            let (namespace, uid) = (write.series.about.namespace(), write.series.about.uid());
            self.turns.push(write.series.class, namespace, uid, write.series.clone());
        }
    }

    /// Forgets the objects of the namespaces that use most, until half of the memory is free. Objects with a
    /// write that waits or is in flight stay.
    fn sweep(&mut self) {
        if !self.memory.needs_sweep() {
            return;
        }
        let largest = self.memory.largest();
        self.objects.retain(|_, object| {
            let is_kept =
                !largest.contains(&object.namespace) || object.series.values().any(|series| series.busy);
            if !is_kept {
                self.memory.change(&object.namespace, object.bytes, 0);
            }
            is_kept
        });
        self.memory.swept();
    }
}

impl ObjectEvents {
    /// Counts the Event among similar ones. Returns whether enough are similar that it joins a combined
    /// series.
    fn joins_many(&mut self, event: &Event) -> bool {
        let similar = self
            .similar
            .entry((event.kind, event.reason.clone()))
            .or_insert_with(|| Similar { messages: HashSet::new(), last: event.at });
        if event.at.duration_since(similar.last) > SIMILAR_WINDOW {
            similar.messages.clear();
        }
        similar.last = event.at;
        if similar.messages.len() < SIMILAR {
            similar.messages.insert(similar.messages.hasher().hash_one(&event.message));
        }
        similar.messages.len() >= SIMILAR
    }

    /// Bytes that are remembered. A message is a part of its series and of the key of that.
    fn weigh(&self) -> usize {
        OBJECT + self.series.values().map(|series| ONE_SERIES + 2 * series.message.len()).sum::<usize>()
    }

    /// Forgets the series with the oldest Event when there are too many, except those with a write that
    /// waits or is in flight.
    fn make_room_for(&mut self, new: &SeriesKey) {
        if self.series.len() < SERIES || self.series.contains_key(new) {
            return;
        }
        let idle = self.series.values().filter(|series| !series.busy);
        if let Some(oldest) = idle.min_by_key(|series| series.last).map(|series| series.key.clone()) {
            self.series.remove(&oldest);
        }
    }

    /// The series whose turn has come. If the API server `is_slow`, all Events with its reason that wait become
    /// one series, except those that the API server has already.
    fn next(&mut self, key: &Arc<SeriesKey>, is_slow: bool) -> Option<&mut Series> {
        let waits = |series: &Series| {
            let is_similar = series.key.class == key.class && series.key.reason == key.reason;
            is_similar && series.unsent > 0 && (series.key.message.is_none() || series.name.is_none())
        };
        let is_merged = is_slow
            && self.series.get(key).is_none_or(waits)
            && self.series.values().filter(|series| waits(series)).count() > 1;
        if !is_merged {
            return self.series.get_mut(key);
        }
        let parts = self.series.extract_if(|key, series| key.message.is_some() && waits(series));
        let parts: Vec<Series> = parts.map(|(_, part)| part).collect();
        let key = Arc::new(SeriesKey { message: None, ..(**key).clone() });
        let merged = self.series.entry(key.clone()).or_insert_with(|| Series::new(key));
        parts.into_iter().for_each(|part| merged.merge(part));
        Some(merged)
    }
}

impl Series {
    fn new(key: Arc<SeriesKey>) -> Self {
        Self {
            key,
            message: "".into(),
            count: 0,
            first: Timestamp::MAX,
            last: Timestamp::MIN,
            name: None,
            busy: false,
            unsent: 0,
        }
    }

    fn record(&mut self, at: Timestamp, message: Box<str>) {
        (self.count, self.unsent, self.message) = (self.count + 1, self.unsent + 1, message);
        (self.first, self.last) = (self.first.min(at), self.last.max(at));
    }

    /// Merges a series that waits. The latest message stays.
    fn merge(&mut self, other: Self) {
        if (other.last, &other.message) > (self.last, &self.message) {
            self.message = other.message;
        }
        (self.count, self.unsent, self.busy) = (self.count + other.count, self.unsent + other.unsent, true);
        (self.first, self.last) = (self.first.min(other.first), self.last.max(other.last));
    }

    /// A write that covers all unsent Events: a creation, or a patch of the Event that exists.
    fn write(&mut self, component: &str, encoding: Encoding, random: &mut SmallRng) -> EventWrite {
        let namespace = self.key.about.namespace().clone();
        let message = match self.key.message {
            Some(_) => self.message.clone(),
            None => format!("(combined from similar events): {}", self.message).into(),
        };
        let write = match &self.name {
            Some(name) => {
                let patch =
                    json!({"count": self.count, "lastTimestamp": seconds(self.last), "message": message});
                Write::PatchEvent { namespace, name: name.clone(), body: patch.to_string().into() }
            }
            None => {
                let about = &**self.key.about.name();
                let stem = about.get(..NAME - SUFFIX).unwrap_or(about).trim_end_matches('.');
                // The time distinguishes names from those of an earlier process with the same seed, the rest those of
                // the Events of one moment.
                let mark = (self.last.as_nanosecond() as u64) ^ u64::from(random.random::<u32>());
                let name: Box<str> = format!("{stem}.{mark:016x}").into();
                let body = EventBody { series: self, name: &name, message: &message, component };
                let body = body.encode(encoding);
                self.name = Some(name);
                Write::CreateEvent { namespace, body, encoding }
            }
        };
        let covered = std::mem::take(&mut self.unsent);
        EventWrite { series: self.key.clone(), write, covered }
    }
}

#[cfg(test)]
mod tests;
