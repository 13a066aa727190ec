//! Pods of Jobs whose template is not kept ([`PodTemplate::is_kept`]): the Job is read again when pods are made.
//!
//! A template may have a megabyte, and so has each pod while it is created. Few of them are made at
//! a time, in turns by namespace, however many pods the Jobs of a tenant want.
//!
//! [`PodTemplate::is_kept`]: crate::job::template::PodTemplate::is_kept

use std::error::Error;
use std::sync::Arc;

use super::requests::Requests;
use crate::actors::messages::job_input::{JobInput, RequestEvent};
use crate::actors::pacing::large_pods::LARGE;
use crate::job::manifest::PodManifest;
use crate::job::pod::NewPod;
use crate::job::state::Created;
use crate::job::template::PodTemplate;

/// An API server refuses a longer object unread, in bytes.
const LONGEST_POD: usize = 3 << 20;

/// Why a pod of a large template cannot be made.
#[derive(Debug, thiserror::Error)]
enum LargeTemplateError {
    #[error("the pod template has {0} bytes; no API server takes a pod of more than {LONGEST_POD}")]
    TooLong(usize),
    /// The turn was one of shorter templates.
    #[error("the pod template has just become longer")]
    Longer,
}

impl Requests {
    /// Creates a pod from the Job as a live read shows it. `template`: that of the last reading.
    pub fn create_from_live(
        self: &Arc<Self>,
        template: &PodTemplate,
        new: NewPod,
        pod_group: Option<Box<str>>,
    ) {
        let (this, right) = (self.clone(), self.creations.current());
        let (turns, before) = (self.cx.large_pods.of(template).clone(), template.length());
        // A drain of the shard does not wait for turns and reads, of which a Job may want thousands.
        self.run_after(async move {
            let permit = tokio::select! {
                biased;
                () = right.closed() => None,
                permit = turns.acquire(Some(this.job.namespace()), Some(&this.job)) => Some(permit),
            };
            let Some(permit) = permit else {
                return this.inbox.push(JobInput::Created {
                    place: new.place,
                    answer: Created::Withdrawn,
                    event: RequestEvent::Nothing,
                });
            };
            let place = new.place;
            match this.live_manifest(new, pod_group, before).await {
                Ok(manifest) => {
                    let creation = this.creation(manifest, right);
                    this.run(async move {
                        let _permit = permit;
                        creation.await
                    });
                }
                Err(event) => {
                    let answer = Created::Refused;
                    this.inbox.push(JobInput::Created { place, answer, event });
                }
            }
        });
    }

    /// A pod as the Job's template is now.
    async fn live_manifest(
        &self,
        new: NewPod,
        pod_group: Option<Box<str>>,
        before: usize,
    ) -> Result<PodManifest, RequestEvent> {
        if self.fence.is_closed() {
            return Err(RequestEvent::Nothing);
        }
        let refused = |error: &dyn Error| RequestEvent::Refused(error.to_string().into());
        let read = self.cx.reads.find_job_with_template(&self.job).await.map_err(|error| refused(&error))?;
        match read.as_ref().map(|seen| &seen.job) {
            Some(Ok(job)) if job.may_create_pods() => {
                fits(job.spec.template.length(), before).map_err(|error| refused(&error))?;
                let maker = self.maker(job, pod_group).map_err(|error| refused(&error))?;
                let overlay = self.overlay(job, &new);
                Ok(maker.manifest(new).with_overlay(overlay))
            }
            // The watch is about to show that no pod is wanted.
            _ => Err(RequestEvent::Nothing),
        }
    }
}

/// Whether a template of this length can be made pods of, in a turn for one of the length `before`.
fn fits(length: usize, before: usize) -> Result<(), LargeTemplateError> {
    match length {
        _ if length > LONGEST_POD => Err(LargeTemplateError::TooLong(length)),
        _ if length >= LARGE && before < LARGE => Err(LargeTemplateError::Longer),
        _ => Ok(()),
    }
}
