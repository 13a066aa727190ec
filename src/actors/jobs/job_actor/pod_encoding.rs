//! When pods are created in protobuf.
//!
//! Protobuf costs the API server an eighth less than JSON, and one read of the Job, since watches
//! show Jobs in JSON. So it pays for Jobs that create many pods.

use crate::cluster::reads::PodSpecReading;
use crate::job::spec::Job;
use crate::job::state::JobState;

/// Pods that are created in JSON before the spec of a Job's pods is read in protobuf. If at most
/// this many are left, the spec is not read.
const FEW: usize = 16;

/// The state of the choice between JSON and protobuf.
#[derive(Debug, Default)]
pub(super) struct PodEncoding {
    /// Creations since the actor began, or since a read failed.
    created: usize,
    /// The generation of the Job whose spec was asked for.
    asked: Option<i64>,
}

impl PodEncoding {
    /// Whether to read the spec of the Job's pods, now that this many are about to be created.
    pub(super) fn wants_spec(&mut self, creates: usize, state: &JobState, generation: i64) -> bool {
        let job = &state.job;
        self.created = self.created.saturating_add(creates);
        let known = job.status.succeeded as usize + state.pods.active() + creates;
        let left =
            job.spec.completion.wanted().map_or(usize::MAX, |all| (all as usize).saturating_sub(known));
        creates > 0
            && self.created > FEW
            && left > FEW
            && state.gang.group().is_none()
            && job.spec.template.is_kept()
            && !job.spec.template.knows_protobuf()
            && self.asked.replace(generation) != Some(generation)
    }

    /// Applies a reading; `None` if the read has failed. The spec of another generation of the Job
    /// may be another.
    pub(super) fn take_in(&mut self, reading: Option<PodSpecReading>, job: &Job, generation: i64) {
        let Some(reading) = reading else { return *self = Self::default() };
        if reading.generation == generation && job.status.finished().is_none() {
            job.spec.template.know_protobuf(reading.spec, is_indexed(job));
        }
    }
}

fn is_indexed(job: &Job) -> bool {
    job.spec.completion.indexes().is_some()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::job::gang_state::GangAnswer;
    use crate::job::spec::Completion;
    use crate::job::tests::fixture::{at, job, state};

    fn reading(generation: i64) -> Option<PodSpecReading> {
        Some(PodSpecReading { generation, spec: Bytes::new() })
    }

    #[test]
    fn the_spec_is_read_once_by_jobs_that_create_many_pods() {
        let many = state(job(Completion::Indexed(100), 100), []);
        let mut encoding = PodEncoding::default();
        let asked = [1, 2, 4, 8, 16, 32].map(|creates| encoding.wants_spec(creates, &many, 1));
        assert_eq!(asked, [false, false, false, false, true, false]);
        assert!(encoding.wants_spec(1, &many, 2), "the template may be another");
        encoding.take_in(reading(1), &many.job, 2);
        assert!(!many.job.spec.template.knows_protobuf());
        encoding.take_in(reading(2), &many.job, 2);
        assert!(many.job.spec.template.knows_protobuf());
        assert!(!encoding.wants_spec(50, &many, 3), "a template of the same text is the same");
    }

    #[test]
    fn a_read_that_fails_is_repeated_after_as_many_pods() {
        let many = state(job(Completion::WorkQueue, 100), []);
        let mut encoding = PodEncoding::default();
        assert!(encoding.wants_spec(17, &many, 1));
        encoding.take_in(None, &many.job, 1);
        assert_eq!([16, 1, 1].map(|creates| encoding.wants_spec(creates, &many, 1)), [false, true, false]);
    }

    #[test]
    fn the_spec_is_not_read_where_it_would_not_be_used() {
        let few_left = state(job(Completion::Count(20), 20), []);
        let mut gang = state(job(Completion::Indexed(100), 100), []);
        gang.gang_answered(GangAnswer::Group(Some("group".into())), at(0));
        for state in [few_left, gang] {
            assert!(!PodEncoding::default().wants_spec(17, &state, 1));
        }
    }
}
