//! The adoptions of a Job that have begun and not ended.

use std::time::Duration;

use jiff::Timestamp;

use crate::actors::clock;
use crate::actors::messages::job_input::{AdoptionAttempt, Refusal};
use crate::job::pod::Pod;
use crate::job::retry::Retry;
use crate::job::state::JobState;
use crate::job::tidying::Tidying;
use crate::job::uid::{Uid, UidMap};

/// Failures of the API server in a row that hold the Job back.
const HELD_FAILURES: u32 = 3;

/// The adoptions of a Job that have begun and not ended.
#[derive(Default)]
pub(super) struct Adoptions {
    pods: UidMap<Pending>,
    /// Pods that were adopted or had another controller, and how long their next adoption waits.
    /// Another writer may take them away again and again, such as a webhook that gives them to a Job
    /// which releases them.
    ended: UidMap<Retry>,
    tidying: Tidying,
    /// Pods of the Job that an answer has shown as counted, and its version. Drop watch events of them
    /// from before that version: they would be taken for pods to be counted.
    counted: UidMap<u64>,
}

#[derive(Default)]
struct Pending {
    failures: u32,
    retry: Retry,
    /// An answer has come, be it a refusal or not.
    answered: bool,
    /// The Job goes on without the pod.
    released: bool,
}

impl Adoptions {
    /// Begins the adoption of a pod; false if it has begun before. The Job waits for the first answer.
    pub(super) fn begin(&mut self, pod: &Uid, state: &mut JobState) -> bool {
        if self.pods.contains_key(pod) {
            return false;
        }
        let retry = self.ended.remove(pod).unwrap_or_default();
        self.pods.insert(pod.clone(), Pending { retry, ..Pending::default() });
        state.adoption_begun();
        true
    }

    /// Applies an answer. A refusal does not hold the Job back any longer, a failure only for a while.
    /// As long as the pod's owner is unknown, the Job would create a surplus pod in its place.
    pub(super) fn answered(
        &mut self,
        pod: &Uid,
        answer: &AdoptionAttempt,
        state: &mut JobState,
        now: Timestamp,
    ) {
        let Some(pending) = self.pods.get_mut(pod) else { return };
        if !std::mem::replace(&mut pending.answered, true) {
            state.adoption_answered();
        }
        let holds = if let AdoptionAttempt::Refused(refusal) = answer {
            pending.failures = pending.failures.saturating_add(1);
            pending.retry.refused(state.limits.api_backoff, now);
            match refusal {
                Refusal::Lasting => false,
                Refusal::Failure => pending.failures < HELD_FAILURES,
                Refusal::Unknown => true,
            }
        } else {
            false
        };
        if !holds && !std::mem::replace(&mut pending.released, true) {
            state.adoption_ended();
        }
        if !matches!(answer, AdoptionAttempt::Refused(_)) {
            let mut retry = pending.retry;
            self.pods.remove(pod);
            retry.refused(state.limits.api_backoff, now);
            if self.tidying.is_due(self.ended.len()) {
                self.ended.retain(|_, retry| retry.waits(now).is_some());
                self.tidying.done(self.ended.len());
            }
            self.ended.insert(pod.clone(), retry);
        }
        if let AdoptionAttempt::Adopted(found) = answer
            && found.pod.is_done()
        {
            self.counted.insert(pod.clone(), found.pod.version);
        }
    }

    /// The pod is the Job's. If it needs no counting any more, the answer to its adoption may yet show it as it was before.
    pub(super) fn seen(&mut self, pod: &Pod) {
        if pod.is_done() && self.pods.contains_key(&pod.uid) {
            self.counted.insert(pod.uid.clone(), pod.version);
        }
    }

    /// Whether an adoption will be answered, or tried again: its pod has no known owner until then.
    pub(super) fn are_pending(&self) -> bool {
        !self.pods.is_empty()
    }

    /// Whether an answer has shown the pod as counted, and later than this.
    pub(super) fn is_overtaken(&self, pod: &Pod) -> bool {
        self.counted.get(&pod.uid).is_some_and(|counted| pod.version < *counted)
    }

    /// A list of the Job's pods is complete, at this version.
    pub(super) fn list_complete(&mut self, version: u64) {
        self.counted.retain(|_, counted| *counted > version);
    }

    /// The pod is gone.
    pub(super) fn pod_gone(&mut self, pod: &Uid) {
        self.counted.remove(pod);
        self.ended.remove(pod);
    }

    /// How long the next attempt of an adoption that has begun must wait.
    pub(super) fn pause(&self, pod: &Uid, now: Timestamp) -> Duration {
        let until = self.pods.get(pod).and_then(|pending| pending.retry.waits(now));
        until.map_or(Duration::ZERO, |at| clock::until(at, now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::plan::Wait;
    use crate::job::pod::Phase;
    use crate::job::reconcile::reconcile;
    use crate::job::spec::Completion;
    use crate::job::tests::fixture::{at, but, ended, job, running, state};

    #[test]
    fn a_job_waits_for_an_answer_and_for_a_few_failures_but_not_for_a_refusal() {
        use Refusal::*;
        let refused = AdoptionAttempt::Refused;
        for (answers, waits, pause) in [
            (vec![], true, 0),
            (vec![refused(Lasting)], false, 1),
            (vec![refused(Failure)], true, 1),
            (vec![refused(Failure), refused(Failure)], true, 2),
            (vec![refused(Failure), refused(Failure), refused(Failure)], false, 4),
            (vec![refused(Failure), refused(Lasting), refused(Failure)], false, 4),
            (std::iter::repeat_with(|| refused(Unknown)).take(5).collect(), true, 16),
            (vec![refused(Failure), refused(Failure), refused(Unknown), refused(Failure)], false, 8),
            (vec![refused(Failure), AdoptionAttempt::PodGone], false, 0),
            (vec![refused(Lasting), AdoptionAttempt::NotOurs(None)], false, 0),
        ] {
            let mut state = state(job(Completion::Count(2), 2), []);
            let mut adoptions = Adoptions::default();
            assert!(adoptions.begin(&"a".into(), &mut state));
            assert!(!adoptions.begin(&"a".into(), &mut state), "once");
            assert!(adoptions.are_pending());
            let mut now = at(100);
            for answer in &answers {
                now = at(now.as_second() + 100);
                adoptions.answered(&"a".into(), answer, &mut state, now);
            }
            let plan = reconcile(&state, now);
            assert_eq!(plan.waiting == Some(Wait::Adopting), waits, "{answers:?}");
            assert_eq!(plan.creates.is_empty(), waits, "{answers:?}");
            assert_eq!(adoptions.pause(&"a".into(), now).as_secs(), pause, "{answers:?}");
            adoptions.answered(&"a".into(), &AdoptionAttempt::PodGone, &mut state, now);
            assert!(!adoptions.are_pending());
            assert!(reconcile(&state, now).waiting.is_none(), "{answers:?}");
            assert!(adoptions.begin(&"a".into(), &mut state), "{answers:?}: it may begin anew");
        }
    }

    /// The answer is on its way for long, and the watch has shown the pod adopted, recorded and released meanwhile.
    #[test]
    fn an_answer_that_is_older_than_the_release_of_its_pod_counts_nothing_again() {
        let (mut state, mut adoptions) = (state(job(Completion::Count(2), 2), []), Adoptions::default());
        let ended = ended(running("a"), Phase::Succeeded, 9);
        adoptions.seen(&ended);
        assert!(!adoptions.is_overtaken(&ended));
        assert!(adoptions.begin(&"a".into(), &mut state));
        adoptions.seen(&ended);
        let released = but(ended.clone(), |pod| (pod.version, pod.tracked) = (pod.version + 1, false));
        adoptions.seen(&released);
        assert!(adoptions.is_overtaken(&ended) && !adoptions.is_overtaken(&released));
    }

    #[test]
    fn a_pod_that_is_taken_away_again_and_again_is_adopted_after_pauses() {
        let (mut state, mut adoptions) = (state(job(Completion::Count(2), 2), []), Adoptions::default());
        let taken_away = AdoptionAttempt::NotOurs(None);
        let mut now = at(100);
        for seconds in [0, 1, 2, 4] {
            assert!(adoptions.begin(&"a".into(), &mut state));
            let pause = adoptions.pause(&"a".into(), now);
            assert_eq!(pause.as_secs(), seconds);
            now = at(now.as_second() + seconds as i64);
            adoptions.answered(&"a".into(), &taken_away, &mut state, now);
        }
        adoptions.pod_gone(&"a".into());
        assert!(adoptions.begin(&"a".into(), &mut state));
        assert_eq!(adoptions.pause(&"a".into(), now), Duration::ZERO);
    }
}
