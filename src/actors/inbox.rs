//! The inbox of a Job actor: many inputs, one wake-up.
//!
//! A Job of 100,000 pods gets 100,000 pod events, answers in between, and must not get as many messages: inputs gather
//! here, and only the first one after the actor has looked sends it a message.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
    items: Mutex<Vec<T>>,
    /// A wake-up has been sent and not been followed by [`Inbox::take`].
    woken: AtomicBool,
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("woken", &self.woken).finish_non_exhaustive()
    }
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let shared = Shared { items: Mutex::default(), woken: AtomicBool::new(false), wake: OnceLock::new() };
        Self { shared: Arc::new(shared) }
    }
}

impl<T> Inbox<T> {
    /// Says how to wake the actor. What came in before wakes it at once.
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

    /// Puts an input in.
    pub fn push(&self, item: T) {
        self.extend([item]);
    }

    /// Puts several inputs in.
    pub fn extend(&self, items: impl IntoIterator<Item = T>) {
        // A panic while pushing leaves the list whole.
        self.shared.items.lock().unwrap_or_else(PoisonError::into_inner).extend(items);
        if !self.shared.woken.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    /// Takes all inputs, in order; the next one sends a wake-up again.
    pub fn take(&self) -> Vec<T> {
        self.shared.woken.store(false, Ordering::Release);
        std::mem::take(&mut *self.shared.items.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn one_wake_up_for_many_inputs_and_none_lost() {
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
    fn nothing_stays_behind_without_a_wake_up() {
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
}
