//! The lessons of the pods of a set, for Jobs whose options ask for them. Other Jobs have none of this.
//!
//! Invariant: what is known follows from the pods and the status that were seen, whatever the order and the number of times.
//! So the next owner of the Job, which sees the same, knows the same.

use std::sync::Arc;

use jiff::Timestamp;

use super::PodSet;
use super::classify::{Prospect, policy_action, retries_used_up};
use super::given::Given;
use super::lessons::Lessons;
use crate::job::lineage::{FailedOn, Lineage, Raise};
use crate::job::options::JobOptions;
use crate::job::pod::{Phase, Pod};
use crate::job::spec::{Completion, Job, JobSpec, PodFailureAction};

/// The lessons of the pods of a set.
#[derive(Clone, Debug)]
pub(super) struct Lineages {
    options: JobOptions,
    lessons: Lessons,
    /// How often all pods were replaced together, or are to be.
    attempt: u32,
}

/// The attempt that pods belong to, of a Job that restarts together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CurrentAttempt {
    /// Pods of earlier attempts are replaced.
    pub(super) number: u32,
    /// Succeeded pods of earlier attempts count all the same.
    pub(super) keeps_succeeded: bool,
}

impl Lineages {
    /// The lessons in the status of a Job; `None` if its options ask for nothing.
    pub(super) fn of(job: &Job) -> Option<Box<Self>> {
        let asked = job.options.needs().lineage();
        asked.then(|| {
            let (options, attempt) = (job.options.clone(), job.status.restarts);
            Self { options, lessons: Lessons::default(), attempt }.into()
        })
    }

    /// Follows a new reading of the Job.
    pub(super) fn follow(&mut self, job: &Job) {
        self.options = job.options.clone();
        self.attempt = self.attempt.max(job.status.restarts);
    }

    /// Records what a reading of a pod carries, and what its failure teaches. An index learns only from pods that are named
    /// for it ([`Given::is_named_for`]): annotations could name one index after the other.
    pub(super) fn learn(&mut self, pod: &Pod, spec: &JobSpec, given: &Given) {
        if !pod.selected {
            return;
        }
        // The index does not matter: no pod is of a later attempt than the current one.
        self.attempt = self.attempt.max(pod.attempt());
        let (place, teaches) = match spec.completion {
            Completion::Indexed(end) => {
                let Some(index) = pod.index.filter(|index| *index < end) else { return };
                (index, given.is_named_for(&pod.name, index))
            }
            Completion::Count(_) | Completion::WorkQueue => (0, true),
        };
        let mut taught = pod.lineage();
        let action = policy_action(pod, spec);
        if has_failed(pod, spec) && action != Some(PodFailureAction::Ignore) {
            let is_retried =
                matches!(action, None | Some(PodFailureAction::Count)) && !retries_used_up(pod, spec);
            self.add_failure(pod, &mut taught, is_retried);
        }
        self.attempt = self.attempt.max(taught.attempt);
        taught.attempt = 0;
        if teaches {
            self.lessons.add(place, &taught);
        }
    }

    fn add_failure(&self, pod: &Pod, taught: &mut Lineage, is_retried: bool) {
        let outcome = pod.outcome.as_deref();
        if self.options.avoid_node.is_some()
            && let Some(node) = outcome.and_then(|outcome| outcome.node.clone())
        {
            FailedOn::new(node, pod.finished).into_iter().for_each(|node| taught.add_node(node));
        }
        if let Some(rule) = self.options.memory_rule() {
            let exits = outcome
                .into_iter()
                .flat_map(|outcome| outcome.containers.iter().chain(&outcome.init_containers));
            let raises = exits.filter(|exit| rule.raises(exit)).filter_map(|exit| {
                let times = taught.raises_of(&exit.name).saturating_add(1);
                Raise::new(&exit.name, times)
            });
            // All of them follow from the lineage as the pod carries it.
            let raises: Vec<Raise> = raises.collect();
            raises.into_iter().for_each(|raise| taught.add_raise(raise));
        }
        if self.options.restart_together && is_retried {
            taught.attempt = pod.attempt().saturating_add(1);
        }
    }

    /// The attempt that pods belong to, if they restart together.
    pub(super) fn current(&self) -> Option<CurrentAttempt> {
        let keeps_succeeded = self.options.restart_keep_succeeded;
        self.options.restart_together.then_some(CurrentAttempt { number: self.attempt, keeps_succeeded })
    }

    /// The lineage of the next pod at a place.
    fn next_at(&self, place: u32, now: Timestamp) -> Lineage {
        let known = self.lessons.at(place);
        let nodes = self.options.avoidance().map(|(_, most, time)| {
            let since =
                now.saturating_sub(jiff::SignedDuration::try_from(time).unwrap_or(jiff::SignedDuration::MAX));
            known.map(|known| known.newest_nodes(most, since.unwrap_or(Timestamp::MIN))).unwrap_or_default()
        });
        let raises = self.options.memory_rule().and(known).map(|known| known.raises.clone());
        Lineage {
            attempt: self.current().map_or(0, |current| current.number),
            nodes: nodes.unwrap_or_default(),
            raises: raises.unwrap_or_default(),
        }
    }
}

/// Whether a pod has failed, counted or not. A pod that we remove loses its finalizer first, and has not.
fn has_failed(pod: &Pod, spec: &JobSpec) -> bool {
    pod.is_failed(spec.replace_only_failed) && (pod.tracked || (pod.phase == Phase::Failed && !pod.deleting))
}

impl PodSet {
    /// Records that a pod is gone that had not ended: another client has removed our finalizer.
    pub(super) fn learn_lost(&mut self, attempt: u32) {
        if let Some(lineages) = &mut self.lineages {
            lineages.attempt = lineages.attempt.max(attempt.saturating_add(1));
        }
    }

    /// Keeps the lessons within the bytes that follow from the number of pods.
    pub(super) fn bound_lessons(&mut self) {
        let Self { lineages, pods, succeeded, failed, .. } = self;
        if let Some(lineages) = lineages {
            let wants_pod = |place| !succeeded.contains(place) && !failed.contains(place);
            lineages.lessons.bound(Lessons::most(pods.len()), wants_pod);
        }
    }

    /// Classifies pods again if they belong to another attempt than before. Costs O(pods that this makes outdated), unless
    /// options have changed.
    pub(super) fn follow_attempt(&mut self) {
        let current = self.lineages.as_ref().and_then(|lineages| lineages.current());
        let before = std::mem::replace(&mut self.current_attempt, current);
        if before == current {
            return;
        }
        // All of these are creations in flight, too.
        if self.pending_before.len() < self.pending.len() {
            self.pending_before.extend(self.pending.keys().copied());
        }
        let keeps = [before, current].map(|attempt| attempt.map(|attempt| attempt.keeps_succeeded));
        if keeps[0] == keeps[1] { self.relink_outdated() } else { self.relink_all() }
    }

    /// The lineage of the next pod at a place; `None` if it says nothing.
    pub fn lineage_at(&self, number: u32, now: Timestamp) -> Option<Arc<Lineage>> {
        let place = self.spec.completion.indexes().map_or(0, |_| number);
        let lineage = self.lineages.as_ref()?.next_at(place, now);
        (!lineage.is_empty()).then(|| lineage.into())
    }

    /// How often all pods of a Job that restarts together were replaced, or are to be; 0 of other Jobs.
    pub fn restarts_together(&self) -> u32 {
        self.current_attempt.map_or(0, |current| current.number)
    }

    /// Number of pods of earlier attempts that have not ended, and of creations for earlier attempts that are not answered.
    pub fn outdated(&self) -> usize {
        self.queues.outdated + self.pending_before.len()
    }

    /// Active pods of earlier attempts.
    pub fn outdated_active(&self) -> impl Iterator<Item = &Pod> {
        let slots = self.queues.active.iter().map(|(_, slot)| *slot);
        let entries = slots.filter_map(|slot| self.pods.get(slot));
        entries
            .filter(|entry| entry.tags.as_ref().is_some_and(|tags| tags.prospect == Prospect::Outdated))
            .map(|entry| &entry.pod)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::options::PodBackoff;
    use crate::job::pod::{Carried, Place};
    use crate::job::pod_set::Source;
    use crate::job::tests::fixture::{at_index, at_ordinal, but, job};
    use crate::job::uid::UidSet;

    fn avoids_nodes(completions: u32) -> PodSet {
        let mut job = job(Completion::Indexed(completions), 3);
        job.options = JobOptions::read([("yardmaster.dev/retry-avoid-node", "preferred")]);
        PodSet::new(&job, PodBackoff::default())
    }

    fn carrying(pod: Pod, lineage: &str) -> Pod {
        let lineage = Lineage::read(lineage);
        but(pod, |pod| pod.carried = Some(Box::new(Carried::of(None, &lineage))))
    }

    fn lessons(set: &PodSet) -> (usize, usize) {
        set.lineages.as_ref().map_or((0, 0), |lineages| lineages.lessons.size())
    }

    /// The longest lineage that is read.
    fn fullest() -> String {
        let list = |number: u32, end: &str| {
            let name = |number: u32| format!("{}{number:02}{end}", "n".repeat(61));
            (0..number).map(name).collect::<Vec<_>>().join(",")
        };
        format!("nodes={} memory={}", list(50, "@5"), list(32, ":2"))
    }

    /// Any client of the namespace may create and delete them.
    #[test]
    fn pods_that_come_and_go_teach_no_more_than_there_is_room_for() {
        for lineage in ["nodes=n@5", fullest().as_str()] {
            let (mut set, mut most) = (avoids_nodes(100_000), 0);
            for index in 0..10_000 {
                let pod = carrying(at_index(&index.to_string(), index, 0), lineage);
                let uid = pod.uid.clone();
                assert!(set.observe(pod, Source::Watch));
                assert!(set.vanished(&uid));
                most = most.max(lessons(&set).1);
            }
            assert!((Lessons::most(0) / 2..=Lessons::most(0)).contains(&most), "{most}");
            assert!(set.lineage_at(0, Timestamp::UNIX_EPOCH).is_some(), "the first places get pods first");
        }
    }

    #[test]
    fn lessons_of_many_pods_go_with_the_pods() {
        let mut set = avoids_nodes(100_000);
        let pod = |index: u32| carrying(at_index(&index.to_string(), index, 0), &fullest());
        (0..300).for_each(|index| _ = set.observe(pod(index), Source::Watch));
        let of_all = lessons(&set).1;
        assert!((Lessons::most(300) / 2..=Lessons::most(300)).contains(&of_all), "{of_all}");
        (0..300).for_each(|index| _ = set.vanished(&pod(index).uid));
        let (places, bytes) = lessons(&set);
        assert!(places == 1 && bytes <= Lessons::most(0), "{places} with {bytes}: the fullest fits");
    }

    /// Any client that may change pods may write the label of the attempt.
    #[test]
    fn pods_are_classified_a_few_times_however_many_attempts_follow_each_other() {
        const PODS: u32 = 1_000;
        let orders: [fn(u32) -> u32; 3] =
            [|number| number + 1, |number| PODS - number, |number| number * 7 % PODS];
        for order in orders {
            let mut job = job(Completion::Count(PODS), PODS);
            let options =
                [("yardmaster.dev/restart-together", "true"), ("yardmaster.dev/max-restarts", "999999999")];
            job.options = JobOptions::read(options);
            let (mut set, mut newest) = (PodSet::new(&job, PodBackoff::default()), 0);
            for place in PODS..2 * PODS {
                set.create_sent(Place { number: place, attempt: 0 });
            }
            let attempts = (0..PODS).map(order);
            for (number, attempt) in attempts.clone().enumerate() {
                let lineage = format!("attempt={attempt}");
                let pod = carrying(at_ordinal(&number.to_string(), number as u32), &lineage);
                assert!(set.observe(pod, Source::Watch));
                newest = newest.max(attempt);
                let outdated = attempts.clone().take(number + 1).filter(|attempt| *attempt < newest).count();
                assert_eq!((set.restarts_together(), set.queues.outdated), (newest, outdated));
            }
            set.retain_listed(&UidSet::default(), 1);
            assert!(set.relinks <= 4 * PODS as usize, "{}", set.relinks);
        }
    }

    /// Any client that may change pods may write the annotations of the index and of the lineage.
    #[test]
    fn a_pod_teaches_the_index_that_its_name_has() {
        let mut set = avoids_nodes(3_000);
        for index in 0..2_050 {
            let pod = carrying(at_index("a", 7, 0), &fullest());
            assert!(set.observe(
                but(pod, |pod| (pod.index, pod.version) = (Some(index), index.into())),
                Source::Watch
            ));
        }
        assert_eq!(lessons(&set).0, 1);
        for (name, index, teaches) in [
            ("work-12-x7k2p", 12, true),
            ("work-12-x7k2p", 1, false),
            ("work-12-x7k2p", 2, false),
            ("work-x7k2p", 12, false),
            ("other-12-x7k2p", 12, false),
        ] {
            let mut set = avoids_nodes(3_000);
            let named = |pod: &mut Pod| (pod.name, pod.place) = (name.into(), None);
            set.observe(but(carrying(at_index("a", index, 0), "nodes=n@5"), named), Source::Watch);
            assert_eq!(lessons(&set).0, usize::from(teaches), "{name} {index}");
        }
    }
}
