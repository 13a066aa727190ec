//! Panics inside of worlds: kept off the terminal, and reported to the world.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static IN_WORLD: Cell<bool> = const { Cell::new(false) };
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// While it lives, panics of this thread are kept for [`take`] in place of being printed.
pub(crate) struct Kept(());

/// Keeps the panics of this thread.
pub(crate) fn keep() -> Kept {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if IN_WORLD.get() {
                let text = info.to_string().replace('\n', " ");
                PANICS.with_borrow_mut(|panics| panics.push(text));
            } else {
                before(info);
            }
        }));
    });
    IN_WORLD.set(true);
    Kept(())
}

impl Drop for Kept {
    fn drop(&mut self) {
        IN_WORLD.set(false);
        take();
    }
}

/// The panics since the last call, each with its place in the source.
pub(crate) fn take() -> Vec<String> {
    PANICS.take()
}
