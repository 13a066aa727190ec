#![allow(clippy::unwrap_used)]
use std::sync::atomic::AtomicUsize;

use super::*;

impl Input for &str {
    fn replaces(&self) -> Replaces<'_> {
        Replaces::Any
    }
}

impl Input for i32 {
    fn replaces(&self) -> Replaces<'_> {
        Replaces::Any
    }
}

impl Input for Arc<()> {
    fn replaces(&self) -> Replaces<'_> {
        Replaces::Any
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Shown(Uid, u64),
    Gone(Uid),
    Listed,
    Answer(usize),
}

impl Input for Seen {
    fn replaces(&self) -> Replaces<'_> {
        match self {
            Self::Shown(object, version) => Replaces::Shows(object, *version),
            Self::Gone(object) => Replaces::Ends(object),
            Self::Listed => Replaces::Divides,
            Self::Answer(_) => Replaces::Any,
        }
    }
}

#[test]
fn of_many_inputs_those_wait_that_still_say_something() {
    let inbox = Inbox::default();
    let shown = |name: &str, version| Seen::Shown(name.into(), version);
    let kept = [
        shown("a", 1),
        Seen::Gone("a".into()),
        shown("a", 1),
        shown("b", 7),
        Seen::Listed,
        Seen::Answer(1),
        shown("b", 7),
    ];
    kept.iter().for_each(|input| inbox.push(input.clone()));
    for round in 0..10 * MANY as u64 {
        inbox.push(shown("c", round / 2));
        inbox.push(shown("c", round / 3));
    }
    assert!(!inbox.is_urgent());
    let last = shown("c", 5 * MANY as u64 - 1);
    let waited = inbox.take();
    assert!(waited.len() <= SOME + kept.len(), "{}", waited.len());
    assert_eq!(waited[..kept.len()], kept);
    assert!(waited[kept.len()..].contains(&last));
}

#[test]
fn what_is_said_again_does_not_wait_twice() {
    let inbox = Inbox::default();
    let shown = |version| Seen::Shown("a".into(), version);
    [shown(1), shown(1), shown(2), Seen::Answer(1), Seen::Answer(1), shown(2)]
        .into_iter()
        .for_each(|input| inbox.push(input));
    assert_eq!(inbox.take(), [shown(1), shown(2), Seen::Answer(1), Seen::Answer(1), shown(2)]);
}

/// The actor rests for long, since its namespace has much to do.
#[test]
fn of_what_an_actor_does_not_take_the_newest_waits() {
    let inbox = Inbox::default();
    for round in 0..100 {
        for pod in 0..SOME {
            inbox.push(Seen::Shown(pod.to_string().as_str().into(), round));
        }
        inbox.take_some(SOME / 2);
    }
    let left = inbox.take().len();
    assert!(left <= 3 * SOME, "{left}");
}

#[test]
fn a_list_is_replaced_in_its_place_after_tidying_up_as_well() {
    let inbox = Inbox::default();
    let shown = |version| Seen::Shown("a".into(), version);
    inbox.push(shown(1));
    inbox.push_list(Seen::Answer(1));
    (2..SOME as u64).for_each(|version| inbox.push(shown(version)));
    inbox.push_list(Seen::Answer(2));
    assert_eq!(inbox.take(), [shown(SOME as u64 - 1), Seen::Answer(2)]);
}

#[test]
fn an_actor_that_rests_is_woken_for_what_must_not_wait_and_when_too_much_waits() {
    let inbox = Inbox::default();
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = woken.clone();
    inbox.connect(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    inbox.push(0);
    inbox.push(1);
    assert_eq!((inbox.is_urgent(), woken.load(Ordering::SeqCst)), (false, 1));
    inbox.push_urgent(2);
    assert_eq!((inbox.is_urgent(), woken.load(Ordering::SeqCst)), (true, 2));
    assert_eq!((inbox.take(), inbox.is_urgent()), (vec![0, 1, 2], false));
    (0..MANY as i32).for_each(|input| inbox.push(input));
    assert!(inbox.is_urgent() && woken.load(Ordering::SeqCst) >= 4);
}

#[test]
fn an_actor_may_take_some_of_its_inputs() {
    let (inbox, woken) = (Inbox::default(), Arc::new(AtomicUsize::new(0)));
    let counter = woken.clone();
    inbox.connect(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    inbox.push("a");
    inbox.push_list("first list");
    inbox.put_latest("latest", Instant::now());
    inbox.push_urgent("b");
    assert_eq!(inbox.take_some(1).inputs, ["latest", "a"]);
    assert_eq!((inbox.is_urgent(), inbox.is_empty(), woken.load(Ordering::SeqCst)), (true, false, 2));
    inbox.push_list("second list");
    assert_eq!(woken.load(Ordering::SeqCst), 2, "it knows that more is there");
    assert_eq!(inbox.take_some(3).inputs, ["b", "second list"]);
    assert_eq!((inbox.is_urgent(), inbox.is_empty()), (false, true));
    inbox.push("c");
    assert_eq!(woken.load(Ordering::SeqCst), 3);
}

#[test]
fn of_several_lists_the_last_waits_behind_what_came_before_it() {
    let inbox = Inbox::default();
    inbox.push_list("first list");
    inbox.push("a");
    inbox.push_list("second list");
    inbox.push("b");
    assert_eq!(inbox.take(), ["a", "second list", "b"]);
    inbox.push_list("third list");
    assert_eq!(inbox.take(), ["third list"]);
}

#[test]
fn a_closed_inbox_keeps_nothing() {
    let (inbox, input) = (Inbox::default(), Arc::new(()));
    inbox.push(input.clone());
    let promise = inbox.promise();
    assert_eq!(inbox.close().len(), 1);
    inbox.push(input.clone());
    promise.keep(input.clone());
    assert_eq!(Arc::strong_count(&input), 1);
}

#[test]
fn many_inputs_cost_one_wake_up_and_none_is_lost() {
    let inbox = Inbox::default();
    let woken = Arc::new(AtomicUsize::new(0));
    inbox.push(1);
    let counter = woken.clone();
    inbox.connect(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    assert_eq!(woken.load(Ordering::SeqCst), 1, "what came before the connection wakes");
    inbox.extend([2, 3]);
    inbox.push(4);
    assert_eq!(woken.load(Ordering::SeqCst), 1);
    assert_eq!(inbox.take(), [1, 2, 3, 4]);
    inbox.push(5);
    assert_eq!(woken.load(Ordering::SeqCst), 2);
}

#[test]
fn of_what_the_actor_follows_only_the_newest_state_waits() {
    let inbox = Inbox::default();
    (0..1_000).for_each(|state| inbox.put_latest(state, Instant::now()));
    inbox.push(-1);
    inbox.put_latest(1_000, Instant::now());
    assert!(!inbox.is_idle());
    assert_eq!((inbox.take(), inbox.is_idle()), (vec![1_000, -1], true));
}

#[test]
fn an_inbox_is_idle_when_it_is_empty_and_no_promise_is_due() {
    let inbox = Inbox::default();
    let woken = Arc::new(AtomicUsize::new(0));
    let counter = woken.clone();
    inbox.connect(move || _ = counter.fetch_add(1, Ordering::SeqCst));
    let wakes = || woken.swap(0, Ordering::SeqCst);
    let [kept, dropped] = [inbox.promise(), inbox.promise()];
    assert_eq!((inbox.is_idle(), wakes()), (false, 0));
    kept.keep(1);
    assert_eq!((inbox.take(), inbox.is_idle(), wakes()), (vec![1], false, 1));
    drop(dropped);
    assert_eq!((inbox.is_idle(), wakes()), (true, 1), "a dropped promise wakes the actor");
    assert!(inbox.take().is_empty());
    inbox.push(2);
    assert_eq!((inbox.is_idle(), wakes()), (false, 1));
}

#[test]
fn an_actor_that_finds_its_inbox_idle_has_missed_no_promise() {
    let inbox = Inbox::default();
    let (sender, wakes) = std::sync::mpsc::channel();
    inbox.connect(move || sender.send(()).unwrap());
    let promises: Vec<_> = (0..4_000).map(|number| (number, inbox.promise())).collect();
    let writer = std::thread::spawn(move || {
        for (number, promise) in promises {
            if number % 2 == 0 { promise.keep(number) } else { drop(promise) }
        }
    });
    let mut received = 0;
    while !inbox.is_idle() {
        wakes.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        received += inbox.take().len();
    }
    assert_eq!(received, 2_000);
    writer.join().unwrap();
}

#[test]
fn every_input_has_a_wake_up() {
    let inbox = Inbox::default();
    let (sender, wakes) = std::sync::mpsc::channel();
    inbox.connect(move || sender.send(()).unwrap());
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let inbox = inbox.clone();
            std::thread::spawn(move || (0..5_000).for_each(|n| inbox.push(n)))
        })
        .collect();
    let mut received = 0;
    while received < 20_000 {
        wakes.recv_timeout(std::time::Duration::from_secs(10)).unwrap();
        received += inbox.take().len();
    }
    writers.into_iter().for_each(|w| w.join().unwrap());
    assert_eq!(received, 20_000);
}
