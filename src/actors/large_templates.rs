//! Pods of Jobs whose template is not kept ([`PodTemplate::is_kept`]): the Job is read again when pods are made.
//!
//! Such a template may have a megabyte, and so has each pod while it is created. Few of them are made at a time, in turns by
//! namespace, however many pods the Jobs of a tenant want.
//!
//! [`PodTemplate::is_kept`]: crate::job::template::PodTemplate::is_kept

use std::sync::Arc;

use super::job_input::{JobInput, RequestEvent};
use super::requests::Requests;
use crate::job::manifest::{Maker, PodManifest};
use crate::job::pod::NewPod;
use crate::job::spec::Job;
use crate::job::state::Created;
use crate::job::template::TemplateError;

/// What a new pod gets beside its place.
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// The gang that it is scheduled with.
    pub pod_group: Option<Box<str>>,
    /// The trace that its containers are to know.
    pub traceparent: Option<String>,
}

impl Requests {
    /// Creates a pod from the Job as a live read shows it.
    pub fn create_from_live(self: &Arc<Self>, new: NewPod, extras: Extras) {
        let this = self.clone();
        self.run(async move {
            let _permit = this.cx.large_pods.acquire(Some(this.job.namespace()), Some(&this.job)).await;
            let refused = |event| JobInput::Created { place: new.place, answer: Created::Refused, event };
            if this.fence.is_handed_over() || this.fence.is_closed() {
                return refused(RequestEvent::Nothing);
            }
            let read = this.cx.reads.find_job_with_template(&this.job).await;
            let job = match read.as_ref().map(|seen| seen.as_ref().map(|seen| &seen.job)) {
                Ok(Some(Ok(job))) if job.may_create_pods() => job,
                // The watch is about to show that no pod is wanted.
                Ok(_) => return refused(RequestEvent::Nothing),
                Err(error) => return refused(RequestEvent::Refused(error.to_string().into())),
            };
            match this.manifest(job, &new, &extras) {
                Ok(manifest) => this.creation(&new, manifest, &job.spec.template).await,
                Err(error) => refused(RequestEvent::Refused(error.to_string().into())),
            }
        });
    }

    /// A pod of this reading of the Job.
    ///
    /// # Errors
    /// When no pod can be made from its template.
    pub fn manifest(&self, job: &Job, new: &NewPod, extras: &Extras) -> Result<PodManifest, TemplateError> {
        let maker = Maker {
            job,
            finalizer: self.cx.config.finalizer(),
            shard: self.shard.0,
            pod_group: extras.pod_group.as_deref(),
            traceparent: extras.traceparent.as_deref(),
        };
        PodManifest::new(maker, new)
    }
}
