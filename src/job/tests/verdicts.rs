//! Checks that the end that a status announces is right.

use super::world::World;
use crate::job::pod::Pod;
use crate::job::pod_failure_policy::judge;
use crate::job::saturating::after;
use crate::job::spec::{Completion, PodFailureAction};
use crate::job::status::{Condition, ConditionKind, JobStatus};

impl World {
    /// The wrong end that this status announces, if it announces one that the stored status does not.
    pub(super) fn wrong_end(&self, new: &JobStatus) -> Option<String> {
        [ConditionKind::SuccessCriteriaMet, ConditionKind::FailureTarget].into_iter().find_map(|kind| {
            let announced = new.holding(kind).filter(|_| self.job.status.holding(kind).is_none())?;
            let right = match &*announced.reason {
                "CompletionsReached" => self.completions_reached(new),
                "SuccessPolicy" => self.success_policy_met(new, announced),
                "PodFailurePolicy" => self.fail_job_matched(),
                "BackoffLimitExceeded" => self.backoff_limit_exceeded(),
                "MaxRestartsExceeded" => self.max_restarts_exceeded(),
                "DeadlineExceeded" => self.deadline_exceeded(new),
                "MaxFailedIndexesExceeded" => self.max_failed_indexes_exceeded(new),
                "FailedIndexes" => self.every_index_has_ended(new),
                _ => false,
            };
            (!right).then(|| format!("{announced:?}"))
        })
    }

    /// Checks successes, counted or not: a full `uncountedTerminatedPods` leaves some for later.
    fn completions_reached(&self, new: &JobStatus) -> bool {
        let successes = match self.job.spec.completion {
            Completion::Indexed(_) => new.completed_indexes.len() as usize,
            _ => self.succeeded_pods(),
        };
        new.active == 0 && successes >= self.job.spec.completion.wanted().unwrap_or(1) as usize
    }

    fn success_policy_met(&self, new: &JobStatus, announced: &Condition) -> bool {
        let met = self.job.spec.success_policy.iter().position(|rule| {
            let listed = |index: &u32| rule.indexes.iter().flatten().all(|listed| listed.contains(*index));
            let reached = new.completed_indexes.iter().filter(listed).count();
            let listed = rule.indexes.iter().flatten().map(|listed| listed.len()).next();
            reached > 0 && reached >= rule.count.or(listed).unwrap_or(u32::MAX) as usize
        });
        met.is_some_and(|rule| *announced.message == *format!("Matched rules at index {rule}"))
    }

    fn fail_job_matched(&self) -> bool {
        let rules = self.job.spec.pod_failure_policy.as_deref().unwrap_or_default();
        let found = |pod: &Pod| judge(rules, pod.outcome.as_ref()?).map(|found| found.action);
        self.last_seen().values().any(|pod| found(pod) == Some(PodFailureAction::FailJob))
    }

    fn backoff_limit_exceeded(&self) -> bool {
        let spec = &self.job.spec;
        let restarts: u32 = self.last_seen().values().map(|pod| pod.restarts).sum();
        let restarted = spec.template.restarts_on_failure() && restarts >= spec.backoff_limit.max(1);
        restarted || self.counted_failures() > spec.backoff_limit as usize
    }

    /// A pod of the last attempt has failed, or was lost.
    fn max_restarts_exceeded(&self) -> bool {
        let most = self.job.options.max_restarts.unwrap_or(self.job.spec.backoff_limit);
        self.job.options.restart_together && self.last_seen().values().any(|pod| pod.attempt() >= most)
    }

    fn deadline_exceeded(&self, new: &JobStatus) -> bool {
        let resumed = self.job.status.holding(ConditionKind::Suspended).map(|_| self.unsuspended_since);
        let start = new.start_time.max(resumed);
        let passes = start.zip(self.job.spec.active_deadline).map(|(start, limit)| after(start, limit));
        !self.job.spec.suspend && passes.is_some_and(|at| at <= self.now)
    }

    fn max_failed_indexes_exceeded(&self, new: &JobStatus) -> bool {
        let most = self.job.spec.per_index.and_then(|limit| limit.max_failed_indexes);
        new.failed_indexes.as_ref().zip(most).is_some_and(|(failed, most)| failed.len() > most)
    }

    fn every_index_has_ended(&self, new: &JobStatus) -> bool {
        let failed = new.failed_indexes.as_ref().map_or(0, |failed| failed.len());
        failed > 0 && Some(failed + new.completed_indexes.len()) == self.job.spec.completion.indexes()
    }
}
