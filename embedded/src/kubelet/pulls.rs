//! How pulls of images go, for those who show it.

use std::fmt;

/// Observes the pulls of a kubelet. Its method is called while a pull waits for it, so it must not block.
pub trait PullObserver: fmt::Debug + Send + Sync {
    /// A pull of an image, by the name that the pod gives it, has reached this stage.
    fn on_pull(&self, image: &str, stage: PullStage);
}

/// How far a pull is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullStage {
    /// It begins.
    Begun,
    /// This much of it has arrived.
    Progressed(PullSize),
    /// It has ended, with the image or without.
    Ended,
}

/// Bytes of a pull.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PullSize {
    /// Bytes that have arrived.
    pub done: u64,
    /// Bytes of all layers that are known so far.
    pub total: u64,
}

/// Ignores all pulls.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unobserved;

impl PullObserver for Unobserved {
    fn on_pull(&self, _image: &str, _stage: PullStage) {}
}

/// A pull that is observed. It ends when this is dropped, also where the pull is given up.
pub(super) struct Watched<'a> {
    observer: &'a dyn PullObserver,
    image: &'a str,
}

impl<'a> Watched<'a> {
    /// A pull begins.
    pub(super) fn begin(observer: &'a dyn PullObserver, image: &'a str) -> Self {
        observer.on_pull(image, PullStage::Begun);
        Self { observer, image }
    }

    /// This much has arrived.
    pub(super) fn progressed(&self, size: PullSize) {
        self.observer.on_pull(self.image, PullStage::Progressed(size));
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.observer.on_pull(self.image, PullStage::Ended);
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Stages(Mutex<Vec<PullStage>>);

    impl PullObserver for Stages {
        fn on_pull(&self, image: &str, stage: PullStage) {
            assert_eq!(image, "a");
            self.0.lock().push(stage);
        }
    }

    #[test]
    fn a_pull_that_is_given_up_has_ended() {
        let stages = Stages::default();
        let size = PullSize { done: 1, total: 2 };
        Watched::begin(&stages, "a").progressed(size);
        assert_eq!(*stages.0.lock(), [PullStage::Begun, PullStage::Progressed(size), PullStage::Ended]);
    }
}
