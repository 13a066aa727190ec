//! When pods are created in protobuf.
//!
//! That costs the API server an eighth less than JSON, and one read of the Job, since watches show Jobs in JSON. So it pays
//! for Jobs that create many pods.

use std::sync::Arc;

use crate::actors::requests::Requests;
use crate::cluster::reads::PodSpecReading;
use crate::job::spec::Job;

/// Pods that a Job creates in JSON before the spec of its pods is read in protobuf.
const CREATED_IN_JSON: usize = 16;

/// What is known of the need for protobuf.
#[derive(Debug, Default)]
pub(super) struct PodEncoding {
    created: usize,
    /// The generation of the Job whose spec was asked for.
    asked: Option<i64>,
}

impl PodEncoding {
    /// So many pods of the Job, which is at this generation, are about to be created.
    pub(super) fn creating(&mut self, pods: usize, job: &Job, generation: i64, requests: &Arc<Requests>) {
        self.created = self.created.saturating_add(pods);
        let is_due = pods > 0 && self.created > CREATED_IN_JSON && !job.spec.template.knows_protobuf();
        if is_due && self.asked.replace(generation) != Some(generation) {
            requests.read_pod_spec(is_indexed(job));
        }
    }
}

/// Takes in what was read. The spec of another generation of the Job may be another.
pub(super) fn take_in(reading: PodSpecReading, job: &Job, generation: i64) {
    if reading.generation == generation {
        job.spec.template.know_protobuf(reading.spec, is_indexed(job));
    }
}

fn is_indexed(job: &Job) -> bool {
    job.spec.completion.indexes().is_some()
}
