//! The slots of writes in flight: how many there are, and how many each namespace and priority may hold.
//!
//! All writes share one window. Besides, the writes of one namespace of the same kind, its *lane*, have a
//! window that learns by their own answers. The kinds are statuses, patches of pods, deletions, creations and
//! Events. Creations that each ask a webhook take longer than status writes, and say nothing about the API
//! server. If the API server is overloaded, the lanes of creations shrink, and those of other writes do not:
//! writes that end Jobs come first. Failures in one namespace shrink its own windows. The shared window shrinks
//! when writes of most namespaces fail at the same time. A few prove nothing: webhooks can make writes fail,
//! and the lanes of failing namespaces are small anyway.
//!
//! A lane to which the API server has said 429 pauses for as long as that asks, or longer each time. If most
//! namespaces get 429, all writes pause. If [priority and
//! fairness](https://kubernetes.io/docs/concepts/cluster-administration/flow-control/) queues requests by
//! namespace, one namespace is refused while others are served.
//!
//! So that a slot is free for all while calls of some namespaces are slow or hang, these may not hold all of
//! them:
//!
//! | who | leaves free |
//! |---|---|
//! | all but the next two rows | an eighth, but eight at least |
//! | a namespace that holds few slots: less than a 48th, or none | nothing |
//! | Events while fewer than four are in flight | a sixteenth |
//! | creations | a sixteenth, for status, finalizers and deletions |
//! | one namespace | a sixteenth |
//! | creations and progress of one namespace | an eighth; creations that are all late do not count for progress |
//! | Events that report failures and ends | all but an eighth, or but three of twelve and more; and one place of their lane |
//! | Events that only inform | all but as many |
//! | Events of one namespace | one of those |
//!
//! A write is *late* if it has not been answered for a while: a webhook holds it up. It gives its slot of the
//! shared window back, and counts in its lane and namespace only. It still occupies the API server. So few
//! late writes may give their slots back, and none more while the API server is overloaded.

mod held;
mod namespace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::time::Instant;

use self::held::Held;
use self::namespace::{Lane, Namespace};
use super::Priority;
use super::window::{Place, Shrink, Window, WindowLimits};
use crate::cluster::fair_queue::Room;

/// The outcome of a request, as far as the windows depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Carried out, after this time.
    Answered(Duration),
    /// A creation was carried out by an API server that has too much to do. More of them would only wait there
    /// instead of here, together with the writes that end Jobs.
    Congested,
    /// Refused after this time for its content, which may be sooner than the request could be carried out.
    Refused(Duration),
    /// 5xx or no answer, for an unknown reason.
    Failed,
    /// A webhook failed, refused since it is busy itself, or held the call up: the answer came much later than
    /// the API server answers others. These calls keep few slots, however well they end.
    Webhook,
    /// The API server refused to read it (429).
    Busy,
}

/// A slot in use. It must be given back.
#[derive(Debug)]
pub(super) struct Slot {
    namespace: Arc<str>,
    priority: Priority,
    in_lane: Place,
    of_all: Place,
}

/// The slots of writes in flight.
#[derive(Debug)]
pub(super) struct Slots {
    all: Window,
    namespaces: HashMap<Arc<str>, Namespace, RandomState>,
    /// Writes in flight that are not late.
    held: Held,
    /// The same writes in the order in which they left, and when that was.
    on_time: BTreeMap<Place, (Instant, Arc<str>, Priority)>,
    late: Held,
    /// How many of the late writes have given their slots back.
    given_back: usize,
    /// Namespaces with a lane that has shrunk because its calls fail.
    throttled: usize,
    /// When namespaces without writes were last forgotten.
    tidied: Instant,
    /// Until when nothing leaves.
    paused_until: Option<Instant>,
    /// The ends of all pauses.
    pause_ends: BTreeSet<Instant>,
}

/// Trouble of most namespaces within this time counts for all ...
const TOGETHER: Duration = Duration::from_secs(1);
/// ... if at least this many of them have had answers in it.
const FEWEST_NAMESPACES: usize = 4;
/// A write is late after this time.
const LATE: Duration = Duration::from_millis(250);
/// As many late writes may have given their slots back as one in this many of the most slots there may be.
const LATE_PART: usize = 2;
/// Pauses after refusals to read: the first, and the longest that the API server has not asked for.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));
/// No pause is longer, even if the API server or a proxy asks for that.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A namespace is forgotten after this time without writes.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Part of the slots that is kept free of creations: one in this many, and one of each namespace.
const RESERVE: usize = 16;
/// Part of the slots that is kept free of the creations and progress of each namespace: one in this many.
const BULK_RESERVE: usize = 8;
/// Part of the slots that is kept free of namespaces that hold many: one in this many, and at least the
/// second number.
const OTHERS_RESERVE: (usize, usize) = (8, 8);
/// A namespace holds many slots from one in this many on.
const MANY: usize = 48;
/// Fewer Events in flight than this may use slots that are kept free for others.
const FEW_EVENTS: usize = 4;
/// Part of the slots that Events of each kind may hold: one in this many, or three if those are no more than
/// a quarter.
const EVENT_SHARE: usize = 8;

impl Slot {
    pub(super) fn is_creation(&self) -> bool {
        self.priority == Priority::Create
    }

    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }
}

impl Slots {
    pub(super) fn new(limits: WindowLimits) -> Self {
        Self {
            all: Window::new(limits),
            namespaces: HashMap::default(),
            held: Held::default(),
            on_time: BTreeMap::new(),
            late: Held::default(),
            given_back: 0,
            throttled: 0,
            tidied: Instant::now(),
            paused_until: None,
            pause_ends: BTreeSet::new(),
        }
    }

    /// Writes that may be in flight at once.
    pub(super) fn size(&self) -> usize {
        self.all.size()
    }

    pub(super) fn limits(&self) -> WindowLimits {
        self.all.limits()
    }

    /// Writes in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.all.in_flight()
    }

    /// The Events among them.
    pub(super) fn events(&self) -> usize {
        self.held.events() + self.late.events()
    }

    /// Whether any write may leave now.
    pub(super) fn has_room(&self) -> bool {
        self.taken() < self.size() && !is_going_on(self.paused_until)
    }

    /// The API server has refused to read a write of this priority, and asks for a pause.
    pub(super) fn pause(&mut self, priority: Priority, namespace: &str, retry_after: Option<Duration>) {
        let now = Instant::now();
        let Some(namespace) = self.namespaces.get_mut(namespace) else { return };
        let lane = namespace.lane_mut(priority);
        let own = (PAUSES.0 * 2_u32.saturating_pow(lane.refused.saturating_sub(1))).min(PAUSES.1);
        let asked = retry_after.unwrap_or_default().clamp(PAUSES.0, LONGEST_PAUSE);
        let until = now + own.max(asked);
        lane.paused_until = lane.paused_until.max(Some(until));
        self.pause_ends.insert(until);
        if self.is_general(now, |namespace| namespace.refused) {
            self.paused_until = self.paused_until.max(Some(now + asked));
            self.pause_ends.insert(now + asked);
        }
    }

    /// Slots in use.
    fn taken(&self) -> usize {
        self.held.total() + self.late_with_slots()
    }

    /// Late writes that have not given their slots back.
    fn late_with_slots(&self) -> usize {
        self.late.total() - self.given_back
    }

    /// Namespaces that may have fewer writes of some kind in flight than at the start, since theirs fail.
    pub(super) fn throttled(&self) -> usize {
        self.throttled
    }

    /// Whether a write may leave now, while this many namespaces wait for turns of its priority. Lanes that hold
    /// less than their share come first.
    pub(super) fn room(&self, priority: Priority, namespace: &str, waiting: usize) -> Room {
        let namespace = self.namespaces.get(namespace);
        if !self.has_room()
            || !self.is_within_bounds(priority, namespace)
            || namespace.is_some_and(|namespace| namespace.holds_back(priority))
        {
            return Room::None;
        }
        let held = namespace.map_or(0, |namespace| namespace.lane(priority).window.in_flight());
        if waiting <= 1 || held < (self.size() / waiting).max(1) { Room::Preferred } else { Room::Some }
    }

    fn is_within_bounds(&self, priority: Priority, namespace: Option<&Namespace>) -> bool {
        let size = self.size();
        let without = |part: usize| size - (size / part).max(1).min(size - 1);
        let of_events = (size / EVENT_SHARE).max(3.min(size / 4)).max(1);
        let (all, own) = (&self.held, namespace.map(|namespace| namespace.held).unwrap_or_default());
        let for_others = self.kept_for_others();
        let holds_few = own.total() - own.events() < (size / MANY).max(1);
        let leaves_others_reserve = holds_few || self.taken() + for_others < size;
        let leaves_reserve = self.taken() < without(RESERVE);
        let are_few_events = || all.of(priority) < of_events && own.of(priority) < (of_events - 1).max(1);
        let is_within = match priority {
            Priority::Status | Priority::Finalizer | Priority::Delete => leaves_others_reserve,
            Priority::Create => {
                leaves_others_reserve
                    && leaves_reserve
                    && own.of(priority) + own.of(Priority::Progress) < without(BULK_RESERVE)
            }
            Priority::Progress => {
                // Progress must not take slots for which the API server has no time.
                let creations = namespace.map(|namespace| namespace.lane(Priority::Create));
                let going_on = creations.filter(|lane| lane.on_time() > 0);
                let beside = going_on.map_or(0, |_| own.of(Priority::Create));
                leaves_others_reserve
                    && !going_on.is_some_and(Lane::is_full)
                    && own.of(priority) + beside < without(BULK_RESERVE)
            }
            Priority::Report | Priority::Event => {
                let may_leave =
                    self.taken() + for_others < size || self.events() < FEW_EVENTS && leaves_reserve;
                are_few_events() && may_leave
            }
        };
        is_within && own.total() < without(RESERVE)
    }

    /// Slots that are kept free of namespaces that hold many.
    fn kept_for_others(&self) -> usize {
        (self.size() / OTHERS_RESERVE.0).max(OTHERS_RESERVE.1).min(self.size() / 2)
    }

    /// When [`take_back`](Self::take_back) may next change something though no write ends.
    pub(super) fn next_change(&self) -> Option<Instant> {
        let next_late = self.on_time.first_key_value().map(|(_, (left, ..))| *left + LATE);
        let again = (self.late_with_slots() > 0).then(|| Instant::now() + LATE);
        next_late.into_iter().chain(again).chain(self.pause_ends.first().copied()).min()
    }

    /// Takes back the slots of writes that are late. An API server that has too much to do is late itself, and gets no more to do
    /// for that.
    pub(super) fn take_back(&mut self, is_congested: bool) {
        let now = Instant::now();
        while self.pause_ends.first().is_some_and(|end| *end <= now) {
            self.pause_ends.pop_first();
        }
        while let Some(first) = self.on_time.first_entry()
            && first.get().0 + LATE <= now
        {
            let (_, namespace, priority) = first.remove();
            self.held.remove(priority);
            self.late.add(priority);
            if let Some(namespace) = self.namespaces.get_mut(&namespace) {
                namespace.lane_mut(priority).late += 1;
            }
        }
        if !is_congested {
            self.given_back = self.late.total().min(self.limits().max.div_ceil(LATE_PART));
        }
    }

    /// A write leaves.
    pub(super) fn start(&mut self, priority: Priority, name: Arc<str>) -> Slot {
        let now = Instant::now();
        self.tidy(now);
        let limits = self.limits();
        let of_all = self.all.start();
        let namespace = self.namespaces.entry(name.clone()).or_insert_with(|| Namespace::new(now, limits));
        namespace.used = now;
        let in_lane = namespace.lane_mut(priority).window.start();
        namespace.held.add(priority);
        self.held.add(priority);
        self.on_time.insert(of_all, (now, name.clone(), priority));
        let is_full = !self.is_within_bounds(priority, self.namespaces.get(&name));
        if is_full && !priority.is_event() {
            self.all.mark_full();
            // A lane that is as full as the bounds let it be: its window opens together with that of all.
            let kept_free = self.kept_for_others();
            let namespace = self.namespaces.get_mut(&name);
            let window = namespace.map(|namespace| &mut namespace.lane_mut(priority).window);
            if let Some(window) = window.filter(|window| window.in_flight() + kept_free >= window.size()) {
                window.mark_full();
            }
        }
        Slot { namespace: name, priority, in_lane, of_all }
    }

    /// A write has ended. Without a signal, it never left, or its answer was not awaited.
    pub(super) fn end(&mut self, slot: Slot, signal: Option<Signal>) {
        let Slot { namespace, priority, in_lane, of_all } = slot;
        self.all.end();
        let is_late = self.on_time.remove(&of_all).is_none();
        (if is_late { &mut self.late } else { &mut self.held }).remove(priority);
        self.given_back = self.given_back.min(self.late.total());
        let Some(namespace) = self.namespaces.get_mut(&namespace) else { return };
        namespace.held.remove(priority);
        let was_throttled = namespace.is_throttled();
        let lane = namespace.lane_mut(priority);
        lane.window.end();
        lane.late -= usize::from(is_late);
        let Some(signal) = signal else { return };
        lane.apply(in_lane, signal);
        let is_throttled = namespace.is_throttled();
        self.throttled = self.throttled + usize::from(is_throttled) - usize::from(was_throttled);
        if priority.is_event() {
            return;
        }
        let now = Instant::now();
        match signal {
            Signal::Webhook | Signal::Congested => {}
            Signal::Answered(_) | Signal::Refused(_) => {
                namespace.good = Some(now);
                self.all.grow(of_all);
            }
            Signal::Failed => {
                namespace.trouble = Some(now);
                self.shrink_if_general(now, of_all, |namespace| namespace.trouble);
            }
            Signal::Busy => {
                (namespace.trouble, namespace.refused) = (Some(now), Some(now));
                self.shrink_if_general(now, of_all, |namespace| namespace.refused);
            }
        }
    }

    fn shrink_if_general(&mut self, now: Instant, place: Place, trouble: fn(&Namespace) -> Option<Instant>) {
        if self.is_general(now, trouble) {
            self.all.shrink(place, Shrink::Trouble);
        }
    }

    /// Whether more than half of the namespaces have had this trouble.
    fn is_general(&self, now: Instant, trouble: impl Fn(&Namespace) -> Option<Instant>) -> bool {
        let is_recent = |at: Option<Instant>| at.is_some_and(|at| now - at <= TOGETHER);
        let (mut troubled, mut others) = (0, 0);
        for namespace in self.namespaces.values() {
            if is_recent(trouble(namespace)) {
                troubled += 1;
            } else if is_recent(namespace.good) {
                others += 1;
            }
        }
        troubled + others >= FEWEST_NAMESPACES && troubled > others
    }

    /// Forgets namespaces that have had no writes for a while.
    fn tidy(&mut self, now: Instant) {
        if now - self.tidied < FORGOTTEN {
            return;
        }
        self.tidied = now;
        self.namespaces.retain(|_, namespace| namespace.is_busy() || now - namespace.used < FORGOTTEN);
        self.throttled = self.namespaces.values().filter(|namespace| namespace.is_throttled()).count();
    }
}

/// Whether a pause until then has not ended.
fn is_going_on(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() < until)
}

#[cfg(test)]
mod tests;
