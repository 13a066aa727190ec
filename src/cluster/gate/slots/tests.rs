use proptest::prelude::*;
use tokio::time::advance;

use super::*;

const LIMITS: WindowLimits = WindowLimits { min: 2, initial: 16, max: 64 };
const FAST: Signal = Signal::Answered(Duration::from_millis(5));

/// Starts writes until there is no room for another one.
fn fill(slots: &mut Slots, namespace: &str, priority: Priority) -> Vec<Slot> {
    let mut held = Vec::new();
    while slots.room(priority, namespace, 0) != Room::None {
        held.push(slots.start(priority, namespace.into()));
    }
    held
}

fn end_all(slots: &mut Slots, held: Vec<Slot>, signal: Signal) {
    held.into_iter().for_each(|slot| slots.end(slot, Some(signal)));
}

/// Slots whose window of all is as wide as it may be.
fn wide_open() -> Slots {
    let mut slots = Slots::new(LIMITS);
    for _ in 0..6 {
        let held = fill(&mut slots, "b", Priority::Status);
        end_all(&mut slots, held, FAST);
    }
    assert_eq!(slots.size(), LIMITS.max);
    slots
}

#[tokio::test]
async fn nobody_holds_all_slots() {
    use Priority::*;
    for (holders, expected) in [
        (&[("a", Create)][..], &[8][..]),
        (&[("a", Create), ("b", Create)], &[8, 1]),
        (&[("a", Create), ("b", Create), ("a", Status)], &[8, 1, 0]),
        (&[("a", Create), ("a", Finalizer), ("b", Create)], &[8, 0, 1]),
        (&[("a", Create), ("a", Progress), ("b", Create), ("c", Progress)], &[8, 0, 1, 1]),
        (&[("a", Status), ("b", Status), ("c", Create)], &[8, 1, 1]),
        (&[("a", Event), ("b", Event), ("b", Report), ("c", Report)], &[2, 1, 2, 1]),
        (&[("a", Event), ("b", Report), ("c", Create), ("c", Status)], &[2, 2, 4, 0]),
        (&[("a", Report), ("a", Event), ("b", Report), ("b", Event)], &[2, 2, 1, 1]),
        (&[("a", Create), ("a", Event), ("b", Report), ("b", Status)], &[8, 2, 2, 1]),
        (&[("a", Status), ("a", Event), ("b", Event), ("b", Report)], &[8, 2, 1, 1]),
    ] {
        let mut slots = Slots::new(LIMITS);
        let held: Vec<usize> = holders
            .iter()
            .map(|(namespace, priority)| fill(&mut slots, namespace, *priority).len())
            .collect();
        assert_eq!(held, expected, "{holders:?}");
    }
    let one = WindowLimits { min: 1, initial: 1, max: 1 };
    for priority in Priority::ALL {
        assert_eq!(fill(&mut Slots::new(one), "a", priority).len(), 1, "{priority:?}");
    }
}

/// This holds in all windows except the smallest two.
#[tokio::test(start_paused = true)]
async fn events_that_hang_leave_room_for_creations_and_for_each_other() {
    use Priority::*;
    for size in 4..=24 {
        let mut slots = Slots::new(WindowLimits { min: 1, initial: size, max: size });
        let reports: usize =
            ["a", "b", "c"].map(|namespace| fill(&mut slots, namespace, Report).len()).iter().sum();
        let events: usize =
            ["a", "b", "c"].map(|namespace| fill(&mut slots, namespace, Event).len()).iter().sum();
        assert!(reports + events < size, "{reports} reports and {events} Events of {size}");
        assert!(reports > 0 && events > 0, "{reports} reports and {events} Events of {size}");
        assert_ne!(slots.room(Create, "d", 0), Room::None, "{size}");
    }
    let mut slots = Slots::new(LIMITS);
    // Its lane has shrunk.
    for _ in 0..5 {
        let held = fill(&mut slots, "a", Report);
        end_all(&mut slots, held, Signal::Failed);
        advance(2 * TOGETHER).await;
    }
    assert_eq!((fill(&mut slots, "a", Report).len(), fill(&mut slots, "a", Event).len()), (1, 1));
}

/// The part that is kept free of them holds up neither the window of all nor their own.
#[tokio::test]
async fn creations_of_one_namespace_open_the_window_in_a_few_rounds() {
    let mut slots = Slots::new(WindowLimits::default());
    let rounds: Vec<usize> = std::iter::from_fn(|| {
        let held = fill(&mut slots, "a", Priority::Create);
        let number = held.len();
        end_all(&mut slots, held, FAST);
        Some(number)
    })
    .take(6)
    .collect();
    assert_eq!(rounds, [8, 16, 32, 63, 119, 223]);
}

/// Progress gives way to creations that wait for the API server, but not to creations that a webhook refuses.
#[tokio::test]
async fn progress_takes_no_slots_that_creations_of_its_namespace_may_not_have() {
    let mut slots = wide_open();
    let has_room = |slots: &Slots, namespace| slots.room(Priority::Progress, namespace, 0) != Room::None;
    let mut held = fill(&mut slots, "a", Priority::Create);
    assert_eq!((held.len(), has_room(&slots, "a"), has_room(&slots, "b")), (LIMITS.initial, false, true));
    end_all(&mut slots, held.split_off(LIMITS.initial - 1), Signal::Refused(Duration::ZERO));
    assert!(has_room(&slots, "a"));
    end_all(&mut slots, held, Signal::Webhook);
    let held = fill(&mut slots, "a", Priority::Create);
    assert_eq!((held.len(), has_room(&slots, "a")), (LIMITS.min, true));
}

/// Creations that all wait for a webhook which says nothing take nothing away from others.
#[tokio::test(start_paused = true)]
async fn progress_gives_way_to_creations_only_while_some_are_answered() {
    let mut slots = wide_open();
    let mut held = fill(&mut slots, "a", Priority::Create);
    for _ in 0..30 {
        advance(LATE / 10).await;
        slots.take_back(false);
        end_all(&mut slots, held.split_off(held.len() - 1), Signal::Answered(LATE / 2));
        held.extend(fill(&mut slots, "a", Priority::Create));
        assert_eq!(slots.room(Priority::Progress, "a", 0), Room::None);
    }
    advance(LATE).await;
    slots.take_back(false);
    assert_eq!(slots.room(Priority::Create, "a", 0), Room::None);
    assert_ne!(slots.room(Priority::Progress, "a", 0), Room::None);
}

/// Each time a slot is free, namespaces whose calls hang take it first. Others always find one, and the late ones are few.
#[tokio::test(start_paused = true)]
async fn what_hangs_in_some_namespaces_keeps_nobody_waiting() {
    use Priority::*;
    let narrow = WindowLimits::default();
    for limits in [narrow, WindowLimits { initial: 256, ..narrow }] {
        for (hanging, of) in [
            (1, &[Create][..]),
            (2, &[Status]),
            (2, &[Create, Status, Finalizer]),
            (3, &[Create, Progress, Status, Report, Event]),
            (4, &[Create]),
        ] {
            let mut slots = Slots::new(limits);
            let mut held = Vec::new();
            for _ in 0..100 {
                slots.take_back(false);
                for namespace in 0..hanging {
                    let name = format!("hangs-{namespace}");
                    of.iter().for_each(|priority| held.extend(fill(&mut slots, &name, *priority)));
                }
                for priority in [Create, Status, Finalizer, Delete] {
                    let room = slots.room(priority, "victim", 0);
                    assert_ne!(room, Room::None, "{priority:?} beside {hanging} of {of:?} with {limits:?}");
                }
                advance(LATE / 4).await;
            }
            assert!(slots.in_flight() <= limits.max + limits.max / LATE_PART);
        }
    }
}

/// Late writes that have given their slots back do not take them again, and give them back once the API server has time again.
#[tokio::test(start_paused = true)]
async fn an_api_server_that_becomes_congested_closes_the_gate_for_nobody() {
    let mut slots = Slots::new(WindowLimits::default());
    let has_room = |slots: &Slots| slots.room(Priority::Create, "victim", 0) != Room::None;
    let mut held = Vec::new();
    for _ in 0..8 {
        for namespace in ["a", "b", "c"] {
            held.extend(fill(&mut slots, namespace, Priority::Create));
        }
        advance(LATE).await;
        slots.take_back(false);
    }
    assert!(held.len() > slots.size());
    slots.take_back(true);
    assert!(has_room(&slots));
    let others = ["d", "e", "f", "g", "h", "i", "j", "k"];
    held.extend(others.iter().flat_map(|namespace| fill(&mut slots, namespace, Priority::Create)));
    advance(LATE).await;
    slots.take_back(true);
    assert!(!has_room(&slots) && slots.next_change().is_some());
    slots.take_back(false);
    assert!(has_room(&slots));
    end_all(&mut slots, held, FAST);
    assert_eq!((slots.taken(), slots.given_back), (0, 0));
}

#[tokio::test]
async fn lanes_that_hold_less_than_their_share_come_first() {
    let mut slots = Slots::new(LIMITS);
    let held: Vec<_> = (0..7).map(|_| slots.start(Priority::Create, "much".into())).collect();
    assert_eq!(slots.room(Priority::Create, "much", 3), Room::Some);
    assert_eq!(slots.room(Priority::Create, "little", 3), Room::Preferred);
    assert_eq!(slots.room(Priority::Create, "much", 1), Room::Preferred, "nobody else waits");
    end_all(&mut slots, held, FAST);
    assert_eq!(slots.room(Priority::Create, "much", 2), Room::Preferred);
}

/// Writes that end Jobs come first.
#[tokio::test(start_paused = true)]
async fn creations_that_congest_the_api_server_give_way_to_other_writes() {
    let mut slots = Slots::new(LIMITS);
    for _ in 0..100 {
        let held = ["a", "b"].map(|namespace| fill(&mut slots, namespace, Priority::Finalizer));
        held.into_iter().for_each(|held| end_all(&mut slots, held, FAST));
        let held = ["a", "b"].map(|namespace| fill(&mut slots, namespace, Priority::Create));
        held.into_iter().for_each(|held| end_all(&mut slots, held, Signal::Congested));
    }
    assert_eq!((slots.size(), slots.throttled()), (LIMITS.max, 0));
    assert_eq!(fill(&mut slots, "a", Priority::Create).len(), LIMITS.initial);
    assert!(fill(&mut slots, "a", Priority::Finalizer).len() > LIMITS.max / 2);
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_namespace_throttle_their_lane_only() {
    for signal in [Signal::Failed, Signal::Webhook] {
        let mut slots = Slots::new(LIMITS);
        let held = fill(&mut slots, "a", Priority::Create);
        end_all(&mut slots, held, signal);
        assert_eq!((slots.size(), slots.throttled()), (16, 1));
        assert_eq!(
            fill(&mut slots, "a", Priority::Create).len(),
            LIMITS.min,
            "a round of failures is enough"
        );
        assert_eq!(fill(&mut slots, "a", Priority::Finalizer).len(), 6, "another lane of it");
        // A namespace is forgotten once it has been quiet for a while.
        let mut slots = Slots::new(LIMITS);
        let held = fill(&mut slots, "a", Priority::Create);
        end_all(&mut slots, held, signal);
        advance(2 * FORGOTTEN).await;
        let other = fill(&mut slots, "b", Priority::Create);
        assert_eq!((slots.throttled(), slots.namespaces.len()), (0, 1));
        end_all(&mut slots, other, FAST);
    }
}

/// Each answer but a refusal shows that the API server reads the lane's writes again.
#[tokio::test(start_paused = true)]
async fn pauses_grow_while_the_api_server_refuses_to_read() {
    const LATER: Signal = Signal::Congested;
    let slow = Signal::Answered(20 * LATE);
    for (signals, seconds) in [
        (&[Signal::Busy; 3][..], &[1, 2, 4][..]),
        (&[Signal::Busy; 6], &[1, 2, 4, 8, 8, 8]),
        (&[Signal::Busy, Signal::Failed, Signal::Busy], &[1, 0, 2]),
        (&[Signal::Busy, Signal::Busy, FAST, Signal::Busy], &[1, 2, 0, 1]),
        (&[Signal::Busy, Signal::Busy, LATER, Signal::Busy], &[1, 2, 0, 1]),
        (&[Signal::Busy, Signal::Busy, slow, Signal::Busy], &[1, 2, 0, 1]),
        (&[Signal::Busy, Signal::Busy, Signal::Webhook, Signal::Busy], &[1, 2, 0, 1]),
    ] {
        let mut slots = Slots::new(LIMITS);
        let mut pauses = Vec::new();
        for signal in signals {
            let slot = slots.start(Priority::Create, "a".into());
            slots.end(slot, Some(*signal));
            if *signal == Signal::Busy {
                slots.pause(Priority::Create, "a", None);
            }
            let begun = Instant::now();
            while slots.room(Priority::Create, "a", 0) == Room::None {
                advance(Duration::from_secs(1)).await;
                slots.take_back(false);
            }
            pauses.push(begun.elapsed().as_secs());
        }
        assert_eq!(pauses, seconds, "{signals:?}");
    }
}

/// A webhook can make writes fail in ways that do not name it, and a tenant may have several namespaces.
#[tokio::test(start_paused = true)]
async fn trouble_is_general_when_most_namespaces_have_it_at_the_same_time() {
    const FAILED: Signal = Signal::Failed;
    const BUSY: Signal = Signal::Busy;
    let fail = |slots: &mut Slots, namespace: &str, signal| {
        let slot = slots.start(Priority::Create, namespace.into());
        slots.end(slot, Some(signal));
    };
    for (signals, size) in [
        (&[("a", FAILED), ("a", FAILED)][..], 64),
        (&[("a", FAILED), ("b", FAILED), ("a", FAILED), ("b", FAILED)], 64),
        (&[("a", FAILED), ("b", FAILED), ("c", FAILED)], 64),
        (&[("a", FAST), ("b", FAST), ("c", FAILED), ("d", FAILED)], 64),
        (&[("a", FAILED), ("b", FAILED), ("c", Signal::Webhook), ("d", Signal::Webhook)], 64),
        (&[("a", FAST), ("b", FAILED), ("c", FAILED), ("d", FAILED)], 32),
        (&[("a", FAST), ("a", FAILED), ("b", FAILED), ("c", FAILED), ("d", FAILED)], 32),
        (&[("a", FAILED), ("b", FAILED), ("c", FAILED), ("d", FAILED), ("e", FAILED), ("f", FAILED)], 16),
        (&[("a", BUSY); 6], 64),
        (&[("a", FAST), ("b", FAST), ("c", BUSY), ("d", BUSY)], 64),
        (&[("a", FAST), ("b", BUSY), ("c", BUSY), ("d", BUSY)], 32),
        (&[("a", FAILED), ("b", FAILED), ("c", FAST), ("d", BUSY)], 64),
        (&[("a", BUSY), ("b", BUSY), ("c", BUSY), ("d", BUSY), ("e", BUSY), ("f", BUSY)], 16),
    ] {
        let mut slots = wide_open();
        advance(2 * TOGETHER).await;
        signals.iter().for_each(|(namespace, signal)| fail(&mut slots, namespace, *signal));
        assert_eq!(slots.size(), size, "{signals:?}");
    }
    let mut slots = wide_open();
    for namespace in ["a", "b", "c", "d"] {
        advance(2 * TOGETHER).await;
        fail(&mut slots, namespace, FAILED);
    }
    assert_eq!(slots.size(), LIMITS.max, "not at the same time");
}

proptest! {
    /// Bounds always hold, and a slot that is given back is free again.
    #[test]
    fn bounds_hold_and_no_slot_is_lost(
        steps in prop::collection::vec((0..4usize, 0..Priority::ALL.len(), 0..6u8), 0..400),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.map_err(|e| TestCaseError::fail(e.to_string()))?.block_on(async {
            let mut slots = Slots::new(LIMITS);
            let mut held: Vec<Slot> = Vec::new();
            for (namespace, priority, step) in steps {
                let priority = Priority::ALL[priority];
                let name = ["a", "b", "c", "d"][namespace];
                slots.take_back(false);
                let signal = match step {
                    0..3 => {
                        if slots.room(priority, name, 0) != Room::None {
                            held.push(slots.start(priority, name.into()));
                        }
                        continue;
                    }
                    3 => Some(FAST),
                    4 => Some([Signal::Failed, Signal::Webhook, Signal::Busy][namespace % 3]),
                    _ => None,
                };
                if !held.is_empty() {
                    let slot = held.swap_remove(namespace % held.len());
                    slots.end(slot, signal);
                    advance(LATE / 3).await;
                }
                prop_assert!((LIMITS.min..=LIMITS.max).contains(&slots.size()));
                prop_assert_eq!(slots.in_flight(), held.len());
                let mut expected: HashMap<&str, Held> = HashMap::new();
                for slot in &held {
                    for name in ["all", &*slot.namespace] {
                        expected.entry(name).or_default().add(slot.priority);
                    }
                }
                let of = |name: &str| expected.get(name).copied().unwrap_or_default();
                for priority in Priority::ALL {
                    prop_assert_eq!(slots.held.of(priority) + slots.late.of(priority), of("all").of(priority));
                }
                prop_assert_eq!(slots.on_time.len(), slots.held.total());
                prop_assert!(slots.namespaces.iter().all(|(name, namespace)| namespace.held == of(name)));
                let throttled = slots.namespaces.values().filter(|namespace| namespace.is_throttled()).count();
                prop_assert_eq!(slots.throttled(), throttled);
            }
            held.drain(..).for_each(|slot| slots.end(slot, None));
            prop_assert_eq!((slots.held, slots.late, slots.on_time.len()), (Held::default(), Held::default(), 0));
            prop_assert!(slots.namespaces.values().all(|namespace| !namespace.is_busy() && namespace.held == Held::default()));
            Ok(())
        })?;
    }
}
