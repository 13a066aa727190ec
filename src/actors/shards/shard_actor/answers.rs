//! Pods whose current state came from a live read, or from the other watch, before the watch that is
//! still to show it. Drop watch events that are older than an answer. A Job drops a pod that is
//! done, and would take an older reading for a pod to be counted.

use actix::Context;
use tokio::time::Instant;

use super::ShardActor;
use super::live_lists::LONGEST_LIST;
use crate::actors::pods::pod_watch::Kind;
use crate::job::pod::Pod;
use crate::job::tidying::{Tidying, give_back};
use crate::job::uid::{Uid, UidMap};

/// The pods whose older readings may still come.
#[derive(Debug, Default)]
pub(super) struct Answers {
    /// At which version each was shown, and when that was.
    shown: UidMap<(u64, Instant)>,
    /// The version that the watch has come to.
    reached: u64,
    /// The version that the watch of unlabelled pods has come to, if there is one.
    unlabelled_reached: Option<u64>,
    /// When those are dropped that the watches have come to: they show no pod that was gone by then.
    tidying: Tidying,
    /// The timer that drops entries is set, since new entries may not come for long.
    is_timed: bool,
}

impl Answers {
    /// The pod was shown as it is at this version.
    fn insert(&mut self, pod: &Uid, version: u64) {
        if self.tidying.is_due(self.shown.len()) {
            self.tidy();
        }
        let (shown, at) = self.shown.entry(pod.clone()).or_insert((0, Instant::now()));
        (*shown, *at) = (version.max(*shown), Instant::now());
    }

    /// Whether a pod, which the watch of this kind shows, was shown as it was later.
    pub(super) fn is_overtaken(&mut self, pod: &Pod, kind: Kind) -> bool {
        match kind {
            Kind::Labelled => self.reached = pod.version.max(self.reached),
            Kind::Unlabelled => self.unlabelled_reached = self.unlabelled_reached.max(Some(pod.version)),
        }
        let Some((shown, _)) = self.shown.get(&pod.uid).copied() else { return false };
        if pod.version >= shown && self.unlabelled_reached.is_none() {
            self.shown.remove(&pod.uid);
        }
        pod.version < shown
    }

    /// Drops those that all watches have come to. No watch is behind for longer than a list may take, and each may have nothing
    /// to show for as long as it likes.
    fn tidy(&mut self) {
        let reached = self.reached.min(self.unlabelled_reached.unwrap_or(u64::MAX));
        let now = Instant::now();
        let is_recent = |at: Instant| now.saturating_duration_since(at) < LONGEST_LIST;
        self.shown.retain(|_, (shown, at)| *shown > reached && is_recent(*at));
        give_back(&mut self.shown);
        self.tidying.done(self.shown.len());
    }

    /// The shard's list of the pods of a kind is complete, at this version.
    pub(super) fn list_complete(&mut self, version: u64, kind: Kind) {
        match kind {
            Kind::Labelled => self.reached = version,
            Kind::Unlabelled => self.unlabelled_reached = Some(version),
        }
        self.tidy();
    }

    /// The watch of unlabelled pods begins, or ends.
    pub(super) fn unlabelled_watched(&mut self, is_watched: bool) {
        self.unlabelled_reached = is_watched.then_some(0);
    }

    /// The number of pods.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.shown.len()
    }
}

impl ShardActor {
    /// Records that a pod was shown as it is now, and that a watch is still to show it.
    pub(super) fn answered(&mut self, pod: &Pod, ctx: &mut Context<Self>) {
        self.answered_at(&pod.uid, pod.version, ctx);
    }

    /// Records that a pod is gone, and that a watch is still to show that: the watch's earlier
    /// events of the pod are older.
    pub(super) fn answered_gone(&mut self, pod: &Uid, ctx: &mut Context<Self>) {
        self.answered_at(pod, u64::MAX, ctx);
    }

    fn answered_at(&mut self, pod: &Uid, version: u64, ctx: &mut Context<Self>) {
        self.answers.insert(pod, version);
        if !std::mem::replace(&mut self.answers.is_timed, true) {
            self.timers.set(LONGEST_LIST, ctx, Self::tidy_answers);
        }
    }

    fn tidy_answers(&mut self, ctx: &mut Context<Self>) {
        self.answers.tidy();
        self.answers.is_timed = !self.answers.shown.is_empty();
        if self.answers.is_timed {
            self.timers.set(LONGEST_LIST, ctx, Self::tidy_answers);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::test_api::{observed_pod, pod};

    fn at(name: &str, version: u64) -> Pod {
        Pod { version, ..observed_pod(&pod(name, "j")).pod }
    }

    /// The pod is deleted before it has the label, so the watch shows neither it nor its end.
    #[test]
    fn an_answer_is_forgotten_once_the_watch_has_come_to_it() {
        let mut answers = Answers::default();
        for version in 1..1_000 {
            answers.insert(&(&*version.to_string()).into(), version);
            assert!(!answers.is_overtaken(&at("other", version.saturating_sub(10)), Kind::Labelled));
            assert!(
                answers.is_overtaken(&at(&version.to_string(), version - 1), Kind::Labelled),
                "it is old"
            );
        }
        assert!(answers.len() <= 64, "{}", answers.len());
    }

    #[test]
    fn whatever_a_watch_shows_of_a_pod_that_is_gone_is_old() {
        let mut answers = Answers::default();
        answers.insert(&"p".into(), u64::MAX);
        for version in [7, 8] {
            assert!(answers.is_overtaken(&at("p", version), Kind::Labelled));
        }
    }

    #[test]
    fn an_answer_counts_until_both_watches_have_come_to_it() {
        let mut answers = Answers::default();
        answers.unlabelled_watched(true);
        answers.insert(&"p".into(), 20);
        assert!(!answers.is_overtaken(&at("p", 20), Kind::Labelled));
        answers.list_complete(30, Kind::Labelled);
        answers.insert(&"p".into(), 15);
        assert!(answers.is_overtaken(&at("p", 10), Kind::Unlabelled));
        answers.list_complete(30, Kind::Unlabelled);
        assert!(!answers.is_overtaken(&at("p", 10), Kind::Unlabelled));
    }
}
