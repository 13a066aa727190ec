//! The inbox of a Job actor: many inputs, one wake-up.
//!
//! A Job of 100,000 pods gets 100,000 pod events and answers in between, and must not get as many messages.
//! Inputs are collected here, and only the first one after [`Inbox::take`] sends a message.
//!
//! Of the object that the actor follows, only the newest state waits. However often it changes, the inbox
//! does not grow. Of a pod, a few readings may wait: once there are [`SOME`] inputs, those go that a later
//! one makes unnecessary. An inbox that has [`MANY`] left is urgent: its actor does not rest.
//!
//! An answer that is due is promised. An actor that finds its inbox idle therefore knows that no answer is
//! due.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crate::job::uid::Uid;
use crate::telemetry::metrics::workqueue::WorkQueue;

/// An inbox with this many inputs is tidied up: a reading of a pod may be 17 KiB.
const SOME: usize = 256;
/// With this many left, it is urgent.
const MANY: usize = 4096;

/// An input of an inbox.
pub trait Input {
    /// Which earlier inputs need not be handled once this one is.
    fn replaces(&self) -> Replaces<'_>;
}

/// Which earlier inputs an input replaces.
#[derive(Clone, Copy, Debug)]
pub enum Replaces<'a> {
    /// An object at a version: an earlier input with this version of the object, or an older one, says nothing more.
    Shows(&'a Uid, u64),
    /// Replaces nothing. It is the end of an object, which must be handled between the earlier readings and the later
    /// ones.
    Ends(&'a Uid),
    /// Replaces nothing. It is a boundary for all objects, such as the end of a list.
    Divides,
    /// Replaces nothing. It may be handled before or after readings.
    Any,
}

/// Inputs of type `T` for one actor.
#[derive(Debug)]
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Inbox<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

struct Shared<T> {
    contents: Mutex<Contents<T>>,
    /// A wake-up has been sent, and [`Inbox::take`] has not followed yet.
    woken: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Where the actor counts while it waits for its turn.
    queue: Option<Arc<WorkQueue>>,
}

struct Contents<T> {
    /// Absent if a later input has replaced it.
    items: VecDeque<Option<T>>,
    /// Which of them the next list replaces.
    list: Option<usize>,
    /// The number of items at which the inbox is tidied.
    tidy_at: usize,
    /// The actor must not wait with them.
    urgent: bool,
    /// The newest state of the object that the actor follows.
    latest: Option<T>,
    /// When the first of the watch events among them arrived.
    event: Option<Instant>,
    /// When the actor was last woken.
    woken_at: Option<Instant>,
    /// Promises that are neither kept nor dropped.
    due: usize,
    /// The inbox accepts no more inputs.
    closed: bool,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("woken", &self.woken).finish_non_exhaustive()
    }
}

impl<T: Input> Contents<T> {
    /// Adds an input, unless the last one says exactly the same.
    fn add(&mut self, item: T) {
        let last = self.items.back().and_then(Option::as_ref).map(Input::replaces);
        if let (Replaces::Shows(object, version), Some(Replaces::Shows(last, last_version))) =
            (item.replaces(), last)
            && (object, version) == (last, last_version)
        {
            return;
        }
        self.items.push_back(Some(item));
    }

    /// Drops inputs that later inputs make unnecessary, once there are many.
    fn tidy(&mut self) {
        if self.items.len() < self.tidy_at {
            return;
        }
        let mut shown: HashMap<&Uid, u64> = HashMap::default();
        let mut keeps: Vec<bool> = Vec::with_capacity(self.items.len());
        for item in self.items.iter().rev() {
            let is_needed = match item.as_ref().map(Input::replaces) {
                None => false,
                Some(Replaces::Shows(object, version)) => match shown.entry(object) {
                    Entry::Occupied(later) if *later.get() >= version => false,
                    later => {
                        later.insert_entry(version);
                        true
                    }
                },
                Some(Replaces::Ends(object)) => {
                    shown.remove(object);
                    true
                }
                Some(Replaces::Divides) => {
                    shown.clear();
                    true
                }
                Some(Replaces::Any) => true,
            };
            keeps.push(is_needed);
        }
        keeps.reverse();
        let before_list = |list: usize| keeps.iter().take(list).filter(|keeps| **keeps).count();
        self.list = self.list.map(before_list);
        let mut keeps = keeps.into_iter();
        self.items.retain(|_| keeps.next().unwrap_or(true));
        self.tidy_at = SOME.max(2 * self.items.len());
        self.urgent |= self.items.len() >= MANY;
    }
}

impl<T: Input> Default for Inbox<T> {
    fn default() -> Self {
        Self::with(None)
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.as_ref().filter(|_| *self.woken.get_mut()) {
            queue.dropped();
        }
    }
}

impl<T: Input> Inbox<T> {
    /// An inbox whose actor counts as queued from each wake-up until it takes its inputs.
    pub fn queued(queue: Arc<WorkQueue>) -> Self {
        Self::with(Some(queue))
    }

    fn with(queue: Option<Arc<WorkQueue>>) -> Self {
        let contents = Mutex::new(Contents {
            items: VecDeque::new(),
            list: None,
            tidy_at: SOME,
            urgent: false,
            latest: None,
            event: None,
            woken_at: None,
            due: 0,
            closed: false,
        });
        let shared = Shared { contents, woken: AtomicBool::new(false), wake: OnceLock::new(), queue };
        Self { shared: Arc::new(shared) }
    }

    /// Sets how to wake the actor. Earlier inputs wake it at once.
    pub fn connect(&self, wake: impl Fn() + Send + Sync + 'static) {
        if self.shared.wake.set(Box::new(wake)).is_ok() && self.shared.woken.load(Ordering::Acquire) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(wake) = self.shared.wake.get() {
            wake();
        }
    }

    fn contents(&self) -> MutexGuard<'_, Contents<T>> {
        // A panic while pushing leaves the list whole.
        self.shared.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the contents, and wakes the actor unless it has been woken since its last
    /// [`take`](Self::take) and nothing is more urgent than then.
    fn change(&self, change: impl FnOnce(&mut Contents<T>)) {
        let mut contents = self.contents();
        let was_urgent = contents.urgent;
        change(&mut contents);
        contents.tidy();
        if contents.closed {
            let dropped = (std::mem::take(&mut contents.items), contents.latest.take());
            drop(contents);
            // Inputs may do something when they are dropped.
            drop(dropped);
            return;
        }
        if self.shared.woken.swap(true, Ordering::AcqRel) {
            // The actor may have been woken when it rested.
            let wakes = contents.urgent && !was_urgent;
            drop(contents);
            if wakes {
                self.wake();
            }
            return;
        }
        if let Some(queue) = &self.shared.queue {
            contents.woken_at = Some(Instant::now());
            queue.added();
        }
        drop(contents);
        self.wake();
    }

    /// Puts in an input from a watch event that arrived at `arrived`.
    pub fn push_event(&self, item: T, arrived: Instant) {
        self.change(|contents| {
            contents.add(item);
            contents.event.get_or_insert(arrived);
        });
    }

    /// Puts in a list of all that there is of something, after which an earlier one that has not been taken says nothing more.
    pub fn push_list(&self, item: T) {
        self.change(|contents| {
            let place = contents.items.len();
            if let Some(before) = contents.list.replace(place).and_then(|list| contents.items.get_mut(list)) {
                *before = None;
            }
            contents.items.push_back(Some(item));
        });
    }

    /// Puts in the newest state of the object that the actor follows, in place of an earlier one that still
    /// waits. A watch event showed that state, and arrived at `arrived`.
    pub fn put_latest(&self, item: T, arrived: Instant) {
        self.change(|contents| {
            contents.latest = Some(item);
            contents.event.get_or_insert(arrived);
        });
    }

    /// Puts in an input with which the actor must not wait: others wait for the resource that it holds.
    pub fn push_urgent(&self, item: T) {
        self.change(|contents| {
            contents.items.push_back(Some(item));
            contents.urgent = true;
        });
    }

    /// Whether the actor must not wait with its inputs.
    pub fn is_urgent(&self) -> bool {
        self.contents().urgent
    }

    /// Puts an input in.
    pub fn push(&self, item: T) {
        self.extend([item]);
    }

    /// Puts several inputs in.
    pub fn extend(&self, items: impl IntoIterator<Item = T>) {
        self.change(|contents| items.into_iter().for_each(|item| contents.add(item)));
    }

    /// Takes all inputs. Later ones are dropped: the actor is no more.
    pub fn close(&self) -> Vec<T> {
        self.contents().closed = true;
        self.take()
    }

    /// Promises an input.
    pub fn promise(&self) -> Promise<T> {
        self.contents().due += 1;
        Promise { inbox: Some(self.clone()) }
    }

    /// Whether nothing waits in it.
    pub fn is_empty(&self) -> bool {
        let contents = self.contents();
        contents.items.is_empty() && contents.latest.is_none()
    }

    /// Whether it is empty, and no promise is due.
    pub fn is_idle(&self) -> bool {
        let contents = self.contents();
        contents.items.is_empty() && contents.latest.is_none() && contents.due == 0
    }

    /// Takes all inputs, in order, after the newest state. The next input sends a wake-up again.
    pub fn take(&self) -> Vec<T> {
        self.take_some(usize::MAX).inputs
    }

    /// Takes this many inputs, in order, after the newest state. If more are left, the actor is to take
    /// them without being woken.
    pub fn take_some(&self, most: usize) -> Taken<T> {
        let mut contents = self.contents();
        let taken = most.min(contents.items.len());
        let latest = contents.latest.take();
        let inputs = latest.into_iter().chain(contents.items.drain(..taken).flatten()).collect();
        let left = contents.items.len();
        if left == 0 {
            contents.items = VecDeque::new();
        }
        contents.list = contents.list.and_then(|list| list.checked_sub(taken));
        // The waiting inputs have a bound even if fewer are taken than come.
        contents.tidy_at = SOME.max(contents.tidy_at.saturating_sub(taken).min(2 * left));
        contents.urgent &= left > 0;
        self.shared.woken.store(left > 0, Ordering::Release);
        if let (Some(queue), Some(woken)) = (&self.shared.queue, contents.woken_at.take()) {
            queue.taken(woken.elapsed());
        }
        if let Some(queue) = self.shared.queue.as_ref().filter(|_| left > 0) {
            contents.woken_at = Some(Instant::now());
            queue.added();
        }
        Taken { inputs, event: contents.event.take(), left }
    }
}

/// Inputs that an actor has taken.
#[derive(Debug)]
pub struct Taken<T> {
    /// The inputs, in order.
    pub inputs: Vec<T>,
    /// When the first of the watch events among them arrived.
    pub event: Option<Instant>,
    /// How many were left.
    pub left: usize,
}

/// An input that is due. Dropped, it is due no longer.
#[derive(Debug)]
pub struct Promise<T: Input> {
    /// Absent once it is kept.
    inbox: Option<Inbox<T>>,
}

impl<T: Input> Promise<T> {
    /// Puts the input in.
    pub fn keep(mut self, item: T) {
        self.resolve(Some(item));
    }

    /// Input and count change together, so the inbox is never idle while the input is on its way.
    fn resolve(&mut self, item: Option<T>) {
        if let Some(inbox) = self.inbox.take() {
            inbox.change(|contents| {
                contents.items.extend(item.map(Some));
                contents.due -= 1;
            });
        }
    }
}

impl<T: Input> Drop for Promise<T> {
    fn drop(&mut self) {
        self.resolve(None);
    }
}

#[cfg(test)]
mod tests;
